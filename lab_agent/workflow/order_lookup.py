"""Finds the order that a message of a laboratory system names, and what that system may call the parts of its order.

Everything here is about what one laboratory system has of an order: numbers of two of them may be the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lab_agent import exact_json
from lab_agent.domain.ids import LineKey, OrderKey, WorkOrderKey, work_order_key
from lab_agent.domain.lab_messages import AccessionUpdate, LabMessage, LabRejection, LabReport
from lab_agent.domain.records import LineRecord, OrderRecord
from lab_agent.domain.report_coverage import OrderCodes
from lab_agent.domain.text import join_limited, shorten
from lab_agent.domain.work_orders import WorkOrder
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


@dataclass(frozen=True, slots=True)
class OrderPart:
    """What one laboratory system has of an order: its `lines` there, and their `codes`.

    `lines` are also those that went to no laboratory system (rejected, late), so that a message about them is told so.
    `work_order` is None for a laboratory system that has no part of the order. `source` is the one whose reports are meant:
    another than `adapter` where an operator matched its report to lines that it was not asked for.
    """

    order: OrderRecord
    adapter: str
    source: str
    work_order: WorkOrder | None
    lines: tuple[LineRecord, ...]
    elsewhere: tuple[LineRecord, ...]
    """Lines that other laboratory systems have."""

    @property
    def key(self) -> WorkOrderKey:
        """What the identifiers of its reports begin with: report ids are unique for the system that gives them alone."""
        return work_order_key(self.order.key, self.source)

    @property
    def codes(self) -> OrderCodes:
        """Codes and tubes of its lines that went to the laboratory system."""
        return _order_codes(self.submitted, self.work_order.accession if self.work_order else None)

    @property
    def codes_elsewhere(self) -> Mapping[str, Sequence[LineKey]]:
        """Codes of the lines that other laboratory systems have."""
        return _order_codes(_submitted(self.order, self.elsewhere), None).codes

    @property
    def submitted(self) -> Mapping[str, Any]:
        """Its part of the order as JSON, as it went to the laboratory system; without lines if it was purged."""
        return _submitted(self.order, self.lines)


def load_part(uow: UnitOfWork, key: OrderKey, adapter: str, *, source: str | None = None) -> OrderPart:
    """What a laboratory system has of an order. Raises `StoreError` if the order is unknown."""
    order, lines = uow.orders.get_for_update(key), uow.orders.lines(key)
    return OrderPart(
        order=order,
        adapter=adapter,
        source=source or adapter,
        work_order=next((each for each in uow.orders.work_orders(key) if each.adapter == adapter), None),
        lines=tuple(line for line in lines if line.adapter in {adapter, None}),
        elsewhere=tuple(line for line in lines if line.adapter not in {adapter, None}),
    )


def find_order(uow: UnitOfWork, message: LabMessage, adapter: str) -> LookupResult:
    """Find the one order that a message of the laboratory system `adapter` names, among those of which it has a part.

    Our own keys must be known. An accession or a barcode may be new, but whatever is known must agree: about a result that names
    two orders an operator decides.
    """
    names = tuple(_find_references(uow, message, adapter))
    if foreign := [problem for name in names if (problem := _foreign_problem(uow, name, adapter))]:
        return LookupResult(problem=foreign[0])
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


def find_foreign_name(part: OrderPart, message: LabMessage) -> str | None:
    """Say which line or item a message names that only another laboratory system has; None if it names no such."""
    own = {*part.codes.codes, *(line.key for line in part.lines)}
    places = {str(line.key): line.adapter for line in part.elsewhere}
    places |= {name: places[keys[0]] for name, keys in part.codes_elsewhere.items()}
    for name in _names_in(message):
        if name not in own and name in places:
            return f"{shorten(name)} is at the laboratory system {places[name]}, not at {part.adapter}"
    return None


def _names_in(message: LabMessage) -> Iterator[str]:
    """The lines and items that a message names."""
    if isinstance(message, AccessionUpdate):
        yield from (name for each in message.accessions for name in (each.line, each.item) if name)
        return
    if isinstance(message, LabReport):
        yield from (*message.lines, *message.items, *(message.completes or ()))
    yield from (name for each in message.not_performed for name in (each.line, each.item) if name)


def _foreign_problem(uow: UnitOfWork, name: OrderReference, adapter: str) -> str | None:
    """Why one of our own keys cannot be meant: what it names is only in other laboratory systems. None if it can."""
    if name.kind not in _OWN_KINDS or not name.orders:
        return None
    if name.kind == "line":
        line = uow.orders.line(LineKey(name.value))
        others = [line.adapter] if line and line.adapter not in {adapter, None} else []
    else:
        others = [each.adapter for each in uow.orders.work_orders(name.orders[0])]
        others = [] if adapter in others else others
    return f"{name} is at the laboratory system {join_limited(map(str, others))}, not at {adapter}" if others else None


def _find_references(uow: UnitOfWork, message: LabMessage, adapter: str) -> Iterator[OrderReference]:
    if message.order:
        key = OrderKey(message.order)
        yield OrderReference("order", key, (key,) if uow.orders.lines(key) else ())
    reasons = message.not_performed if isinstance(message, LabRejection) and not message.order else ()
    lines = message.lines if isinstance(message, LabReport) else tuple(one.line for one in reasons if one.line)
    for line in dict.fromkeys(() if message.order else lines):
        known = uow.orders.line(LineKey(line))
        yield OrderReference("line", line, (known.order,) if known else ())
    if message.accession and not isinstance(message, AccessionUpdate):
        yield OrderReference("accession", message.accession, uow.orders.by_accession(message.accession, adapter))
    if message.barcode:
        yield OrderReference("barcode", message.barcode, uow.orders.by_barcode(message.barcode, adapter))


def submitted_order(order: OrderRecord) -> Mapping[str, Any]:
    """The order as JSON, as it went to the laboratory; without lines if it has not gone yet, or was purged."""
    tree: Mapping[str, Any] = exact_json.loads(order.lab_order) if order.lab_order else {"lines": ()}
    return tree


def _submitted(order: OrderRecord, lines: Collection[LineRecord]) -> Mapping[str, Any]:
    """The part of an order with these lines, and the specimens that they are made from."""
    tree, keys = submitted_order(order), {line.key for line in lines}
    mine = [line for line in tree["lines"] if line["key"] in keys]
    used = {specimen for line in mine for specimen in line.get("specimens", ())}
    return {**tree, "lines": mine, "specimens": [each for each in tree.get("specimens", ()) if each["id"] in used]}


def _order_codes(tree: Mapping[str, Any], accession: str | None) -> OrderCodes:
    codes: dict[str, tuple[LineKey, ...]] = {}
    tubes: dict[str, tuple[LineKey, ...]] = {}
    for line in tree["lines"]:
        _add_lines(codes, (line["item"], line.get("lab_code")), (LineKey(line["key"]),))
    for specimen in tree.get("specimens", ()):
        served = tuple(LineKey(line["key"]) for line in tree["lines"] if specimen["id"] in line.get("specimens", ()))
        for container in specimen.get("containers", ()):
            _add_lines(tubes, (container.get("barcode"), container.get("second_barcode")), served)
    return OrderCodes(codes, tubes, accession)


def _add_lines(found: dict[str, tuple[LineKey, ...]], names: Iterable[str | None], lines: tuple[LineKey, ...]) -> None:
    for name in filter(None, names):
        found[name] = tuple(dict.fromkeys((*found.get(name, ()), *lines)))
