"""Documents on their way out: each is what it says, or a person lets it go under the type that its bytes show."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

from lab_agent.domain.addresses import ADDRESS_MEND, leads_somewhere
from lab_agent.domain.documents import with_documents
from lab_agent.domain.quoting import quoted
from lab_agent.domain.results import Document, LabReport
from lab_agent.ports.documents import DocumentFault, Documents
from lab_agent.ports.store import UnitOfWork


class OddDocument(LookupError):
    """A document that cannot go as it is."""


def told_truly(uow: UnitOfWork, room: Documents, message: LabReport, *, waive: bool) -> tuple[LabReport, tuple[str, ...]]:
    """Give the report with every document under a true type, and what was changed for that.

    Raises `OddDocument`, naming the first that cannot go: any odd one, unless a person waives that; one that is empty, too large,
    gone or at no address whoever says so.
    """
    numbers, changed = count(1), []

    def look(document: Document) -> Document:
        number, fault = next(numbers), _fault(uow, room, document)
        if fault is None:
            return document
        if fault.shown is None or not waive:
            raise OddDocument(f"document {number} {fault.text}")
        changed.append(f"document {number} goes as {fault.shown}, and not as {quoted(document.content_type)}")
        return replace(document, content_type=fault.shown)

    return with_documents(message, look), tuple(changed)


def _fault(uow: UnitOfWork, room: Documents, document: Document) -> DocumentFault | None:
    if document.file is None:
        there = leads_somewhere(document.url or "")
        return None if there else DocumentFault(f"is at no address that a clinic could open; {ADDRESS_MEND}")
    kept = uow.vault.document(document.file)
    return room.wrong(kept[0], document.content_type) if kept else DocumentFault("is not kept any more; send it again")
