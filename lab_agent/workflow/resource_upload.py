"""Uploads one resource of ours, so that the service has it once and as it should be (law 2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from lab_agent.domain.ids import OrderKey, ReportKey, ResourceId
from lab_agent.domain.lab_messages import ObservationStatus
from lab_agent.domain.records import UploadRecord
from lab_agent.domain.values import Identifier
from lab_agent.errors import (
    AmbiguousFailure,
    Failure,
    MultipleMatches,
    PermanentFailure,
    ResourceNotReadable,
    ServiceRejected,
    StaleVersion,
    TemporaryFailure,
)
from lab_agent.fhir.content_digest import Digest, content_digest, split_digest
from lab_agent.fhir.content_meaning import is_same_statement
from lab_agent.fhir.report_builder import FINAL_STATUSES
from lab_agent.ports.exchange import Exchange, Json, SavedResource
from lab_agent.ports.job_handler import MAX_CONFLICT_RETRIES, Lease
from lab_agent.ports.repositories import Store, UnitOfWork

_PAYLOAD_TOO_LARGE = 413
_TOO_LARGE_HINT = "; set results.max_document to what the service accepts, and have the laboratory system send a smaller document"
_NOT_READABLE_HINT = (
    "it is our own upload, which was deleted there, or to which the service gives its creator no right. Have it restored or the "
    "right granted there; with `exchange.grant_own_read`, those to come grant it themselves"
)
_NOTHING_SENT = "nothing"
_UNKNOWN_CONTENT = ""
"""What the digest of a record of sending says beside that of the only content that was ever sent."""
_MAX_READS = 3
"""How many attempts find a resource that cannot be read before a person must decide: a read may lag behind a write."""
_OWN_FIELDS = frozenset({"comment", "interpretation", "method", "specimen", "referenceRange", "result", "presentedForm"})
"""Fields of Observation and DiagnosticReport, beside value[x], that a new version may leave out: then they are removed."""


@dataclass(frozen=True, slots=True)
class Uploader:
    """Uploads for one report. The ids that the service assigns are committed at once, so that a crash loses none."""

    exchange: Exchange
    store: Store
    lease: Lease
    order: OrderKey
    report: ReportKey
    base_url: str
    verifying: bool
    """Whether an earlier attempt may have written something: then the service is searched before anything is sent (law 3)."""

    async def ensure(self, resource_type: str, identifier: Identifier, body: Json) -> str:
        """Create the resource, or update the one that is there; return its id. Nothing is sent if it is so already."""
        known = await self.get_upload(identifier.value)
        if known is not None and known.digest == content_digest(body, self.base_url):
            return known.resource_id
        if known is not None:
            return await self._update(resource_type, known.resource_id, identifier, body, known)
        there = await self._find(resource_type, identifier) if self.verifying else None
        if there is None:
            there = await self._create(resource_type, identifier, body)
        if there.created or self._matches(there.body, body) or self._matches(there.body, self._keep_final(there.body, body)):
            await self._save_upload(there, identifier, body)
            return there.id
        return await self._update(resource_type, there.id, identifier, body)

    async def get_upload(self, identifier: str) -> UploadRecord | None:
        """The upload that is recorded under this identifier."""
        return await self.store.run(lambda uow: uow.uploads.get(identifier))

    async def _find(self, resource_type: str, identifier: Identifier) -> SavedResource | None:
        found = await self.exchange.find(resource_type, identifier)
        if len(found) > 1:
            text = f"{len(found)} {resource_type} resources carry our identifier {identifier.value}; remove all but one"
            raise MultipleMatches(text, status=412)
        return found[0] if found else None

    async def _create(self, resource_type: str, identifier: Identifier, body: Json) -> SavedResource:
        """Create it, or give what is there; what is sent is recorded before, since the reply may be lost."""
        before = await self.get_upload(_sending_key(identifier))
        content = content_digest(body, self.base_url)
        only = before is None or before.digest in {_NOTHING_SENT, content}
        sending = self._sending_record(resource_type, identifier, content if only else _UNKNOWN_CONTENT, before)
        await self.lease.mark_started(lambda uow: uow.uploads.save(sending))
        try:
            saved = await self.exchange.create(resource_type, body, if_none_exist=identifier)
        except AmbiguousFailure:
            raise
        except Failure:  # it was refused, so that nothing of this attempt is there
            restored = before or replace(sending, digest=_NOTHING_SENT)
            await self.lease.write(lambda uow: uow.uploads.save(restored))
            raise
        as_sent = before is not None and before.digest == content
        return await self._read_existing(saved, sending, as_sent=as_sent)

    async def _read_existing(self, saved: SavedResource, sending: UploadRecord, *, as_sent: bool) -> SavedResource:
        """What a conditional create found, where its answer does not show it.

        If we may not read it, it is as it was sent only where an attempt before sent just that, and nothing else ever was.
        """
        if saved.created or not saved.echoed:
            return saved
        try:
            return await self.exchange.read(saved.resource_type, saved.id)
        except ResourceNotReadable as exc:
            if as_sent:
                return saved
            reads = int(sending.version) + 1
            unread = replace(sending, digest=_UNKNOWN_CONTENT, version=str(reads))
            await self.lease.write(lambda uow: uow.uploads.save(unread))
            text = f"{saved.resource_type} {saved.id} is there under our identifier and cannot be read: {exc}"
            if reads < _MAX_READS:
                raise TemporaryFailure(text, issues=exc.issues) from exc
            exc.args = (f"{text}; {_NOT_READABLE_HINT}",)
            raise

    def _sending_record(
        self, resource_type: str, identifier: Identifier, content: str, before: UploadRecord | None
    ) -> UploadRecord:
        """The record of what was sent under an identifier; its version counts how often what is there could not be read."""
        reads = before.version if before else "0"
        return self.to_upload_record(_sending_key(identifier), resource_type, ResourceId(""), reads, content)

    async def _read(self, resource_type: str, resource_id: ResourceId) -> SavedResource:
        try:
            return await self.exchange.read(resource_type, resource_id)
        except ResourceNotReadable as exc:
            exc.args = (f"{exc}; {_NOT_READABLE_HINT}",)
            raise

    async def _update(
        self, resource_type: str, resource_id: str, identifier: Identifier, body: Json, known: UploadRecord | None = None
    ) -> str:
        doubtful = self.verifying or (known is not None and not split_digest(known.digest).content)
        for attempt in range(MAX_CONFLICT_RETRIES):
            current = await self._read(resource_type, ResourceId(resource_id))
            body = self._keep_final(current.body, body)
            if (doubtful or attempt) and self._matches(current.body, body):
                await self._save_upload(current, identifier, body)  # an earlier attempt did it, and its response was lost
                return current.id
            await self.lease.mark_started(partial(_mark_unverified, known))
            foreign = {name: value for name, value in current.body.items() if not _is_own_field(name)}
            identifiers = _join_identifiers(current.body, body)
            changed = {**foreign, **body, **identifiers, "id": current.id, "meta": current.body.get("meta", body.get("meta"))}
            try:
                saved = await self.exchange.update(resource_type, current.id, changed, version=current.version)
            except StaleVersion:
                continue
            await self._save_upload(saved, identifier, body)
            return saved.id
        raise TemporaryFailure(
            f"{resource_type} {resource_id} was changed by somebody else {MAX_CONFLICT_RETRIES} times while we wrote it"
        )

    def _matches(self, existing: Json, desired: Json) -> bool:
        """Whether the resource on the service says all that we would write, and nothing that we would leave out."""
        ours = {key: value for key, value in existing.items() if key in desired or _is_own_field(key)}
        if isinstance(existing.get("identifier"), list):
            wanted = _identifiers(desired)
            ours["identifier"] = [each for name, each in wanted.items() if name in _identifiers(existing)]
        return content_digest(ours, self.base_url) == content_digest(desired, self.base_url)

    def _keep_final(self, existing: Json, desired: Json) -> Json:
        """What to write over an existing resource: what was final stays so, and a value that changes after that is amended.

        The plan knows this from our own records; where they lack it (a lost response, a restored backup), the service knows it.
        """
        if existing.get("status") not in FINAL_STATUSES:
            return desired
        if desired.get("resourceType") != "Observation":
            return {**desired, "status": "final"}
        same = is_same_statement(existing, desired, self.base_url)
        amended = ObservationStatus.AMENDED.value
        return {**desired, "status": existing["status"] if same and desired.get("status") != amended else amended}

    async def _save_upload(self, saved: SavedResource, identifier: Identifier, body: Json) -> None:
        content = content_digest(body, self.base_url) if body else ""
        upload = self.to_upload_record(identifier.value, saved.resource_type, saved.id, saved.version, content)
        await self.lease.write(lambda uow: uow.uploads.save(upload))

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


def _sending_key(identifier: Identifier) -> str:
    """The key of the record of sending: no identifier of ours has a colon."""
    return f"sending:{identifier.value}"


def _mark_unverified(known: UploadRecord | None, uow: UnitOfWork) -> None:
    """Forget the recorded content of a resource before an update whose outcome may stay unknown."""
    if known is not None:
        uow.uploads.save(replace(known, digest=str(Digest(split_digest(known.digest).status))))


@contextmanager
def error_context(where: str) -> Iterator[None]:
    """Name the part of the report in a permanent failure, so that somebody can fix that part."""
    try:
        yield
    except PermanentFailure as exc:
        large = isinstance(exc, ServiceRejected) and exc.status == _PAYLOAD_TOO_LARGE
        exc.args = (f"{where}: {exc}{_TOO_LARGE_HINT if large else ''}",)
        raise


def _is_own_field(name: str) -> bool:
    """Whether a field is ours: what a new version leaves out must not stay (for example a value of another type)."""
    return name.startswith("value") or name in _OWN_FIELDS


def _join_identifiers(existing: Json, desired: Json) -> Json:
    """Our identifiers with those that others gave to the same resource: a PUT would drop what it does not send (law 4)."""
    joined = {**_identifiers(desired), **_identifiers(existing)}
    return {"identifier": list(joined.values())} if joined else {}


def _identifiers(body: Json) -> dict[tuple[str, str], Any]:
    """The identifiers of a resource by their systems and values."""
    found = body.get("identifier")
    listed = [each for each in found if isinstance(each, Mapping)] if isinstance(found, list | tuple) else []
    return {(str(each.get("system")), str(each.get("value"))): each for each in listed}
