"""Collection, second half: find the order and the lines of a report; what fits nothing is held in sight (law 11).

What is matched here can be delivered: codes are mapped, documents are what they say, and every value has a legal form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import ClassVar

import structlog

from lab_agent import exact_json
from lab_agent.codec import dump_message, load_kept
from lab_agent.domain import effects
from lab_agent.domain.coverage import Coverage, cover
from lab_agent.domain.ids import LineKey, OrderKey, ReportKey
from lab_agent.domain.journal import Effect, EffectKind, Event, LineRecord, OrderRecord, ReportRecord
from lab_agent.domain.lifecycle import LineState, ReportState
from lab_agent.domain.quoting import quoted, several
from lab_agent.domain.results import LabReceipt, LabRefusal
from lab_agent.domain.versions import is_older
from lab_agent.ports.clock import Clock
from lab_agent.ports.store import UnitOfWork
from lab_agent.steps.clearing import Clearing, Found, Waits
from lab_agent.steps.endings import cancel_lines, has_result, with_result
from lab_agent.steps.follow import follow
from lab_agent.steps.handler import Claim, Conclusion
from lab_agent.steps.naming import Named, order_named
from lab_agent.steps.receipts import UnknownNumber, receive_later, waiting_for

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Matcher:
    """Matches one report within a unit of work; nothing outside is touched."""

    clearing: Clearing

    def match(self, uow: UnitOfWork, key: ReportKey, now: datetime, *, waive: bool = False) -> ReportRecord:
        """Match one report, write what follows, and give it as it stands then. Also called when a person asks for it again.

        `waive`: a person has looked, and a report for an order that has ended, that seems hardly meant, or with an odd document
        (under the type that its bytes show) is to go out. What has no legal form on the wire is held all the same.
        """
        report = uow.reports.take(key)
        message = load_kept(report.body)
        named = order_named(uow, message)
        if named.order is None:
            return _hold(uow, report, ReportState.UNMATCHED, now, named.problem)
        order = uow.orders.take(named.order)
        lines = uow.orders.lines(order.key)
        report = replace(report, order=order.key)
        _warn_of_strangers(uow, report, named, order, lines, now)
        if isinstance(message, LabReceipt):
            return self._numbered(uow, report, order, message, now)
        coverage = cover(message, lines, codes_of(order))
        if coverage.problem:
            return _hold(uow, report, ReportState.UNMATCHED, now, coverage.problem)
        report = replace(report, lines=coverage.lines)
        if isinstance(message, LabRefusal):
            return _refused(uow, report, coverage, now, again=message.collect_again, waive=waive)
        sent = _sent(uow, report, order.key, message.report_id)
        return self._reported(uow, Found(report, message, order, lines, coverage, sent), now, waive=waive)

    def _numbered(
        self, uow: UnitOfWork, report: ReportRecord, order: OrderRecord, receipt: LabReceipt, now: datetime
    ) -> ReportRecord:
        """Write the laboratory's numbers, then match what came before them and names the order by one of them."""
        numbered = _numbered(uow, report, order, receipt, now)
        if numbered.state is ReportState.DELIVERED:
            numbers = {receipt.accession, *(each.number for each in receipt.accessions)} - {None}
            for early, _ in waiting_for(uow, numbers):
                self.match(uow, early.key, now)
        return numbered

    def _reported(self, uow: UnitOfWork, found: Found, now: datetime, *, waive: bool) -> ReportRecord:
        report, message = found.report, found.message
        if not found.went and found.coverage.not_performed and not (message.observations or message.documents):
            return _refused(uow, report, found.coverage, now, waive=waive)  # an empty report would tell the clinic nothing
        if any(is_older(report, other) for other in found.sent):
            reason = "a newer version of this report came before it"
            return _save(uow, report.become(ReportState.SUPERSEDED, now, reason), now, reason)
        try:
            message, changed = self.clearing.clear(uow, found, now, waive=waive)
        except Waits as waits:
            return _hold(uow, report, waits.state, now, str(waits))
        if message != found.message:
            report = replace(report, body=dump_message(message))
        _mark_resulted(uow, found, now)
        deliver(uow, report.key, found.order.key, now)
        matched = f"{message.status.value} report {quoted(message.report_id)} matched{_left_aside(found)}"
        return _save(uow, report.become(ReportState.MATCHED, now, several(changed, "; ") or None), now, matched)


@dataclass(frozen=True, slots=True)
class Match:
    """Matches reports to orders. All of it is one unit of work: nothing outside is touched."""

    clock: Clock
    matcher: Matcher

    kinds: ClassVar[frozenset[EffectKind]] = frozenset({EffectKind.MATCH})

    async def do(self, claim: Claim) -> Conclusion:  # noqa: ARG002 - everything needed is in the store
        """Match it in the concluding unit of work."""
        now = self.clock.now()

        def write(uow: UnitOfWork, effect: Effect) -> Effect:
            key = ReportKey(effect.subject)
            if uow.reports.take(key).state not in {ReportState.RECEIVED, ReportState.UNMATCHED}:
                return effect.done(now, "a person has decided already")
            report = self.matcher.match(uow, key, now)
            log.info("report matched", action="report_matched", order=report.order, state=report.state.value)
            return effect.done(now, report.reason)

        return write

    look = do


def deliver(uow: UnitOfWork, report: ReportKey, order: OrderKey, now: datetime) -> None:
    """Write the duty to deliver a report; once more, under a name of its own, where an earlier one has ended without effect."""
    duty = effects.deliver(report, order, now)
    if not uow.effects.add(duty):
        waiting = [each for each in uow.effects.of_order(order) if each.kind is EffectKind.DELIVER and each.subject == report]
        if not waiting:
            uow.effects.add(replace(duty, once=f"{duty.once}:{now.isoformat()}"))


def _sent(uow: UnitOfWork, report: ReportRecord, order: OrderKey, report_id: str) -> tuple[ReportRecord, ...]:
    versions = (other for other in uow.reports.versions(order, report_id) if other.key != report.key)
    return tuple(other for other in versions if other.state in {ReportState.MATCHED, ReportState.DELIVERED})


def _mark_resulted(uow: UnitOfWork, found: Found, now: datetime) -> None:
    for line in found.lines:
        if line.key in found.coverage.completes and line.state is LineState.ACCEPTED:
            uow.orders.save_line(line.become(LineState.RESULTED, now))


def _warn_of_strangers(
    uow: UnitOfWork, report: ReportRecord, named: Named, order: OrderRecord, lines: Sequence[LineRecord], now: datetime
) -> None:
    """Tell of names beside the right one that nobody knows here. A laboratory that never gave a number may give it any time."""
    numbered = bool(order.accession) or any(line.accession for line in lines)
    strange = [name for name in named.unknown if name.sort != "accession" or numbered]
    if strange:
        text = f"result {report.key} also names {several(map(str, strange))}, which is not known here"
        uow.book.tell(Event(order=order.key, report=report.key, at=now, action="warning", text=text))
        kinds = [name.sort for name in strange]
        key = report.key
        log.warning("result names what is not known here", action="result_name_unknown", order=order.key, report=key, kind=kinds)


def _numbered(uow: UnitOfWork, report: ReportRecord, order: OrderRecord, receipt: LabReceipt, now: datetime) -> ReportRecord:
    """Write the laboratory's own numbers; nothing of it goes to the service."""
    try:
        receive_later(uow, order, receipt)
    except UnknownNumber as unknown:
        return _hold(uow, report, ReportState.UNMATCHED, now, str(unknown))
    done = report.become(ReportState.MATCHED, now).become(ReportState.DELIVERED, now)
    return _save(uow, done, now, "the laboratory gave its own numbers")


def _left_aside(found: Found) -> str:
    """What to tell of lines that the report is about and that were withdrawn."""
    withdrawn = found.coverage.withdrawn
    return f"; {several(withdrawn)} was withdrawn, and its Task does not move" if withdrawn else ""


def _refused(
    uow: UnitOfWork, report: ReportRecord, coverage: Coverage, now: datetime, *, again: bool = False, waive: bool
) -> ReportRecord:
    """Cancel the lines that a message refuses, and say only of those that moved that they were refused."""
    order = OrderKey(report.order or "")
    late = with_result(uow.orders.lines(order), coverage.not_performed)
    if late and not waive:
        return _hold(uow, report, ReportState.HELD, now, f"refuses {has_result(late)}")
    collect = " — please collect again" if again else ""
    moved = cancel_lines(uow, order, {line: reason + collect for line, reason in coverage.not_performed.items()}, now)
    report = report.become(ReportState.MATCHED, now).become(ReportState.DELIVERED, now)
    follow(uow, order, now)
    return _save(uow, report, now, _told_of_refusal(uow, order, coverage, moved))


def _told_of_refusal(uow: UnitOfWork, order: OrderKey, coverage: Coverage, moved: Sequence[LineKey]) -> str:
    states = {line.key: line.state.value for line in uow.orders.lines(order)}
    stayed = several(f"{key} is {states[key]}, and stays so" for key in coverage.not_performed if key not in moved)
    waiting = several(key for key in coverage.completes if states[key] == LineState.ACCEPTED.value)
    parts = [
        f"the laboratory system refused {', '.join(moved)}" if moved else "the laboratory system refused what does not wait",
        stayed,
        f"nothing is said of {waiting}, which wait for a result" if waiting else "",
    ]
    return "; ".join(part for part in parts if part)


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
    text = f"result {held.key} is {state.value}: {reason}"
    uow.book.tell(Event(order=held.order, report=held.key, at=now, action="result_held", text=text))
    return held


def _save(uow: UnitOfWork, report: ReportRecord, now: datetime, text: str) -> ReportRecord:
    uow.reports.save(report)
    uow.book.tell(Event(order=report.order, report=report.key, at=now, action="result", text=text))
    return report
