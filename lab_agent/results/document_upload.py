"""Brings documents to the service, as Binaries or by an address of our own API, and reads one back to see that it arrived.

A Binary has no identifier, so that most services find none whose reply was lost (`exchange.document_search`): it is uploaded
again, and the first copy, which no report names, is recorded in the timeline and listed (`lab-agent results orphans`).
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

import structlog

from lab_agent.exchange.service import Exchange, SavedResource
from lab_agent.orders.fetching import GONE_STATUSES
from lab_agent.results.records import HostedDocument, UploadRecord
from lab_agent.results.resource_upload import Uploader
from lab_agent.results.result_checks import document_name
from lab_agent.shared.clock import Clock
from lab_agent.shared.conditions.model import AlertKey, ConditionId
from lab_agent.shared.errors import (
    AmbiguousFailure,
    AuthenticationRequired,
    Failure,
    PermanentFailure,
    ResourceNotReadable,
    TemporaryFailure,
)
from lab_agent.shared.ids import ResourceId
from lab_agent.store.alert_log import close_alert
from lab_agent.store.event_records import Alert, Event
from lab_agent.store.read_models import DOCUMENT_ORPHAN_ACTION
from lab_agent.store.unit_of_work import Store, UnitOfWork

log = structlog.get_logger(__name__)

NOT_AS_SENT_ALERT = AlertKey(ConditionId.EXCHANGE_DOCUMENT_CHANGED)
_SENDING = "sending"
_REFUSED = "refused"
_SPOILT = "spoilt"
_UNCHECKED = ""
_AS_SENT = "as_sent"
"""What the digest of a Binary's record says; the last three are on the service."""


class DocumentNotKept(PermanentFailure):
    """A document that is to be sent is not kept any more."""


@dataclass(slots=True)
class DocumentCheck:
    """What this run of the program knows of how the service keeps documents.

    One upload is read back; until it is as it was sent, each is. What was not read back is, before it is named in a report again.
    """

    settled: bool = False
    spoils: bool = False


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A document to send: its name in the vault, which is the SHA-256 of its content, and its type.

    `printed` is the content of one that we have just made, and that the vault does not have.
    """

    store: Store
    sha256: str
    content_type: str
    printed: bytes | None = None

    async def load(self) -> bytes | None:
        """Its content, which may be large and so is read only where it is needed; None if it is not kept any more."""
        if self.printed is not None:
            return self.printed
        kept = await self.store.run_read_only(lambda uow: uow.vault.document(self.sha256))
        return kept[0] if kept else None

    async def require(self) -> bytes:
        """Its content. Raises `DocumentNotKept`."""
        content = await self.load()
        if content is None:
            raise DocumentNotKept("it is not kept any more; have the laboratory system send it again")
        return content


@dataclass(frozen=True, slots=True)
class DocumentUploader:
    """Documents of one report."""

    uploader: Uploader
    exchange: Exchange
    clock: Clock
    check: DocumentCheck
    doubtful: bool = False
    """Whether those that were uploaded may be gone there: then each is read before a report names it again."""

    async def ensure_binary(self, document: StoredDocument, reader: str) -> str:
        """Create a Binary, once as far as we know; return its address relative to the service.

        Raises `DocumentNotKept` for one that was never uploaded, or is gone there.
        """
        content_type = document.content_type
        name = document_name(self.uploader.order, document.sha256, content_type, hosted=False)
        known = await self.uploader.get_upload(name)
        if known is not None and known.resource_id and await self._is_usable(known, document):
            return self.exchange.document_url(known.resource_id)
        content = await document.require()
        saved = await self.exchange.find_document(name) if known is not None and known.digest == _SENDING else None
        if saved is None:
            what = f"{content_type}, {len(content)} bytes, SHA-256 {document.sha256}"
            await self.uploader.lease.mark_started(partial(self._begin, name, known, what))
            saved = await self._upload(name, content, content_type, reader)
        await self._write(self._record(name, _UNCHECKED, saved))
        if not self.check.settled:
            await self._read_back(name, saved, content, content_type)
        return self.exchange.document_url(saved.id)

    async def ensure_hosted(self, document: StoredDocument, expires_at: datetime | None, now: datetime) -> str:
        """Let our own API serve a document until `expires_at`, or longer if it does so already.

        Returns the unguessable part of its address: the same for every attempt and every version, even after it expired. Raises
        `DocumentNotKept`.
        """
        content, content_type = await document.require(), document.content_type
        order = self.uploader.order
        name = document_name(order, document.sha256, content_type, hosted=True)
        known = await self.uploader.get_upload(name)
        address = known.resource_id if known is not None else secrets.token_urlsafe(32)

        def write(uow: UnitOfWork) -> None:
            before = uow.hosted_documents.get(address)
            served = HostedDocument(
                address=address,
                document=uow.vault.save_document(content, content_type, at=now),
                content_type=content_type,
                order=order,
                kept_at=now,
                expires_at=expires_at if before is None else _later_end(before.expires_at, expires_at),
            )
            uow.hosted_documents.save(served)
            uow.uploads.save(self.uploader.to_upload_record(name, "hosted", ResourceId(address), "", ""))

        await self.uploader.lease.write(write)
        return address

    def _begin(self, name: str, known: UploadRecord | None, what: str, uow: UnitOfWork) -> None:
        """Record that it is sent from now on, and the copy that an attempt before may have left."""
        now = self.clock.now()
        if known is not None and known.digest == _SENDING:
            text = (
                f"the reply to the upload of a document was lost ({what}; sent at {known.version}): the service may hold a copy "
                "that no report names. Remove it there"
            )
            order, report = self.uploader.order, self.uploader.report
            uow.events.add(Event(order=order, report=report, at=now, action=DOCUMENT_ORPHAN_ACTION, text=text))
        uow.uploads.save(self._record(name, _SENDING, sent_at=now))

    async def _upload(self, name: str, content: bytes, content_type: str, reader: str) -> SavedResource:
        try:
            return await self.exchange.upload_document(content, content_type, readers=(reader,), name=name)
        except AmbiguousFailure:
            raise
        except Failure:
            await self._write(self._record(name, _REFUSED))
            raise

    async def _is_usable(self, known: UploadRecord, document: StoredDocument) -> bool:
        """Whether a report may name a Binary that was uploaded before; sent again, it would be no better while `spoils`."""
        if self.doubtful and await self._is_gone(known, document):
            return False
        if self.check.spoils or known.digest == _AS_SENT:
            return True
        content = await document.load()
        if content is None or known.digest == _SPOILT:
            return content is None
        try:
            as_sent = await self.exchange.read_document(known.resource_id, document.content_type) == content
        except Failure as exc:  # nothing speaks against it
            log.warning("document cannot be read back", action="document_not_checked", reason=str(exc))
            return True
        await self._write(replace(known, digest=_AS_SENT if as_sent else _SPOILT))
        return as_sent

    async def _is_gone(self, known: UploadRecord, document: StoredDocument) -> bool:
        try:
            await self.exchange.read_document(known.resource_id, document.content_type)
        except ResourceNotReadable as unreadable:
            return unreadable.status in GONE_STATUSES
        return False

    async def _read_back(self, name: str, saved: SavedResource, content: bytes, content_type: str) -> None:
        """Compare what a partner would download with what was sent. That it cannot be read now stops no report."""
        try:
            as_sent = await self.exchange.read_document(saved.id, content_type) == content
        except Failure as exc:
            if isinstance(exc, TemporaryFailure) and not isinstance(exc, AuthenticationRequired):
                return
            self.check.settled = True  # a 401 is a missing right, too: no read of the next one would succeed
            log.warning("document cannot be read back", action="document_not_checked", reason=str(exc))
            return
        self.check.settled, self.check.spoils = as_sent, not as_sent
        if not as_sent:
            log.error(
                "document is not as it was sent",
                action="document_not_as_sent",
                alert=str(NOT_AS_SENT_ALERT),
                order=self.uploader.order,
            )
            await self.uploader.lease.write(partial(self._record_spoilt, self._record(name, _SPOILT, saved)))
        else:
            await self.uploader.lease.write(partial(self._record_as_sent, self._record(name, _AS_SENT, saved)))

    def _record_spoilt(self, record: UploadRecord, uow: UnitOfWork) -> None:
        now, order = self.clock.now(), self.uploader.order
        uow.uploads.save(record)
        text = f"Binary {record.resource_id}, read back from the service, is not the document that was sent"
        uow.events.add(Event(order=order, report=self.uploader.report, at=now, action="document_not_as_sent", text=text))
        detail = f"{text} (order {order})"
        uow.alerts.open(Alert(condition=NOT_AS_SENT_ALERT.condition, detail=detail, since=now, opened_at=now))

    def _record_as_sent(self, record: UploadRecord, uow: UnitOfWork) -> None:
        uow.uploads.save(record)
        close_alert(uow, NOT_AS_SENT_ALERT, self.clock.now())

    async def _write(self, record: UploadRecord) -> None:
        await self.uploader.lease.write(lambda uow: uow.uploads.save(record))

    def _record(
        self, name: str, digest: str, saved: SavedResource | None = None, *, sent_at: datetime | None = None
    ) -> UploadRecord:
        """The record of a Binary; one that is not known to be there has no id, and the time of its attempt as its version."""
        found = saved.id if saved else ResourceId("")
        version = saved.version if saved else sent_at.isoformat(timespec="seconds") if sent_at else ""
        return self.uploader.to_upload_record(name, "Binary", found, version, digest)


def _later_end(one: datetime | None, other: datetime | None) -> datetime | None:
    """The later of two ends; None is no end at all."""
    return None if one is None or other is None else max(one, other)
