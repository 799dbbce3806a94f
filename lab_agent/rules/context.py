"""One order before its judge: what was received, the catalogue, the facts, and what every rule asks about them.

What a rule cannot see in the order: the step gathers it first and freezes it, so that the rules stay pure.

What a Specimen says about itself: type, body site, time point. Shared by the rules that compare it with the catalogue.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property

from lab_agent.catalogue.model import Item
from lab_agent.catalogue.supporting_info import SupportingInfo, parse_supporting_info
from lab_agent.domain.code_systems import CodeSystem, CodeSystems, SystemMatch
from lab_agent.domain.received_order import (
    ReceivedContainer,
    ReceivedLine,
    ReceivedOrder,
    ReceivedRequest,
    ReceivedSpecimen,
    ReferenceText,
    ResourceRef,
)
from lab_agent.domain.values import Coding, Identifier
from lab_agent.rules.catalogue_history import CatalogueHistory


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The world at the time of judgement.

    `contract_ids` are the ids of Contract resources with their codes, `contracts` the configured codes. `labels_in_use`:
    barcode → patient references (`ReceivedOrder.patient_reference`) of other orders' lines that are not refused. `own_guid` is
    the laboratory's counterparty guid, where it is set. `label_pattern` is the regular expression of a well-formed barcode.
    """

    now: datetime
    systems: CodeSystems
    known_contracts: frozenset[str] = frozenset()
    contract_codes_by_id: Mapping[str, str] = field(default_factory=dict)
    labels_in_use: Mapping[str, frozenset[str]] = field(default_factory=dict)
    own_guid: str | None = None
    label_pattern: str = r"[0-9A-Za-z][0-9A-Za-z._\-]{2,29}"
    future_tolerance: timedelta = timedelta(minutes=15)
    alignment_tolerance: timedelta = timedelta(minutes=15)


@dataclass(frozen=True)
class RuleContext:
    """The order, the catalogue (None where it cannot be read) and the facts. What many rules ask is worked out once."""

    order: ReceivedOrder
    catalogue: CatalogueHistory | None
    facts: Facts

    def lines_with_requests(self) -> Iterator[tuple[ReceivedLine, ReceivedRequest]]:
        """The lines whose ProcedureRequest was read."""
        for line in self.order.lines:
            if line.request is not None:
                yield line, line.request

    def contract_references(self, request: ReceivedRequest) -> tuple[ReferenceText, ...]:
        """The links of supportingInfo that name a contract, by reference or by identifier."""
        return tuple(link for link in request.supporting_info if self._is_contract_reference(link))

    def contract_code(self, reference: ReferenceText) -> str | None:
        """The code of the contract that a link names; None where the reference leads to a contract that we do not know."""
        if reference.target is not None:
            return self.facts.contract_codes_by_id.get(reference.target.id)
        return reference.identifier.value if reference.identifier else None

    def contract(self) -> str | None:
        """The one known contract of the order; None if there is not exactly one."""
        return self._contract

    @cached_property
    def _contract(self) -> str | None:
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
        return self._items.get(request.ref, ())

    @cached_property
    def _items(self) -> Mapping[ResourceRef, tuple[Item, ...]]:
        return {request.ref: self._find_items(request) for request in self.order.requests}

    def _find_items(self, request: ReceivedRequest) -> tuple[Item, ...]:
        contract, coding = self.contract(), self.item_coding(request)
        if self.catalogue is None or contract is None or coding is None:
            return ()
        return self.catalogue.visible_items(contract, coding.code, self.ordered_at(request))

    def known_lines(self) -> Iterator[tuple[ReceivedLine, ReceivedRequest, tuple[Item, ...]]]:
        """The lines whose test is in the catalogue, with its versions."""
        for line, request in self.lines_with_requests():
            if items := self.items(request):
                yield line, request, items

    def ordered_at(self, request: ReceivedRequest) -> datetime:
        """When the order was made; now, where it does not say."""
        return request.occurrence.at if request.occurrence and request.occurrence.at else self.facts.now

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

    def label(self, container: ReceivedContainer) -> Identifier | None:
        """The laboratory's barcode of a container."""
        second, labels = self.facts.systems.second_labels, self.facts.systems.labels
        candidates = [each for each in container.identifiers if not (second and _is_same_system(second, each.system))]
        ranked = sorted(candidates, key=lambda each: list(SystemMatch).index(labels.match(each.system)))
        return ranked[0] if ranked and labels.match(ranked[0].system) is not SystemMatch.FOREIGN else None

    def second_labels(self, container: ReceivedContainer) -> tuple[str, ...]:
        """The second barcodes of a container, by their system; studies that share it may each have one."""
        second = self.facts.systems.second_labels
        return tuple(each.value for each in container.identifiers if second and _is_same_system(second, each.system))

    def unrecognized_labels(self, container: ReceivedContainer) -> tuple[str, ...]:
        """Numbers on a container that are in neither of the label systems: they may be second barcodes in a system misspelt."""
        labels, known = self.facts.systems.labels, self.second_labels(container)
        foreign = (each for each in container.identifiers if labels.match(each.system) is SystemMatch.FOREIGN)
        return tuple(each.value for each in foreign if each.value not in known)

    def _is_contract_reference(self, reference: ReferenceText) -> bool:
        if reference.target is not None:
            return reference.target.type == "Contract"
        system = self.facts.systems.contract
        return reference.identifier is not None and system.match(reference.identifier.system) is not SystemMatch.FOREIGN


def best_coding(codings: Iterable[Coding], system: CodeSystem) -> Coding | None:
    """The coding whose system fits best; None where there is no coding at all."""
    ranked = sorted(codings, key=lambda coding: list(SystemMatch).index(system.match(coding.system)))
    return ranked[0] if ranked else None


def all_versions_reject(accepted: Iterable[bool]) -> bool:
    """Whether no catalogue version of an item finds it good (and there is one): only then is it the order's fault."""
    said = tuple(accepted)
    return bool(said) and not any(said)


def _is_same_system(system: CodeSystem, given: str | None) -> bool:
    return system.match(given) in {SystemMatch.EXACT, SystemMatch.SPELLED_DIFFERENTLY}


def specimen_type_code(context: RuleContext, specimen: ReceivedSpecimen) -> str | None:
    """The biomaterial type; None where there is none, or only one of a foreign system."""
    system = context.facts.systems.specimen_type
    coding = best_coding(specimen.type.coding, system)
    return coding.code if coding and system.match(coding.system) is not SystemMatch.FOREIGN else None


def specimen_supporting_info(context: RuleContext, specimen: ReceivedSpecimen) -> SupportingInfo:
    """What its supportingInfo says; empty where it has none."""
    system = context.facts.systems.supporting_info
    ours = (each.value for each in specimen.extensions if system.match(each.url) is not SystemMatch.FOREIGN)
    return parse_supporting_info(next((value for value in ours if value), ""))


def specimen_repeat_key(context: RuleContext, specimen: ReceivedSpecimen) -> tuple[str | None, str | None, frozenset[str]]:
    """What makes a repeat: biomaterial type, body site, and container types (silence on allow_multiple_items)."""
    sites = [coding.code for coding in specimen.body_site.coding]
    containers = frozenset(coding.code for each in specimen.containers for coding in each.type.coding)
    return (
        specimen_type_code(context, specimen),
        (sites[0] if sites else specimen_supporting_info(context, specimen).bodysite_code),
        containers,
    )
