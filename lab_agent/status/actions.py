"""What an operator does with a form: POST, then a redirect with a code in the address (`?flash=retried&job=7`), never a sentence.

The workflow does it, and the timeline says who did it. An action on a result applies to the result as its page showed it: if it
has changed since, nothing is done.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Depends
from starlette.responses import RedirectResponse, Response

from lab_agent.orders import job_actions
from lab_agent.queue.job_records import Job, JobKind
from lab_agent.results import result_actions
from lab_agent.results.records import ReportRecord
from lab_agent.results.result_actions import ResultDecision
from lab_agent.shared.ids import JobId, LineKey, OrderKey
from lab_agent.shared.logs import get_logger
from lab_agent.status.auth import HttpError, Operator, Viewer
from lab_agent.status.context import Context
from lab_agent.status.formatting import find_unconfirmed_submit, is_unconfirmed_submit
from lab_agent.status.forms import Form, Note, one_line
from lab_agent.status.result_pages import Report
from lab_agent.status.sessions import CurrentUser
from lab_agent.status.translation import marked

router = APIRouter()
_log = get_logger(__name__)

LINE_FIELD_PREFIX = "line-"
"""What the name of a line's tick begins with."""
_UNCONFIRMED = marked("It is not known whether the laboratory system has the order: answer that question on its page first.")
_MAX_JOB_ID = 2**63 - 1
_RESULT_CHANGED = marked("This result has changed since you opened its page; somebody else may have decided. Nothing was done.")


async def get_job(job: str, context: Context, _: Viewer) -> Job:
    """The job of the address. Raises `HttpError`."""
    is_number = job.isascii() and job.isdigit() and len(job) < 20 and int(job) <= _MAX_JOB_ID
    found = await context.queries.job(JobId(int(job))) if is_number else None
    if found is None:
        raise HttpError("There is no job with this number.", 404)
    return found


async def get_unchanged_report(report: Report, form: Form) -> ReportRecord:
    """The result of the address, if it is still as the form showed it. Raises `HttpError`."""
    if form.get("changed_at") != report.changed_at.isoformat():
        raise HttpError(_RESULT_CHANGED, 409)
    return report


RequestedJob = Annotated[Job, Depends(get_job)]
UnchangedReport = Annotated[ReportRecord, Depends(get_unchanged_report)]


@router.post("/jobs/{job}/retry")
async def retry_job(user: Operator, form: Form, context: Context, job: RequestedJob) -> Response:
    """Do a job (again) now."""
    if is_unconfirmed_submit(job) and form.get("confirmed") != "yes":
        raise HttpError(
            "This submits the order AGAIN. Tick the box if you are certain that the laboratory does not have it.", 409
        )
    changed = await job_actions.retry_job(context.store, job.id, by=user.name, now=context.clock.now())
    return _redirect_back(form, changed, "retried")


@router.post("/jobs/{job}/dismiss")
async def dismiss_job(user: Operator, form: Form, context: Context, job: RequestedJob, note: Note) -> Response:
    """Leave a job undone for good."""
    changed = await job_actions.dismiss_job(context.store, job.id, by=user.name, note=note, now=context.clock.now())
    return _redirect_back(form, changed, "dismissed")


@router.post("/jobs/{job}/done")
async def mark_job_done(user: Operator, form: Form, context: Context, job: RequestedJob, note: Note) -> Response:
    """Record that a job was done some other way."""
    changed = await job_actions.mark_job_done(context.store, job.id, by=user.name, note=note, now=context.clock.now())
    return _redirect_back(form, changed, "done")


def _redirect_back(form: Mapping[str, str], job: Job, flash: str) -> Response:
    """Back to the page that the form was on."""
    return_to = form.get("return_to")
    path = f"/orders/{job.order}" if return_to == "order" and job.order else "/waiting"
    if return_to == "result" and job.kind in {JobKind.DELIVER_REPORT, JobKind.MATCH_REPORT}:
        path = f"/results/{quote(job.target, safe='')}"
    return RedirectResponse(f"{path}?flash={flash}&job={job.id}", 303)


@router.post("/orders/{key}/retry")
async def retry_order(key: str, user: Operator, _: Form, context: Context) -> Response:
    """Do now whatever of an order is waiting."""
    detail = await context.queries.order(OrderKey(one_line(key)))
    if detail is None:
        raise HttpError("There is no order with this key.", 404)
    if find_unconfirmed_submit(detail):
        raise HttpError(_UNCONFIRMED, 409)
    await job_actions.retry_order(context.store, detail.order.key, by=user.name, now=context.clock.now())
    return RedirectResponse(f"/orders/{detail.order.key}?flash=order-retried", 303)


@router.post("/rules/{rule}/release")
async def release_rule(rule: str, user: Operator, _: Form, context: Context) -> Response:
    """Let a tripped rule reject orders again."""
    if not await job_actions.reset_tripped_rule(context.store, one_line(rule), by=user.name, now=context.clock.now()):
        raise HttpError("This rule is not stopped; somebody may have released it just now.", 409)
    _log.info("rule released", action="rule_released", rule=rule, by=user.name)
    return RedirectResponse("/?flash=rule-released", 303)


@router.post("/results/{key}/match")
async def match_result(user: Operator, form: Form, context: Context, report: UnchangedReport, note: Note) -> Response:
    """Match a result to an order, and to the ticked lines of it."""
    order = OrderKey(one_line(form.get("order", "")))
    if await context.queries.order(order) is None:
        raise HttpError("There is no order with this key. Search for it by requisition, accession or barcode.", 404)
    decided = await result_actions.match_result(
        context.store,
        context.create_matcher(),
        report.key,
        order,
        lines=_ticked_lines(form),
        by=user.name,
        note=note,
        now=context.clock.now(),
        seen_changed_at=report.changed_at,
    )
    return _redirect_to_result(decided, user)


def _ticked_lines(form: Mapping[str, str]) -> tuple[LineKey, ...]:
    ticked = (name for name, value in form.items() if name.startswith(LINE_FIELD_PREFIX) and value == "yes")
    return tuple(LineKey(name.removeprefix(LINE_FIELD_PREFIX)) for name in ticked)


@router.post("/results/{key}/release")
async def release_result(user: Operator, form: Form, context: Context, report: UnchangedReport, note: Note) -> Response:
    """Try a result again, overriding what an operator may override."""
    if form.get("reviewed") != "yes":
        raise HttpError("This delivers a result with a warning. Review it, and tick the box that says so.", 409)
    decided = await result_actions.release_result(
        context.store,
        context.create_matcher(),
        report.key,
        by=user.name,
        note=note,
        now=context.clock.now(),
        seen_changed_at=report.changed_at,
    )
    return _redirect_to_result(decided, user)


@router.post("/results/{key}/dismiss")
async def dismiss_result(user: Operator, context: Context, report: UnchangedReport, note: Note) -> Response:
    """Keep a result, and never deliver it."""
    decided = await result_actions.dismiss_result(
        context.store, report.key, by=user.name, note=note, now=context.clock.now(), seen_changed_at=report.changed_at
    )
    return _redirect_to_result(decided, user)


def _redirect_to_result(decided: ResultDecision, user: CurrentUser) -> Response:
    report = decided.report
    _log.info("result decided", action="result_decided", report=report.key, state=report.state, by=user.name)
    outcome = report.state.value if decided.moved else "held-back"
    return RedirectResponse(f"/results/{report.key}?flash=result-{outcome}", 303)
