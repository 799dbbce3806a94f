"""Documents on their way out: each is what it says, or a person lets it go under the type that its bytes show."""

from __future__ import annotations

from dataclasses import dataclass, replace

from lab_agent.domain.addresses import ADDRESS_MEND, leads_somewhere
from lab_agent.domain.documents import placed_documents, with_documents
from lab_agent.domain.ids import OrderKey
from lab_agent.domain.media_types import BYTES, MEDIA_TYPE_MEND, is_media_type
from lab_agent.domain.quoting import quoted
from lab_agent.domain.results import Document, LabReport
from lab_agent.errors import Problem
from lab_agent.ports.documents import DocumentFault, Documents
from lab_agent.ports.store import UnitOfWork
from lab_agent.steps.document_names import document_name


class OddDocument(LookupError):
    """A document that cannot go as it is."""


@dataclass(frozen=True, slots=True)
class Shelf:
    """Where the documents of an order are kept; `way` is the setting `results.documents`."""

    uow: UnitOfWork
    order: OrderKey
    way: str

    def wrong(self, room: Documents, document: Document) -> DocumentFault | None:
        """What keeps a document from being sent; None for nothing, also where the service has it since an earlier version."""
        if document.file is None:
            return _wrong_address(document)
        kept = self.uow.vault.document(document.file)
        if kept is not None:
            return room.wrong(kept[0], document.content_type)
        return (
            None
            if self._needs_no_bytes(document.file, document.content_type)
            else DocumentFault("is not kept any more", mend="send it again")
        )

    def _needs_no_bytes(self, file: str, content_type: str) -> bool:
        name = document_name(self.order, file, content_type, hosted=False)
        return self.way == "none" or (self.way == "upload" and self.uow.uploads.get(name) is not None)


def told_truly(shelf: Shelf, room: Documents, message: LabReport, *, waive: bool) -> tuple[LabReport, tuple[str, ...]]:
    """Give the report with every document under a true type, and what was changed for that.

    Raises `OddDocument`, naming the first that cannot go: any odd one, unless a person waives that; one that is empty, too large,
    gone or at no address whoever says so.
    """
    places, changed = iter([where for where, _ in placed_documents(message)]), []

    def look(document: Document) -> Document:
        where, fault = next(places), shelf.wrong(room, document)
        if fault is None:
            return document
        if fault.shown is None or not waive:
            raise OddDocument(str(Problem(where, fault.text, fault.mend)))
        changed.append(f"{where} goes as {fault.shown}, and not as {quoted(document.content_type)}")
        return replace(document, content_type=fault.shown)

    return with_documents(message, look), tuple(changed)


def _wrong_address(document: Document) -> DocumentFault | None:
    if not leads_somewhere(document.url or ""):
        return DocumentFault("is at no address that a clinic could open", mend=ADDRESS_MEND)
    if not is_media_type(document.content_type):
        return DocumentFault(f"says that it is '{quoted(document.content_type)}', which is no media type", BYTES, MEDIA_TYPE_MEND)
    return None
