"""Fetch an order's graph: everything that is linked, concurrently, each resource once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from lab_agent.domain.ids import ResourceId
from lab_agent.domain.received_order import ResourceRef
from lab_agent.errors import ResourceNotReadable
from lab_agent.fhir.order_graph import OrderGraph
from lab_agent.ports.exchange import Exchange, Json

MAX_PARALLEL_READS = 6
"""How many reads of one order run at once."""


async def fetch_graph(exchange: Exchange, base_url: str, order_task: Json, line_tasks: Sequence[Json]) -> OrderGraph:
    """Read everything that the Tasks refer to; the graph records what may not be read.

    Raises what the exchange port raises, but for `ResourceNotReadable`. At most `MAX_PARALLEL_READS` reads of one order run at
    once, so that a large order leaves room for small ones; the port limits how many run overall.
    """
    graph = OrderGraph(base_url=base_url, order_task=order_task, line_tasks=tuple(line_tasks))
    graph = await _read_all(exchange, graph)
    responses = await exchange.questionnaire_responses([ResourceId(each) for each in graph.procedure_request_ids()])
    return await _read_all(exchange, graph.with_questionnaire_responses(responses))


async def _read_all(exchange: Exchange, graph: OrderGraph) -> OrderGraph:
    semaphore = asyncio.Semaphore(MAX_PARALLEL_READS)
    while missing := sorted(graph.missing_references()):
        answers = await asyncio.gather(*(_read(exchange, ref, semaphore) for ref in missing))
        for ref, answer in zip(missing, answers, strict=True):
            if isinstance(answer, ResourceNotReadable):
                graph = graph.with_unreadable(ref, str(answer), answer.status)
            else:
                graph = graph.with_resource(ref, answer)
    return graph


async def _read(exchange: Exchange, ref: ResourceRef, semaphore: asyncio.Semaphore) -> Json | ResourceNotReadable:
    try:
        async with semaphore:
            return (await exchange.read(ref.type, ResourceId(ref.id))).body
    except ResourceNotReadable as unreadable:
        return unreadable
