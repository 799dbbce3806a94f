"""By what names a laboratory system speaks of the parts of an order: as it went to the laboratory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lab_agent import exact_json
from lab_agent.domain.coverage import OrderCodes
from lab_agent.domain.ids import LineKey
from lab_agent.domain.journal import OrderRecord


def order_codes(order: OrderRecord) -> OrderCodes:
    """Codes and tubes of the lines that went to the laboratory; none where the order is not there yet, or was purged."""
    tree: Mapping[str, Any] = exact_json.loads(order.lab_order) if order.lab_order else {"lines": ()}
    codes: dict[str, tuple[LineKey, ...]] = {}
    tubes: dict[str, tuple[LineKey, ...]] = {}
    for line in tree["lines"]:
        _add_lines(codes, (line["item"], line.get("lab_code")), (LineKey(line["key"]),))
    for specimen in tree.get("specimens", ()):
        served = tuple(LineKey(line["key"]) for line in tree["lines"] if specimen["id"] in line.get("specimens", ()))
        for container in specimen.get("containers", ()):
            _add_lines(tubes, (container.get("barcode"), container.get("second_barcode")), served)
    return OrderCodes(codes, tubes, order.accession)


def _add_lines(found: dict[str, tuple[LineKey, ...]], names: Iterable[str | None], lines: tuple[LineKey, ...]) -> None:
    for name in filter(None, names):
        found[name] = tuple(dict.fromkeys((*found.get(name, ()), *lines)))
