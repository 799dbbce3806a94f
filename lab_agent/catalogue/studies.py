"""The studies that the interface names: the follow-up study, and the two-barcode studies (Create order: rules 3 and 4).

The catalogue may give other items the same needs; where it gives none to a study that the interface names, the interface's
own table holds, for the barcodes that we give out and for the orders that we judge alike.
"""

from __future__ import annotations

from collections.abc import Mapping

from lab_agent.catalogue.items import Item
from lab_agent.catalogue.shapes import IdentifierPattern

STUDY_SECOND_LABEL_PATTERNS: Mapping[str, IdentifierPattern] = {
    "042.036": IdentifierPattern("0000-0000"),
    "042.075": IdentifierPattern("0000-0000"),
    "042.076": IdentifierPattern("000-000-000"),
}
STUDY_OLD_ORDER_PATTERNS: Mapping[str, IdentifierPattern] = {"190.1558": IdentifierPattern("00000-XXXXX-00000000")}


def second_label_pattern(item: Item) -> IdentifierPattern | None:
    """The shape of the second barcode that a test needs; None where it needs none."""
    return item.second_label_pattern or STUDY_SECOND_LABEL_PATTERNS.get(item.id)


def old_order_pattern(item: Item) -> IdentifierPattern | None:
    """The shape of the old order number that a follow-up study needs; None for every other test."""
    return item.old_order_pattern or STUDY_OLD_ORDER_PATTERNS.get(item.id)
