"""The rule for versions of one report: one goes at a time, oldest first, and none takes with it what another has to say.

Which is older is said by their numbers or times, and by their order of arrival. Where these contradict each other, and what they
say differs, a correction stands after what it corrects, and a person decides about anything else.

A version waits while another one is on its way, and while an older one waits that says something which it does not. Once a
version is delivered, every older one is superseded, or held as a question if it says something that was not delivered.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import count

from lab_agent.lis.lab_messages import LabReport
from lab_agent.orders.line_lifecycle import reopen_lines
from lab_agent.queue import jobs
from lab_agent.queue.job_records import Job, JobKind, NewJob
from lab_agent.results.hold_reasons import held, hold_report
from lab_agent.results.records import HoldReason, ReportRecord
from lab_agent.results.report_versions import VersionOrder
from lab_agent.results.result_history import ReportVersion, differing_content, load_version, lost_content
from lab_agent.shared.ids import JobId, OrderKey, ReportKey
from lab_agent.shared.state_machines import JOBS_NEEDING_OPERATOR, REPORTS_NEEDING_OPERATOR, JobState, ReportState
from lab_agent.store.event_records import Event
from lab_agent.store.unit_of_work import UnitOfWork

_SUPERSEDED = "a newer version was delivered"


@dataclass(frozen=True, slots=True)
class OtherVersions:
    """The other versions of a report: the one that the service has, the one on its way, those that will be matched by themselves
    in their turn, and those that wait, oldest first in the `order` of them all.

    `stuck_deliveries` are the jobs of those among `waiting` whose delivery needs an operator: they were on their way.
    """

    order: VersionOrder
    delivered: ReportVersion | None
    on_its_way: ReportRecord | None
    queued: tuple[ReportRecord, ...]
    waiting: tuple[ReportVersion, ...]
    stuck_deliveries: Mapping[ReportKey, Job]

    def find_ahead(self, report: ReportRecord) -> ReportRecord | None:
        """The version behind which this one has to queue: the one on its way, else the one just before it among the queued.

        No place in the queue is kept: a version that comes to the head of the queue too early goes to its end, and so may stand
        behind a newer one. That one then does the same, until the oldest has gone.
        """
        return self.on_its_way or next((each for each in reversed(self.queued) if self.order.is_older(each, report)), None)

    def find_conflict(self, version: ReportVersion) -> str:
        """What a version says differently from the delivered one, if it is older but arrived later, or the other way round.

        A clock may have been put right, or a message may have been late: neither its time nor its arrival is believed then. Only
        a higher number is, of a version that waited while one before it arrived.
        """
        if self.delivered is None:
            return ""
        record, delivered = version.record, self.delivered.record
        is_older, arrived_later = self.order.is_older(record, delivered), record.sequence > delivered.sequence
        is_numbered = not is_older and self.order.has_versions and record.version != delivered.version
        return "" if is_older is not arrived_later or is_numbered else differing_content(version, self.delivered)

    def find_blocking(self, version: ReportVersion, *, is_incremental: bool) -> ReportRecord | None:
        """The last of the older versions that have to go before this one; a part of a report goes after all older parts.

        Before all it is one of which nobody knows whether it was delivered.
        """
        reviewed = {key for key, job in self.stuck_deliveries.items() if job.state is JobState.NEEDS_REVIEW}
        if unknown := [each.record for each in self.waiting if each.record.key in reviewed]:
            return unknown[0]
        older = (each for each in reversed(self.waiting) if self.order.is_older(each.record, version.record))
        return next((each.record for each in older if is_incremental or lost_content(each, version)), None)


def load_other_versions(uow: UnitOfWork, report: ReportRecord) -> OtherVersions:
    """Read the other versions of a report. Those older than what was delivered do not count as waiting: they were asked about."""
    if report.order is None or report.report_id is None:
        return OtherVersions(VersionOrder.of([report]), None, None, (), (), {})
    order, others = _sort_others(uow, report)
    if not others:
        return OtherVersions(order, None, None, (), (), {})
    stuck = _stuck_deliveries(uow, report.order)
    delivered = _find_delivered(others)
    waiting = (
        each
        for each in others
        if (each.state in REPORTS_NEEDING_OPERATOR or (each.state is ReportState.MATCHED and each.key in stuck))
        and (delivered is None or order.is_older(delivered, each))
    )
    return OtherVersions(
        order=order,
        delivered=load_version(delivered) if delivered else None,
        on_its_way=next((each for each in others if each.state is ReportState.MATCHED and each.key not in stuck), None),
        queued=_queued(uow, report, others),
        waiting=tuple(version for each in waiting if (version := load_version(each))),
        stuck_deliveries={each.key: stuck[each.key] for each in others if each.key in stuck},
    )


def place_correction(uow: UnitOfWork, report: ReportRecord, message: LabReport) -> ReportRecord:
    """Let a correction stand after what it corrects, though its time says that it is older: a clock was put right in between.

    It stays before other corrections of a later time, and before higher version numbers.
    """
    if not message.is_correction:
        return report
    order, others = _sort_others(uow, report)
    for other in reversed(others):
        is_numbered = order.has_versions and other.version != report.version
        if is_numbered or other.sequence > report.sequence or not order.is_older(report, other):
            continue
        version = load_version(other)
        if version is not None and not version.sent.is_correction:
            return stand_after(report, other)
    return report


def stand_after(report: ReportRecord, other: ReportRecord) -> ReportRecord:
    """The place of a version that arrived after another one is behind that, whatever its own time and number are."""
    return replace(report, version=other.version if report.version is not None else None, issued=other.issued)


def load_delivered_version(uow: UnitOfWork, report: ReportRecord) -> ReportVersion | None:
    """Read the version of a report that the service has, if that is another one."""
    delivered = _find_delivered(_sort_others(uow, report)[1])
    return load_version(delivered) if delivered else None


def _find_delivered(others: Sequence[ReportRecord]) -> ReportRecord | None:
    return next((each for each in reversed(others) if each.state is ReportState.DELIVERED), None)


def _queued(uow: UnitOfWork, report: ReportRecord, others: Sequence[ReportRecord]) -> tuple[ReportRecord, ...]:
    """Versions that will be matched by themselves: one after the other, since all their jobs are in one queue."""
    ahead = {job.target for job in _queued_matches(uow, report) if job.state not in JOBS_NEEDING_OPERATOR}
    return tuple(each for each in others if each.key in ahead and _is_matched_again(each))


def _is_matched_again(report: ReportRecord) -> bool:
    return report.state is ReportState.RECEIVED or report.hold_reason is HoldReason.WAITS_FOR_VERSION


def _queued_matches(uow: UnitOfWork, report: ReportRecord) -> Iterator[Job]:
    if report.order is None:
        return iter(())
    queue = jobs.deliveries_of(report.order, report.source)
    return (
        each for each in uow.jobs.list_for_order(report.order) if each.kind is JobKind.MATCH_REPORT and each.ordering_key == queue
    )


def find_running_match(uow: UnitOfWork, report: ReportRecord) -> JobId | None:
    """The job that matches a version in its queue, if one does that now: the turn of that job is the turn of the version."""
    ours = (each.id for each in _queued_matches(uow, report) if each.target == report.key and each.lease_until is not None)
    return next(ours, None)


def queue_behind(uow: UnitOfWork, report: ReportRecord, ahead: ReportRecord, now: datetime) -> ReportRecord:
    """Let a version be matched again after another one, whatever becomes of that. A new one does not need an operator."""
    _queue_match(uow, report, ahead.key, now)
    hold = held(HoldReason.WAITS_FOR_VERSION, ahead.key)
    if report.state is not ReportState.RECEIVED:
        return hold_report(uow, report, hold, now)
    waiting = replace(report, reason=hold.text)
    uow.reports.save(waiting)
    return waiting


def _queue_match(uow: UnitOfWork, report: ReportRecord, after: ReportKey, now: datetime) -> None:
    """Put a version at the end of its queue, unless it stands there; the job that runs now counts as gone."""
    job = jobs.match_version_again(report, after, now)
    if not any(each.target == report.key and each.is_waiting for each in _queued_matches(uow, report)):
        _add_under_free_name(uow, job)


def _add_under_free_name(uow: UnitOfWork, job: NewJob) -> None:
    """Write a job that may have to be done again behind the same version, within one tick of the clock."""
    names = (f"{job.dedup_key}:{number}" for number in count())
    while not uow.jobs.add(replace(job, dedup_key=next(names))):
        pass


def take_back_stuck_deliveries(uow: UnitOfWork, version: ReportRecord, others: OtherVersions, now: datetime) -> None:
    """Take back the deliveries of other versions that need an operator: this one goes first, and they are settled after it."""
    for key, job in others.stuck_deliveries.items():
        uow.jobs.save(job.mark_obsolete(now, f"result {version.key}, another version of this report, goes first"))
        hold_report(uow, uow.reports.get_for_update(key), held(HoldReason.WAITS_FOR_VERSION, version.key), now)
    if others.stuck_deliveries and version.order is not None:
        reopen_lines(uow, version.order, now)


def settle_older_versions(uow: UnitOfWork, delivered: ReportVersion, now: datetime) -> bool:
    """End the versions before the one that was delivered, but for those that have more to say; whether there are any others."""
    order, others = _sort_others(uow, delivered.record)
    for listed in others:
        if listed.state is ReportState.SUPERSEDED or not order.is_older(listed, delivered.record):
            continue
        other = uow.reports.get_for_update(listed.key)  # an operator may have decided about it since it was listed
        if other.state is ReportState.DELIVERED:
            uow.reports.save(other.transition_to(ReportState.SUPERSEDED, now, _SUPERSEDED))
        elif other.state in REPORTS_NEEDING_OPERATOR and (version := load_version(other)):
            settle_late_version(uow, version, delivered, now)
    return bool(others)


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
    for each in _sort_others(uow, settled)[1]:
        if each.hold_reason is HoldReason.WAITS_FOR_VERSION:
            _queue_match(uow, each, settled.key, now)


def _sort_others(uow: UnitOfWork, report: ReportRecord) -> tuple[VersionOrder, tuple[ReportRecord, ...]]:
    """The order of all versions of a report, and the others in it."""
    if report.order is None or report.report_id is None:
        return VersionOrder.of([report]), ()
    others = [each for each in uow.reports.versions(report.order, report.source, report.report_id) if each.key != report.key]
    order = VersionOrder.of([report, *others])
    return order, order.oldest_first(others)


def _stuck_deliveries(uow: UnitOfWork, order: OrderKey) -> dict[str, Job]:
    open_jobs = (each for each in uow.jobs.list_for_order(order) if each.kind is JobKind.DELIVER_REPORT)
    return {each.target: each for each in open_jobs if each.state in JOBS_NEEDING_OPERATOR}
