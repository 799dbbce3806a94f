"""The laboratory's own accession numbers: saved with the order and its lines, whether they come at the handover or later.

A report may then name its order by any of them. A line without a number of its own has that of its tube.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from lab_agent.lis.lab_messages import AccessionUpdate
from lab_agent.lis.laboratory_system import SubmitResult
from lab_agent.results.order_lookup import OrderPart, load_part, rematch_awaiting
from lab_agent.shared.ids import LineKey, OrderKey
from lab_agent.shared.text import shorten
from lab_agent.store.unit_of_work import UnitOfWork


class UnknownNumberTarget(LookupError):
    """An update numbers something that the order does not have."""


def save_submit_accessions(uow: UnitOfWork, key: OrderKey, adapter: str, submit_result: SubmitResult) -> None:
    """Save the numbers of a handover's answer; unknown barcodes are ignored, since the order was accepted all the same."""
    part = load_part(uow, key, adapter)
    if submit_result.accession and part.work_order:
        uow.orders.save_work_order(replace(part.work_order, accession=submit_result.accession))
    tubes = part.codes.barcodes
    by_tube = {line: number for code, number in submit_result.tube_accessions.items() for line in tubes.get(code, ())}
    _number_lines(uow, part, by_tube, submit_result.line_accessions)


def rematch_waiting_reports(uow: UnitOfWork, key: OrderKey, adapter: str, submit_result: SubmitResult, now: datetime) -> None:
    """Let reports that came before the numbers of a handover's answer, and name their order by one of them, be matched again."""
    numbers = {submit_result.accession, *submit_result.tube_accessions.values(), *submit_result.line_accessions.values()}
    rematch_awaiting(uow, key, numbers, {adapter}, now)


def save_accession_update(uow: UnitOfWork, part: OrderPart, update: AccessionUpdate) -> None:
    """Save the numbers of an accession update. Raises `UnknownNumberTarget`, and nothing was written then."""
    codes = part.codes
    keys = {str(line.key): (line.key,) for line in part.lines}
    by_line: dict[LineKey, str] = {}
    by_tube: dict[LineKey, str] = {}
    for each in update.accessions:
        numbers, places = (by_tube, codes.barcodes) if each.barcode else (by_line, {**codes.codes, **keys})
        name = each.barcode or each.line or each.item or ""
        if name not in places:
            raise UnknownNumberTarget(f"{shorten(name)} names no line, item or tube of this order")
        numbers.update(dict.fromkeys(places[name], each.number))
    if update.accession and part.work_order:
        uow.orders.save_work_order(replace(part.work_order, accession=update.accession))
    _number_lines(uow, part, by_tube, by_line)


def _number_lines(uow: UnitOfWork, part: OrderPart, by_tube: Mapping[LineKey, str], by_line: Mapping[LineKey, str]) -> None:
    for line in part.lines:
        number = by_line.get(line.key) or line.accession or by_tube.get(line.key)
        if number != line.accession:
            uow.orders.save_line(replace(line, accession=number))
