"""Which laboratory system gets which line of an order: by the routes of the settings, the contract, or the default."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from lab_agent.fhir.lab_order_mapper import code_in
from lab_agent.orders.order_assessment import AssessedOrder
from lab_agent.settings.exchange import ContractSettings
from lab_agent.settings.groups import LisRouteSettings
from lab_agent.shared.code_systems import CodeSystems
from lab_agent.shared.text import join_limited, shorten


@dataclass(frozen=True, slots=True)
class LineRouter:
    """Routes lines by the settings of this installation; the catalogue says of which group an item is."""

    systems: CodeSystems
    routes: Sequence[LisRouteSettings]
    contracts: Mapping[str, ContractSettings]
    default: str

    def route(self, assessed: AssessedOrder, accepted: Collection[str]) -> dict[str, str]:
        """The adapter of each accepted line, by its Task id."""
        contract = assessed.contract or ""
        items = self._items(assessed, accepted)
        return {task: self.adapter(contract, item, _group_of(assessed, item)) for task, item in items}

    def adapter(self, contract: str, item: str, group: str | None) -> str:
        """The adapter for one item: that of the first route that fits, else the contract's, else the default."""
        fitting = (route.adapter for route in self.routes if route.fits(contract, item, group))
        return next(fitting, None) or self.contracts.get(contract, ContractSettings()).adapter or self.default

    def hold_reason(self, assessed: AssessedOrder, accepted: Collection[str]) -> str | None:
        """Why lines cannot be routed: a route goes by groups, and no catalogue says their item's. None if all can be.

        Sent where the others go, they would be at the wrong laboratory system.
        """
        contract = assessed.contract or ""
        items = dict.fromkeys(item for _, item in self._items(assessed, accepted))
        unknown = [each for each in items if _group_of(assessed, each) is None and self._goes_by_group(contract, each)]
        if not unknown:
            return None
        names = join_limited(map(shorten, unknown))
        return f"the group of {names} is not known, by which [[lis.routes]] chooses the laboratory system; import the catalogue"

    def _goes_by_group(self, contract: str, item: str) -> bool:
        """Whether a route by groups comes before the first one that fits the item in any group."""
        for route in self.routes:
            if route.fits(contract, item, None):
                return False
            if route.groups and route.contract in {None, contract}:
                return True
        return False

    def _items(self, assessed: AssessedOrder, accepted: Collection[str]) -> Iterator[tuple[str, str]]:
        """The accepted lines by their Task ids, each with its item."""
        for line in assessed.received.lines:
            if line.id in accepted and line.request is not None:
                yield line.id, code_in(line.request.code, self.systems.nomenclature) or ""


def _group_of(assessed: AssessedOrder, item: str) -> str | None:
    return assessed.catalogue.group(assessed.contract or "", item) if assessed.catalogue else None
