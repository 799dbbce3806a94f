"""Where the barcodes of tubes come from, and which studies need a second barcode or an old order number.

The interface allows a tube without a barcode (`label: null`): the partner then uses its own, as agreed with the laboratory. That
is what `NoLabels` answers; pools that reserve numbers in the store implement the same port.

The interface names one follow-up study and some two-barcode studies (Create order: rules 3 and 4), and the catalogue may add
others. Where the catalogue says nothing of a study that the interface names, the table here counts: for the barcodes that we
allocate and for the orders that we check alike.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from lab_agent.catalogue.basket import Basket
from lab_agent.catalogue.model import Item, Requirement
from lab_agent.catalogue.tubes import Tube
from lab_agent.shared.label_pools import IdentifierPattern

_MIN_GUID_LENGTH = 16
STUDY_SECOND_LABEL_PATTERNS: Mapping[str, IdentifierPattern] = {
    "042.036": IdentifierPattern("0000-0000"),
    "042.075": IdentifierPattern("0000-0000"),
    "042.076": IdentifierPattern("000-000-000"),
}
STUDY_OLD_ORDER_PATTERNS: Mapping[str, IdentifierPattern] = {"190.1558": IdentifierPattern("00000-XXXXX-00000000")}


def second_label_pattern(item: Item) -> IdentifierPattern | None:
    """The pattern of the second barcode that a test needs; None where it needs none."""
    return item.second_label_pattern or STUDY_SECOND_LABEL_PATTERNS.get(item.id)


def old_order_pattern(item: Item) -> IdentifierPattern | None:
    """The pattern of the old order number that a follow-up study needs; None for every other test."""
    return item.old_order_pattern or STUDY_OLD_ORDER_PATTERNS.get(item.id)


@dataclass(frozen=True, slots=True)
class TubeLabels:
    """The barcode of one tube (None: the partner's own), and its second barcodes if a study needs them."""

    first: str | None = None
    second: tuple[str, ...] = ()


class LabelSource(Protocol):
    """Gives the labels of each tube, in their order; the same basket asked again gets the same labels."""

    async def labels(self, basket: Basket, tubes: tuple[Tube, ...], version: str) -> tuple[TubeLabels, ...]:
        """Give the labels of these tubes; `version` is the catalogue's."""
        ...


class NoLabels:
    """No labels: the partner uses its own."""

    async def labels(self, basket: Basket, tubes: tuple[Tube, ...], version: str) -> tuple[TubeLabels, ...]:  # noqa: ARG002 - the port's shape
        """Give no label for each tube."""
        return (TubeLabels(),) * len(tubes)


def basket_fingerprint(basket: Basket, version: str) -> str | None:
    """A digest that is the same for the same basket: contract, guids, items with their biomaterial, and catalogue version.

    The order of the items does not count. None where another patient's basket could be the same: a guid is missing, or too
    short to be unique.
    """
    if any(len(line.guid or "") < _MIN_GUID_LENGTH for line in basket.lines):
        return None
    lines = sorted(
        "\x1f".join((guid.lower(), line.item.id, *sorted(map(_requirement_key, line.chosen_requirements))))
        for line in basket.lines
        for guid in line.guids
    )
    return hashlib.sha256("\x1e".join((version, basket.contract.code, *lines)).encode()).hexdigest()


def second_label_patterns(basket: Basket, tube: Tube) -> tuple[IdentifierPattern, ...]:
    """The patterns of the second barcodes that a tube needs."""
    patterns = {line.item.id: second_label_pattern(line.item) for line in basket.lines}
    return tuple(sorted({pattern for item in tube.item_ids if (pattern := patterns.get(item))}, key=str))


def _requirement_key(requirement: Requirement) -> str:
    option = requirement.option
    return f"{option.specimen_code}/{option.bodysite_code}/{option.container_type}"
