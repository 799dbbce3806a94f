"""Documents on their way out: each is what it says, or a person lets it go under the type that its bytes show."""

from __future__ import annotations

from dataclasses import dataclass, replace

from lab_agent.domain.addresses import URL_HINT, is_openable_url
from lab_agent.domain.documents import documents_with_paths, map_documents
from lab_agent.domain.ids import OrderKey
from lab_agent.domain.media_types import MEDIA_TYPE_HINT, OCTET_STREAM, is_media_type
from lab_agent.domain.quoting import shorten
from lab_agent.domain.results import Document, LabReport
from lab_agent.errors import Problem
from lab_agent.ports.documents import DocumentDefect, Documents
from lab_agent.ports.store import UnitOfWork
from lab_agent.steps.document_names import document_name


class DocumentRejected(LookupError):
    """A document that cannot go as it is."""


@dataclass(frozen=True, slots=True)
class DocumentLookup:
    """Where the documents of an order are kept; `way` is the setting `results.documents`."""

    uow: UnitOfWork
    order: OrderKey
    mode: str

    def find_defect(self, documents: Documents, document: Document) -> DocumentDefect | None:
        """What keeps a document from being sent; None for nothing, also where the service has it since an earlier version."""
        if document.file is None:
            return _find_address_defect(document)
        kept = self.uow.vault.document(document.file)
        if kept is not None:
            return documents.find_defect(kept[0], document.content_type)
        return (
            None
            if self._can_go_without_content(document.file, document.content_type)
            else DocumentDefect("is not kept any more", hint="send it again")
        )

    def _can_go_without_content(self, file: str, content_type: str) -> bool:
        name = document_name(self.order, file, content_type, hosted=False)
        return self.mode == "none" or (self.mode == "upload" and self.uow.uploads.get(name) is not None)


def correct_content_types(
    lookup: DocumentLookup, documents: Documents, message: LabReport, *, override: bool
) -> tuple[LabReport, tuple[str, ...]]:
    """Give the report with every document under a true type, and what was changed for that.

    Raises `OddDocument`, naming the first that cannot go: any odd one, unless a person waives that; one that is empty, too large,
    gone or at no address whoever says so.
    """
    places, changed = iter([where for where, _ in documents_with_paths(message)]), []

    def look(document: Document) -> Document:
        where, fault = next(places), lookup.find_defect(documents, document)
        if fault is None:
            return document
        if fault.actual_type is None or not override:
            raise DocumentRejected(str(Problem(where, fault.text, fault.hint)))
        changed.append(f"{where} goes as {fault.actual_type}, and not as {shorten(document.content_type)}")
        return replace(document, content_type=fault.actual_type)

    return map_documents(message, look), tuple(changed)


def _find_address_defect(document: Document) -> DocumentDefect | None:
    if not is_openable_url(document.url or ""):
        return DocumentDefect("is at no address that a clinic could open", hint=URL_HINT)
    if not is_media_type(document.content_type):
        return DocumentDefect(
            f"says that it is '{shorten(document.content_type)}', which is no media type", OCTET_STREAM, MEDIA_TYPE_HINT
        )
    return None
