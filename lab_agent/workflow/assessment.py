"""Judge a fetched order: gather what the rules cannot see, then ask them.

Judge an order once more, for somebody who wants to know why: nothing is written anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Protocol

import structlog

from lab_agent.domain.code_systems import CodeSystems
from lab_agent.domain.ids import OrderKey
from lab_agent.domain.received_order import ReceivedOrder, ReferenceText
from lab_agent.domain.records import OrderRecord
from lab_agent.errors import ServiceRejected, StoreError
from lab_agent.fhir.order_graph import OrderGraph
from lab_agent.fhir.order_parser import parse_order
from lab_agent.ports.clock import Clock
from lab_agent.ports.exchange import Exchange
from lab_agent.ports.repositories import Store, UnitOfWork
from lab_agent.rules.catalogue_history import CatalogueHistory
from lab_agent.rules.context import Facts, RuleContext
from lab_agent.rules.engine import Assessment, assess
from lab_agent.serialization.identity import unpack_patients
from lab_agent.settings.exchange import ContractSettings
from lab_agent.settings.groups import RulesSettings
from lab_agent.workflow.fetching import fetch_graph

log = structlog.get_logger(__name__)

UNREADABLE_RULE = "order.readable"
"""The rule about what cannot be read."""

_LABEL_LOCK = "labels.lock"

CatalogueSource = Callable[[], CatalogueHistory | None]
"""Gives the catalogue versions as they stand; None where none can be read."""


class ContractLookup(Protocol):
    """What the judge asks the service itself (part of the port `Exchange`)."""

    async def contract_ids(self, code: str) -> Sequence[str]:
        """Ids of the Contract with this code."""
        ...


@dataclass(frozen=True, slots=True)
class AssessedOrder:
    """An order, what the rules say of it, and the contract that it comes under (None where that is not known)."""

    graph: OrderGraph
    received: ReceivedOrder
    assessment: Assessment
    contract: str | None
    catalogue: CatalogueHistory | None
    facts: Facts


@dataclass(frozen=True, slots=True)
class OrderAssessor:
    """The judge and what it needs to know of this installation."""

    exchange: ContractLookup
    store: Store
    clock: Clock
    systems: CodeSystems
    laboratory: str
    contracts: Mapping[str, ContractSettings]
    rules: RulesSettings
    catalogues: CatalogueSource
    messages: Mapping[str, str] = field(default_factory=dict)
    """The reasons in another language, by rule id."""

    async def assess(self, key: OrderKey, graph: OrderGraph, *, reject_unreadable: bool = False) -> AssessedOrder:
        """Judge the order of that key. Raises what the exchange port raises when it is away.

        `patience_ended`: what still cannot be read refuses the order (`worker.unreadable_refuse_after`).
        """
        received = parse_order(graph)
        facts = await self._gather_facts(key, received)
        catalogue = self.catalogues()
        severities = {**self.rules.severities, **({UNREADABLE_RULE: "refuse"} if reject_unreadable else {})}
        judgement = assess(received, catalogue=catalogue, facts=facts, severities=severities, messages=self.messages)
        return AssessedOrder(graph, received, judgement, RuleContext(received, catalogue, facts).contract(), catalogue, facts)

    async def _gather_facts(self, key: OrderKey, received: ReceivedOrder) -> Facts:
        return Facts(
            now=self.clock.now(),
            systems=self.systems,
            known_contracts=frozenset(self.contracts),
            contract_codes_by_id=await self._load_contract_ids(),
            labels_in_use=await self.store.run(lambda uow: labels_in_use(uow, key, received)),
            own_guid=self.laboratory,
            label_pattern=self.rules.label_pattern,
            future_tolerance=timedelta(seconds=self.rules.future_tolerance),
            alignment_tolerance=timedelta(seconds=self.rules.alignment_tolerance),
        )

    async def _load_contract_ids(self) -> dict[str, str]:
        """Ids of the configured contracts. One that the service refuses to tell is unknown, which holds and never refuses."""
        ids: dict[str, str] = {}
        for code in self.contracts:
            try:
                ids.update(dict.fromkeys(await self.exchange.contract_ids(code), code))
            except ServiceRejected as refusal:
                log.warning("contract unknown to the service", action="contract_unknown", contract=code, reason=str(refusal))
        return ids


def labels_in_use(uow: UnitOfWork, key: OrderKey, received: ReceivedOrder) -> Mapping[str, frozenset[str]]:
    """Whose (patient references) the barcodes of this order are in other orders: asked to judge, and again to write it down."""
    barcodes = {
        identifier.value
        for specimen in received.specimens
        for container in specimen.containers
        for identifier in container.identifiers
    }
    in_use: dict[str, set[str]] = {}
    for use in uow.orders.labels_in_use(barcodes, except_order=key):
        in_use.setdefault(use.barcode, set()).add(use.patient_reference)
    return {barcode: frozenset(patients) for barcode, patients in in_use.items()}


def lock_labels(uow: UnitOfWork, key: OrderKey) -> None:
    """Wait until no other order is being written down: two that were judged side by side must not both find a label free."""
    uow.key_values.set(_LABEL_LOCK, key)


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
