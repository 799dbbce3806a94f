"""Lines that were to be completed by a report which does not go after all: they wait for another one, in sight (law 11)."""

from __future__ import annotations

from datetime import datetime

from lab_agent.codec import load_stored_message
from lab_agent.domain.coverage import determine_coverage
from lab_agent.domain.ids import LineKey, OrderKey, ReportKey
from lab_agent.domain.journal import Event, JobKind
from lab_agent.domain.lifecycle import LineState, ReportState
from lab_agent.domain.results import AccessionUpdate
from lab_agent.ports.store import UnitOfWork
from lab_agent.steps.order_names import order_codes


def reopen_lines(uow: UnitOfWork, order: OrderKey, now: datetime) -> None:
    """Take the lines that wait as resulted, and that no report on its way completes, back to accepted."""
    resulted = [line for line in uow.orders.lines(order) if line.state is LineState.RESULTED]
    coming = _lines_being_completed(uow, order) if resulted else frozenset()
    for line in resulted:
        if line.key not in coming:
            uow.orders.save_line(line.transition_to(LineState.ACCEPTED, now))
            text = f"line {line.key} waits for a result again: the report that was to complete it does not go"
            uow.events.add(Event(order=order, at=now, action="line_reopened", text=text))


def _lines_being_completed(uow: UnitOfWork, order: OrderKey) -> frozenset[LineKey]:
    """Lines that reports on their way will complete; each of these has an open delivery."""
    lines, names = uow.orders.lines(order), order_codes(uow.orders.get_for_update(order))
    deliveries = (each for each in uow.jobs.list_for_order(order) if each.kind is JobKind.DELIVER_REPORT)
    reports = (uow.reports.get_for_update(ReportKey(each.target)) for each in deliveries)
    messages = (load_stored_message(report.body) for report in reports if report.state is ReportState.MATCHED)
    return frozenset(
        key
        for message in messages
        if not isinstance(message, AccessionUpdate)
        for key in determine_coverage(message, lines, names).completes
    )
