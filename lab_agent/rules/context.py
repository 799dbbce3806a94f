"""What the rules check: the order as received, the catalogue, and the facts that no order carries.

The workflow gathers the facts first and freezes them, so that the rules stay pure. What several rules ask (which item a line
means, which barcode a tube has, what a Specimen says of itself) is answered here once, so that no two rules read it differently;
a context lives as long as one assessment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import NamedTuple

from lab_agent.catalogue.labels import second_label_pattern
from lab_agent.catalogue.model import Item
from lab_agent.catalogue.supporting_info import SupportingInfo, parse_supporting_info
from lab_agent.fhir.order_numbers import (
    HasForm,
    choose_supporting_info,
    known_second_labels,
    label_matches,
    second_label_candidates,
)
from lab_agent.fhir.patient_identity import PatientMatch
from lab_agent.fhir.received_order import (
    ReceivedContainer,
    ReceivedLine,
    ReceivedOrder,
    ReceivedRequest,
    ReceivedSpecimen,
    ReferenceText,
    ResourceRef,
)
from lab_agent.rules.catalogue_history import CatalogueHistory
from lab_agent.shared.code_systems import CodeSystem, CodeSystems, SystemMatch
from lab_agent.shared.ids import OrderKey
from lab_agent.shared.label_pools import IdentifierPattern
from lab_agent.shared.values import Coding, Identifier


class LabelHolder(NamedTuple):
    """Another order that uses a barcode, and how its patient compares with this order's."""

    match: PatientMatch
    order: OrderKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known outside the order when it is assessed.

    `known_contracts` are the configured contract codes, `contract_codes_by_id` the codes of Contract resources by their id.
    `labels_in_use`: barcode → the other orders with lines that were not rejected which use it.
    `own_guid` is the laboratory's counterparty guid, where it is set. `label_pattern` is the regular expression of a
    well-formed barcode. `service_clock_offset` is how far the service's clock is ahead of ours, None where it is not known,
    `clock_tolerance` by how much the two may differ. `old_order_beside_others` is the setting of that name.
    """

    now: datetime
    systems: CodeSystems
    known_contracts: frozenset[str] = frozenset()
    contract_codes_by_id: Mapping[str, str] = field(default_factory=dict)
    labels_in_use: Mapping[str, frozenset[LabelHolder]] = field(default_factory=dict)
    own_guid: str | None = None
    label_pattern: str = r"[0-9A-Za-z][0-9A-Za-z._\-]{2,29}"
    future_tolerance: timedelta = timedelta(minutes=15)
    alignment_tolerance: timedelta = timedelta(minutes=15)
    service_clock_offset: timedelta | None = None
    clock_tolerance: timedelta = timedelta(minutes=2)
    old_order_beside_others: bool = False

    @property
    def clock_difference(self) -> timedelta:
        """By how much our clock and the service's differ; none within the tolerance, or where it is not known."""
        difference = abs(self.service_clock_offset or timedelta())
        return difference if difference > self.clock_tolerance else timedelta()


@dataclass(frozen=True)
class RuleContext:
    """The order, the catalogue (None where it cannot be read) and the facts, with what many rules ask about them."""

    order: ReceivedOrder
    catalogue: CatalogueHistory | None
    facts: Facts

    def lines_with_requests(self) -> Iterator[tuple[ReceivedLine, ReceivedRequest]]:
        """The lines whose ProcedureRequest was read."""
        yield from self._lines_with_requests

    @cached_property
    def _lines_with_requests(self) -> tuple[tuple[ReceivedLine, ReceivedRequest], ...]:
        return tuple((line, line.request) for line in self.order.lines if line.request is not None)

    def contract_references(self, request: ReceivedRequest) -> tuple[ReferenceText, ...]:
        """The references of supportingInfo that name the contract, by address or by identifier.

        A number without a system, or in another's `…/contract`, counts only where nothing names the contract as it should be.
        """
        links = self.possible_contract_references(request)
        return tuple(link for link in links if self.is_surely_contract(link)) or links

    def possible_contract_references(self, request: ReceivedRequest) -> tuple[ReferenceText, ...]:
        """The references of supportingInfo that may name a contract."""
        return tuple(link for link in request.supporting_info if self._is_contract_reference(link))

    def is_surely_contract(self, reference: ReferenceText) -> bool:
        """Whether a reference leads to a Contract, or has an identifier in exactly our system."""
        return reference.target is not None or self.names_contract_exactly(reference.identifier)

    def names_contract_exactly(self, identifier: Identifier | None) -> bool:
        """Whether an identifier is in exactly our system of contract codes."""
        return identifier is not None and self.facts.systems.contract.match(identifier.system) is SystemMatch.EXACT

    def contract_code(self, reference: ReferenceText) -> str | None:
        """The code of the contract that a reference names; None for a Contract resource that is not known here."""
        if reference.target is not None:
            return self.facts.contract_codes_by_id.get(reference.target.id)
        return reference.identifier.value if reference.identifier else None

    @cached_property
    def contract(self) -> str | None:
        """The one known contract of the order; None if there is not exactly one."""
        codes = {
            self.contract_code(link) for _, request in self.lines_with_requests() for link in self.contract_references(request)
        }
        code = codes.pop() if len(codes) == 1 else None
        return code if code in self.facts.known_contracts else None

    def item_coding(self, request: ReceivedRequest) -> Coding | None:
        """The coding that names the test: one in the nomenclature's system before any other."""
        return best_coding(request.code.coding, self.facts.systems.nomenclature)

    def items(self, request: ReceivedRequest) -> tuple[Item, ...]:
        """The test in every catalogue version that the clinic may have seen; empty where it is not known."""
        return self._items[request.ref]

    @cached_property
    def _items(self) -> Mapping[ResourceRef, tuple[Item, ...]]:
        return {request.ref: self._find_items(request) for request in self.order.requests}

    def _find_items(self, request: ReceivedRequest) -> tuple[Item, ...]:
        contract, coding = self.contract, self.item_coding(request)
        if self.catalogue is None or contract is None or coding is None:
            return ()
        return self.catalogue.visible_items(contract, coding.code, self.catalogue_seen_at(request))

    def known_lines(self) -> Iterator[tuple[ReceivedLine, ReceivedRequest, tuple[Item, ...]]]:
        """The lines whose test is in the catalogue, with its versions."""
        yield from self._known_lines

    @cached_property
    def _known_lines(self) -> tuple[tuple[ReceivedLine, ReceivedRequest, tuple[Item, ...]], ...]:
        return tuple((line, request, items) for line, request in self.lines_with_requests() if (items := self.items(request)))

    def ordered_at(self, request: ReceivedRequest) -> datetime:
        """When the order was made; now, where it does not say."""
        return request.occurrence.at if request.occurrence and request.occurrence.at else self.facts.now

    def catalogue_seen_at(self, request: ReceivedRequest) -> datetime:
        """The moment by our clock from which on a clinic may have seen a catalogue; earlier by as much as the clocks differ."""
        return self.ordered_at(request) - self.facts.clock_difference

    def line_specimens(self) -> Iterator[tuple[ReceivedLine, tuple[Item, ...], ReceivedSpecimen]]:
        """The Specimens of each line whose test is in the catalogue: one that two lines share comes twice."""
        yield from self._line_specimens

    @cached_property
    def _line_specimens(self) -> tuple[tuple[ReceivedLine, tuple[Item, ...], ReceivedSpecimen], ...]:
        return tuple(
            (line, items, specimen)
            for line, request, items in self.known_lines()
            for specimen in self.order.specimens_of(request)
        )

    def specimens(self) -> Iterator[tuple[ReceivedSpecimen, tuple[str, ...]]]:
        """The Specimens with the ids of the lines that are made from them."""
        yield from self._specimens

    @cached_property
    def _specimens(self) -> tuple[tuple[ReceivedSpecimen, tuple[str, ...]], ...]:
        return tuple((each, tuple(line.id for line in self.order.lines_of(each))) for each in self.order.specimens)

    def containers(self) -> Iterator[tuple[ReceivedSpecimen, ReceivedContainer, tuple[str, ...]]]:
        """The containers of all Specimens, with the ids of the lines."""
        for specimen, lines in self.specimens():
            for container in specimen.containers:
                yield specimen, container, lines

    @cached_property
    def container_types(self) -> frozenset[str]:
        """Every container code of the catalogue; empty where there is no catalogue."""
        return self.catalogue.container_types() if self.catalogue else frozenset()

    def is_transport(self, container: ReceivedContainer) -> bool:
        """Whether a container is one that others travel in: it holds no biomaterial and has no barcode."""
        return any(coding.code in self.transport_types for coding in container.type.coding)

    @cached_property
    def transport_types(self) -> frozenset[str]:
        """The codes of containers that others travel in."""
        return self.catalogue.transport_types() if self.catalogue else frozenset()

    def label(self, container: ReceivedContainer) -> Identifier | None:
        """The laboratory's barcode of a container."""
        return next(iter(self.labels(container)), None)

    def labels(self, container: ReceivedContainer) -> tuple[Identifier, ...]:
        """What may be the laboratory's barcode of a container: more than one is for a person."""
        return self._labels[container.where]

    @cached_property
    def _labels(self) -> Mapping[str, tuple[Identifier, ...]]:
        containers = (container for specimen in self.order.specimens for container in specimen.containers)
        return {
            each.where: label_matches(each.identifiers, self.facts.systems, self._has_second_form(each)) for each in containers
        }

    def second_labels(self, container: ReceivedContainer) -> tuple[str, ...]:
        """The second barcodes of a container, by their system; studies that share it may each have one."""
        return known_second_labels(container.identifiers, self.facts.systems)

    def second_label_candidates(self, container: ReceivedContainer) -> tuple[str, ...]:
        """What may be a second barcode: those of its system, else every other number but the laboratory's barcode."""
        return second_label_candidates(container.identifiers, self.facts.systems, self._has_second_form(container))

    def barcodes(self, container: ReceivedContainer) -> tuple[str, ...]:
        """The barcodes of a container: the laboratory's, and second ones, by their system or by the form that its tests need."""
        label, known = self.label(container), self.second_labels(container)
        formed = filter(self._has_second_form(container), self.second_label_candidates(container))
        return tuple(dict.fromkeys((*((label.value,) if label else ()), *known, *formed)))

    def _has_second_form(self, container: ReceivedContainer) -> HasForm:
        patterns = self._second_patterns.get(container.where, frozenset())
        return lambda value: any(pattern.matches(value) for pattern in patterns)

    @cached_property
    def _second_patterns(self) -> Mapping[str, frozenset[IdentifierPattern]]:
        """The forms of second barcodes that the tests made from a container need, by its place; most need none."""
        found: dict[str, set[IdentifierPattern]] = {}
        for _, items, specimen in self.line_specimens():
            for pattern in filter(None, map(second_label_pattern, items)):
                for container in specimen.containers:
                    found.setdefault(container.where, set()).add(pattern)
        return {where: frozenset(patterns) for where, patterns in found.items()}

    def specimen_type_code(self, specimen: ReceivedSpecimen) -> str | None:
        """The biomaterial type; None where there is none, or only one of a foreign system."""
        return self._specimen_types[specimen.ref]

    def type_or_empty(self, specimen: ReceivedSpecimen) -> str:
        """The biomaterial type to look for in the catalogue; empty, which no test takes, where there is none."""
        return self.specimen_type_code(specimen) or ""

    @cached_property
    def _specimen_types(self) -> Mapping[ResourceRef, str | None]:
        return {each.ref: self._find_specimen_type(each) for each in self.order.specimens}

    def _find_specimen_type(self, specimen: ReceivedSpecimen) -> str | None:
        system = self.facts.systems.specimen_type
        coding = best_coding(specimen.type.coding, system)
        return coding.code if coding and system.match(coding.system) is not SystemMatch.FOREIGN else None

    def supporting_info(self, specimen: ReceivedSpecimen) -> SupportingInfo:
        """What the supportingInfo of a Specimen says; empty where it has none."""
        return self._supporting_infos[specimen.ref]

    @cached_property
    def _supporting_infos(self) -> Mapping[ResourceRef, SupportingInfo]:
        return {each.ref: self._find_supporting_info(each) for each in self.order.specimens}

    def _find_supporting_info(self, specimen: ReceivedSpecimen) -> SupportingInfo:
        info = choose_supporting_info(specimen.extensions, self.facts.systems)
        return parse_supporting_info(info) if info else SupportingInfo()

    def repeat_key(self, specimen: ReceivedSpecimen) -> tuple[str | None, str | None, frozenset[str]]:
        """What makes a test with this Specimen a repeat: biomaterial type, body site, and container types.

        The interface leaves open what a repeat is (table of silences: allow_multiple_items); baskets are read the same way.
        """
        sites = [coding.code for coding in specimen.body_site.coding]
        containers = frozenset(coding.code for each in specimen.containers for coding in each.type.coding)
        return self.specimen_type_code(specimen), sites[0] if sites else self.supporting_info(specimen).bodysite_code, containers

    def _is_contract_reference(self, reference: ReferenceText) -> bool:
        if reference.target is not None:
            return reference.target.type == "Contract"
        system = self.facts.systems.contract
        return reference.identifier is not None and system.match(reference.identifier.system) is not SystemMatch.FOREIGN


def best_coding(codings: Iterable[Coding], system: CodeSystem) -> Coding | None:
    """The coding whose system fits best; None where there is no coding at all."""
    return min(codings, key=lambda coding: system.rank(coding.system), default=None)


def all_versions_reject(accepted: Iterable[bool]) -> bool:
    """Whether there are catalogue versions of an item and none of them accepts it: only then is it the order's fault."""
    answers = tuple(accepted)
    return bool(answers) and not any(answers)
