"""Judge a fetched order: gather what the rules cannot see, then ask them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta

import structlog

from lab_agent.domain.ids import OrderKey
from lab_agent.domain.received import ReceivedOrder
from lab_agent.domain.systems import Systems
from lab_agent.errors import ServiceRefusal
from lab_agent.fhir.graph import OrderGraph
from lab_agent.fhir.read import receive
from lab_agent.ports.clock import Clock
from lab_agent.ports.exchange import Exchange
from lab_agent.ports.store import Store
from lab_agent.rules.case import Case
from lab_agent.rules.catalogue_view import CatalogueView
from lab_agent.rules.facts import Facts
from lab_agent.rules.judge import Judgement, judge
from lab_agent.settings.exchange import ContractSettings
from lab_agent.settings.rules import RulesSettings

log = structlog.get_logger(__name__)

CatalogueSource = Callable[[], CatalogueView | None]
"""Gives the catalogue versions as they stand; None where none can be read."""


@dataclass(frozen=True, slots=True)
class Judged:
    """An order, what the rules say of it, and the contract that it comes under (None where that is not known)."""

    graph: OrderGraph
    received: ReceivedOrder
    judgement: Judgement
    contract: str | None
    catalogue: CatalogueView | None


@dataclass(frozen=True, slots=True)
class Judging:
    """The judge and what it needs to know of this installation."""

    exchange: Exchange
    store: Store
    clock: Clock
    systems: Systems
    laboratory: str
    contracts: Mapping[str, ContractSettings]
    rules: RulesSettings
    catalogues: CatalogueSource

    async def judge(self, key: OrderKey, graph: OrderGraph) -> Judged:
        """Judge the order of that key. Raises what the exchange port raises when it is away."""
        received = receive(graph)
        facts = await self._facts(key, received)
        catalogue = self.catalogues()
        judgement = judge(received, catalogue=catalogue, facts=facts, severities=self.rules.severities)
        return Judged(graph, received, judgement, Case(received, catalogue, facts).contract(), catalogue)

    async def _facts(self, key: OrderKey, received: ReceivedOrder) -> Facts:
        barcodes = {
            identifier.value
            for specimen in received.specimens
            for container in specimen.containers
            for identifier in container.identifiers
        }
        uses = await self.store.run(lambda uow: uow.orders.labels_in_use(barcodes, except_order=key))
        in_use: dict[str, set[str]] = {}
        for use in uses:
            in_use.setdefault(use.barcode, set()).add(use.patient_reference)
        return Facts(
            now=self.clock.now(),
            systems=self.systems,
            contracts=frozenset(self.contracts),
            contract_ids=await self._contract_ids(),
            labels_in_use={barcode: frozenset(patients) for barcode, patients in in_use.items()},
            own_guid=self.laboratory,
            future_tolerance=timedelta(seconds=self.rules.future_tolerance),
        )

    async def _contract_ids(self) -> dict[str, str]:
        """Ids of the configured contracts. One that the service refuses to tell is unknown, which holds and never refuses."""
        ids: dict[str, str] = {}
        for code in self.contracts:
            try:
                ids.update(dict.fromkeys(await self.exchange.contract_ids(code), code))
            except ServiceRefusal as refusal:
                log.warning("contract unknown to the service", action="contract_unknown", contract=code, reason=str(refusal))
        return ids
