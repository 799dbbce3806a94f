"""Finds the order that a message of a laboratory system names, and what that system may call the parts of its order.

Everything here is about what one laboratory system has of an order: numbers of two of them may be the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from lab_agent.lis.lab_messages import AccessionUpdate, LabMessage, LabRejection, LabReport
from lab_agent.orders.records import LineRecord, OrderRecord, WorkOrder
from lab_agent.queue import jobs
from lab_agent.results.records import ReportRecord
from lab_agent.results.report_coverage import OrderCodes
from lab_agent.shared import exact_json
from lab_agent.shared.ids import LineKey, OrderKey, WorkOrderKey, work_order_key
from lab_agent.shared.state_machines import ReportState
from lab_agent.shared.text import join_limited, shorten
from lab_agent.store.unit_of_work import UnitOfWork

_OWN_KINDS = frozenset({"order", "line"})
_STRONG_KINDS = _OWN_KINDS | {"report"}


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
    """Lock an order, and give what a laboratory system has of it. Raises `StoreError` if the order is unknown."""
    uow.orders.get_for_update(key)
    return read_part(uow, key, adapter, source=source)


def read_part(uow: UnitOfWork, key: OrderKey, adapter: str, *, source: str | None = None) -> OrderPart:
    """Give what a laboratory system has of an order that is only looked at. Raises `StoreError` if the order is unknown."""
    order, lines = uow.orders.get(key), uow.orders.lines(key)
    return OrderPart(
        order=order,
        adapter=adapter,
        source=source or adapter,
        work_order=next((each for each in uow.orders.work_orders(key) if each.adapter == adapter), None),
        lines=tuple(line for line in lines if line.adapter in {adapter, None}),
        elsewhere=tuple(line for line in lines if line.adapter not in {adapter, None}),
    )


Choose = Callable[[Collection[OrderKey], str], LookupResult]
"""Chooses one of several orders that a message names (second: how it names them) by what the message is about."""


def find_order(uow: UnitOfWork, message: LabMessage, report: ReportRecord, choose: Choose) -> LookupResult:
    """Find the one order that a message of a laboratory system names, among those of which that system has a part.

    The strongest name decides, and all others must agree: our own keys, which must be known; then the id of a report that went
    to its order before; then an accession or a barcode, which may be new, or that of several orders: those are for `choose`.
    About a message that names two orders an operator decides.
    """
    names = tuple(_find_references(uow, message, report.adapter))
    if foreign := [problem for name in names if (problem := _foreign_problem(uow, name, report.adapter))]:
        return LookupResult(problem=foreign[0])
    unknown = tuple(name for name in names if not name.orders)
    if len(unknown) == len(names) or any(name.kind in _OWN_KINDS for name in unknown):
        return LookupResult(problem=f"{join_limited(map(str, unknown)) or 'no name'}: no order here is known by it")
    known = [name for name in (*names, *_find_earlier_versions(uow, message, report, names)) if name.orders]
    common = set.intersection(*(set(name.orders) for name in known))
    if not common:
        return LookupResult(problem=f"names different orders: {join_limited(map(_describe, known), '; ')}")
    if report.order in common and report.state is not ReportState.UNMATCHED:
        return LookupResult(report.order, unknown=unknown)  # decided before: it is about that one, whatever came since
    if len(common) == 1 and any(name.kind in _STRONG_KINDS for name in known):
        return LookupResult(common.pop(), unknown=unknown)
    newest_first = [key for key in known[0].orders if key in common]
    return replace(choose(newest_first, join_limited(map(str, known))), unknown=unknown)


def awaited_names(message: LabMessage) -> tuple[str, ...]:
    """The names by which a message means its order: it can be matched once an order of such a name is there."""
    names: list[str | None] = [message.order, message.barcode, *_named_lines(message)]
    if not isinstance(message, AccessionUpdate):
        names.append(message.accession)
    return tuple(dict.fromkeys(filter(None, names)))


def rematch_awaiting(
    uow: UnitOfWork, order: OrderKey, names: Collection[str | None], adapters: Collection[str], now: datetime
) -> None:
    """Let the reports of these laboratory systems be matched again that came before the order of these names."""
    for report in uow.reports.awaiting([name for name in names if name]):
        if report.adapter in adapters:
            uow.jobs.add(jobs.match_report_of_new_order(report, order, now))


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
    for line in () if message.order else _named_lines(message):
        known = uow.orders.line(LineKey(line))
        yield OrderReference("line", line, (known.order,) if known else ())
    if message.accession and not isinstance(message, AccessionUpdate):
        yield OrderReference("accession", message.accession, uow.orders.by_accession(message.accession, adapter))
    if message.barcode:
        yield OrderReference("barcode", message.barcode, uow.orders.by_barcode(message.barcode, adapter))


def _named_lines(message: LabMessage) -> tuple[str, ...]:
    """The keys of lines by which a message may name its order."""
    if isinstance(message, LabReport):
        return tuple(dict.fromkeys(message.lines))
    reasons = message.not_performed if isinstance(message, LabRejection) else ()
    return tuple(dict.fromkeys(each.line for each in reasons if each.line))


def _find_earlier_versions(
    uow: UnitOfWork, message: LabMessage, report: ReportRecord, names: Iterable[OrderReference]
) -> Iterator[OrderReference]:
    """The order to which the report went before: it stays that one's, whatever else names another order now.

    An id that is made of a number of several orders says no more than the number. Nor is it asked about what was matched before.
    """
    if not isinstance(message, LabReport) or (report.order is not None and report.order == message.order):
        return
    if not any(name.value in message.report_id for name in names if len(name.orders) > 1):
        yield OrderReference("report", message.report_id, uow.reports.orders_of(report.source, message.report_id))


def _describe(name: OrderReference) -> str:
    return f"{name} of {join_limited(name.orders)}"


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
