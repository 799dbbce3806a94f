"""Fetch an order's graph: everything that is linked, concurrently, each resource once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from typing import TypeVar

from lab_agent.exchange.service import AnswersWithheld, Exchange, Json, SavedResource
from lab_agent.fhir.order_graph import OrderGraph
from lab_agent.fhir.received_order import ResourceRef, UnreadableResource
from lab_agent.fhir.references import id_readings
from lab_agent.shared.errors import AnswerTooLarge, ForeignOrigin, InvalidResponse, ServiceRejected, ServiceUnavailable
from lab_agent.shared.ids import ResourceId

_T = TypeVar("_T")
MAX_PARALLEL_READS = 6
"""How many reads of one order run at once."""
NO_STATUS = 0
"""Status of a rejection that is none of HTTP's: the service fails with this resource."""
DELETED_STATUS = 410
GONE_STATUSES = frozenset({404, DELETED_STATUS})
"""What is answered for a resource that is not there, or not any more."""
_NO_SUCH_ID = GONE_STATUSES | {400}
"""What is answered for an id that is not there, or that the service cannot have given."""
UNREADABLE_STATUSES = frozenset({NO_STATUS, 401, 403, 404, DELETED_STATUS})
"""What may pass by itself: a right that is granted a little later, a copy that is behind. Others are told at once."""


async def fetch_graph(exchange: Exchange, base_url: str, order_task: Json, line_tasks: Sequence[Json]) -> OrderGraph:
    """Read everything that the Tasks refer to, and the answers about them; the graph records what cannot be read.

    Raises what the exchange port raises for a service that is unavailable as a whole, and for its searches. At most
    `MAX_PARALLEL_READS` reads of one order run at once, so that a large order leaves room for small ones; the port limits how
    many run overall.
    """
    return await add_answers(exchange, await fetch_linked(exchange, base_url, order_task, line_tasks))


async def add_answers(exchange: Exchange, graph: OrderGraph) -> OrderGraph:
    """Search for the answers about what is ordered. Raises what the search raises."""
    try:
        responses = await exchange.questionnaire_responses([ResourceId(each) for each in graph.procedure_request_ids()])
    except AnswersWithheld as some:
        return graph.with_questionnaire_responses(some.rows, withheld=True)
    return graph.with_questionnaire_responses(responses)


async def fetch_linked(exchange: Exchange, base_url: str, order_task: Json, line_tasks: Sequence[Json]) -> OrderGraph:
    """Read everything that the Tasks refer to, without searching for answers. Raises as `fetch_graph` does."""
    return await _read_all(exchange, OrderGraph(base_url=base_url, order_task=order_task, line_tasks=tuple(line_tasks)))


async def _read_all(exchange: Exchange, graph: OrderGraph) -> OrderGraph:
    semaphore = asyncio.Semaphore(MAX_PARALLEL_READS)
    while missing := sorted(graph.missing_references()):
        answers = await asyncio.gather(*(_read(exchange, ref, semaphore) for ref in missing))
        found = dict(zip(missing, answers, strict=True))
        graph = graph.with_readings(
            {ref: answer for ref, answer in found.items() if not isinstance(answer, ServiceRejected)},
            {
                ref: UnreadableResource(str(why), why.status, why.issues)
                for ref, why in found.items()
                if isinstance(why, ServiceRejected)
            },
        )
    return graph


async def _read(exchange: Exchange, ref: ResourceRef, semaphore: asyncio.Semaphore) -> Json | ServiceRejected:
    """Read what a reference leads to: its id as it is written, else without its percent-encoding, if it has any."""
    async with semaphore:
        answer = await _try_read(exchange, ref.type, ref.id)
        for reading in id_readings(ref.id)[1:]:
            if isinstance(answer, ServiceRejected) and answer.status in _NO_SUCH_ID:
                answer = await _try_read(exchange, ref.type, reading)
        return answer


async def _try_read(exchange: Exchange, resource_type: str, resource_id: str) -> Json | ServiceRejected:
    try:
        return (await read_or_reject(exchange, resource_type, ResourceId(resource_id))).body
    except ServiceRejected as rejection:
        return rejection


async def read_or_reject(exchange: Exchange, resource_type: str, resource_id: ResourceId) -> SavedResource:
    """Read one resource. Raises as `reject_if_alone` does; an id that cannot be part of an address is rejected without asking."""
    return await reject_if_alone(exchange, exchange.read(resource_type, resource_id))


async def reject_if_alone(exchange: Exchange, reading: Awaitable[_T]) -> _T:
    """Wait for the answer about one resource. Raises `ServiceRejected`, which may pass, where the service fails with it alone.

    An error, or an answer that nobody can read, is an outage only if the service does not answer a harmless request either: one
    bad resource must not stop the good ones (law 9).
    """
    try:
        return await reading
    except (InvalidResponse, ForeignOrigin) as failure:
        raise ServiceRejected(str(failure), status=NO_STATUS, issues=failure.issues, may_pass=True) from failure
    except ServiceUnavailable as failure:
        await raise_if_unavailable(exchange, failure)
        raise ServiceRejected(str(failure), status=NO_STATUS, issues=failure.issues, may_pass=True) from failure


async def raise_if_unavailable(exchange: Exchange, failure: ServiceUnavailable) -> None:
    """Raise unless the service answers all the same, so that `failure` is about one resource or search alone."""
    if failure.retry_after:  # it asks everybody to wait; 0, or a time that has passed, asks for nothing
        raise failure
    with suppress(AnswerTooLarge):  # it answers
        await exchange.check()
