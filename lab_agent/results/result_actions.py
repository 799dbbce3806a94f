"""What an operator decides about results that wait, from the command line or the match desk of the status page.

Every decision is recorded with who took it, when and why, in the result's history and in the timeline of its order. Each raises
`InputError` for an empty or too long note, and `InvalidTransitionError` if the result has changed since `seen_changed_at`, the
time of its last change as the operator saw it (None: not checked).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from lab_agent.lis.lab_messages import AccessionUpdate, LabMessage, LabReport, NotPerformed
from lab_agent.lis.serialization import dump_message, load_stored_message
from lab_agent.orders.audit_trail import note_decision
from lab_agent.orders.job_actions import validate_note
from lab_agent.orders.line_lifecycle import advance_order, reopen_lines
from lab_agent.orders.restored_service import find_uploaded, send_again
from lab_agent.queue.job_records import Job, JobKind
from lab_agent.results.order_lookup import load_part
from lab_agent.results.records import ReportRecord
from lab_agent.results.report_coverage import is_only_not_performed
from lab_agent.results.result_matching import ReportMatcher
from lab_agent.results.result_versions import rematch_waiting_versions
from lab_agent.shared.errors import InvalidTransitionError, StoreError
from lab_agent.shared.ids import LineKey, OrderKey, ReportKey
from lab_agent.shared.state_machines import JOBS_NEEDING_OPERATOR, REPORTS_NEEDING_OPERATOR, ReportState
from lab_agent.store.audit_records import AuditAction
from lab_agent.store.event_records import Event
from lab_agent.store.unit_of_work import Store, UnitOfWork

_PORTION = 50
"""Reports that are sent again in one unit of work."""
_DISMISSIBLE_STATES = REPORTS_NEEDING_OPERATOR | {ReportState.MATCHED}


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultDecision:
    """What became of a result: as it stands now, and whether it waits no longer."""

    report: ReportRecord
    moved: bool


async def waiting_results(store: Store) -> tuple[ReportRecord, ...]:
    """Every result that waits for an operator, by arrival."""
    return await store.transact(lambda uow: uow.reports.needing_operator())


async def match_result(  # noqa: PLR0913 - what is decided, and who, when and why: each is kept
    store: Store,
    matcher: ReportMatcher,
    key: ReportKey,
    order: OrderKey,
    *,
    lines: tuple[LineKey, ...] = (),
    by: str,
    note: str,
    now: datetime,
    seen_changed_at: datetime | None = None,
) -> ResultDecision:
    """Say which order (and which of its lines) a result belongs to, and match it.

    Raises `StoreError` for an unknown order or line, `InvalidTransitionError` for a result that does not wait.
    """

    def change(uow: UnitOfWork, report: ReportRecord) -> ReportRecord:
        part = load_part(uow, order, _choose_adapter(uow, report, order, lines))
        known = {str(line.key): (line.key,) for line in part.lines}
        named = assign_to_order(load_stored_message(report.body), order, lines, {**part.codes.codes, **known})
        adapter = None if part.adapter == report.source else part.adapter
        uow.reports.save(replace(report, body=dump_message(named), order=order, matched_adapter=adapter))
        return matcher.match(uow, report.key, now)

    action, text = AuditAction.RESULT_MATCHED, f"matched to order {order}"
    return await _change_result(store, key, _Decision(action, text, by, validate_note(note), now, seen_changed_at), change)


async def release_result(
    store: Store,
    matcher: ReportMatcher,
    key: ReportKey,
    *,
    by: str,
    note: str,
    now: datetime,
    seen_changed_at: datetime | None = None,
) -> ResultDecision:
    """Match a result again: the reason that was shown is answered. What has no legal form stays, with its reason.

    Raises `StoreError` for an unknown result, `InvalidTransitionError` for one that does not wait.
    """

    def change(uow: UnitOfWork, report: ReportRecord) -> ReportRecord:
        return matcher.match(uow, report.key, now, released=True)

    decision = _Decision(AuditAction.RESULT_RELEASED, "released", by, validate_note(note), now, seen_changed_at)
    return await _change_result(store, key, decision, change)


async def dismiss_result(
    store: Store, key: ReportKey, *, by: str, note: str, now: datetime, seen_changed_at: datetime | None = None
) -> ResultDecision:
    """Leave a result undelivered for good: it waits, or its delivery does. Lines that it was to complete wait again.

    Raises as `release_result` does.
    """

    def change(uow: UnitOfWork, report: ReportRecord) -> ReportRecord:
        for job in _deliveries_needing_operator(uow, report):
            uow.jobs.save(job.dismiss(now, note))
        gone = report.transition_to(ReportState.DISMISSED, now, f"dismissed by {by}: {validate_note(note)}")
        uow.reports.save(gone)
        if gone.order is not None:
            reopen_lines(uow, gone.order, now)
            advance_order(uow, gone.order, now)
        return gone

    note = validate_note(note)
    decision = _Decision(AuditAction.RESULT_DISMISSED, "dismissed", by, note, now, seen_changed_at, _DISMISSIBLE_STATES)
    return await _change_result(store, key, decision, change)


@dataclass(frozen=True, slots=True)
class SentSpan:
    """What was delivered in a time, both ends included."""

    since: datetime
    until: datetime


async def upload_again(store: Store, what: OrderKey | SentSpan, *, by: str, note: str, now: datetime) -> int:
    """Have the delivered reports of an order, or of a time, looked for on the service, and what is missing there uploaded again.

    Gives how many reports. What is there already is not written twice. Raises `InputError` for an empty or too long note,
    `StoreError` for an unknown order.
    """
    note, number, after = validate_note(note), 0, 0

    def write(uow: UnitOfWork, after: int) -> tuple[int, int | None]:
        if isinstance(what, SentSpan):
            found = uow.reports.delivered_between(what.since, what.until, after=after, limit=_PORTION)
        else:
            uow.orders.lock(uow.orders.get(what).key)
            found = uow.reports.delivered_of(what)
        known = find_uploaded(uow, found)
        for report in [each for each in found if each.key in known]:
            send_again(uow, report, now)
            text = f"result {report.key} to be uploaded again where it is missing ({note})"
            event = Event(order=report.order, report=report.key, at=now, action="operator", text=text, by=by)
            note_decision(uow, event, AuditAction.RESULT_UPLOADED_AGAIN, note=note, details={"order": report.order or ""})
        return len(known), found[-1].sequence if found and isinstance(what, SentSpan) else None

    while True:
        sent, last = await store.transact(partial(write, after=after))
        number += sent
        if last is None:
            return number
        after = last


async def preview_mapping_release(store: Store, matcher: ReportMatcher, *, now: datetime) -> tuple[ReportRecord, ...]:
    """What releasing the unmapped results would do: each as it would stand afterwards. Nothing is committed."""

    def look(uow: UnitOfWork) -> tuple[ReportRecord, ...]:
        return tuple(matcher.match(uow, report.key, now) for report in _unmapped_reports(uow))

    return await store.rehearse(look)


async def release_mapped_results(store: Store, matcher: ReportMatcher, *, by: str, now: datetime) -> tuple[ResultDecision, ...]:
    """Release every result that the mapping tables can translate now; the others stay, each with what is still missing.

    What somebody else decides about meanwhile is skipped.
    """
    keys = await store.transact(lambda uow: [report.key for report in _unmapped_reports(uow)])

    def change(uow: UnitOfWork, report: ReportRecord) -> ReportRecord:
        return matcher.match(uow, report.key, now)

    decided = []
    for key in keys:
        with suppress(InvalidTransitionError):
            decision = _Decision(AuditAction.RESULT_RELEASED, "released", by, "the mapping tables were changed", now)
            decided.append(await _change_result(store, key, decision, change))
    return tuple(decided)


def _choose_adapter(uow: UnitOfWork, report: ReportRecord, order: OrderKey, lines: Collection[LineKey]) -> str:
    """Of which part of the order a result is to be: that with these lines, else that of its own laboratory system."""
    known = {line.key: line.adapter for line in uow.orders.lines(order)}
    if strange := [line for line in lines if line not in known]:
        raise StoreError(f"order {order} has no line {strange[0]}")
    adapters = sorted({each for line in lines if (each := known[line]) is not None})
    if len(adapters) > 1:
        raise StoreError(f"these lines are at {' and '.join(adapters)}; a result is of one laboratory system alone")
    parts = [each.adapter for each in uow.orders.work_orders(order)]
    if adapters or not parts or report.source in parts:
        return adapters[0] if adapters else report.source
    if len(parts) > 1:
        raise StoreError(f"order {order} is at {' and '.join(parts)}, not at {report.source}; say which of its lines are meant")
    return parts[0]


def _unmapped_reports(uow: UnitOfWork) -> list[ReportRecord]:
    return [report for report in uow.reports.needing_operator() if report.state is ReportState.UNMAPPED]


def _deliveries_needing_operator(uow: UnitOfWork, report: ReportRecord) -> list[Job]:
    """Deliveries of a report that need an operator. Raises `InvalidTransitionError` while one is under way."""
    if report.state in REPORTS_NEEDING_OPERATOR or report.order is None:
        return []
    mine = [
        each
        for each in uow.jobs.list_for_order(report.order)
        if each.kind is JobKind.DELIVER_REPORT and each.target == report.key
    ]
    if not mine or any(each.state not in JOBS_NEEDING_OPERATOR for each in mine):
        raise InvalidTransitionError(
            f"result {report.key} is {report.state.value}; only what waits for an operator can be dismissed"
        )
    return mine


@dataclass(frozen=True, slots=True)
class _Decision:
    """A decision about a result in one of `from_states`: what is done, by whom, why and when."""

    action: AuditAction
    description: str
    by: str
    note: str
    now: datetime
    seen_changed_at: datetime | None = None
    from_states: Collection[ReportState] = REPORTS_NEEDING_OPERATOR


async def _change_result(
    store: Store, key: ReportKey, decision: _Decision, change: Callable[[UnitOfWork, ReportRecord], ReportRecord]
) -> ResultDecision:
    def write(uow: UnitOfWork) -> ResultDecision:
        before = uow.reports.get_for_update(key)
        if before.state not in decision.from_states:
            raise InvalidTransitionError(f"result {key} is {before.state.value}; it does not wait for an operator")
        if decision.seen_changed_at not in (None, before.changed_at):
            raise InvalidTransitionError(f"result {key} has changed since you looked; nothing was done, look again")
        after = change(uow, before)
        if after.state is not ReportState.MATCHED or after.order != before.order:
            rematch_waiting_versions(uow, before, decision.now)
        details = {"state": after.state.value, **({"order": after.order} if after.order else {})}
        note_decision(uow, _decision_event(decision, after), decision.action, note=decision.note, details=details)
        return ResultDecision(report=after, moved=after.state not in REPORTS_NEEDING_OPERATOR)

    return await store.transact(write)


def _decision_event(decision: _Decision, report: ReportRecord) -> Event:
    changes = f": {report.reason}" if report.state is ReportState.MATCHED and report.reason else ""
    text = f"result {report.key} {decision.description} ({decision.note}): it is {report.state.value} now{changes}"
    return Event(order=report.order, report=report.key, at=decision.now, action="operator", text=text, by=decision.by)


LineCodes = Mapping[str, Sequence[LineKey]]
"""Line keys, nomenclature codes and laboratory codes → the lines of the order that a message may mean by them."""


def assign_to_order(message: LabMessage, order: OrderKey, lines: tuple[LineKey, ...], codes: LineCodes) -> LabMessage:
    """The message as if it had named this order, and of its lines these alone, if any are given.

    What it says of other lines is left out; an unknown name is taken to mean the lines that the operator chose. Beside results,
    an unknown name stays where it says what was not performed: it may be any line, so none may be completed by it.
    """
    if isinstance(message, AccessionUpdate):
        return replace(message, order=order, barcode=None)
    message = replace(message, order=order, accession=None, barcode=None)
    if isinstance(message, LabReport):
        return _restrict_report(message, lines, codes) if lines else replace(message, lines=())
    return replace(message, not_performed=_restrict_rejection(message.not_performed, lines, codes)) if lines else message


def _restrict_report(report: LabReport, lines: tuple[LineKey, ...], codes: LineCodes) -> LabReport:
    if is_only_not_performed(report):
        return replace(
            report, lines=lines, items=(), completes=None, not_performed=_restrict_rejection(report.not_performed, lines, codes)
        )
    items = tuple(_restrict_items(report, lines, codes))
    if report.completes is not None:
        named = (key for name in report.completes for key in codes.get(name, lines))
        completes: tuple[str, ...] | None = tuple(dict.fromkeys(key for key in named if key in lines))
    else:  # an item that is left out was a test of these lines too: what remains is not an extra test alone
        completes = lines if len(items) < len(report.items) else None
    unknown = (each for each in report.not_performed if any(name not in codes for name in _entry_names(each)))
    absent = (*_restrict_not_performed(report.not_performed, lines, codes, unknown=()), *unknown)
    return replace(report, lines=lines, items=items, completes=completes, not_performed=absent)


def _restrict_items(report: LabReport, lines: Collection[LineKey], codes: LineCodes) -> Iterator[str]:
    """The items of these lines, and extra tests: items that the order does not have, beside one that it has."""
    has_own = bool(report.lines) or any(item in codes for item in report.items)
    for item in report.items:
        if set(codes[item]) <= set(lines) if item in codes else has_own:
            yield item


def _restrict_rejection(
    entries: tuple[NotPerformed, ...], lines: tuple[LineKey, ...], codes: LineCodes
) -> tuple[NotPerformed, ...]:
    """What is said of these lines; if nothing is, the operator says that all of it is."""
    said = tuple(_restrict_not_performed(entries, lines, codes, unknown=lines))
    return said or tuple(NotPerformed(line=line, reason=each.reason) for each in entries for line in lines)


def _restrict_not_performed(
    entries: tuple[NotPerformed, ...], lines: tuple[LineKey, ...], codes: LineCodes, *, unknown: tuple[LineKey, ...]
) -> Iterator[NotPerformed]:
    """What is said of these lines, each by its key; `unknown` are those that an unknown name means."""
    for entry in entries:
        named = _entry_names(entry)
        keys = [key for name in named for key in codes.get(name, unknown)] if named else [*lines]
        for key in dict.fromkeys(keys):
            if key in lines:
                yield NotPerformed(line=key, reason=entry.reason)


def _entry_names(entry: NotPerformed) -> list[str]:
    return [name for name in (entry.line, entry.item) if name]
