"""Matching: find the order and the lines of a report; what fits nothing is held in sight (law 11).

What is matched here can be delivered: codes are mapped, documents are what they say, and every value has a legal form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import ClassVar

import structlog

from lab_agent.fhir.report_builder import report_identifier
from lab_agent.lis.lab_messages import AccessionUpdate, LabMessage, LabRejection, LabReport
from lab_agent.lis.serialization import dump_message, load_stored_message
from lab_agent.orders.accession_numbers import UnknownNumberTarget, save_accession_update
from lab_agent.orders.line_lifecycle import advance_order, cancel_lines, describe_existing_result, lines_with_result
from lab_agent.queue import jobs
from lab_agent.queue.job_handler import Lease
from lab_agent.queue.job_records import Job, JobKind
from lab_agent.results.hold_reasons import Hold, held, hold_report, unmatched
from lab_agent.results.order_candidates import OrderCandidates
from lab_agent.results.order_lookup import (
    LookupResult,
    OrderPart,
    awaited_names,
    find_foreign_name,
    find_order,
    load_part,
    rematch_awaiting,
)
from lab_agent.results.patient_check import check_patient, confirm_patient
from lab_agent.results.records import HoldReason, ReportRecord
from lab_agent.results.report_coverage import Coverage, determine_coverage, is_only_not_performed
from lab_agent.results.result_checks import ClearedReport, MatchedReport, ReleaseChecks
from lab_agent.results.result_versions import (
    find_running_match,
    load_other_versions,
    place_correction,
    queue_behind,
    rematch_waiting_versions,
    settle_late_version,
    settle_older_versions,
    stand_after,
    take_back_stuck_deliveries,
)
from lab_agent.shared.clock import Clock
from lab_agent.shared.errors import InvalidTransitionError
from lab_agent.shared.ids import LineKey, OrderKey, ReportKey
from lab_agent.shared.state_machines import LineState, ReportState
from lab_agent.shared.text import join_limited, shorten
from lab_agent.store.event_records import Event
from lab_agent.store.unit_of_work import UnitOfWork

log = structlog.get_logger(__name__)


_GOES_OUT = frozenset({ReportState.MATCHED, ReportState.DELIVERED})


@dataclass(frozen=True, slots=True)
class MatchedLines:
    """The part of an order that a message is about, and which of its lines are meant."""

    part: OrderPart
    coverage: Coverage


@dataclass(frozen=True, slots=True)
class ReportMatcher:
    """Matches one report within a unit of work; nothing outside is touched."""

    checks: ReleaseChecks

    def match(self, uow: UnitOfWork, key: ReportKey, now: datetime, *, released: bool = False) -> ReportRecord:
        """Match one report, write what follows, and give it as it stands then. Also called when an operator asks for it again.

        `released`: an operator has answered the reason that was shown. What has no legal form is held all the same.
        """
        before = uow.reports.get_for_update(key)
        after = self._match(uow, before, now, released=released)
        if after.state in {ReportState.DELIVERED, ReportState.SUPERSEDED}:
            rematch_waiting_versions(uow, after, now)
        return after

    def _match(self, uow: UnitOfWork, report: ReportRecord, now: datetime, *, released: bool) -> ReportRecord:
        message = load_stored_message(report.body)
        found = find_order(uow, message, report, OrderCandidates(uow, report, message, self.checks.planner).choose)
        if found.order is None:
            return _hold_unmatched(uow, report, message, found.problem, now)
        part = load_part(uow, found.order, report.adapter, source=report.source)
        order, lines = part.order, part.lines
        if report.order != order.key:  # else it was said when the report was first matched
            _warn_unknown_references(uow, report, found, part, now)
        report = replace(report, order=order.key)
        if (foreign := find_foreign_name(part, message)) is not None:
            return _hold_unmatched(uow, report, message, foreign, now)
        if isinstance(message, AccessionUpdate):
            return self._apply_accession_update(uow, report, part, message, now)
        coverage = determine_coverage(message, lines, part.codes)
        if coverage.problem:
            return _hold_unmatched(uow, report, message, f"order {order.key}: {coverage.problem}", now)
        report = replace(report, lines=coverage.lines)
        if released and report.hold_reason is HoldReason.PATIENT_MISMATCH:  # asked first: every other question is still to come
            report, released = confirm_patient(report, order.key), False
        compared = check_patient(uow, report, order.key, self.checks.planner.settings)
        if compared.hold is not None:
            return hold_report(uow, report, compared.hold, now)
        given = MatchedLines(part, coverage)
        after = self._match_content(uow, report, message, given, now, released=released)
        if compared.remark and after.state in _GOES_OUT:
            _add_patient_remark(uow, after, compared.remark, now)
        return after

    def _match_content(
        self,
        uow: UnitOfWork,
        report: ReportRecord,
        message: LabReport | LabRejection,
        given: MatchedLines,
        now: datetime,
        *,
        released: bool,
    ) -> ReportRecord:
        """Let a message have its effect on the lines that it is about."""
        if isinstance(message, LabRejection):
            return _cancel_rejected_lines(uow, report, message, given.coverage, now, override=released)
        report = place_correction(uow, report, message)
        matched_report = MatchedReport(
            report=report,
            message=message,
            part=given.part,
            coverage=given.coverage,
            others=load_other_versions(uow, report),
            any_uploaded=uow.uploads.get(report_identifier(given.part.key, message.report_id)) is not None,
            released=released,
        )
        return self._match_version(uow, matched_report, now)

    def _apply_accession_update(
        self, uow: UnitOfWork, report: ReportRecord, part: OrderPart, update: AccessionUpdate, now: datetime
    ) -> ReportRecord:
        """Write the laboratory's numbers, then match what came before them and names the order by one of them."""
        try:
            save_accession_update(uow, part, update)
        except UnknownNumberTarget as unknown:
            return hold_report(uow, report, unmatched(str(unknown)), now)
        done = report.transition_to(ReportState.MATCHED, now).transition_to(ReportState.DELIVERED, now)
        _save(uow, done, now, "the laboratory gave its own numbers")
        numbers = {update.accession, *(each.number for each in update.accessions)}
        rematch_awaiting(uow, part.order.key, numbers, {part.adapter}, now)
        return done

    def _match_version(self, uow: UnitOfWork, matched_report: MatchedReport, now: datetime) -> ReportRecord:
        """Let the version go when its turn has come (the rule is in `result_versions`)."""
        report, others = matched_report.report, matched_report.others
        if (ahead := others.find_ahead(report)) is not None:
            if matched_report.released:
                raise InvalidTransitionError(
                    f"result {ahead.key}, another version of this report, is delivered first; release this one after it"
                )
            return queue_behind(uow, report, ahead, now)
        if others.delivered is not None:
            conflict = others.find_conflict(matched_report.version)
            is_older = others.order.is_older(report, others.delivered.record)
            if conflict and matched_report.answered is not HoldReason.CONFLICTING_VERSION:
                return hold_report(uow, report, held(HoldReason.CONFLICTING_VERSION, conflict), now)
            if is_older and not conflict:
                return settle_late_version(uow, matched_report.version, others.delivered, now, matched_report.answered)
            if is_older:
                report = stand_after(report, others.delivered.record)
                matched_report = replace(matched_report, report=report)
        blocking = others.find_blocking(matched_report.version, is_incremental=self._is_incremental)
        if blocking is not None and matched_report.answered is None:
            return hold_report(uow, report, held(HoldReason.WAITS_FOR_VERSION, blocking.key), now)
        return self._let_go(uow, matched_report, now)

    def _let_go(self, uow: UnitOfWork, matched_report: MatchedReport, now: datetime) -> ReportRecord:
        """Check a version whose turn has come, and deliver it."""
        report = matched_report.report
        if is_only_not_performed(matched_report.message) and not matched_report.any_uploaded:
            return self._apply_rejection(uow, matched_report, now)
        whole = matched_report.merge_with_previous() if self._is_incremental else matched_report
        cleared = self.checks.check(uow, whole, now)
        if isinstance(cleared, Hold):
            return hold_report(uow, report, cleared, now)
        return _start_delivery(uow, replace(whole, report=_with_bodies(report, matched_report.message, cleared)), cleared, now)

    def _apply_rejection(self, uow: UnitOfWork, matched_report: MatchedReport, now: datetime) -> ReportRecord:
        """Cancel lines as a report that says nothing else asks for; nothing of it is uploaded."""
        given = (matched_report.report, matched_report.message, matched_report.coverage)
        after = _cancel_rejected_lines(uow, *given, now, override=matched_report.override)
        if after.state is ReportState.DELIVERED:
            take_back_stuck_deliveries(uow, after, matched_report.others, now)
            settle_older_versions(uow, replace(matched_report.version, record=after), now)
        return after

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

    def load(self, uow: UnitOfWork, job: Job) -> None:
        """Everything is read in the completing unit of work."""

    async def perform(self, lease: Lease, loaded: None) -> None:
        """Nothing waits here: the report is matched in the completing unit of work."""

    verify = perform

    def complete(self, uow: UnitOfWork, job: Job, result: None) -> Job:  # noqa: ARG002 - everything needed is in the store
        """Match the report, unless an operator has decided about it already."""
        now, key = self.clock.now(), ReportKey(job.target)
        if not _is_unmatched(uow.reports.get_for_update(key)):
            return job.complete(now, "an operator has decided already")
        report = self.matcher.match(uow, key, now)
        log.info("report matched", action="report_matched", order=report.order, state=report.state.value)
        return job.complete(now, report.reason)


def _is_unmatched(report: ReportRecord) -> bool:
    """Whether matching goes on by itself; about everything else an operator decides."""
    return report.state in {ReportState.RECEIVED, ReportState.UNMATCHED} or report.hold_reason is HoldReason.WAITS_FOR_VERSION


def _with_bodies(report: ReportRecord, sent: LabReport, cleared: ClearedReport) -> ReportRecord:
    """Keep what was sent apart from the whole that goes out; document types that an operator corrected are corrected in both.

    What a whole keeps of the version before stands behind its own observations, and it keeps no documents.
    """
    own = cleared.message.observations[: len(sent.observations)]
    corrected = replace(sent, observations=own, documents=cleared.message.documents)
    body = report.body if corrected == sent else dump_message(corrected)
    return replace(report, body=body, outgoing_body=None if cleared.message == corrected else dump_message(cleared.message))


def _start_delivery(uow: UnitOfWork, matched_report: MatchedReport, cleared: ClearedReport, now: datetime) -> ReportRecord:
    report, order, coverage = matched_report.report, matched_report.order.key, matched_report.coverage
    for line in matched_report.lines:
        if line.key in coverage.completes and line.state is LineState.ACCEPTED:
            uow.orders.save_line(line.transition_to(LineState.RESULTED, now))
    _add_delivery_job(uow, report, order, now)
    report = report.transition_to(ReportState.MATCHED, now, join_limited(cleared.changes, "; ") or None)
    what = f"{cleared.message.status.value} report {shorten(cleared.message.report_id)} of {report.source}"
    text = f"{what} matched{_withdrawn_lines_text(coverage)}"
    _save(uow, report, now, text)
    take_back_stuck_deliveries(uow, report, matched_report.others, now)
    return report


def _hold_unmatched(uow: UnitOfWork, report: ReportRecord, message: LabMessage, problem: str, now: datetime) -> ReportRecord:
    """Hold a report until a person, or an order that it may be of, says whose it is."""
    uow.reports.await_names(report.key, awaited_names(message))
    return hold_report(uow, report, unmatched(problem), now)


def _add_delivery_job(uow: UnitOfWork, report: ReportRecord, order: OrderKey, now: datetime) -> None:
    """Write the job that delivers a report; under a name of its own where an earlier one has ended without delivery."""
    job = jobs.deliver_report(report, order, now, find_running_match(uow, report))
    if not uow.jobs.add(job):
        uow.jobs.add(replace(job, dedup_key=f"{job.dedup_key}:{now.isoformat()}"))


def _warn_unknown_references(uow: UnitOfWork, report: ReportRecord, found: LookupResult, part: OrderPart, now: datetime) -> None:
    """Warn of unknown references beside the right one. A laboratory that never gave a number may give it any time."""
    order = part.order
    numbered = bool(part.work_order and part.work_order.accession) or any(line.accession for line in part.lines)
    strange = [name for name in found.unknown if name.kind != "accession" or numbered]
    if strange:
        text = f"result {report.key} also names {join_limited(map(str, strange))}, which is not known here"
        uow.events.add(Event(order=order.key, report=report.key, at=now, action="warning", text=text))
        kinds = [name.kind for name in strange]
        key = report.key
        log.warning("unknown reference in result", action="result_name_unknown", order=order.key, report=key, kind=kinds)


def _add_patient_remark(uow: UnitOfWork, report: ReportRecord, remark: str, now: datetime) -> None:
    """Say in the timeline, once it goes, what came of comparing the patients."""
    uow.events.add(Event(order=report.order, report=report.key, at=now, action="warning", text=f"result {report.key}: {remark}"))
    log.warning("patient of result not as ordered", action="result_patient_noted", order=report.order, report=report.key)


def _withdrawn_lines_text(coverage: Coverage) -> str:
    """What to say of lines that the report is about and that were withdrawn."""
    return f"; {join_limited(coverage.withdrawn)} was withdrawn, and its Task does not move" if coverage.withdrawn else ""


def _cancel_rejected_lines(
    uow: UnitOfWork, report: ReportRecord, message: LabReport | LabRejection, coverage: Coverage, now: datetime, *, override: bool
) -> ReportRecord:
    """Cancel the lines that a message rejects, and say only of those that moved that they were rejected."""
    order = OrderKey(report.order or "")
    late = lines_with_result(uow.orders.lines(order), coverage.not_performed)
    if late and not override:
        return hold_report(uow, report, held(HoldReason.LINE_HAS_RESULT, describe_existing_result(late)), now)
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
        f"the laboratory system rejected {', '.join(moved)}" if moved else "the laboratory system rejected no line that waits",
        stayed,
        f"nothing is said of {waiting}, which wait for a result" if waiting else "",
    ]
    return "; ".join(part for part in parts if part)


def _save(uow: UnitOfWork, report: ReportRecord, now: datetime, text: str) -> ReportRecord:
    uow.reports.save(report)
    uow.events.add(Event(order=report.order, report=report.key, at=now, action="result", text=text))
    return report
