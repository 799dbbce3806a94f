"""Judge an order once more, for somebody who wants to know why: nothing is written anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lab_agent.domain.ids import OrderKey
from lab_agent.domain.journal import OrderRecord
from lab_agent.domain.received import ReferenceText
from lab_agent.errors import StoreError
from lab_agent.fhir.graph import OrderGraph
from lab_agent.fhir.read import parse_order
from lab_agent.ports.exchange import Exchange
from lab_agent.ports.store import Store
from lab_agent.steps.fetch import fetch_graph
from lab_agent.steps.identity import unpack_patients
from lab_agent.steps.judging import AssessedOrder, OrderAssessor


@dataclass(frozen=True, slots=True)
class RecordedContracts:
    """Contract ids without the service: what the order links to is taken for the contract that the journal has it under."""

    code: str | None
    ids: tuple[str, ...]

    async def contract_ids(self, code: str) -> Sequence[str]:
        """Ids that the order links to, if it is under this contract."""
        return self.ids if code == self.code else ()


async def reassess(store: Store, assessor: OrderAssessor, key: OrderKey) -> AssessedOrder:
    """Judge the order as it was fetched last. Raises `StoreError` where it is unknown or was never fetched."""
    order, identity = await store.run(lambda uow: (uow.orders.get_for_update(key), uow.vault.identity(key)))
    if order.received is None:
        raise StoreError(f"order {key} was never fetched whole; --fetch asks the service for it")
    graph = OrderGraph.from_json(order.received, unpack_patients(identity) if identity else None)
    return await replace(assessor, exchange=_recorded_contracts(order, graph)).assess(key, graph)


async def fetch_and_assess(
    exchange: Exchange, base_url: str, store: Store, assessor: OrderAssessor, key: OrderKey
) -> AssessedOrder:
    """Judge the order as the service has it now. Raises `StoreError`, and what the exchange port raises."""
    order = await store.run(lambda uow: uow.orders.get_for_update(key))
    order_task = (await exchange.read("Task", order.task_id)).body
    lines = await exchange.line_tasks(order.task_id)
    return await assessor.assess(key, await fetch_graph(exchange, base_url, order_task, lines))


def _recorded_contracts(order: OrderRecord, graph: OrderGraph) -> RecordedContracts:
    links: list[ReferenceText] = [link for request in parse_order(graph).requests for link in request.supporting_info]
    ids = {link.target.id for link in links if link.target is not None and link.target.type == "Contract"}
    return RecordedContracts(order.contract, tuple(sorted(ids)))
