"""The match desk: results that are waiting, one result, the search for its order, and the release of what new mappings cover."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Depends
from starlette.responses import RedirectResponse, Response

from lab_agent.lis.lab_messages import LabRejection, LabReport
from lab_agent.operations.audit_log import note_look
from lab_agent.queue.job_records import Job
from lab_agent.results import result_actions
from lab_agent.results.records import HoldReason, ReportRecord, result_alert_key
from lab_agent.results.refused_messages import rejected_messages_alert_key
from lab_agent.shared.ids import OrderKey, ReportKey
from lab_agent.shared.logs import get_logger
from lab_agent.shared.state_machines import JOBS_NEEDING_OPERATOR, REPORTS_NEEDING_OPERATOR, ReportState
from lab_agent.status.auth import HttpError, Operator, Viewer
from lab_agent.status.context import Context, Renderer, StatusContext
from lab_agent.status.formatting import ResultView, load_result, order_references
from lab_agent.status.forms import Form, one_line
from lab_agent.status.pages import Flash, SearchText, StateNames
from lab_agent.status.paging import PageNumber, page_offset
from lab_agent.status.translation import gettext, marked
from lab_agent.store.audit_records import AuditAction
from lab_agent.store.event_records import Event
from lab_agent.store.read_models import OrderSummary, Page, ReportSummary

router = APIRouter()
_log = get_logger(__name__)

_MAX_CANDIDATES = 10
_MAX_OBSERVATIONS = 500
"""Observations of one result on its page; nobody reads more, and the command line shows them all."""
_MAX_PREVIEW = 200
_PREVIEW_OUTDATED = marked(
    "The mapping tables or the results have changed since the preview. Nothing was done; check the preview again."
)


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """A line of a result's history."""

    at: datetime
    text: str
    by: str | None = None


async def get_report(key: str, context: Context, _: Viewer) -> ReportRecord:
    """The result of the address. Raises `HttpError`."""
    report = await context.queries.report(ReportKey(one_line(key)))
    if report is None:
        raise HttpError("There is no result with this key.", 404)
    return report


Report = Annotated[ReportRecord, Depends(get_report)]


@router.get("/results")
async def show_results(
    user: Viewer, context: Context, renderer: Renderer, page: PageNumber, state_names: StateNames, flash: Flash, reason: str = ""
) -> Response:
    """What is waiting, longest first; or the results in the selected states, or held for one reason."""
    hold_reason = next((each for each in HoldReason if each.value == reason), None)
    states, offset = [state for state in ReportState if state.value in state_names], page_offset(page)
    found: Page[ReportSummary] | Page[ReportRecord]
    waiting_results: list[ResultView] = []
    if states or hold_reason:
        found = await context.queries.reports(states=states, hold_reason=hold_reason, offset=offset)
    else:
        found = waiting = await context.queries.unmatched_reports(offset=offset)
        waiting_results = [load_result(report) for report in waiting.items]
    overview = await context.queries.overview(now=context.clock.now())
    return await renderer.render_page(
        "results.html",
        user,
        page=found,
        page_number=page,
        query_string=urlencode([("reason", hold_reason.value)] if hold_reason else [("state", state.value) for state in states]),
        states=ReportState,
        selected_states=states,
        held_for=result_alert_key(ReportState.HELD, hold_reason) if hold_reason else None,
        waiting_results=waiting_results,
        rejected_counts=await context.store.run_read_only(lambda uow: uow.refused_messages.waiting_counts()),
        alerts_by_key={alert.key: alert for alert in overview.alerts},
        rejected_messages_alert_key=rejected_messages_alert_key,
        unmapped_count=overview.reports.get(ReportState.UNMAPPED, 0),
        flash=flash,
    )


@router.get("/results/mended")
async def preview_mapping_release(user: Operator, context: Context, renderer: Renderer) -> Response:
    """What would become of each unmapped result with the mapping tables as they are in their folder now."""
    preview = await _preview_reports(context)
    released = [report for report in preview if report.state not in REPORTS_NEEDING_OPERATOR]
    waiting = [report for report in preview if report.state in REPORTS_NEEDING_OPERATOR]
    return await renderer.render_page(
        "mapping_release.html",
        user,
        sections=((gettext("Would be released"), released), (gettext("Would stay"), waiting)),
        release_count=len(released),
        preview_digest=_preview_digest(preview),
        limit=_MAX_PREVIEW,
    )


@router.post("/results/mended")
async def release_mapped_results(user: Operator, form: Form, context: Context) -> Response:
    """Release what the preview showed."""
    if form.get("preview_digest") != _preview_digest(await _preview_reports(context)):
        raise HttpError(_PREVIEW_OUTDATED, 409)
    decided = await result_actions.release_mapped_results(
        context.store, context.create_matcher(), by=user.name, now=context.clock.now()
    )
    _log.info("mapped results released", action="results_released", count=sum(each.moved for each in decided), by=user.name)
    return RedirectResponse("/results?flash=mappings-released", 303)


async def _preview_reports(context: StatusContext) -> Sequence[ReportRecord]:
    return await result_actions.preview_mapping_release(context.store, context.create_matcher(), now=context.clock.now())


def _preview_digest(reports: Sequence[ReportRecord]) -> str:
    """What distinguishes one preview from another."""
    lines = "\n".join(sorted(f"{report.key} {report.state.value}" for report in reports))
    return hashlib.sha256(lines.encode()).hexdigest()


@router.get("/results/{key}")
async def show_result(user: Viewer, context: Context, renderer: Renderer, report: Report, flash: Flash) -> Response:
    """One result, with all that belongs to it. The look is in the audit before it is shown."""
    await note_look(context.store, AuditAction.RESULT_SHOWN, report.key, by=user.name, now=context.clock.now())
    result, queries = load_result(report), context.queries
    files = {document.file for document in result.documents if document.file}
    order = None if report.order is None else await queries.order(report.order)
    jobs = [job for job in order.jobs if job.target == report.key] if order else []
    return await renderer.render_page(
        "result.html",
        user,
        result=result,
        report=report,
        waits_for=result_alert_key(report.state, report.hold_reason) if report.state in REPORTS_NEEDING_OPERATOR else None,
        needs_decision=report.state in REPORTS_NEEDING_OPERATOR,
        jobs=jobs,
        needing_operator=JOBS_NEEDING_OPERATOR,
        can_dismiss=_can_dismiss(report, jobs),
        versions=await queries.versions(report),
        document_sizes=await queries.document_sizes(files) if files else {},
        history=_history_entries(report, await queries.report_events(report.key)),
        limit=_MAX_OBSERVATIONS,
        flash=flash,
    )


async def _find_candidates(context: StatusContext, names: Sequence[str]) -> Page[OrderSummary] | None:
    """The orders of the first of these names that any order has."""
    found: Page[OrderSummary] | None = None
    for name in names:
        found = await context.queries.orders(search=name, limit=_MAX_CANDIDATES)
        if found.items:
            break
    return found


def _can_dismiss(report: ReportRecord, jobs: Sequence[Job]) -> bool:
    """Whether it can be dismissed: it is waiting for an operator, or its delivery is."""
    is_stalled = any(job.state in JOBS_NEEDING_OPERATOR for job in jobs)
    return report.state in REPORTS_NEEDING_OPERATOR or (report.state is ReportState.MATCHED and is_stalled)


def _history_entries(report: ReportRecord, events: tuple[Event, ...]) -> tuple[HistoryEntry, ...]:
    """The events of a result, from its arrival; its state, where it has no events."""
    entries = [HistoryEntry(event.at, event.text, event.by) for event in events]
    if not entries and report.state is not ReportState.RECEIVED:
        state = f"{report.state.value}: {report.reason}" if report.reason else report.state.value
        entries = [HistoryEntry(report.changed_at, state)]
    return (HistoryEntry(report.received_at, f"received from {report.source}"), *entries)


@router.get("/results/{key}/match")
async def show_assign_form(
    user: Operator, context: Context, renderer: Renderer, report: Report, search: SearchText, order: str = ""
) -> Response:
    """The way to the order of a result: the orders that it names, or a search; select one, tick lines."""
    if report.state not in REPORTS_NEEDING_OPERATOR:
        return RedirectResponse(f"/results/{report.key}", 303)
    await note_look(context.store, AuditAction.RESULT_SHOWN, report.key, by=user.name, now=context.clock.now())
    result, order_key = load_result(report), one_line(order)
    names = [search] if search else [] if order_key else [value for _, value in order_references(result)]
    candidates = await _find_candidates(context, names)
    if not order_key and candidates is not None and candidates.total == 1:
        order_key = candidates.items[0].key
    return await renderer.render_page(
        "assign_result.html",
        user,
        result=result,
        report=report,
        search=search,
        candidates=candidates if search or (candidates and candidates.items) else None,
        order_key=order_key,
        selected_order=await context.queries.order(OrderKey(order_key)) if order_key else None,
        accepts_lines=isinstance(result.message, LabReport | LabRejection),
    )
