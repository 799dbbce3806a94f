"""Documents of an order that are on the service, or served here, already: found by their content and their type.

The same bytes under another type are another document: what the clinic asks for (`Accept`) is the type.
"""

from __future__ import annotations

from hashlib import sha256

from lab_agent.codec import load_kept
from lab_agent.domain.documents import documents_of
from lab_agent.domain.ids import OrderKey
from lab_agent.domain.journal import UploadRecord
from lab_agent.domain.results import LabReport
from lab_agent.errors import StoreError
from lab_agent.ports.store import UnitOfWork

_PRINTED_TYPE = "application/pdf"


def document_name(order: OrderKey, content: str, content_type: str, *, hosted: bool) -> str:
    """Under what name the journal knows the document; `content` is the SHA-256 of its bytes, which names it in the vault too."""
    return f"{_old_name(order, content, hosted=hosted)}.{sha256(content_type.encode()).hexdigest()[:16]}"


def known_document(uow: UnitOfWork, order: OrderKey, content: str, content_type: str, *, hosted: bool) -> UploadRecord | None:
    """What is known of a document with these bytes and this type; None where it was never brought."""
    known = uow.uploads.get(document_name(order, content, content_type, hosted=hosted))
    if known is not None:
        return known
    old = uow.uploads.get(_old_name(order, content, hosted=hosted))
    return old if old is not None and _type_then(uow, old, content) == content_type else None


def _old_name(order: OrderKey, content: str, *, hosted: bool) -> str:
    """The name that earlier releases gave: without the type."""
    return f"{order}.hosted.{content}" if hosted else f"{order}.{content}"


def _type_then(uow: UnitOfWork, old: UploadRecord, content: str) -> str | None:
    """Under which type an earlier release brought a document: the last that the report gave to these bytes."""
    try:
        message = load_kept(uow.reports.take(old.report).body)
    except StoreError:
        return None
    if not isinstance(message, LabReport):
        return None
    types = [each.content_type for each in documents_of(message) if each.file == content]
    return types[-1] if types else _PRINTED_TYPE
