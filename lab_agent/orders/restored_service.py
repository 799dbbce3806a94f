"""An exchange service that was restored from its own backup: Tasks that we had ended are requested again, our reports are gone.

Nothing says so but that both are seen together, or that a Task which is requested again was changed last before the report that
ended it: the backup was made between the two. Such a line needs no second analysis: what is missing is sent again, and the line
ends with it. One condition tells of all of them, as one restore takes back what was done for many orders.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta

import structlog

from lab_agent.exchange.service import Exchange, Json
from lab_agent.fhir.report_builder import report_identifier
from lab_agent.orders.fetching import read_or_reject, reject_if_alone
from lab_agent.orders.line_lifecycle import lines_completed_by
from lab_agent.orders.records import LineRecord
from lab_agent.queue import jobs
from lab_agent.results.own_reports import changed_at
from lab_agent.results.records import ReportRecord, UploadRecord
from lab_agent.results.resource_upload import read_recorded
from lab_agent.results.result_history import load_version
from lab_agent.shared.conditions.model import AlertKey, ConditionId
from lab_agent.shared.errors import ResourceNotReadable
from lab_agent.shared.ids import LineKey, OrderKey, ReportKey, work_order_key
from lab_agent.shared.state_machines import LineState, OrderState, ReportState
from lab_agent.store.alert_log import close_alert, open_alert
from lab_agent.store.event_records import Alert, Event
from lab_agent.store.unit_of_work import Store, UnitOfWork

log = structlog.get_logger(__name__)

RESTORED_SERVICE_ALERT = AlertKey(ConditionId.EXCHANGE_RESTORED)
QUIET_FOR = timedelta(days=1)
"""How long nothing more is found until it is told no more."""
_KEY = "exchange.restored"


async def find_lost_reports(
    exchange: Exchange, store: Store, order: OrderKey, back: Collection[LineRecord] = ()
) -> frozenset[ReportKey]:
    """The delivered reports of an order that the service does not have any more, each read by its recorded id.

    With them those that it has, where all Tasks of the completed lines `back`, which are requested again, are older than the
    report: nobody put them back. One that we have no right to read counts as there. Raises `ServiceRejected` where one cannot be
    told, and what the exchange port raises if it is unavailable.
    """
    known = await store.run_read_only(lambda uow: find_uploaded(uow, uow.reports.delivered_of(order)))
    tasks = [each.task_id for each in back if each.state is LineState.COMPLETED] if known else []
    changed = [changed_at((await read_or_reject(exchange, "Task", task)).body) for task in tasks]
    return frozenset([report for report, upload in known.items() if await _is_lost(exchange, upload, changed)])


async def _is_lost(exchange: Exchange, upload: UploadRecord, put_back: Collection[datetime | None]) -> bool:
    there = await _read_upload(exchange, upload)
    if there is None:
        return True
    reported = changed_at(there)
    return bool(put_back) and reported is not None and all(each is not None and each < reported for each in put_back)


async def _read_upload(exchange: Exchange, upload: UploadRecord) -> Json | None:
    """What is recorded of an upload, as it is now; None if it is gone, empty where we have no right to read it."""
    try:
        there = await reject_if_alone(exchange, read_recorded(exchange, upload))
    except ResourceNotReadable:
        return {}
    return None if there is None else there.body


def find_uploaded(uow: UnitOfWork, delivered: Iterable[ReportRecord]) -> Mapping[ReportKey, UploadRecord]:
    """Those of the delivered messages of which a DiagnosticReport was uploaded, each with the record of that."""
    found = {each.key: uow.uploads.get(name) for each in delivered if (name := _name_of(each)) is not None}
    return {key: upload for key, upload in found.items() if upload is not None and upload.resource_id}


def _name_of(report: ReportRecord) -> str | None:
    """The identifier of its DiagnosticReport; None for a message that is no report."""
    if report.order is None or report.report_id is None:
        return None
    return report_identifier(work_order_key(report.order, report.source), report.report_id)


def send_lost_reports_again(
    uow: UnitOfWork, order: OrderKey, back: Collection[LineKey], lost: Collection[ReportKey], now: datetime
) -> frozenset[LineKey]:
    """Send reports again that the service has lost, and let those of the lines `back` that they had completed end with them.

    Gives these lines; a person decides about any other. Nothing is asked of a laboratory system.
    """
    completed = [line for line in uow.orders.lines(order) if line.key in back and line.state is LineState.COMPLETED]
    reports = [each for key in sorted(lost) if (each := uow.reports.get_for_update(key)).state is ReportState.DELIVERED]
    ending = _divide(uow, order, completed, reports)
    if not reports:
        return frozenset()
    is_new = not any(line.state is LineState.RESULTED and line.reopened for line in uow.orders.lines(order))
    _expect_again(uow, order, [key for keys in ending.values() for key in keys], now)
    for report in reports:
        send_again(uow, report, now, ending.get(report.key, ()))
    _note_restored(uow, now, orders=int(is_new), reports=len(reports))
    return frozenset(key for keys in ending.values() for key in keys)


def _divide(
    uow: UnitOfWork, order: OrderKey, lines: Collection[LineRecord], reports: Collection[ReportRecord]
) -> Mapping[ReportKey, tuple[LineKey, ...]]:
    """Which of the lines each of the reports ends: those that it completes, and those that it keeps of a version before it."""
    left, ending = {line.key for line in lines}, dict[ReportKey, tuple[LineKey, ...]]()
    for report in reports:
        if mine := left.intersection(lines_completed_by(uow, order, report)):
            ending[report.key], left = tuple(mine), left - mine
    for report in reports:
        version = load_version(report) if report.outgoing_body is not None else None
        if version is not None and (kept := left.intersection(version.whole_lines)):
            ending[report.key], left = (*ending.get(report.key, ()), *kept), left - kept
    return ending


def send_again(uow: UnitOfWork, report: ReportRecord, now: datetime, lines: Collection[LineKey] = ()) -> None:
    """Let a delivered report go once more: what of it is on the service stays as it is, and the rest is uploaded.

    Raises `InvalidTransitionError` for one that is not delivered, `ValueError` for one without an order.
    """
    if report.order is None:
        raise ValueError(f"result {report.key} has no order")
    uow.reports.save(report.transition_to(ReportState.MATCHED, now, "it is sent again"))
    uow.jobs.add(jobs.send_report_again(report, report.order, now, tuple(lines)))


def note_lost_report(uow: UnitOfWork, order: OrderKey, lines: Collection[LineKey], now: datetime, *, is_told: bool) -> None:
    """Let the lines end once more that a report had completed before the service lost it: it is there again.

    Their Tasks may be requested again, though nobody has seen that yet. Those that are still completed stay as they are.
    """
    _expect_again(uow, order, lines, now)
    if not is_told:
        _note_restored(uow, now, orders=1, reports=1)


def _expect_again(uow: UnitOfWork, order: OrderKey, keys: Collection[LineKey], now: datetime) -> None:
    """Let completed lines wait for their report, and their order for them."""
    lines = [line for line in uow.orders.lines(order) if line.key in keys and line.state is LineState.COMPLETED]
    record = uow.orders.get_for_update(order)
    if lines and record.state in {OrderState.CLOSED, OrderState.HELD, OrderState.REPORTED}:
        record = record.transition_to(OrderState.HANDED_OVER, now)
        uow.orders.save(replace(record, seen_lines=None, recheck_at=None, reopened=record.reopened + 1, released_findings=()))
    for line in lines:
        uow.orders.save_line(line.reopen(LineState.RESULTED, now))
        text = (
            f"line {line.key} (Task {line.task_id}) was completed, and our report was lost on the service: it ends with it again"
        )
        uow.events.add(Event(order=order, at=now, action="report_lost", text=text))


@dataclass(frozen=True, slots=True)
class _Found:
    """What was found of a restore so far."""

    since: str
    last: str
    orders: int = 0
    reports: int = 0
    documents_gone: int = 0

    @property
    def detail(self) -> str:
        """What was found, for people."""
        gone = f"; {self.documents_gone} documents are not kept any more and could not be sent" if self.documents_gone else ""
        return f"{self.reports} reports of {self.orders} orders, or their Tasks, were lost there and are sent again{gone}"


def _note_restored(uow: UnitOfWork, now: datetime, *, orders: int = 0, reports: int = 0, documents_gone: int = 0) -> None:
    known = _load(uow)
    before = known if known is not None else _Found(now.isoformat(), now.isoformat())
    found = _Found(
        since=before.since,
        last=now.isoformat(),
        orders=before.orders + orders,
        reports=before.reports + reports,
        documents_gone=before.documents_gone + documents_gone,
    )
    uow.key_values.set(_KEY, json.dumps(asdict(found)))
    since = datetime.fromisoformat(found.since)
    condition = RESTORED_SERVICE_ALERT.condition
    open_alert(uow, Alert(condition=condition, detail=found.detail, since=since, opened_at=now, count=found.orders))


def note_documents_gone(uow: UnitOfWork, number: int, now: datetime) -> None:
    """Tell of documents that could not be sent again."""
    if _load(uow) is not None:
        _note_restored(uow, now, documents_gone=number)


def is_quiet(uow: UnitOfWork, now: datetime) -> bool:
    """Whether it is told, and nothing more was found for a day."""
    known = _load(uow)
    return known is not None and datetime.fromisoformat(known.last) + QUIET_FOR <= now


def end_when_quiet(uow: UnitOfWork, now: datetime) -> None:
    """Tell it no more once nothing was found for a day."""
    if is_quiet(uow, now):
        uow.key_values.set(_KEY, "")
        close_alert(uow, RESTORED_SERVICE_ALERT, now)


def _load(uow: UnitOfWork) -> _Found | None:
    stored = uow.key_values.get(_KEY)
    return _Found(**json.loads(stored)) if stored else None
