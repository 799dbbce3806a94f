"""The deeds: what an operator decides on the page. The desk does them; each is told in the order's timeline with who did it."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from lab_agent.domain.ids import JobId, OrderKey
from lab_agent.domain.journal import Job, JobKind
from lab_agent.logs import get_logger
from lab_agent.status.gate import AccessControl, HttpError, one_line, read_note
from lab_agent.status.house import StatusContext
from lab_agent.status.words import find_unconfirmed_submit, is_unconfirmed_submit
from lab_agent.steps import desk

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
        changed = await desk.retry_job(self._context.store, current.id, by=visitor.account.name, now=self._context.clock.now())
        return _redirect_back(form, changed, "retried")

    async def dismiss(self, request: Request, job: str) -> Response:
        """Leave an effect undone for good."""
        visitor, form = await self._access.authorize_action(request)
        current, note = await self._get_job(job), read_note(form)
        now = self._context.clock.now()
        changed = await desk.dismiss_job(self._context.store, current.id, by=visitor.account.name, note=note, now=now)
        return _redirect_back(form, changed, "dismissed")

    async def mark_done(self, request: Request, job: str) -> Response:
        """Say that an effect has happened."""
        visitor, form = await self._access.authorize_action(request)
        current, note = await self._get_job(job), read_note(form)
        now = self._context.clock.now()
        changed = await desk.mark_job_done(self._context.store, current.id, by=visitor.account.name, note=note, now=now)
        return _redirect_back(form, changed, "done")

    async def retry_order(self, request: Request, key: str) -> Response:
        """Do now whatever of an order waits."""
        visitor, _ = await self._access.authorize_action(request)
        detail = await self._context.queries.order(OrderKey(one_line(key)))
        if detail is None:
            raise HttpError("There is no order of this key.", 404)
        if doubtful := find_unconfirmed_submit(detail):
            raise HttpError(f"Whether the order was handed over is in doubt. Decide about job {doubtful.id} first.", 409)
        await desk.retry_order(self._context.store, OrderKey(key), by=visitor.account.name, now=self._context.clock.now())
        return RedirectResponse(f"/orders/{key}?did=order", 303)

    async def release_rule(self, request: Request, rule: str) -> Response:
        """Let a stopped rule refuse again."""
        visitor, _ = await self._access.authorize_action(request)
        if not await desk.reset_tripped_rule(self._context.store, one_line(rule), now=self._context.clock.now()):
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
