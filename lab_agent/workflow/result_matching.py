"""Collection, second half: find the order and the lines of a report; what fits nothing is held in sight (law 11).

What is matched here can be delivered: codes are mapped, documents are what they say, and every value has a legal form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import ClassVar

import structlog

from lab_agent.domain import jobs
from lab_agent.domain.ids import LineKey, OrderKey, ReportKey
from lab_agent.domain.lab_messages import AccessionUpdate, LabRejection, LabReport
from lab_agent.domain.records import Event, Job, JobKind, LineRecord, OrderRecord, ReportRecord
from lab_agent.domain.report_coverage import Coverage, determine_coverage, is_only_not_performed
from lab_agent.domain.report_versions import is_older, oldest_first
from lab_agent.domain.state_machines import JOBS_NEEDING_OPERATOR, REPORTS_NEEDING_OPERATOR, LineState, ReportState
from lab_agent.domain.text import join_limited, shorten
from lab_agent.fhir.report_builder import report_identifier
from lab_agent.ports.clock import Clock
from lab_agent.ports.jobs import Lease
from lab_agent.ports.repositories import UnitOfWork
from lab_agent.serialization import dump_message, load_stored_message
from lab_agent.workflow.accession_numbers import UnknownNumberTarget, reports_waiting_for, save_accession_update
from lab_agent.workflow.line_lifecycle import advance_order, cancel_lines, describe_existing_result, lines_with_result
from lab_agent.workflow.order_lookup import LookupResult, find_order, order_codes
from lab_agent.workflow.result_checks import MatchedReport, ReleaseChecks, ReportHeld
from lab_agent.workflow.result_versions import (
    has_content,
    is_superseded_by_newer,
    is_waiting_for_older,
    lost_content_to,
    superseded_by_newer_reason,
    waits_for_older_reason,
)

log = structlog.get_logger(__name__)

_SENT_STATES = frozenset({ReportState.MATCHED, ReportState.DELIVERED})


@dataclass(frozen=True, slots=True)
class ReportMatcher:
    """Matches one report within a unit of work; nothing outside is touched."""

    checks: ReleaseChecks

    def match(self, uow: UnitOfWork, key: ReportKey, now: datetime, *, override: bool = False) -> ReportRecord:
        """Match one report, write what follows, and give it as it stands then. Also called when a person asks for it again.

        What waits for it is matched again, once it does not wait any more.

        `waive`: a person has looked, and a report for an order that has ended, that seems hardly meant, or with an odd document
        (under the type that its bytes show) is to go out. What has no legal form on the wire is held all the same.
        """
        matched = self._match(uow, uow.reports.get_for_update(key), now, override=override)
        if matched.state not in REPORTS_NEEDING_OPERATOR:
            requeue_newer_versions(uow, matched, now)
        return matched

    def _match(self, uow: UnitOfWork, report: ReportRecord, now: datetime, *, override: bool) -> ReportRecord:
        message = load_stored_message(report.body)
        named = find_order(uow, message)
        if named.order is None:
            return _hold(uow, report, ReportState.UNMATCHED, now, named.problem)
        order = uow.orders.get_for_update(named.order)
        lines = uow.orders.lines(order.key)
        report = replace(report, order=order.key)
        _warn_unknown_references(uow, report, named, order, lines, now)
        if isinstance(message, AccessionUpdate):
            return self._apply_accession_update(uow, report, order, message, now)
        coverage = determine_coverage(message, lines, order_codes(order))
        if coverage.problem:
            return _hold(uow, report, ReportState.UNMATCHED, now, coverage.problem)
        report = replace(report, lines=coverage.lines)
        if isinstance(message, LabRejection):
            return _cancel_rejected_lines(uow, report, message, coverage, now, override=override)
        return self._match_results(uow, _load_matched_report(uow, report, message, order, coverage), now, override=override)

    def _apply_accession_update(
        self, uow: UnitOfWork, report: ReportRecord, order: OrderRecord, update: AccessionUpdate, now: datetime
    ) -> ReportRecord:
        """Write the laboratory's numbers, then match what came before them and names the order by one of them."""
        numbered = _save_accession_update(uow, report, order, update, now)
        if numbered.state is ReportState.DELIVERED:
            numbers = {update.accession, *(each.number for each in update.accessions)} - {None}
            for early, _ in reports_waiting_for(uow, numbers):
                self.match(uow, early.key, now)
        return numbered

    def _match_results(self, uow: UnitOfWork, matched_report: MatchedReport, now: datetime, *, override: bool) -> ReportRecord:
        report, message = matched_report.report, matched_report.message
        if matched_report.newer:
            return _supersede_or_hold(uow, matched_report, now, override=override)
        if self._is_incremental and matched_report.waiting and not override:
            return _hold(uow, report, ReportState.HELD, now, waits_for_older_reason(matched_report.waiting[-1].key))
        if (
            is_only_not_performed(message)
            and not matched_report.any_uploaded
            and (override or not _has_earlier_content(matched_report))
        ):
            return _cancel_rejected_lines(uow, report, message, matched_report.coverage, now, override=override)
        if self._is_incremental:
            matched_report = matched_report.merge_with_previous()
        try:
            cleared, changed = self.checks.check(uow, matched_report, now, override=override)
        except ReportHeld as waits:
            return _hold(uow, report, waits.state, now, str(waits))
        if cleared != message:
            report = replace(report, lines=matched_report.coverage.lines, body=dump_message(cleared))
        _mark_resulted(uow, matched_report, now)
        add_delivery_job(uow, report.key, matched_report.order.key, now)
        matched = f"{message.status.value} report {shorten(message.report_id)} matched{_withdrawn_lines_text(matched_report)}"
        return _save(uow, report.transition_to(ReportState.MATCHED, now, join_limited(changed, "; ") or None), now, matched)

    @property
    def _is_incremental(self) -> bool:
        """Whether the laboratory systems send only what is new."""
        return self.checks.planner.settings.left_out == "keep"


@dataclass(frozen=True, slots=True)
class MatchReportHandler:
    """Matches reports to orders. All of it is one unit of work: nothing outside is touched."""

    clock: Clock
    matcher: ReportMatcher

    kinds: ClassVar[frozenset[JobKind]] = frozenset({JobKind.MATCH_REPORT})

    async def perform(self, lease: Lease) -> None:
        """Nothing waits here: the report is matched in the completing unit of work."""

    verify = perform

    def complete(self, uow: UnitOfWork, job: Job, result: None) -> Job:  # noqa: ARG002 - everything needed is in the store
        """Match the report, unless a person has decided about it already."""
        now, key = self.clock.now(), ReportKey(job.target)
        waiting = uow.reports.get_for_update(key)
        if waiting.state not in {ReportState.RECEIVED, ReportState.UNMATCHED} and not is_waiting_for_older(waiting.reason):
            return job.complete(now, "a person has decided already")
        report = self.matcher.match(uow, key, now)
        log.info("report matched", action="report_matched", order=report.order, state=report.state.value)
        return job.complete(now, report.reason)


def _load_matched_report(
    uow: UnitOfWork, report: ReportRecord, message: LabReport, order: OrderRecord, coverage: Coverage
) -> MatchedReport:
    others = [other for other in uow.reports.versions(order.key, message.report_id) if other.key != report.key]
    sent = oldest_first(each for each in others if each.state in _SENT_STATES and is_older(each, report))
    waiting = (each for each in others if each.state in REPORTS_NEEDING_OPERATOR and is_older(each, report))
    parked = {each.target for each in uow.jobs.list_for_order(order.key) if each.state in JOBS_NEEDING_OPERATOR}
    return MatchedReport(
        report=report,
        message=message,
        order=order,
        lines=uow.orders.lines(order.key),
        coverage=coverage,
        sent=sent,
        waiting=oldest_first(each for each in waiting if not any(is_older(each, other) for other in sent)),
        newer=oldest_first(
            each for each in others if each.state in _SENT_STATES and is_older(report, each) and each.key not in parked
        ),
        any_uploaded=uow.uploads.get(report_identifier(order.key, message.report_id)) is not None,
    )


def _has_earlier_content(matched_report: MatchedReport) -> bool:
    """Whether a version before it has anything that an upload would tell the clinic."""
    messages = (load_stored_message(each.body) for each in (*matched_report.sent, *matched_report.waiting))
    return any(isinstance(each, LabReport) and has_content(each) for each in messages)


def _supersede_or_hold(uow: UnitOfWork, matched_report: MatchedReport, now: datetime, *, override: bool) -> ReportRecord:
    """Leave an older version aside; a person is asked that first, and nothing else, where nothing newer has what it says."""
    report = matched_report.report
    gone = lost_content_to(report, matched_report.newer[-1])
    if gone and not (override and is_superseded_by_newer(report.reason)):
        return _hold(uow, report, ReportState.HELD, now, superseded_by_newer_reason(gone))
    reason = "a newer version of this report came before it"
    return _save(uow, report.transition_to(ReportState.SUPERSEDED, now, reason), now, reason)


def requeue_newer_versions(uow: UnitOfWork, decided: ReportRecord, now: datetime) -> None:
    """Let the newer versions that wait for this one, about which is decided now, be matched again."""
    if decided.order is None or decided.report_id is None:
        return
    for each in uow.reports.versions(decided.order, decided.report_id):
        if each.state is ReportState.HELD and is_waiting_for_older(each.reason) and is_older(decided, each):
            uow.jobs.add(jobs.match_report_after_decision(each, decided.key, now))


def add_delivery_job(uow: UnitOfWork, report: ReportKey, order: OrderKey, now: datetime) -> None:
    """Write the duty to deliver a report; once more, under a name of its own, where an earlier one has ended without effect."""
    job = jobs.deliver_report(report, order, now)
    if not uow.jobs.add(job):
        waiting = [
            each for each in uow.jobs.list_for_order(order) if each.kind is JobKind.DELIVER_REPORT and each.target == report
        ]
        if not waiting:
            uow.jobs.add(replace(job, dedup_key=f"{job.dedup_key}:{now.isoformat()}"))


def _mark_resulted(uow: UnitOfWork, matched_report: MatchedReport, now: datetime) -> None:
    for line in matched_report.lines:
        if line.key in matched_report.coverage.completes and line.state is LineState.ACCEPTED:
            uow.orders.save_line(line.transition_to(LineState.RESULTED, now))


def _warn_unknown_references(
    uow: UnitOfWork, report: ReportRecord, found: LookupResult, order: OrderRecord, lines: Sequence[LineRecord], now: datetime
) -> None:
    """Tell of names beside the right one that nobody knows here. A laboratory that never gave a number may give it any time."""
    numbered = bool(order.accession) or any(line.accession for line in lines)
    strange = [name for name in found.unknown if name.kind != "accession" or numbered]
    if strange:
        text = f"result {report.key} also names {join_limited(map(str, strange))}, which is not known here"
        uow.events.add(Event(order=order.key, report=report.key, at=now, action="warning", text=text))
        kinds = [name.kind for name in strange]
        key = report.key
        log.warning("result names what is not known here", action="result_name_unknown", order=order.key, report=key, kind=kinds)


def _save_accession_update(
    uow: UnitOfWork, report: ReportRecord, order: OrderRecord, update: AccessionUpdate, now: datetime
) -> ReportRecord:
    """Write the laboratory's own numbers; nothing of it goes to the service."""
    try:
        save_accession_update(uow, order, update)
    except UnknownNumberTarget as unknown:
        return _hold(uow, report, ReportState.UNMATCHED, now, str(unknown))
    done = report.transition_to(ReportState.MATCHED, now).transition_to(ReportState.DELIVERED, now)
    return _save(uow, done, now, "the laboratory gave its own numbers")


def _withdrawn_lines_text(matched_report: MatchedReport) -> str:
    """What to tell of lines that the report is about and that were withdrawn."""
    withdrawn = matched_report.coverage.withdrawn
    return f"; {join_limited(withdrawn)} was withdrawn, and its Task does not move" if withdrawn else ""


def _cancel_rejected_lines(
    uow: UnitOfWork, report: ReportRecord, message: LabReport | LabRejection, coverage: Coverage, now: datetime, *, override: bool
) -> ReportRecord:
    """Cancel the lines that a message refuses, and say only of those that moved that they were refused."""
    order = OrderKey(report.order or "")
    late = lines_with_result(uow.orders.lines(order), coverage.not_performed)
    if late and not override:
        return _hold(uow, report, ReportState.HELD, now, f"refuses {describe_existing_result(late)}")
    collect = " — please collect again" if isinstance(message, LabRejection) and message.collect_again else ""
    moved = cancel_lines(uow, order, {line: reason + collect for line, reason in coverage.not_performed.items()}, now)
    report = report.transition_to(ReportState.MATCHED, now).transition_to(ReportState.DELIVERED, now)
    advance_order(uow, order, now)
    silent = coverage.lines if isinstance(message, LabReport) else ()
    return _save(uow, report, now, _rejection_text(uow, order, coverage, moved, silent))


def _rejection_text(
    uow: UnitOfWork, order: OrderKey, coverage: Coverage, moved: Sequence[LineKey], unmentioned: Sequence[LineKey]
) -> str:
    states = {line.key: line.state.value for line in uow.orders.lines(order)}
    stayed = join_limited(f"{key} is {states[key]}, and stays so" for key in coverage.not_performed if key not in moved)
    waiting = join_limited(
        key for key in unmentioned if key not in coverage.not_performed and states[key] == LineState.ACCEPTED.value
    )
    parts = [
        f"the laboratory system refused {', '.join(moved)}" if moved else "the laboratory system refused what does not wait",
        stayed,
        f"nothing is said of {waiting}, which wait for a result" if waiting else "",
    ]
    return "; ".join(part for part in parts if part)


def _hold(uow: UnitOfWork, report: ReportRecord, state: ReportState, now: datetime, reason: str) -> ReportRecord:
    held = report.transition_to(state, now, reason)
    uow.reports.save(held)
    text = f"result {held.key} is {state.value}: {reason}"
    uow.events.add(Event(order=held.order, report=held.key, at=now, action="result_held", text=text))
    return held


def _save(uow: UnitOfWork, report: ReportRecord, now: datetime, text: str) -> ReportRecord:
    uow.reports.save(report)
    uow.events.add(Event(order=report.order, report=report.key, at=now, action="result", text=text))
    return report
