"""Assess a fetched order: gather what the rules cannot see, then run them.

An order may be assessed once more for somebody who wants to know why; nothing is written anywhere then.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Protocol

import structlog

from lab_agent.exchange.service import Exchange
from lab_agent.fhir.order_graph import OrderGraph
from lab_agent.fhir.order_parser import parse_order, parse_patients
from lab_agent.fhir.patient_identity import PatientMatch, compare_patients
from lab_agent.fhir.received_order import ReceivedOrder
from lab_agent.orders.fetching import fetch_graph
from lab_agent.orders.patient_data import unpack_patients
from lab_agent.orders.records import LabelUse, OrderRecord
from lab_agent.rules.catalogue_history import CatalogueHistory
from lab_agent.rules.context import Facts, LabelHolder, RuleContext
from lab_agent.rules.engine import Assessment, assess_in_context
from lab_agent.settings.exchange import ContractSettings
from lab_agent.settings.groups import RulesSettings
from lab_agent.shared.clock import Clock
from lab_agent.shared.code_systems import CodeSystems
from lab_agent.shared.errors import ServiceRejected, StoreError
from lab_agent.shared.ids import OrderKey
from lab_agent.store.unit_of_work import Store, UnitOfWork

log = structlog.get_logger(__name__)

UNREADABLE_RULE = "order.readable"
"""The rule about what cannot be read."""

LabelsInUse = Mapping[str, frozenset[LabelHolder]]
"""By barcode, the other orders that use it."""
CatalogueSource = Callable[[], CatalogueHistory | None]
"""Gives the catalogue versions as they stand; None where none can be read."""


class ContractLookup(Protocol):
    """What an assessment asks the service itself (part of the port `Exchange`)."""

    async def contract_ids(self, code: str) -> Sequence[str]:
        """Ids of the Contract with this code."""
        ...


@dataclass(frozen=True, slots=True)
class AssessedOrder:
    """An order as it was read, and what the rules say of it."""

    graph: OrderGraph
    assessment: Assessment
    context: RuleContext
    reject_unreadable: bool
    """What cannot be read rejects the order (`worker.unreadable_refuse_after`)."""

    @property
    def received(self) -> ReceivedOrder:
        """The order as read."""
        return self.context.order

    @property
    def contract(self) -> str | None:
        """The contract that it comes under; None if that is not known."""
        return self.context.contract

    @property
    def catalogue(self) -> CatalogueHistory | None:
        """The catalogue versions that it was assessed by; None where none could be read."""
        return self.context.catalogue


@dataclass(frozen=True, slots=True)
class OrderAssessor:
    """Assesses orders by the rules and the settings of this installation."""

    exchange: ContractLookup
    clock: Clock
    systems: CodeSystems
    laboratory: str
    contracts: Mapping[str, ContractSettings]
    rules: RulesSettings
    catalogues: CatalogueSource
    messages: Mapping[str, str] = field(default_factory=dict)
    """Reasons in another language, by rule id."""
    service_clock_offset: Callable[[], timedelta | None] = lambda: None
    """How far the service's clock is ahead of ours; None where it is not known."""
    clock_tolerance: timedelta = timedelta(minutes=2)
    """By how much the two clocks may differ."""

    async def assess(
        self,
        graph: OrderGraph,
        received: ReceivedOrder,
        *,
        labels: LabelsInUse | None = None,
        released: Collection[str] = (),
        reject_unreadable: bool = False,
    ) -> AssessedOrder:
        """Assess an order, given as its graph and as `received` from it. Raises what the exchange port raises if unavailable.

        `labels`: as of `labels_in_use`; nobody else's, if that is not known yet. `released` are digests of findings that an
        operator has overridden.
        """
        facts = Facts(
            now=self.clock.now(),
            systems=self.systems,
            known_contracts=frozenset(self.contracts),
            contract_codes_by_id=await self._load_contract_ids(),
            labels_in_use=labels or {},
            own_guid=self.laboratory,
            label_pattern=self.rules.label_pattern,
            future_tolerance=timedelta(seconds=self.rules.future_tolerance),
            alignment_tolerance=timedelta(seconds=self.rules.alignment_tolerance),
            old_order_beside_others=self.rules.old_order_beside_others,
            service_clock_offset=self.service_clock_offset(),
            clock_tolerance=self.clock_tolerance,
        )
        reject_unreadable = reject_unreadable and not facts.clock_difference  # how long it has been so is a matter of clocks, too
        return self._assess(graph, RuleContext(received, self.catalogues(), facts), released, reject_unreadable)

    def assess_again(self, assessed: AssessedOrder, labels: LabelsInUse, released: Collection[str]) -> AssessedOrder:
        """Assess what was read once more, with the labels that others use now. Pure."""
        context = replace(assessed.context, facts=replace(assessed.context.facts, labels_in_use=labels))
        return self._assess(assessed.graph, context, released, assessed.reject_unreadable)

    def _assess(
        self, graph: OrderGraph, context: RuleContext, released: Collection[str], reject_unreadable: bool
    ) -> AssessedOrder:
        severities = dict(self.rules.severities)
        if reject_unreadable:
            severities[UNREADABLE_RULE] = "refuse"
        assessment = assess_in_context(context, severities=severities, messages=self.messages, released=released)
        return AssessedOrder(graph, assessment, context, reject_unreadable)

    async def _load_contract_ids(self) -> dict[str, str]:
        """Ids of the configured contracts. One that the service does not give stays unknown: orders are held, never rejected."""
        ids: dict[str, str] = {}
        for code in self.contracts:
            try:
                ids.update(dict.fromkeys(await self.exchange.contract_ids(code), code))
            except ServiceRejected as refusal:
                log.warning("contract not given by the service", action="contract_unknown", contract=code, reason=str(refusal))
        return ids


def labels_in_use(uow: UnitOfWork, key: OrderKey, received: ReceivedOrder) -> LabelsInUse:
    """By barcode of this order, the other orders that use it, and how their patients compare with this one's."""
    barcodes = {
        identifier.value
        for specimen in received.specimens
        for container in specimen.containers
        for identifier in container.identifiers
    }
    in_use: dict[str, set[LabelHolder]] = {}
    for use in uow.orders.labels_in_use(barcodes, except_order=key):
        in_use.setdefault(use.barcode, set()).add(LabelHolder(_compare_with_holder(uow, use, received), use.order))
    return {barcode: frozenset(holders) for barcode, holders in in_use.items()}


def _compare_with_holder(uow: UnitOfWork, use: LabelUse, received: ReceivedOrder) -> PatientMatch:
    """A partner may create the Patient anew for each order, so that another reference is not yet another person."""
    if use.patient_reference and use.patient_reference == received.patient_reference:
        return PatientMatch.SAME
    identity = uow.vault.identity(use.order)
    holders = parse_patients(unpack_patients(identity)) if identity else ()
    return compare_patients(received.patient, holders[0] if len(holders) == 1 else None)


@dataclass(frozen=True, slots=True)
class RecordedContracts:
    """Contract ids without the service: what the order links to is taken for the contract that is stored with it."""

    code: str | None
    ids: tuple[str, ...]

    async def contract_ids(self, code: str) -> Sequence[str]:
        """Ids that the order links to, if it is under this contract."""
        return self.ids if code == self.code else ()


async def reassess(store: Store, assessor: OrderAssessor, key: OrderKey) -> AssessedOrder:
    """Assess the order as it was last fetched. Raises `StoreError` if it is unknown or was never fetched."""
    order, identity = await store.run_read_only(lambda uow: (uow.orders.get(key), uow.vault.identity(key)))
    if order.received is None:
        raise StoreError(f"order {key} was never fetched completely; use --fetch to read it from the service")
    graph = OrderGraph.from_json(order.received, unpack_patients(identity) if identity else None)
    received = parse_order(graph)
    recorded = replace(assessor, exchange=_recorded_contracts(order, received))
    return await _assess_as_stored(store, recorded, order, graph, received)


async def fetch_and_assess(
    exchange: Exchange, base_url: str, store: Store, assessor: OrderAssessor, key: OrderKey
) -> AssessedOrder:
    """Assess the order as the service has it now. Raises `StoreError`, and what the exchange port raises."""
    order = await store.run_read_only(lambda uow: uow.orders.get(key))
    order_task = (await exchange.read("Task", order.task_id)).body
    graph = await fetch_graph(exchange, base_url, order_task, await exchange.line_tasks(order.task_id))
    return await _assess_as_stored(store, assessor, order, graph, parse_order(graph))


async def _assess_as_stored(
    store: Store, assessor: OrderAssessor, order: OrderRecord, graph: OrderGraph, received: ReceivedOrder
) -> AssessedOrder:
    """Assess an order with the labels in use and what was released, as they are stored; nothing is decided on it."""
    labels = await store.run_read_only(lambda uow: labels_in_use(uow, order.key, received))
    return await assessor.assess(graph, received, labels=labels, released=order.released_findings)


def _recorded_contracts(order: OrderRecord, received: ReceivedOrder) -> RecordedContracts:
    targets = [link.target for request in received.requests for link in request.supporting_info]
    ids = {target.id for target in targets if target is not None and target.type == "Contract"}
    return RecordedContracts(order.contract, tuple(sorted(ids)))
