"""The laboratory's own numbers: written on the order and its lines, whether they come at the handover or later.

A report may then name its order by any of them. A line that has no number of its own carries that of its tube.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime

from lab_agent.codec import load_kept
from lab_agent.domain import effects
from lab_agent.domain.ids import LineKey, OrderKey
from lab_agent.domain.journal import OrderRecord, ReportRecord
from lab_agent.domain.lifecycle import ReportState
from lab_agent.domain.quoting import quoted
from lab_agent.domain.results import LabReceipt
from lab_agent.ports.lis import Receipt
from lab_agent.ports.store import UnitOfWork
from lab_agent.steps.order_names import names_of


class UnknownNumber(LookupError):
    """A receipt gives a number to something that the order does not have."""


def receive(uow: UnitOfWork, key: OrderKey, receipt: Receipt) -> None:
    """Write the numbers of a receipt; a name that is not in the order is passed over, since the order was taken all the same."""
    order = uow.orders.take(key)
    if receipt.accession:
        uow.orders.save(replace(order, accession=receipt.accession))
    tubes = names_of(order).tubes
    by_tube = {line: number for code, number in receipt.tube_accessions.items() for line in tubes.get(code, ())}
    _number(uow, key, by_tube, receipt.line_accessions)


def match_again(uow: UnitOfWork, key: OrderKey, receipt: Receipt, now: datetime) -> None:
    """Let what came before the numbers of a receipt, and names its order by one of them, be matched again."""
    numbers = {receipt.accession, *receipt.tube_accessions.values(), *receipt.line_accessions.values()}
    for report, number in waiting_for(uow, numbers - {None}):
        uow.effects.add(effects.match_again(report, number, key, now))


def waiting_for(uow: UnitOfWork, numbers: Collection[str | None]) -> tuple[tuple[ReportRecord, str], ...]:
    """What waits because its accession, one of these `numbers`, was not known, each with it; by arrival."""
    waiting = [each for each in uow.reports.waiting() if each.state is ReportState.UNMATCHED] if numbers else []
    named = ((each, message.accession) for each in waiting if not isinstance(message := load_kept(each.body), LabReceipt))
    return tuple((each, accession) for each, accession in named if accession and accession in numbers)


def receive_later(uow: UnitOfWork, order: OrderRecord, receipt: LabReceipt) -> None:
    """Write the numbers of a receipt that came by itself. Raises `UnknownNumber`, and nothing was written then."""
    known = names_of(order)
    keys = {str(line.key): (line.key,) for line in uow.orders.lines(order.key)}
    by_line: dict[LineKey, str] = {}
    by_tube: dict[LineKey, str] = {}
    for each in receipt.accessions:
        numbers, places = (by_tube, known.tubes) if each.barcode else (by_line, {**known.codes, **keys})
        name = each.barcode or each.line or each.item or ""
        if name not in places:
            raise UnknownNumber(f"{quoted(name)} is no line, item or tube of this order")
        numbers.update(dict.fromkeys(places[name], each.number))
    if receipt.accession:
        uow.orders.save(replace(order, accession=receipt.accession))
    _number(uow, order.key, by_tube, by_line)


def _number(uow: UnitOfWork, key: OrderKey, by_tube: Mapping[LineKey, str], by_line: Mapping[LineKey, str]) -> None:
    for line in uow.orders.lines(key):
        number = by_line.get(line.key) or line.accession or by_tube.get(line.key)
        if number != line.accession:
            uow.orders.save_line(replace(line, accession=number))
