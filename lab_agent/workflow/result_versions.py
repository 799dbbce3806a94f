"""The rule for versions of one report: one goes at a time, oldest first, and none takes with it what another has to say.

A version waits while another one is on its way, and while an older one waits that says something which it does not. Once a
version is delivered, every older one is superseded, or held as a question if it says something that was not delivered.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from lab_agent.domain import jobs
from lab_agent.domain.ids import OrderKey, ReportKey
from lab_agent.domain.lab_messages import LabReport
from lab_agent.domain.records import Event, HoldReason, Job, JobKind, ReportRecord
from lab_agent.domain.report_versions import is_older, oldest_first
from lab_agent.domain.state_machines import JOBS_NEEDING_OPERATOR, REPORTS_NEEDING_OPERATOR, ReportState
from lab_agent.ports.repositories import UnitOfWork
from lab_agent.serialization import load_stored_message
from lab_agent.workflow.hold_reasons import held, hold_report
from lab_agent.workflow.line_lifecycle import reopen_lines
from lab_agent.workflow.result_history import ReportVersion, lost_content

_SUPERSEDED = "a newer version was delivered"


@dataclass(frozen=True, slots=True)
class OtherVersions:
    """The other versions of a report: the one that the service has, the one on its way, those in the queue behind it, and those
    that wait, oldest first.

    `stuck_deliveries` are the jobs of those among `waiting` whose delivery needs an operator: they were on their way.
    """

    delivered: ReportVersion | None
    on_its_way: ReportRecord | None
    queued: tuple[ReportRecord, ...]
    waiting: tuple[ReportVersion, ...]
    stuck_deliveries: Mapping[ReportKey, Job]

    def find_ahead(self, report: ReportRecord) -> ReportRecord | None:
        """The version behind which this one has to queue: the one on its way; else, if this one is new, the last older one there.

        What has queued before has its place already.
        """
        queued = self.queued if report.reason is None else ()
        return self.on_its_way or next((each for each in reversed(queued) if is_older(each, report)), None)

    def find_blocking(self, version: ReportVersion, *, is_incremental: bool) -> ReportRecord | None:
        """The last of the older versions that have to go before this one; a part of a report goes after all older parts."""
        older = (each for each in reversed(self.waiting) if is_older(each.record, version.record))
        return next((each.record for each in older if is_incremental or lost_content(each, version)), None)


def load_other_versions(uow: UnitOfWork, report: ReportRecord) -> OtherVersions:
    """Read the other versions of a report. Those older than what was delivered do not count as waiting: they were asked about."""
    if report.order is None or report.report_id is None:
        return OtherVersions(None, None, (), (), {})
    others = oldest_first(each for each in uow.reports.versions(report.order, report.report_id) if each.key != report.key)
    stuck = _stuck_deliveries(uow, report.order)
    delivered = next((each for each in reversed(others) if each.state is ReportState.DELIVERED), None)
    waiting = (
        each
        for each in others
        if (each.state in REPORTS_NEEDING_OPERATOR or (each.state is ReportState.MATCHED and each.key in stuck))
        and (delivered is None or is_older(delivered, each))
    )
    return OtherVersions(
        delivered=_load(delivered) if delivered else None,
        on_its_way=next((each for each in others if each.state is ReportState.MATCHED and each.key not in stuck), None),
        queued=_queued(uow, report.order, others),
        waiting=tuple(version for each in waiting if (version := _load(each))),
        stuck_deliveries={each.key: stuck[each.key] for each in others if each.key in stuck},
    )


def _queued(uow: UnitOfWork, order: OrderKey, others: Sequence[ReportRecord]) -> tuple[ReportRecord, ...]:
    """Versions that came while another one was on its way, and will be matched in their turn."""
    open_jobs = uow.jobs.list_for_order(order)
    targets = {job.target for job in open_jobs if job.kind is JobKind.MATCH_REPORT and job.state not in JOBS_NEEDING_OPERATOR}
    return tuple(each for each in others if each.state is ReportState.RECEIVED and each.key in targets)


def queue_behind(uow: UnitOfWork, report: ReportRecord, on_its_way: ReportRecord, now: datetime) -> ReportRecord:
    """Let a version be matched when the delivery of another one has ended, whichever way. A new one does not need an operator."""
    uow.jobs.add(jobs.match_report_after_delivery(report, on_its_way.key, now))
    hold = held(HoldReason.WAITS_FOR_VERSION, on_its_way.key)
    if report.state is not ReportState.RECEIVED:
        return hold_report(uow, report, hold, now)
    waiting = replace(report, reason=hold.text)
    uow.reports.save(waiting)
    return waiting


def take_back_stuck_deliveries(uow: UnitOfWork, version: ReportRecord, others: OtherVersions, now: datetime) -> None:
    """Take back the deliveries of other versions that need an operator: this one goes first, and they are settled after it."""
    for key, job in others.stuck_deliveries.items():
        uow.jobs.save(job.mark_obsolete(now, f"result {version.key}, another version of this report, goes first"))
        hold_report(uow, uow.reports.get_for_update(key), held(HoldReason.WAITS_FOR_VERSION, version.key), now)
    if others.stuck_deliveries and version.order is not None:
        reopen_lines(uow, version.order, now)


def settle_older_versions(uow: UnitOfWork, delivered: ReportVersion, now: datetime) -> None:
    """End the versions before the one that was delivered, but for those that have more to say."""
    for listed in _other_records(uow, delivered.record):
        other = uow.reports.get_for_update(listed.key)  # an operator may have decided about it since it was listed
        if not is_older(other, delivered.record):
            continue
        if other.state is ReportState.DELIVERED:
            uow.reports.save(other.transition_to(ReportState.SUPERSEDED, now, _SUPERSEDED))
        elif other.state in REPORTS_NEEDING_OPERATOR and (version := _load(other)):
            settle_late_version(uow, version, delivered, now)


def settle_late_version(
    uow: UnitOfWork, late: ReportVersion, delivered: ReportVersion, now: datetime, answered: HoldReason | None = None
) -> ReportRecord:
    """Supersede a version that is older than what was delivered; ask about it first if it has more to say."""
    lost = lost_content(late, delivered)
    if lost and answered is not HoldReason.SUPERSEDED_BY_NEWER:
        return hold_report(uow, late.record, held(HoldReason.SUPERSEDED_BY_NEWER, lost), now)
    after = late.record.transition_to(ReportState.SUPERSEDED, now, _SUPERSEDED)
    uow.reports.save(after)
    text = f"result {after.key} is superseded: {_SUPERSEDED}"
    uow.events.add(Event(order=after.order, report=after.key, at=now, action="superseded", text=text))
    return after


def rematch_waiting_versions(uow: UnitOfWork, settled: ReportRecord, now: datetime) -> None:
    """Let the versions that wait for another one be matched again, now that something about `settled` has been decided."""
    for each in _other_records(uow, settled):
        if each.hold_reason is HoldReason.WAITS_FOR_VERSION:
            uow.jobs.add(jobs.match_report_after_decision(each, settled.key, now))


def _other_records(uow: UnitOfWork, report: ReportRecord) -> Iterator[ReportRecord]:
    if report.order is not None and report.report_id is not None:
        versions = uow.reports.versions(report.order, report.report_id)
        yield from (each for each in oldest_first(versions) if each.key != report.key)


def _stuck_deliveries(uow: UnitOfWork, order: OrderKey) -> dict[str, Job]:
    open_jobs = (each for each in uow.jobs.list_for_order(order) if each.kind is JobKind.DELIVER_REPORT)
    return {each.target: each for each in open_jobs if each.state in JOBS_NEEDING_OPERATOR}


def _load(record: ReportRecord) -> ReportVersion | None:
    message = load_stored_message(record.body)
    return ReportVersion(record, message) if isinstance(message, LabReport) else None
