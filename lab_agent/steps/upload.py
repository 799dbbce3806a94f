"""Bring one resource of ours to the service, so that it is there once and as it should be (law 2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lab_agent.domain.ids import OrderKey, ReportKey, ResourceId
from lab_agent.domain.journal import UploadRecord
from lab_agent.domain.values import Identifier
from lab_agent.errors import SeveralMatches, StaleVersion, TemporaryFailure
from lab_agent.fhir.stable import digest
from lab_agent.ports.exchange import Exchange, Json, Saved
from lab_agent.ports.store import Store
from lab_agent.steps.handler import Claim

CONFLICTS = 3
_OURS = frozenset({"interpretation", "method", "specimen", "referenceRange", "result", "presentedForm"})
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
            return await self._replace(resource_type, known.resource_id, identifier, body)
        there = await self._found(resource_type, identifier) if self.looking else None
        if there is None:
            await self.claim.begin()
            there = await self.exchange.create(resource_type, body, if_none_exist=identifier)
        if there.created or _carries(there.body, body):
            await self._remember(there, identifier, body)
            return there.id
        return await self._replace(resource_type, there.id, identifier, body)

    async def bring_document(self, name: str, content: bytes, content_type: str, reader: str) -> str:
        """Create a Binary, once as far as we know; give its id. It has no identifier: an orphan of a lost reply is harmless."""
        known = await self.known(name)
        if known is not None:
            return known.resource_id
        await self.claim.begin()
        saved = await self.exchange.upload_document(content, content_type, readers=(reader,))
        await self._remember(saved, Identifier(value=name), {})
        return saved.id

    async def known(self, identifier: str) -> UploadRecord | None:
        """What is known here of the resource with this identifier."""
        return await self.store.run(lambda uow: uow.uploads.get(identifier))

    async def _found(self, resource_type: str, identifier: Identifier) -> Saved | None:
        found = await self.exchange.find(resource_type, identifier)
        if len(found) > 1:
            text = f"{len(found)} {resource_type} resources carry our identifier {identifier.value}; remove all but one"
            raise SeveralMatches(text, status=412)
        return found[0] if found else None

    async def _replace(self, resource_type: str, resource_id: str, identifier: Identifier, body: Json) -> str:
        for _ in range(CONFLICTS):
            current = await self.exchange.read(resource_type, ResourceId(resource_id))
            await self.claim.begin()
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
        upload = UploadRecord(
            identifier=identifier.value,
            resource_type=saved.resource_type,
            resource_id=saved.id,
            version=saved.version,
            digest=digest(body) if body else "",
            order=self.order,
            report=self.report,
        )
        await self.claim.write(lambda uow: uow.uploads.put(upload))


def _is_ours(name: str) -> bool:
    """Whether a field says something that we reported: what a new version leaves out must not stay (a value in another form)."""
    return name.startswith("value") or name in _OURS


def _carries(there: Mapping[str, object], wanted: Mapping[str, object]) -> bool:
    """Whether the resource on the service has all that we would write into it."""
    return digest({key: there.get(key) for key in wanted}) == digest(wanted)
