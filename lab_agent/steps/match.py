"""Collection, second half: find the order and the lines of a report; what fits nothing is held in sight (law 11)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import ClassVar

import structlog

from lab_agent import exact_json
from lab_agent.codec import load_message
from lab_agent.domain import effects
from lab_agent.domain.coverage import Coverage, cover
from lab_agent.domain.ids import LineKey, OrderKey, ReportKey
from lab_agent.domain.journal import Effect, EffectKind, Event, OrderRecord, ReportRecord
from lab_agent.domain.lifecycle import LineState, OrderState, ReportState
from lab_agent.domain.results import LabMessage, LabRefusal, LabReport, ReportStatus
from lab_agent.domain.versions import is_older
from lab_agent.ports.clock import Clock
from lab_agent.ports.store import UnitOfWork
from lab_agent.steps.endings import cancel_lines
from lab_agent.steps.follow import follow
from lab_agent.steps.handler import Claim, Conclusion

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Match:
    """Matches reports to orders. All of it is one unit of work: nothing outside is touched."""

    clock: Clock

    kinds: ClassVar[frozenset[EffectKind]] = frozenset({EffectKind.MATCH})

    async def do(self, claim: Claim) -> Conclusion:  # noqa: ARG002 - everything needed is in the store
        """Match it in the concluding unit of work."""
        now = self.clock.now()

        def write(uow: UnitOfWork, effect: Effect) -> Effect:
            report = match_report(uow, ReportKey(effect.subject), now)
            log.info("report matched", action="report_matched", order=report.order, state=report.state.value)
            return effect.done(now, report.reason)

        return write

    look = do


def match_report(uow: UnitOfWork, key: ReportKey, now: datetime) -> ReportRecord:
    """Match one report, write what follows, and give it as it stands then. Also called when a person asks for it again."""
    report = uow.reports.take(key)
    message = load_message(report.body)
    orders = _orders_named(uow, message)
    if len(orders) != 1:
        return _hold(uow, report, ReportState.UNMATCHED, now, _why_unmatched(message, len(orders)))
    order = uow.orders.take(orders[0])
    report = replace(report, order=order.key)
    coverage = cover(message, uow.orders.lines(order.key), codes_of(order))
    if coverage.problem:
        return _hold(uow, report, ReportState.UNMATCHED, now, coverage.problem)
    report = replace(report, lines=coverage.lines)
    if isinstance(message, LabRefusal):
        return _refused(uow, report, message, coverage, now)
    return _reported(uow, report, order, message, coverage, now)


def _reported(
    uow: UnitOfWork, report: ReportRecord, order: OrderRecord, message: LabReport, coverage: Coverage, now: datetime
) -> ReportRecord:
    versions = [other for other in uow.reports.versions(order.key, message.report_id) if other.key != report.key]
    if any(is_older(report, other) for other in versions if other.state in {ReportState.MATCHED, ReportState.DELIVERED}):
        reason = "a newer version of this report came before it"
        return _save(uow, report.become(ReportState.SUPERSEDED, now, reason), now, reason)
    delivered = any(other.state in {ReportState.DELIVERED, ReportState.MATCHED} for other in versions)
    if order.state in {OrderState.WITHDRAWN, OrderState.CLOSED, OrderState.REFUSED} and not delivered:
        reason = f"the order is {order.state.value}, and this is the first that is heard of this report"
        return _hold(uow, report, ReportState.HELD, now, reason)
    for line in uow.orders.lines(order.key):
        if line.key in coverage.completes and line.state is LineState.ACCEPTED and message.status is ReportStatus.FINAL:
            uow.orders.save_line(line.become(LineState.RESULTED, now))
    uow.effects.add(effects.deliver(report.key, order.key, now))
    return _save(uow, report.become(ReportState.MATCHED, now), now, f"{message.status.value} report {message.report_id} matched")


def _refused(uow: UnitOfWork, report: ReportRecord, message: LabRefusal, coverage: Coverage, now: datetime) -> ReportRecord:
    order = OrderKey(report.order or "")
    again = " — please collect again" if message.collect_again else ""
    cancel_lines(uow, order, {line: reason + again for line, reason in coverage.not_performed.items()}, now)
    report = report.become(ReportState.MATCHED, now).become(ReportState.DELIVERED, now)
    follow(uow, order, now)
    return _save(uow, report, now, "the laboratory system refused " + ", ".join(coverage.not_performed))


def _orders_named(uow: UnitOfWork, message: LabMessage) -> tuple[OrderKey, ...]:
    """Orders that the message names: by our keys if it gives any, else by accession, else by barcode."""
    if message.order:
        key = OrderKey(message.order)
        return (key,) if uow.orders.lines(key) else ()
    if isinstance(message, LabReport) and message.lines:
        lines = (uow.orders.line(LineKey(name)) for name in message.lines)
        return tuple({line.order for line in lines if line is not None})
    if message.accession:
        return uow.orders.by_accession(message.accession)
    return uow.orders.by_barcode(message.barcode)[:1] if message.barcode else ()


def _why_unmatched(message: LabMessage, found: int) -> str:
    names = {"order": message.order, "accession": message.accession, "barcode": message.barcode}
    named = ", ".join(f"{kind} {value}" for kind, value in names.items() if value) or "line keys"
    return f"{named}: no order here is known by it" if not found else f"{named}: {found} orders are known by it"


def codes_of(order: OrderRecord) -> dict[str, list[LineKey]]:
    """Nomenclature and laboratory codes of the lines that went to the laboratory."""
    codes: dict[str, list[LineKey]] = {}
    for line in exact_json.loads(order.lab_order)["lines"] if order.lab_order else ():
        for code in {line["item"], line.get("lab_code")} - {None}:
            codes.setdefault(code, []).append(LineKey(line["key"]))
    return codes


def _hold(uow: UnitOfWork, report: ReportRecord, state: ReportState, now: datetime, reason: str) -> ReportRecord:
    held = report.become(state, now, reason)
    uow.reports.save(held)
    return held


def _save(uow: UnitOfWork, report: ReportRecord, now: datetime, text: str) -> ReportRecord:
    uow.reports.save(report)
    if report.order is not None:
        uow.book.tell(Event(order=report.order, at=now, action="result", text=text))
    return report
