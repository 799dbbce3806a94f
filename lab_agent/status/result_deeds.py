"""What an operator decides at the match desk. The desk does it; who, when and why stand in the order's timeline.

A decision is about the result as it stood on the page: if it has moved since, nothing is done, and the visitor looks again.
"""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from lab_agent.domain.ids import LineKey, OrderKey
from lab_agent.domain.journal import ReportRecord
from lab_agent.logs import get_logger
from lab_agent.status.gate import AccessControl, HttpError, one_line, read_note
from lab_agent.status.house import StatusContext
from lab_agent.status.match_desk import get_report
from lab_agent.status.sessions import CurrentUser
from lab_agent.steps import result_desk
from lab_agent.steps.result_desk import ResultDecision

log = get_logger(__name__)

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
        decided = await result_desk.match_result(
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
        decided = await result_desk.release_result(
            store, matcher, report.key, by=by, note=note, now=now, seen_changed_at=report.changed_at
        )
        return _redirect_to_result(decided, visitor)

    async def dismiss(self, request: Request, key: str) -> Response:
        """Leave it for good."""
        visitor, form, report = await self._authorize(request, key)
        by, note, now = visitor.account.name, read_note(form), self._context.clock.now()
        decided = await result_desk.dismiss_result(
            self._context.store, report.key, by=by, note=note, now=now, seen_changed_at=report.changed_at
        )
        return _redirect_to_result(decided, visitor)

    async def clear_rejected_messages(self, request: Request) -> Response:
        """Say that the refused messages of a laboratory system were looked at: as many as the page showed, and no more."""
        visitor, form = await self._access.authorize_action(request)
        source, store = form.get("source", ""), self._context.store
        if source not in {adapter.name for adapter in self._context.adapters}:
            raise HttpError("There is no laboratory system of this name.", 404)
        counted = (await result_desk.rejected_message_counts(store, [source])).get(source, 0)
        if str(counted) != form.get("number"):
            raise HttpError(f"Meanwhile {counted} messages are refused. Nothing was done; look again.", 409)
        if not await result_desk.acknowledge_rejected_messages(
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
