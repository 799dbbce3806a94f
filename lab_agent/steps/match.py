"""Collection, second half: find the order and the lines of a report; what fits nothing is held in sight (law 11).

What is matched here can be delivered: codes are mapped, documents are what they say, and every value has a legal form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import ClassVar

import structlog

from lab_agent.codec import dump_message, load_kept
from lab_agent.domain import effects
from lab_agent.domain.coverage import Coverage, cover, only_refuses
from lab_agent.domain.ids import LineKey, OrderKey, ReportKey
from lab_agent.domain.journal import Effect, EffectKind, Event, LineRecord, OrderRecord, ReportRecord
from lab_agent.domain.lifecycle import ASKING_EFFECTS, WAITING_REPORTS, LineState, ReportState
from lab_agent.domain.quoting import quoted, several
from lab_agent.domain.results import LabReceipt, LabRefusal, LabReport
from lab_agent.domain.versions import is_older, oldest_first
from lab_agent.fhir.uploads import report_value
from lab_agent.ports.clock import Clock
from lab_agent.ports.store import UnitOfWork
from lab_agent.steps.clearing import Clearing, Found, Waits
from lab_agent.steps.endings import cancel_lines, has_result, with_result
from lab_agent.steps.follow import follow
from lab_agent.steps.handler import Claim, Conclusion
from lab_agent.steps.left_out import has_content, lost_to
from lab_agent.steps.naming import Named, order_named
from lab_agent.steps.order_names import names_of
from lab_agent.steps.reasons import behind, is_behind, is_overtaken, overtaken
from lab_agent.steps.receipts import UnknownNumber, receive_later, waiting_for

log = structlog.get_logger(__name__)

_GOES = frozenset({ReportState.MATCHED, ReportState.DELIVERED})


@dataclass(frozen=True, slots=True)
class Matcher:
    """Matches one report within a unit of work; nothing outside is touched."""

    clearing: Clearing

    def match(self, uow: UnitOfWork, key: ReportKey, now: datetime, *, waive: bool = False) -> ReportRecord:
        """Match one report, write what follows, and give it as it stands then. Also called when a person asks for it again.

        What waits for it is matched again, once it does not wait any more.

        `waive`: a person has looked, and a report for an order that has ended, that seems hardly meant, or with an odd document
        (under the type that its bytes show) is to go out. What has no legal form on the wire is held all the same.
        """
        matched = self._match(uow, uow.reports.take(key), now, waive=waive)
        if matched.state not in WAITING_REPORTS:
            wake_newer(uow, matched, now)
        return matched

    def _match(self, uow: UnitOfWork, report: ReportRecord, now: datetime, *, waive: bool) -> ReportRecord:
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
        coverage = cover(message, lines, names_of(order))
        if coverage.problem:
            return _hold(uow, report, ReportState.UNMATCHED, now, coverage.problem)
        report = replace(report, lines=coverage.lines)
        if isinstance(message, LabRefusal):
            return _refused(uow, report, message, coverage, now, waive=waive)
        return self._reported(uow, _found(uow, report, message, order, coverage), now, waive=waive)

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
        if found.newer:
            return _overtaken(uow, found, now, waive=waive)
        if self._keeps and found.waiting and not waive:
            return _hold(uow, report, ReportState.HELD, now, behind(found.waiting[-1].key))
        if only_refuses(message) and not found.went and (waive or not _said_before(found)):
            return _refused(uow, report, message, found.coverage, now, waive=waive)
        if self._keeps:
            found = found.completed()
        try:
            cleared, changed = self.clearing.clear(uow, found, now, waive=waive)
        except Waits as waits:
            return _hold(uow, report, waits.state, now, str(waits))
        if cleared != message:
            report = replace(report, lines=found.coverage.lines, body=dump_message(cleared))
        _mark_resulted(uow, found, now)
        deliver(uow, report.key, found.order.key, now)
        matched = f"{message.status.value} report {quoted(message.report_id)} matched{_left_aside(found)}"
        return _save(uow, report.become(ReportState.MATCHED, now, several(changed, "; ") or None), now, matched)

    @property
    def _keeps(self) -> bool:
        """Whether the laboratory systems send only what is new."""
        return self.clearing.planning.settings.left_out == "keep"


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
            waiting = uow.reports.take(key)
            if waiting.state not in {ReportState.RECEIVED, ReportState.UNMATCHED} and not is_behind(waiting.reason):
                return effect.done(now, "a person has decided already")
            report = self.matcher.match(uow, key, now)
            log.info("report matched", action="report_matched", order=report.order, state=report.state.value)
            return effect.done(now, report.reason)

        return write

    look = do


def _found(uow: UnitOfWork, report: ReportRecord, message: LabReport, order: OrderRecord, coverage: Coverage) -> Found:
    others = [other for other in uow.reports.versions(order.key, message.report_id) if other.key != report.key]
    sent = oldest_first(each for each in others if each.state in _GOES and is_older(each, report))
    waiting = (each for each in others if each.state in WAITING_REPORTS and is_older(each, report))
    parked = {each.subject for each in uow.effects.of_order(order.key) if each.state in ASKING_EFFECTS}
    return Found(
        report=report,
        message=message,
        order=order,
        lines=uow.orders.lines(order.key),
        coverage=coverage,
        sent=sent,
        waiting=oldest_first(each for each in waiting if not any(is_older(each, other) for other in sent)),
        newer=oldest_first(each for each in others if each.state in _GOES and is_older(report, each) and each.key not in parked),
        went=uow.uploads.get(report_value(order.key, message.report_id)) is not None,
    )


def _said_before(found: Found) -> bool:
    """Whether a version before it has anything that an upload would tell the clinic."""
    messages = (load_kept(each.body) for each in (*found.sent, *found.waiting))
    return any(isinstance(each, LabReport) and has_content(each) for each in messages)


def _overtaken(uow: UnitOfWork, found: Found, now: datetime, *, waive: bool) -> ReportRecord:
    """Leave an older version aside; a person is asked that first, and nothing else, where nothing newer has what it says."""
    report = found.report
    gone = lost_to(report, found.newer[-1])
    if gone and not (waive and is_overtaken(report.reason)):
        return _hold(uow, report, ReportState.HELD, now, overtaken(gone))
    reason = "a newer version of this report came before it"
    return _save(uow, report.become(ReportState.SUPERSEDED, now, reason), now, reason)


def wake_newer(uow: UnitOfWork, decided: ReportRecord, now: datetime) -> None:
    """Let the newer versions that wait for this one, about which is decided now, be matched again."""
    if decided.order is None or decided.report_id is None:
        return
    for each in uow.reports.versions(decided.order, decided.report_id):
        if each.state is ReportState.HELD and is_behind(each.reason) and is_older(decided, each):
            uow.effects.add(effects.match_after(each, decided.key, now))


def deliver(uow: UnitOfWork, report: ReportKey, order: OrderKey, now: datetime) -> None:
    """Write the duty to deliver a report; once more, under a name of its own, where an earlier one has ended without effect."""
    duty = effects.deliver(report, order, now)
    if not uow.effects.add(duty):
        waiting = [each for each in uow.effects.of_order(order) if each.kind is EffectKind.DELIVER and each.subject == report]
        if not waiting:
            uow.effects.add(replace(duty, once=f"{duty.once}:{now.isoformat()}"))


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
    uow: UnitOfWork, report: ReportRecord, message: LabReport | LabRefusal, coverage: Coverage, now: datetime, *, waive: bool
) -> ReportRecord:
    """Cancel the lines that a message refuses, and say only of those that moved that they were refused."""
    order = OrderKey(report.order or "")
    late = with_result(uow.orders.lines(order), coverage.not_performed)
    if late and not waive:
        return _hold(uow, report, ReportState.HELD, now, f"refuses {has_result(late)}")
    collect = " — please collect again" if isinstance(message, LabRefusal) and message.collect_again else ""
    moved = cancel_lines(uow, order, {line: reason + collect for line, reason in coverage.not_performed.items()}, now)
    report = report.become(ReportState.MATCHED, now).become(ReportState.DELIVERED, now)
    follow(uow, order, now)
    silent = coverage.lines if isinstance(message, LabReport) else ()
    return _save(uow, report, now, _told_of_refusal(uow, order, coverage, moved, silent))


def _told_of_refusal(
    uow: UnitOfWork, order: OrderKey, coverage: Coverage, moved: Sequence[LineKey], silent: Sequence[LineKey]
) -> str:
    states = {line.key: line.state.value for line in uow.orders.lines(order)}
    stayed = several(f"{key} is {states[key]}, and stays so" for key in coverage.not_performed if key not in moved)
    waiting = several(key for key in silent if key not in coverage.not_performed and states[key] == LineState.ACCEPTED.value)
    parts = [
        f"the laboratory system refused {', '.join(moved)}" if moved else "the laboratory system refused what does not wait",
        stayed,
        f"nothing is said of {waiting}, which wait for a result" if waiting else "",
    ]
    return "; ".join(part for part in parts if part)


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
