"""A stand-in for the exchange service, in memory: it keeps the resources of made-up orders and what is uploaded for them.

It does what the interface says of versions, conditional creation and searches, and refuses nothing: what a real service would
refuse is seen at a stage, or with the sandbox.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta

from typing_extensions import override

from lab_agent.exchange.service import Exchange, Json, SavedResource, SearchKind, ServiceClock
from lab_agent.shared.errors import ResourceNotReadable, StaleVersion, TemporaryFailure
from lab_agent.shared.ids import ResourceId
from lab_agent.shared.values import Identifier

_NOT_FOUND, _STALE = 404, 412
_DOCUMENT_NAMES = "names of documents"


class StandInExchange(Exchange):
    """The resources by type (in lower case) and id, and found by identifier or by what they refer to."""

    def __init__(self) -> None:
        self._resources: dict[str, dict[str, SavedResource]] = defaultdict(dict)
        self._by_identifier: dict[tuple[str, str | None, str | None], dict[str, None]] = defaultdict(dict)
        self._by_reference: dict[tuple[str, str], dict[str, None]] = defaultdict(dict)
        self._documents: dict[str, bytes] = {}
        self._created = 0

    def put(self, body: Json) -> None:
        """Keep a resource that somebody else has created."""
        self._save(SavedResource(resource_type=body["resourceType"], id=ResourceId(body["id"]), version="1", body=body))

    def task_status(self, task: str) -> str:
        """The status of a Task."""
        return str(self._resources["task"][task].body["status"])

    def count(self, resource_type: str) -> int:
        """How many resources of a type there are."""
        return len(self._resources[resource_type.lower()])

    @override
    async def requested_order_tasks(self) -> tuple[Json, ...]:
        tasks = (each.body for each in self._resources["task"].values())
        return tuple(body for body in tasks if body["status"] == "requested" and "partOf" not in body)

    @override
    def unreadable_order_tasks(self) -> tuple[str, ...]:
        return ()

    @override
    def order_tasks_cut_off(self) -> TemporaryFailure | None:
        return None

    @override
    async def line_tasks(self, order_task: ResourceId) -> tuple[Json, ...]:
        return self._referring("Task", f"task/{order_task}")

    @override
    async def questionnaire_responses(self, procedure_requests: Collection[ResourceId]) -> tuple[Json, ...] | None:
        found = (self._referring("QuestionnaireResponse", f"procedurerequest/{each}") for each in procedure_requests)
        return tuple(body for bodies in found for body in bodies)

    @override
    async def contract_ids(self, code: str) -> tuple[ResourceId, ...]:
        return (ResourceId(code),)

    @override
    async def read(self, resource_type: str, resource_id: ResourceId) -> SavedResource:
        found = self._resources[resource_type.lower()].get(resource_id)
        if found is None:
            raise ResourceNotReadable(f"there is no {resource_type}/{resource_id}", status=_NOT_FOUND)
        return found

    @override
    async def create(self, resource_type: str, body: Json, *, if_none_exist: Identifier | None = None) -> SavedResource:
        if if_none_exist is not None and (found := await self.find(resource_type, if_none_exist)):
            return found[0]
        self._created += 1
        new = ResourceId(f"upload-{self._created}")
        stored = {**body, "id": new, "meta": {**body.get("meta", {}), "versionId": "1"}}
        created = SavedResource(resource_type=resource_type, id=new, version="1", body=stored, created=True)
        self._save(created)
        return created

    @override
    async def update(self, resource_type: str, resource_id: ResourceId, body: Json, *, version: str) -> SavedResource:
        before = await self.read(resource_type, resource_id)
        if before.version != version:
            raise StaleVersion(f"{resource_type}/{resource_id} has another version", status=_STALE)
        following = str(int(version) + 1)
        stored = {**body, "meta": {**body.get("meta", {}), "versionId": following}}
        updated = SavedResource(resource_type=resource_type, id=resource_id, version=following, body=stored)
        self._save(updated)
        return updated

    @override
    async def find(self, resource_type: str, identifier: Identifier) -> tuple[SavedResource, ...]:
        kind = resource_type.lower()
        return tuple(self._resources[kind][each] for each in self._by_identifier[kind, identifier.system, identifier.value])

    @override
    async def upload_document(
        self, content: bytes, content_type: str, *, readers: tuple[str, ...], name: str | None = None
    ) -> SavedResource:
        named = {"identifier": [{"system": _DOCUMENT_NAMES, "value": name}]} if name else {}
        created = await self.create("Binary", {"resourceType": "Binary", "contentType": content_type, **named})
        self._documents[created.id] = content
        return created

    @override
    async def find_document(self, name: str) -> SavedResource | None:
        return next(iter(await self.find("Binary", Identifier(system=_DOCUMENT_NAMES, value=name))), None)

    @override
    def document_url(self, document: ResourceId) -> str:
        return f"fhir/Binary/{document}"

    @override
    async def read_document(self, document: ResourceId, content_type: str) -> bytes:
        return self._documents[document]

    @override
    def take_search_findings(self) -> Mapping[SearchKind, bool]:
        return {}

    @override
    async def check(self) -> None:
        """It is there."""

    @override
    async def answers(self, task: ResourceId | None = None) -> bool:
        return True

    @override
    def hold(self) -> None:
        pass

    @override
    def release(self) -> None:
        pass

    @override
    async def foreign_links(self) -> Mapping[str, str]:
        return {}

    @override
    async def altered_etag(self) -> str | None:
        return None

    @override
    def service_clock(self) -> ServiceClock | None:
        now = datetime.now(UTC)
        return ServiceClock(offset=timedelta(), is_confirmed=True, since=now, measured_at=now)

    def _referring(self, resource_type: str, reference: str) -> tuple[Json, ...]:
        kind = resource_type.lower()
        return tuple(self._resources[kind][each].body for each in self._by_reference[kind, reference.lower()])

    def _save(self, resource: SavedResource) -> None:
        kind, body = resource.resource_type.lower(), resource.body
        self._resources[kind][resource.id] = resource
        for one in body.get("identifier", ()):
            self._by_identifier[kind, one.get("system"), one.get("value")][resource.id] = None
        for link in (*body.get("partOf", ()), body.get("subject", {})):
            self._by_reference[kind, str(link.get("reference", "")).lower()][resource.id] = None
