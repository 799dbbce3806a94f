"""The studies that the interface names: the follow-up study, and the two-barcode studies (Create order: rules 3 and 4).

The catalogue may give other items the same needs; where it gives none to a study that the interface names, the interface's
own table holds, for the barcodes that we give out and for the orders that we judge alike.
"""

from __future__ import annotations

from collections.abc import Mapping

from lab_agent.catalogue.items import Item
from lab_agent.catalogue.shapes import Shape

SECOND_LABELS: Mapping[str, Shape] = {
    "042.036": Shape("0000-0000"),
    "042.075": Shape("0000-0000"),
    "042.076": Shape("000-000-000"),
}
OLD_ORDERS: Mapping[str, Shape] = {"190.1558": Shape("00000-XXXXX-00000000")}


def second_label(item: Item) -> Shape | None:
    """The shape of the second barcode that a test needs; None where it needs none."""
    return item.second_label or SECOND_LABELS.get(item.id)


def old_order(item: Item) -> Shape | None:
    """The shape of the old order number that a follow-up study needs; None for every other test."""
    return item.old_order or OLD_ORDERS.get(item.id)
