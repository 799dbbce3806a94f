"""Bring one resource of ours to the service, so that it is there once and as it should be (law 2)."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from lab_agent.domain.ids import OrderKey, ReportKey, ResourceId
from lab_agent.domain.journal import HostedDocument, UploadRecord
from lab_agent.domain.values import Identifier
from lab_agent.errors import PermanentFailure, ServiceRefusal, SeveralMatches, StaleVersion, TemporaryFailure
from lab_agent.fhir.stable import digest, status_and_hash
from lab_agent.ports.exchange import Exchange, Json, Saved
from lab_agent.ports.store import Store, UnitOfWork
from lab_agent.steps.document_names import document_name
from lab_agent.steps.handler import CONFLICTS, Claim

FINAL = frozenset({"final", "amended"})
TOO_LARGE = 413
_TOO_LARGE_MEND = "; set results.max_document to what the service takes, and have the laboratory system send a smaller document"
_OURS = frozenset({"comment", "interpretation", "method", "specimen", "referenceRange", "result", "presentedForm"})
"""Fields of Observation and DiagnosticReport that we write or leave out, beside value[x]; others are always written."""


@dataclass(frozen=True, slots=True)
class Uploader:
    """Uploads for one report. What the service gave is committed at once, so that a crash loses no id."""

    exchange: Exchange
    store: Store
    claim: Claim
    order: OrderKey
    report: ReportKey
    looking: bool
    """Whether an earlier try may have written something: then the service is searched before anything is sent (law 3)."""

    async def bring(self, resource_type: str, identifier: Identifier, body: Json) -> str:
        """Create the resource, or change the one that is there; give its id. Nothing is sent where it is so already."""
        known = await self.known(identifier.value)
        if known is not None and known.digest == digest(body):
            return known.resource_id
        if known is not None:
            return await self._replace(resource_type, known.resource_id, identifier, body, known)
        there = await self._found(resource_type, identifier) if self.looking else None
        if there is None:
            await self.claim.begin()
            there = await self.exchange.create(resource_type, body, if_none_exist=identifier)
        if there.created or _carries(there.body, body) or _carries(there.body, still_final(there.body, body)):
            await self._remember(there, identifier, body)
            return there.id
        return await self._replace(resource_type, there.id, identifier, body)

    async def bring_document(self, name: str, content: bytes | None, content_type: str, reader: str) -> str:
        """Create a Binary, once as far as we know; give its id. It has no identifier: an orphan of a lost reply is harmless.

        `name` is the SHA-256 of the content, `content` None where it is not kept any more. Raises `PermanentFailure` where that
        one was never brought.
        """
        identifier = Identifier(value=document_name(self.order, name, content_type, hosted=False))
        known = await self.known(identifier.value)
        if known is not None:
            return known.resource_id
        if content is None:
            raise PermanentFailure("it is not kept any more; let the laboratory system send it again")
        await self.claim.begin()
        saved = await self.exchange.upload_document(content, content_type, readers=(reader,))
        await self._remember(saved, identifier, {})
        return saved.id

    async def bring_hosted(self, name: str, content: bytes, content_type: str, expires_at: datetime | None, now: datetime) -> str:
        """Let our own API serve a document until `expires_at`, or longer where it does so already.

        Gives the unguessable part of its address: the same one for every try and for every version, also where it had ended.
        """
        identifier = document_name(self.order, name, content_type, hosted=True)
        known = await self.known(identifier)
        address = known.resource_id if known is not None else secrets.token_urlsafe(32)

        def write(uow: UnitOfWork) -> None:
            before = uow.hosted.get(address)
            served = HostedDocument(
                address=address,
                document=uow.vault.put_document(content, content_type, at=now),
                content_type=content_type,
                order=self.order,
                kept_at=now,
                expires_at=expires_at if before is None else _later(before.expires_at, expires_at),
            )
            uow.hosted.put(served)
            uow.uploads.put(self._record(identifier, "hosted", ResourceId(address), "", ""))

        await self.claim.write(write)
        return address

    async def known(self, identifier: str) -> UploadRecord | None:
        """What is known here of the resource with this identifier."""
        return await self.store.run(lambda uow: uow.uploads.get(identifier))

    async def _found(self, resource_type: str, identifier: Identifier) -> Saved | None:
        found = await self.exchange.find(resource_type, identifier)
        if len(found) > 1:
            text = f"{len(found)} {resource_type} resources carry our identifier {identifier.value}; remove all but one"
            raise SeveralMatches(text, status=412)
        return found[0] if found else None

    async def _replace(
        self, resource_type: str, resource_id: str, identifier: Identifier, body: Json, known: UploadRecord | None = None
    ) -> str:
        doubtful = self.looking or (known is not None and not status_and_hash(known.digest)[1])
        for attempt in range(CONFLICTS):
            current = await self.exchange.read(resource_type, ResourceId(resource_id))
            body = still_final(current.body, body)
            if (doubtful or attempt) and _carries(current.body, body):
                await self._remember(current, identifier, body)  # an earlier try did it, and its reply was lost
                return current.id
            await self.claim.begin(partial(_doubt, known))
            foreign = {name: value for name, value in current.body.items() if not _is_ours(name)}
            changed = {**foreign, **body, "id": current.id, "meta": current.body.get("meta", body.get("meta"))}
            try:
                saved = await self.exchange.update(resource_type, current.id, changed, version=current.version)
            except StaleVersion:
                continue
            await self._remember(saved, identifier, body)
            return saved.id
        raise TemporaryFailure(f"{resource_type} {resource_id} was changed by somebody else {CONFLICTS} times while we wrote it")

    async def _remember(self, saved: Saved, identifier: Identifier, body: Json) -> None:
        content = digest(body) if body else ""
        upload = self._record(identifier.value, saved.resource_type, saved.id, saved.version, content)
        await self.claim.write(lambda uow: uow.uploads.put(upload))

    def _record(self, identifier: str, resource_type: str, resource_id: ResourceId, version: str, content: str) -> UploadRecord:
        return UploadRecord(
            identifier=identifier,
            resource_type=resource_type,
            resource_id=resource_id,
            version=version,
            digest=content,
            order=self.order,
            report=self.report,
        )


def _doubt(known: UploadRecord | None, uow: UnitOfWork) -> None:
    """Let nobody trust what is known of a resource from before a change whose outcome is not known yet: not of its content."""
    if known is not None:
        status, _ = status_and_hash(known.digest)
        uow.uploads.put(replace(known, digest=f"{status}:"))


@contextmanager
def told_of(where: str) -> Iterator[None]:
    """Say in a refusal which part of the report it is about, so that somebody can mend that part."""
    try:
        yield
    except PermanentFailure as exc:
        large = isinstance(exc, ServiceRefusal) and exc.status == TOO_LARGE
        exc.args = (f"{where}: {exc}{_TOO_LARGE_MEND if large else ''}",)
        raise


def _later(one: datetime | None, other: datetime | None) -> datetime | None:
    """The later of two ends; None is no end at all."""
    return None if one is None or other is None else max(one, other)


def _is_ours(name: str) -> bool:
    """Whether a field says something that we reported: what a new version leaves out must not stay (a value in another form)."""
    return name.startswith("value") or name in _OURS


def _carries(there: Json, wanted: Json) -> bool:
    """Whether the resource on the service has all that we would write into it, and nothing that we would leave out."""
    ours = {key: value for key, value in there.items() if key in wanted or _is_ours(key)}
    return digest(ours) == digest(wanted)


def still_final(there: Json, wanted: Json) -> Json:
    """What we write over a resource that is there: what was final stays so, and a value that changes after that is amended.

    The plan knows this from our own journal; where that has forgotten (a lost reply, a restored backup), the service knows it.
    """
    if there.get("status") not in FINAL:
        return wanted
    if wanted.get("resourceType") != "Observation":
        return {**wanted, "status": "final"}
    same = _carries({**there, "status": None}, {**wanted, "status": None})
    return {**wanted, "status": there["status"] if same else "amended"}
