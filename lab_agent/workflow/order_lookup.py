"""Finds the order that a message of the LIS names, and the names by which the LIS may speak of the parts of an order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lab_agent import exact_json
from lab_agent.domain.ids import LineKey, OrderKey
from lab_agent.domain.lab_messages import AccessionUpdate, LabMessage, LabRejection, LabReport
from lab_agent.domain.records import OrderRecord
from lab_agent.domain.report_coverage import OrderCodes
from lab_agent.domain.text import join_limited, shorten
from lab_agent.ports.repositories import UnitOfWork

_OWN_KINDS = frozenset({"order", "line"})


@dataclass(frozen=True, slots=True)
class OrderReference:
    """One name that a message gives, and the orders that are known by it, newest first. `kind` says what it is the name of."""

    kind: str
    value: str
    orders: tuple[OrderKey, ...]

    def __str__(self) -> str:
        """The reference as it stands in a reason."""
        return f"{self.kind} {shorten(self.value)}"


@dataclass(frozen=True, slots=True)
class LookupResult:
    """The one order that a message names, or the `problem`; and the references beside it that are unknown."""

    order: OrderKey | None = None
    problem: str = ""
    unknown: tuple[OrderReference, ...] = ()


def find_order(uow: UnitOfWork, message: LabMessage) -> LookupResult:
    """Find the one order that a message names.

    Our own keys must be known. An accession or a barcode may be new, but whatever is known must agree: about a result that names
    two orders an operator decides.
    """
    names = tuple(_find_references(uow, message))
    said = join_limited(map(str, names))
    unknown = tuple(name for name in names if not name.orders)
    if len(unknown) == len(names) or any(name.kind in _OWN_KINDS for name in unknown):
        return LookupResult(problem=f"{join_limited(map(str, unknown)) or 'no name'}: no order here is known by it")
    common = set.intersection(*(set(name.orders) for name in names if name.orders))
    if not common:
        return LookupResult(problem=f"{said}: they name different orders")
    if len(common) == 1:
        return LookupResult(common.pop(), unknown=unknown)
    known = [name for name in names if name.orders]
    if [name.kind for name in known] == ["barcode"]:
        return LookupResult(known[0].orders[0], unknown=unknown)  # tubes are labelled anew after years: the newest order is meant
    return LookupResult(problem=f"{said}: {len(common)} orders are known by it")


def _find_references(uow: UnitOfWork, message: LabMessage) -> Iterator[OrderReference]:
    if message.order:
        key = OrderKey(message.order)
        yield OrderReference("order", key, (key,) if uow.orders.lines(key) else ())
    reasons = message.not_performed if isinstance(message, LabRejection) and not message.order else ()
    lines = message.lines if isinstance(message, LabReport) else tuple(one.line for one in reasons if one.line)
    for line in dict.fromkeys(() if message.order else lines):
        known = uow.orders.line(LineKey(line))
        yield OrderReference("line", line, (known.order,) if known else ())
    if message.accession and not isinstance(message, AccessionUpdate):
        yield OrderReference("accession", message.accession, uow.orders.by_accession(message.accession))
    if message.barcode:
        yield OrderReference("barcode", message.barcode, uow.orders.by_barcode(message.barcode))


def submitted_order(order: OrderRecord) -> Mapping[str, Any]:
    """The order as JSON, as it went to the laboratory; without lines if it has not gone yet, or was purged."""
    tree: Mapping[str, Any] = exact_json.loads(order.lab_order) if order.lab_order else {"lines": ()}
    return tree


def order_codes(order: OrderRecord) -> OrderCodes:
    """Codes and tubes of the lines that went to the laboratory."""
    tree = submitted_order(order)
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
