"""What an operator decides at the match desk. The desk does it; who, when and why stand in the order's timeline.

A decision is about the result as it stood on the page: if it has moved since, nothing is done, and the visitor looks again.

The deeds: what an operator decides on the page. The desk does them; each is told in the order's timeline with who did it.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from lab_agent.domain.ids import JobId, LineKey, OrderKey
from lab_agent.domain.records import Job, JobKind, ReportRecord
from lab_agent.logs import get_logger
from lab_agent.status.auth import AccessControl, CurrentUser, HttpError, one_line, read_note
from lab_agent.status.context import StatusContext
from lab_agent.status.formatting import find_unconfirmed_submit, is_unconfirmed_submit
from lab_agent.status.result_pages import get_report
from lab_agent.workflow import operator_jobs, operator_results
from lab_agent.workflow.operator_results import ResultDecision

log = get_logger(__name__)

_MAX_JOB_ID = 2**63 - 1


class JobActions:
    """What can be done on the page."""

    def __init__(self, context: StatusContext, access: AccessControl) -> None:
        self._context = context
        self._access = access

    def routes(self) -> APIRouter:
        """The routes."""
        router = APIRouter()
        router.add_api_route("/jobs/{job}/retry", self.retry, methods=["POST"])
        router.add_api_route("/jobs/{job}/dismiss", self.dismiss, methods=["POST"])
        router.add_api_route("/jobs/{job}/done", self.mark_done, methods=["POST"])
        router.add_api_route("/orders/{key}/retry", self.retry_order, methods=["POST"])
        router.add_api_route("/rules/{rule}/release", self.release_rule, methods=["POST"])
        return router

    async def retry(self, request: Request, job: str) -> Response:
        """Do an effect (again) now."""
        visitor, form = await self._access.authorize_action(request)
        current = await self._get_job(job)
        if is_unconfirmed_submit(current) and form.get("sure") != "yes":
            raise HttpError("This hands the order over AGAIN. Tick the box if you are certain that it is not there.", 409)
        changed = await operator_jobs.retry_job(
            self._context.store, current.id, by=visitor.account.name, now=self._context.clock.now()
        )
        return _redirect_back(form, changed, "retried")

    async def dismiss(self, request: Request, job: str) -> Response:
        """Leave an effect undone for good."""
        visitor, form = await self._access.authorize_action(request)
        current, note = await self._get_job(job), read_note(form)
        now = self._context.clock.now()
        changed = await operator_jobs.dismiss_job(self._context.store, current.id, by=visitor.account.name, note=note, now=now)
        return _redirect_back(form, changed, "dismissed")

    async def mark_done(self, request: Request, job: str) -> Response:
        """Say that an effect has happened."""
        visitor, form = await self._access.authorize_action(request)
        current, note = await self._get_job(job), read_note(form)
        now = self._context.clock.now()
        changed = await operator_jobs.mark_job_done(self._context.store, current.id, by=visitor.account.name, note=note, now=now)
        return _redirect_back(form, changed, "done")

    async def retry_order(self, request: Request, key: str) -> Response:
        """Do now whatever of an order waits."""
        visitor, _ = await self._access.authorize_action(request)
        detail = await self._context.queries.order(OrderKey(one_line(key)))
        if detail is None:
            raise HttpError("There is no order of this key.", 404)
        if doubtful := find_unconfirmed_submit(detail):
            raise HttpError(f"Whether the order was handed over is in doubt. Decide about job {doubtful.id} first.", 409)
        await operator_jobs.retry_order(
            self._context.store, OrderKey(key), by=visitor.account.name, now=self._context.clock.now()
        )
        return RedirectResponse(f"/orders/{key}?did=order", 303)

    async def release_rule(self, request: Request, rule: str) -> Response:
        """Let a stopped rule refuse again."""
        visitor, _ = await self._access.authorize_action(request)
        if not await operator_jobs.reset_tripped_rule(self._context.store, one_line(rule), now=self._context.clock.now()):
            raise HttpError("This rule is not stopped; somebody may have released it just now.", 409)
        log.info("rule released", action="rule_released", rule=rule, by=visitor.account.name)
        return RedirectResponse("/?did=released", 303)

    async def _get_job(self, number: str) -> Job:
        known = number.isascii() and number.isdigit() and len(number) < 20 and int(number) <= _MAX_JOB_ID
        found = await self._context.queries.job(JobId(int(number))) if known else None
        if found is None:
            raise HttpError("There is no job of this number.", 404)
        return found


def _redirect_back(form: Mapping[str, str], job: Job, flash: str) -> Response:
    """Back to the page that the form was on."""
    on = form.get("on")
    there = f"/orders/{job.order}" if on == "order" and job.order else "/waiting"
    if on == "result" and job.kind in {JobKind.DELIVER_REPORT, JobKind.MATCH_REPORT}:
        there = f"/results/{quote(job.target, safe='')}"
    return RedirectResponse(f"{there}?did={flash}&job={job.id}", 303)


LINE_FIELD_PREFIX = "line-"
"""What the name of a tick for a line begins with."""
_RESULT_CHANGED = "This result has moved since you opened its page; somebody else may have decided. Nothing was done; look again."


class ResultActions:
    """What can be done about one result."""

    def __init__(self, context: StatusContext, access: AccessControl) -> None:
        self._context = context
        self._access = access

    def routes(self) -> APIRouter:
        """The routes."""
        router = APIRouter()
        router.add_api_route("/results/refused/seen", self.clear_rejected_messages, methods=["POST"])
        router.add_api_route("/results/{key}/match", self.match, methods=["POST"])
        router.add_api_route("/results/{key}/release", self.release, methods=["POST"])
        router.add_api_route("/results/{key}/dismiss", self.dismiss, methods=["POST"])
        return router

    async def match(self, request: Request, key: str) -> Response:
        """Say which order it belongs to, and which lines it is about."""
        visitor, form, report = await self._authorize(request, key)
        order, note = OrderKey(one_line(form.get("order", ""))), read_note(form)
        if await self._context.queries.order(order) is None:
            raise HttpError("There is no order of this key. Search for it by requisition, accession or barcode.", 404)
        lines = tuple(
            LineKey(name.removeprefix(LINE_FIELD_PREFIX))
            for name, said in form.items()
            if name.startswith(LINE_FIELD_PREFIX) and said == "yes"
        )
        decided = await operator_results.match_result(
            self._context.store,
            self._context.create_matcher(),
            report.key,
            order,
            lines=lines,
            by=visitor.account.name,
            note=note,
            now=self._context.clock.now(),
            seen_changed_at=report.changed_at,
        )
        return _redirect_to_result(decided, visitor)

    async def release(self, request: Request, key: str) -> Response:
        """Try it again; what a person may waive is waived."""
        visitor, form, report = await self._authorize(request, key)
        by, note = visitor.account.name, read_note(form)
        if form.get("looked") != "yes":
            raise HttpError("This sends a result that something is odd about. Look at it, and tick the box that says so.", 409)
        store, matcher, now = self._context.store, self._context.create_matcher(), self._context.clock.now()
        decided = await operator_results.release_result(
            store, matcher, report.key, by=by, note=note, now=now, seen_changed_at=report.changed_at
        )
        return _redirect_to_result(decided, visitor)

    async def dismiss(self, request: Request, key: str) -> Response:
        """Leave it for good."""
        visitor, form, report = await self._authorize(request, key)
        by, note, now = visitor.account.name, read_note(form), self._context.clock.now()
        decided = await operator_results.dismiss_result(
            self._context.store, report.key, by=by, note=note, now=now, seen_changed_at=report.changed_at
        )
        return _redirect_to_result(decided, visitor)

    async def clear_rejected_messages(self, request: Request) -> Response:
        """Say that the refused messages of a laboratory system were looked at: as many as the page showed, and no more."""
        visitor, form = await self._access.authorize_action(request)
        source, store = form.get("source", ""), self._context.store
        if source not in {adapter.name for adapter in self._context.adapters}:
            raise HttpError("There is no laboratory system of this name.", 404)
        counted = (await operator_results.rejected_message_counts(store, [source])).get(source, 0)
        if str(counted) != form.get("number"):
            raise HttpError(f"Meanwhile {counted} messages are refused. Nothing was done; look again.", 409)
        if not await operator_results.acknowledge_rejected_messages(
            store, source, now=self._context.clock.now(), expected_count=counted
        ):
            raise HttpError("Somebody else has looked at these messages just now.", 409)
        log.info("refused messages seen", action="refused_seen", adapter=source, by=visitor.account.name)
        return RedirectResponse("/results?did=seen", 303)

    async def _authorize(self, request: Request, key: str) -> tuple[CurrentUser, Mapping[str, str], ReportRecord]:
        """Who acts, the form, and the result, if it stands as the form showed it. Raises `SignInFirst` and `Refused`."""
        visitor, form = await self._access.authorize_action(request)
        report = await get_report(self._context, key)
        if form.get("seen") != report.changed_at.isoformat():
            raise HttpError(_RESULT_CHANGED, 409)
        return visitor, form, report


def _redirect_to_result(decided: ResultDecision, user: CurrentUser) -> Response:
    """To the result, as it stands now."""
    report = decided.report
    log.info("result decided", action="result_decided", report=report.key, state=report.state, by=user.account.name)
    return RedirectResponse(f"/results/{report.key}?did=result-{report.state.value if decided.moved else 'waits'}", 303)
