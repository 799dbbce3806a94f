"""The exchange service as the workflow sees it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Protocol

from lab_agent.shared.errors import PermanentFailure, TemporaryFailure
from lab_agent.shared.ids import ResourceId
from lab_agent.shared.values import Identifier

Json = Mapping[str, Any]
"""A resource as read: fractional numbers are `Decimal`, and nothing is left out (law 4)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedResource:
    """A resource as it is on the service. `created` is false where a conditional create may have found an existing one.

    `existed`: it certainly did, as the service says so of what it creates. `echoed`: the answer to a write had no resource in it,
    and `body` is what was sent.
    """

    resource_type: str
    id: ResourceId
    version: str
    body: Json
    created: bool = False
    existed: bool = False
    echoed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceClock:
    """The service's clock against ours.

    `offset` is how far it is ahead (negative: behind), None where answers have no `Date`. `is_confirmed`: several answers agree;
    one may be a cache's. `since` and `measured_at` are the first and the last of those, by our clock.
    """

    offset: timedelta | None
    is_confirmed: bool
    since: datetime | None = None
    measured_at: datetime | None = None


class SearchKind(StrEnum):
    """The searches that we send, by the names of their addresses in `exchange.paths`."""

    ORDER_TASKS = "order_tasks"
    LINE_TASKS = "line_tasks"
    QUESTIONNAIRES = "questionnaires"
    BY_IDENTIFIER = "by_identifier"
    BY_TAG = "by_tag"


UNFILTERED_HINTS = {
    SearchKind.QUESTIONNAIRES: '. Set `exchange.questionnaire_search` = "off" where the service cannot do that search'
}
"""What an operator can do about a search that the service does not filter, beside asking whoever runs it."""


class UnfilteredSearch(PermanentFailure):
    """The service answered a search with resources that were not asked for. `rows` are those that were."""

    def __init__(self, kind: SearchKind, rows: tuple[Json, ...], left_aside: int) -> None:
        super().__init__(
            f"the service does not filter the search `{kind.value}`: {left_aside} of {left_aside + len(rows)} resources in its "
            f"answer were not asked for; they are left aside{UNFILTERED_HINTS.get(kind, '')}"
        )
        self.rows = rows


class AnswersWithheld(PermanentFailure):
    """A search for QuestionnaireResponses left some out that we may not see. `rows` are those that it gave."""

    def __init__(self, rows: tuple[Json, ...]) -> None:
        super().__init__("the service left QuestionnaireResponses out of its answer")
        self.rows = rows


class Exchange(Protocol):
    """The service's FHIR endpoints (interface: Endpoints).

    Every call may raise `ServiceUnavailable` or `ForeignLink` (nothing happened; try again later), `AuthenticationRequired`,
    `OutcomeUnknown` (a write may have happened), `InvalidResponse` (the same for a write; what was read or searched for has
    invalid JSON, while the service answers otherwise), `ForeignOrigin`, or a `ServiceRejected`. The answer to a search holds only
    what was asked for; what else the service put there is left aside.
    """

    async def requested_order_tasks(self) -> tuple[Json, ...]:
        """All order-level Tasks in status requested (GET fhir/task?status=requested&code=OrderProcessingTask), pages followed."""
        ...

    def unreadable_order_tasks(self) -> tuple[str, ...]:
        """Ids of the Tasks that the last `requested_order_tasks` left out, since they cannot be read; `?` for an unknown id."""
        ...

    def order_tasks_cut_off(self) -> TemporaryFailure | None:
        """Why the last `requested_order_tasks` could not reach all pages; None if it could."""
        ...

    async def line_tasks(self, order_task: ResourceId) -> tuple[Json, ...]:
        """The ProcedureRequest-level Tasks of an order (GET fhir/task?part-of=task/<id>), pages followed.

        Raises `UnfilteredSearch` if the answer held others, too.
        """
        ...

    async def questionnaire_responses(self, procedure_requests: Collection[ResourceId]) -> tuple[Json, ...] | None:
        """The QuestionnaireResponses about one of the ProcedureRequests; None if the service offers no such search.

        What we have no right to read is left out by many services without a word. Raises `AnswersWithheld` where the answer says
        so, and `UnfilteredSearch` if it held others, too.
        """
        ...

    async def contract_ids(self, code: str) -> tuple[ResourceId, ...]:
        """Ids of the Contract with this code (GET fhir/Contract?identifier=…), cached after the first answer."""
        ...

    async def read(self, resource_type: str, resource_id: ResourceId) -> SavedResource:
        """Read one resource. Raises `ResourceNotReadable` if it does not exist or we have no right."""
        ...

    async def create(self, resource_type: str, body: Json, *, if_none_exist: Identifier | None = None) -> SavedResource:
        """Create a resource, or find the one that exists. Raises `MultipleMatches` if several match (412)."""
        ...

    async def update(self, resource_type: str, resource_id: ResourceId, body: Json, *, version: str) -> SavedResource:
        """Replace the whole resource with If-Match. Raises `StaleVersion` if it was changed since `version`."""
        ...

    async def find(self, resource_type: str, identifier: Identifier) -> tuple[SavedResource, ...]:
        """The resources that have our identifier: verifies a write whose answer was lost."""
        ...

    async def upload_document(
        self, content: bytes, content_type: str, *, readers: tuple[str, ...], name: str | None = None
    ) -> SavedResource:
        """Create a Binary that the `readers` (counterparty guids) may read; `name` is ours, to find it again."""
        ...

    async def find_document(self, name: str) -> SavedResource | None:
        """The Binary that we gave this name: None if there is none, or if the service offers no such search."""
        ...

    def document_url(self, document: ResourceId) -> str:
        """The address of a Binary, relative to the service's base address (interface: Result documents)."""
        ...

    async def read_document(self, document: ResourceId, content_type: str) -> bytes:
        """Download a document as a partner does. Raises `ResourceNotReadable` if it does not exist or we have no right."""
        ...

    def take_search_findings(self) -> Mapping[SearchKind, bool]:
        """For each kind of search since the last call: whether all answers held only what was asked for."""
        ...

    async def check(self) -> None:
        """Sign in and ask one harmless question; raises what is wrong."""
        ...

    async def answers(self, task: ResourceId | None = None) -> bool:
        """Whether the service answers one request, which is not repeated: for this Task, or else for new orders.

        It is sent even while others are held back. An answer that refuses it is one; a failure of the service, or of what stands
        before it, is none.
        """
        ...

    def hold(self) -> None:
        """Send nothing but `answers` until `release`: whatever needs the service fails with `ServicePaused` at once."""
        ...

    def release(self) -> None:
        """End what `hold` began."""
        ...

    async def foreign_links(self) -> Mapping[str, str]:
        """Where the links of a page of new orders lead away from the service's own origin: relation (`fullUrl` for those of the
        resources) to origin. A `next` link that does is not followed.
        """
        ...

    async def altered_etag(self) -> str | None:
        """An ETag that is not the version of its resource, with that version: something before the service rewrites it."""
        ...

    def service_clock(self) -> ServiceClock | None:
        """The service's clock against ours, by the `Date` of its last answers; None as long as there was none."""
        ...

    def service_clock_offset(self) -> timedelta | None:
        """How far the service's clock is ahead of ours (negative: behind), to a second; None where it is not known."""
        clock = self.service_clock()
        return None if clock is None else clock.offset
