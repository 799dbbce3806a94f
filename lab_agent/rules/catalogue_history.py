"""The catalogue as the rules need it: every version that the clinic may have seen.

A clinic may cache the nomenclature for a day, so an order is assessed by every version that was in force since one cache
lifetime before it was made (interface: Limits). What any of those versions allows is allowed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from lab_agent.catalogue.labels import second_label_pattern
from lab_agent.catalogue.model import Catalogue, Item
from lab_agent.catalogue.questionnaire import QuestionNode, build_questionnaire
from lab_agent.catalogue.supporting_info import parse_supporting_info
from lab_agent.catalogue.turnaround import Availability, Available, compute_eta


@dataclass(frozen=True, slots=True)
class VersionPeriod:
    """A catalogue version, and until when it was in force (None: it is now)."""

    catalogue: Catalogue
    active_until: datetime | None = None


@dataclass(frozen=True, slots=True)
class CatalogueHistory:
    """Catalogue versions, newest first. `cache_lifetime` is the installation's; a contract may have its own.

    `unreadable_until` says until when the stored versions were in force that cannot be read: nobody knows what they allowed.
    """

    versions: tuple[VersionPeriod, ...]
    cache_lifetime: timedelta = timedelta(days=1)
    unreadable_until: tuple[datetime, ...] = ()

    @classmethod
    def from_catalogue(cls, catalogue: Catalogue) -> CatalogueHistory:
        """A history of one version alone."""
        return cls((VersionPeriod(catalogue),))

    def has_items_for(self, contract: str) -> bool:
        """Whether any version offers anything for the contract."""
        return any(found.items for each in self.versions if (found := each.catalogue.find_contract(contract)))

    def current_item(self, contract: str, item_id: str) -> Item | None:
        """The item as the newest version offers it."""
        return _find_item(self.versions[0].catalogue, contract, item_id) if self.versions else None

    def visible_items(self, contract: str, item_id: str, at: datetime) -> tuple[Item, ...]:
        """The item in every version that a clinic may have seen at `at`, newest first; empty if in none."""
        found = (_find_item(each.catalogue, contract, item_id) for each in self._visible_versions(contract, at))
        return tuple(item for item in found if item)

    def may_include_unreadable(self, contract: str, at: datetime) -> bool:
        """Whether the clinic may have seen at `at` a version that cannot be read."""
        lifetime = max([self.cache_lifetime, *(self._cache_lifetime(each.catalogue, contract) for each in self.versions)])
        return any(until > at - lifetime for until in self.unreadable_until)

    def availability(self, contract: str, item: Item, at: datetime) -> Availability:
        """Whether the item was available, delayed or stopped at `at`, by the newest version's notices."""
        if not self.versions:
            return Available()
        return compute_eta(contract, item.id, item.turnaround, self.versions[0].catalogue.notices, at).status

    def questions(self, items: tuple[Item, ...]) -> tuple[QuestionNode, ...]:
        """The questions that our API would ask for a basket of these items, by the newest version."""
        return build_questionnaire(self.versions[0].catalogue, items).questions() if self.versions else ()

    def container_types(self) -> frozenset[str]:
        """Every container code of every version."""
        return frozenset(code for each in self.versions for code in each.catalogue.containers)

    def transport_types(self) -> frozenset[str]:
        """Codes of containers that others travel in; they carry no barcode of their own."""
        containers = (box for each in self.versions for box in each.catalogue.containers.values())
        return frozenset(box.transport_type for box in containers if box.transport_type)

    def lab_code(self, contract: str, item_id: str) -> str | None:
        """The laboratory's own code of an item, by the newest version that has it."""
        found = (_find_item(each.catalogue, contract, item_id) for each in self.versions)
        return next((item.lab_id or None for item in found if item), None)

    def group(self, contract: str, item_id: str) -> str | None:
        """The group of an item, by the newest version that has it; None if none has."""
        found = (_find_item(each.catalogue, contract, item_id) for each in self.versions)
        return next((item.group for item in found if item), None)

    def nomenclature_code(self, contract: str, code: str) -> str | None:
        """The nomenclature code of an item by that code or by the laboratory's own, by the newest version that has it."""
        for each in self.versions:
            offered = found.items if (found := each.catalogue.find_contract(contract)) else {}
            if code in offered:
                return code
            if named := next((item.id for item in offered.values() if item.lab_id == code), None):
                return named
        return None

    def is_second_label(self, contract: str, item_ids: Collection[str], value: str) -> bool:
        """Whether a number has the form of the second barcode that one of these items needs, in any version."""
        items = (_find_item(each.catalogue, contract, item_id) for each in self.versions for item_id in item_ids)
        patterns = (second_label_pattern(item) for item in items if item)
        return any(pattern.matches(value) for pattern in patterns if pattern)

    def body_site(self, supporting_info: str) -> str | None:
        """The body site that a tube's supportingInfo names."""
        return parse_supporting_info(supporting_info).bodysite_code

    def _visible_versions(self, contract: str, at: datetime) -> Iterator[VersionPeriod]:
        for each in self.versions:
            if each.active_until is None or each.active_until > at - self._cache_lifetime(each.catalogue, contract):
                yield each

    def _cache_lifetime(self, catalogue: Catalogue, contract: str) -> timedelta:
        """How long a clinic of the contract may keep that version; the installation's setting where the contract has none."""
        found = catalogue.find_contract(contract)
        own = found.cache_lifetime_seconds if found else None
        return self.cache_lifetime if own is None else timedelta(seconds=own)


def _find_item(catalogue: Catalogue, contract: str, item_id: str) -> Item | None:
    found = catalogue.find_contract(contract)
    return found.items.get(item_id) if found else None
