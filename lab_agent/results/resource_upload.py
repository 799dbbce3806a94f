"""Uploads one resource of ours, so that the service has it once and as it should be (law 2)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime

from lab_agent.exchange.service import Exchange, Json, SavedResource
from lab_agent.fhir.content_digest import Digest, content_digest, split_digest
from lab_agent.fhir.content_meaning import is_same_statement
from lab_agent.fhir.elements import code_of, shaped_like
from lab_agent.fhir.report_builder import FINAL_STATUSES, Upload
from lab_agent.lis.lab_messages import ObservationStatus
from lab_agent.orders.fetching import GONE_STATUSES, MAX_PARALLEL_READS
from lab_agent.queue.job_handler import MAX_CONFLICT_RETRIES, Lease
from lab_agent.results.own_reports import identifier_values, identifiers_of, last_change, sending_key, upload_names
from lab_agent.results.records import UploadRecord
from lab_agent.shared.errors import (
    AmbiguousFailure,
    Failure,
    MultipleMatches,
    NewerOnService,
    PermanentFailure,
    ResourceNotReadable,
    ServiceRejected,
    StaleVersion,
    TemporaryFailure,
)
from lab_agent.shared.ids import OrderKey, ReportKey, ResourceId
from lab_agent.store.unit_of_work import Store, UnitOfWork

_PAYLOAD_TOO_LARGE = 413
_TOO_LARGE_HINT = "; set results.max_document to what the service accepts, and have the laboratory system send a smaller document"
_NOT_READABLE_HINT = (
    "it is our own upload, which was deleted there, or to which the service gives its creator no right. Have it restored or the "
    "right granted there; with `exchange.grant_own_read`, those to come grant it themselves"
)
_NEWER = (
    "{} {} was issued later than what is to be uploaded, and we do not know it: the database was restored from a backup. Nothing "
    "was written over it"
)
_NOTHING_SENT = "nothing"
_UNKNOWN_CONTENT = ""
"""What the digest of a record of sending says beside that of the only content that was ever sent."""
_MAX_READS = 3
"""How many attempts find a resource that cannot be read before a person must decide: a read may lag behind a write."""
_OWN_FIELDS = frozenset({"comment", "interpretation", "method", "specimen", "referenceRange", "result", "presentedForm"})
"""Fields of Observation and DiagnosticReport, beside value[x], that a new version may leave out: then they are removed."""


class _GoneError(Exception):
    """What a record is of is not there any more."""


@dataclass(frozen=True, slots=True)
class Answer:
    """How an upload ended: what to record of it now (None: what is recorded holds), and why it failed, if it did."""

    record: UploadRecord | None
    failure: Exception | None = None
    unknown: str = ""
    """What was there, if it was although nothing of it was ever sent, as far as our records go."""


@dataclass(frozen=True, slots=True)
class Uploader:
    """Uploads for one report. What is about to be sent, and what the service answered, is for the caller to commit."""

    exchange: Exchange
    store: Store
    lease: Lease
    order: OrderKey
    report: ReportKey
    base_url: str
    verifying: bool
    """Whether an earlier attempt may have written something: then the service is searched before anything is sent (law 3)."""
    known: Mapping[str, UploadRecord]
    """What was recorded of this report's resources before this attempt, by `upload_names`."""

    async def is_doubtful(self, names: Iterable[str], report: str) -> bool:
        """Whether what is recorded of these resources may not be there any more, above all of the report of that name.

        The report goes up last: where it is as it was left, so is what it refers to. A service that was restored from its own
        backup has none, or an older one; and a delivery that was cut off before its report may have been on either side of that.
        """
        known = self.known.get(report)
        if self.verifying or known is None:
            return self.verifying or any(name in self.known for name in names)
        try:
            there = await read_recorded(self.exchange, known)
        except ResourceNotReadable:  # nothing speaks against the record
            return False
        return there is None or there.version != known.version

    async def confirm(self, uploads: Mapping[str, Upload], *, doubtful: bool) -> Mapping[str, UploadRecord]:
        """The records of those that are on the service just so, by their places: nothing of these is to be sent.

        Where they are `doubtful`, each is read: no record is believed against what the service says.
        """
        recorded = {
            where: known
            for where, each in uploads.items()
            if (known := self.known.get(each.identifier.value)) is not None and known.digest == each.digest
        }
        if not doubtful:
            return recorded
        semaphore = asyncio.Semaphore(MAX_PARALLEL_READS)
        found = await asyncio.gather(*(self._confirm(uploads[where], each, semaphore) for where, each in recorded.items()))
        return {where: each for where, each in zip(recorded, found, strict=True) if each is not None}

    async def _confirm(self, upload: Upload, known: UploadRecord, semaphore: asyncio.Semaphore) -> UploadRecord | None:
        async with semaphore:
            try:
                there = await read_recorded(self.exchange, known)
            except ResourceNotReadable:
                return known
        return replace(known, version=there.version) if there is not None and self._matches(there.body, upload.body) else None

    def save_started(self, uow: UnitOfWork, uploads: Iterable[Upload]) -> None:
        """Record what is about to be sent, before it is: the replies may be lost."""
        for upload in uploads:
            known = self.known.get(upload.identifier.value)
            uow.uploads.save(self._sending_record(upload) if known is None else _unverified(known))

    def unsent(self, upload: Upload) -> UploadRecord:
        """What to record of an upload of which nothing was sent in this attempt."""
        name = upload.identifier.value
        before = self.known.get(name) or self.known.get(sending_key(name))
        return before or replace(self._sending_record(upload), digest=_NOTHING_SENT)

    async def send(self, upload: Upload) -> Answer:
        """Create the resource, or update the one that is there. A failure of the service is given, not raised."""
        known = self.known.get(upload.identifier.value)
        try:
            if known is not None:
                with suppress(_GoneError):
                    return Answer(await self._update(known.resource_id, upload, known))
            return await self._ensure_new(upload)
        except Failure as failure:
            return Answer(None, failure)

    async def get_upload(self, identifier: str) -> UploadRecord | None:
        """The upload that is recorded under this identifier."""
        return await self.store.run_read_only(lambda uow: uow.uploads.get(identifier))

    async def _ensure_new(self, upload: Upload) -> Answer:
        """Create what no record knows, or what is gone, unless it is there."""
        try:
            there = await self._find(upload) if self.verifying or upload.identifier.value in self.known else None
            if there is None:
                there = await self.exchange.create(upload.resource_type, upload.body, if_none_exist=upload.identifier)
        except AmbiguousFailure:
            raise
        except Failure as failure:  # it was refused, so that nothing of this attempt is there
            return Answer(self.unsent(upload), failure)
        existed = there.existed
        if there.echoed and not there.created:
            try:
                there = await self.exchange.read(there.resource_type, there.id)
            except ResourceNotReadable as unreadable:
                if not self._is_as_sent_before(upload, there):
                    return self._unread(upload, there, unreadable)
        desired, unknown = upload.body, _describe_unknown(there) if existed and not self._was_sent(upload) else ""
        if (
            there.created
            or self._matches(there.body, desired)
            or self._matches(there.body, self._keep_final(there.body, desired))
        ):
            return Answer(self._record(there, upload, desired), unknown=unknown)
        if _is_issued_later(there.body, desired):
            return Answer(None, NewerOnService(_NEWER.format(there.resource_type, there.id)), unknown=unknown)
        return Answer(await self._update(there.id, upload), unknown=unknown)

    def _was_sent(self, upload: Upload) -> bool:
        """Whether an attempt before this one may have brought it there."""
        return self.verifying or not self.known.keys().isdisjoint(upload_names([upload.identifier.value]))

    async def _find(self, upload: Upload) -> SavedResource | None:
        kind, identifier = upload.resource_type, upload.identifier
        found = await self.exchange.find(kind, identifier)
        if len(found) > 1:
            text = f"{len(found)} {kind} resources carry our identifier {identifier.value}; remove all but one"
            raise MultipleMatches(text, status=412)
        return found[0] if found else None

    def _is_as_sent_before(self, upload: Upload, there: SavedResource) -> bool:
        """Whether an attempt before sent just this, and nothing else ever was: then what may not be read is as it was sent."""
        known = self.known.get(upload.identifier.value)
        if known is not None and known.resource_id == there.id:
            return known.digest == upload.digest
        before = self.known.get(sending_key(upload.identifier.value))
        return before is not None and before.digest == upload.digest

    def _unread(self, upload: Upload, there: SavedResource, unreadable: ResourceNotReadable) -> Answer:
        """What a conditional create found, its answer does not show, and we may not read."""
        sending = self._sending_record(upload)
        reads = int(sending.version) + 1
        record = replace(sending, digest=_UNKNOWN_CONTENT, version=str(reads))
        text = f"{there.resource_type} {there.id} is there under our identifier and cannot be read: {unreadable}"
        if reads < _MAX_READS:
            failure = TemporaryFailure(text, issues=unreadable.issues)
            failure.__cause__ = unreadable
            return Answer(record, failure)
        unreadable.args = (f"{text}; {_NOT_READABLE_HINT}",)
        return Answer(record, unreadable)

    def _sending_record(self, upload: Upload) -> UploadRecord:
        """The record of what is sent under an identifier; its version counts how often what is there could not be read."""
        name = sending_key(upload.identifier.value)
        before = self.known.get(name)
        only = before is None or before.digest in {_NOTHING_SENT, upload.digest}
        reads = before.version if before else "0"
        return self.to_upload_record(
            name, upload.resource_type, ResourceId(""), reads, upload.digest if only else _UNKNOWN_CONTENT
        )

    async def _read(self, resource_type: str, resource_id: ResourceId, known: UploadRecord | None) -> SavedResource:
        """Read what is to be updated. Raises `_GoneError` for what was recorded there and is not there any more."""
        try:
            there = await (
                self.exchange.read(resource_type, resource_id) if known is None else read_recorded(self.exchange, known)
            )
        except ResourceNotReadable as exc:
            exc.args = (f"{exc}; {_NOT_READABLE_HINT}",)
            raise
        if there is None:
            raise _GoneError
        return there

    async def _update(self, resource_id: str, upload: Upload, known: UploadRecord | None = None) -> UploadRecord:
        doubtful = self.verifying or (known is not None and not split_digest(known.digest).content)
        body = upload.body
        for attempt in range(MAX_CONFLICT_RETRIES):
            current = await self._read(upload.resource_type, ResourceId(resource_id), known)
            body = self._keep_final(current.body, body)
            if (doubtful or attempt) and self._matches(current.body, body):
                return self._record(current, upload, body)  # an earlier attempt did it, and its response was lost
            await self.lease.confirm()  # what a later owner wrote since is not written over: `current` has it, or is out of date
            try:
                saved = await self.exchange.update(
                    upload.resource_type, current.id, _merge(current.body, body, current.id), version=current.version
                )
            except StaleVersion:
                continue
            return self._record(saved, upload, body)
        raise TemporaryFailure(
            f"{upload.resource_type} {resource_id} was changed by somebody else {MAX_CONFLICT_RETRIES} times while we wrote it"
        )

    def _matches(self, existing: Json, desired: Json) -> bool:
        """Whether the resource on the service says all that we would write, and nothing that we would leave out."""
        existing = _in_our_types(existing, desired)
        ours = {key: value for key, value in existing.items() if key in desired or _is_own_field(key)}
        if "identifier" in existing:
            wanted = identifiers_of(desired)
            ours["identifier"] = [each for name, each in wanted.items() if name in identifiers_of(existing)]
        return content_digest(ours, self.base_url) == content_digest(desired, self.base_url)

    def _keep_final(self, existing: Json, desired: Json) -> Json:
        """What to write over an existing resource: what was final stays so, and a value that changes after that is amended.

        The plan knows this from our own records; where they lack it (a lost response, a restored backup), the service knows it.
        """
        existing = _in_our_types(existing, desired)
        if existing.get("status") not in FINAL_STATUSES:
            return desired
        if desired.get("resourceType") != "Observation":
            return {**desired, "status": "final"}
        same = is_same_statement(existing, desired, self.base_url)
        amended = ObservationStatus.AMENDED.value
        return {**desired, "status": existing["status"] if same and desired.get("status") != amended else amended}

    def _record(self, saved: SavedResource, upload: Upload, body: Json) -> UploadRecord:
        """The record of a resource that was brought to the service with this body."""
        digest = upload.digest if body is upload.body else content_digest(body, self.base_url)
        return self.to_upload_record(upload.identifier.value, saved.resource_type, saved.id, saved.version, digest)

    def to_upload_record(
        self, identifier: str, resource_type: str, resource_id: ResourceId, version: str, content: str
    ) -> UploadRecord:
        """The record of a resource of this report."""
        return UploadRecord(
            identifier=identifier,
            resource_type=resource_type,
            resource_id=resource_id,
            version=version,
            digest=content,
            order=self.order,
            report=self.report,
        )


async def read_recorded(exchange: Exchange, known: UploadRecord) -> SavedResource | None:
    """What a record is of, as it is now; None if it is gone: a service that was restored may have given its id to another one.

    Raises what the read raises, `ResourceNotReadable` where we have no right.
    """
    try:
        there = await exchange.read(known.resource_type, known.resource_id)
    except ResourceNotReadable as unreadable:
        if unreadable.status in GONE_STATUSES:
            return None
        raise
    names = identifier_values(there.body)
    return there if not names or known.identifier in names else None


def _unverified(known: UploadRecord) -> UploadRecord:
    """The record of a resource without its content, which an update whose outcome may stay unknown is about to change."""
    return replace(known, digest=str(Digest(split_digest(known.digest).status)))


@contextmanager
def error_context(where: str) -> Iterator[None]:
    """Name the part of the report in a permanent failure, so that somebody can fix that part."""
    try:
        yield
    except PermanentFailure as exc:
        large = isinstance(exc, ServiceRejected) and exc.status == _PAYLOAD_TOO_LARGE
        exc.args = (f"{where}: {exc}{_TOO_LARGE_HINT if large else ''}",)
        raise


def _in_our_types(existing: Json, desired: Json) -> Json:
    """A resource as it is there, in the types in which we send it: what a service writes otherwise is no other content."""
    shaped: Json = shaped_like(existing, desired)
    status = code_of(shaped.get("status"))
    return shaped if status is None else {**shaped, "status": status}


def _is_own_field(name: str) -> bool:
    """Whether a field is ours: what a new version leaves out must not stay (for example a value of another type)."""
    return name.startswith("value") or name in _OWN_FIELDS


def _merge(current: Json, body: Json, resource_id: str) -> Json:
    """What replaces a resource: our fields as they shall be, those of others as they are there (law 4)."""
    foreign = {name: value for name, value in current.items() if not _is_own_field(name)}
    meta = current.get("meta", body.get("meta"))
    return {**foreign, **body, **_join_identifiers(current, body), "id": resource_id, "meta": meta}


def _join_identifiers(existing: Json, desired: Json) -> Json:
    """Our identifiers with those that others gave to the same resource: a PUT would drop what it does not send (law 4)."""
    joined = {**identifiers_of(desired), **identifiers_of(existing)}
    return {"identifier": list(joined.values())} if joined else {}


def _describe_unknown(there: SavedResource) -> str:
    return (
        f"{there.resource_type} {there.id} has an identifier of ours, and was not sent by this agent, {last_change(there.body)}"
    )


def _is_issued_later(existing: Json, desired: Json) -> bool:
    """Whether the resource on the service was issued after ours. One whose time cannot be read is not."""
    times = [_read_time(each.get("issued")) for each in (existing, desired)]
    return times[0] is not None and times[1] is not None and times[0] > times[1]


def _read_time(value: object) -> datetime | None:
    try:
        found = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return found if found is not None and found.tzinfo is not None else None
