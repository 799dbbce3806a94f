"""Judge an order once more, for somebody who wants to know why: nothing is written anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lab_agent.domain.ids import OrderKey
from lab_agent.domain.journal import OrderRecord
from lab_agent.domain.received import Link
from lab_agent.errors import StoreError
from lab_agent.fhir.graph import OrderGraph
from lab_agent.fhir.read import receive
from lab_agent.ports.exchange import Exchange
from lab_agent.ports.store import Store
from lab_agent.steps.fetch import fetch_graph
from lab_agent.steps.identity import patients_of
from lab_agent.steps.judging import Judged, Judging


@dataclass(frozen=True, slots=True)
class NotedContracts:
    """Contract ids without the service: what the order links to is taken for the contract that the journal has it under."""

    code: str | None
    ids: tuple[str, ...]

    async def contract_ids(self, code: str) -> Sequence[str]:
        """Ids that the order links to, if it is under this contract."""
        return self.ids if code == self.code else ()


async def rejudge(store: Store, judging: Judging, key: OrderKey) -> Judged:
    """Judge the order as it was fetched last. Raises `StoreError` where it is unknown or was never fetched."""
    order, identity = await store.run(lambda uow: (uow.orders.take(key), uow.vault.identity(key)))
    if order.received is None:
        raise StoreError(f"order {key} was never fetched whole; --fetch asks the service for it")
    graph = OrderGraph.from_json(order.received, patients_of(identity) if identity else None)
    return await replace(judging, exchange=_contracts(order, graph)).judge(key, graph)


async def judge_anew(exchange: Exchange, service: str, store: Store, judging: Judging, key: OrderKey) -> Judged:
    """Judge the order as the service has it now. Raises `StoreError`, and what the exchange port raises."""
    order = await store.run(lambda uow: uow.orders.take(key))
    order_task = (await exchange.read("Task", order.task_id)).body
    lines = await exchange.line_tasks(order.task_id)
    return await judging.judge(key, await fetch_graph(exchange, service, order_task, lines))


def _contracts(order: OrderRecord, graph: OrderGraph) -> NotedContracts:
    links: list[Link] = [link for request in receive(graph).requests for link in request.supporting]
    ids = {link.target.id for link in links if link.target is not None and link.target.type == "Contract"}
    return NotedContracts(order.contract, tuple(sorted(ids)))
