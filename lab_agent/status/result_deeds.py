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
from lab_agent.status.gate import Gate, Refused, note_of, one_line
from lab_agent.status.house import House
from lab_agent.status.match_desk import find
from lab_agent.status.sessions import Visitor
from lab_agent.steps import result_desk
from lab_agent.steps.result_desk import Decided

log = get_logger(__name__)

LINE = "line-"
"""What the name of a tick for a line begins with."""
_MOVED = "This result has moved since you opened its page; somebody else may have decided. Nothing was done; look again."


class ResultDeeds:
    """What can be done about one result."""

    def __init__(self, house: House, gate: Gate) -> None:
        self._house = house
        self._gate = gate

    def routes(self) -> APIRouter:
        """The routes."""
        router = APIRouter()
        router.add_api_route("/results/refused/seen", self.seen, methods=["POST"])
        router.add_api_route("/results/{key}/match", self.match, methods=["POST"])
        router.add_api_route("/results/{key}/release", self.release, methods=["POST"])
        router.add_api_route("/results/{key}/dismiss", self.dismiss, methods=["POST"])
        return router

    async def match(self, request: Request, key: str) -> Response:
        """Say which order it belongs to, and which lines it is about."""
        visitor, form, report = await self._begin(request, key)
        order, note = OrderKey(one_line(form.get("order", ""))), note_of(form)
        if await self._house.views.order(order) is None:
            raise Refused("There is no order of this key. Search for it by requisition, accession or barcode.", 404)
        lines = tuple(LineKey(name.removeprefix(LINE)) for name, said in form.items() if name.startswith(LINE) and said == "yes")
        decided = await result_desk.match_result(
            self._house.store,
            self._house.matcher(),
            report.key,
            order,
            lines=lines,
            by=visitor.account.name,
            note=note,
            now=self._house.clock.now(),
            shown=report.changed_at,
        )
        return _onward(decided, visitor)

    async def release(self, request: Request, key: str) -> Response:
        """Try it again; what a person may waive is waived."""
        visitor, form, report = await self._begin(request, key)
        by, note = visitor.account.name, note_of(form)
        if form.get("looked") != "yes":
            raise Refused("This sends a result that something is odd about. Look at it, and tick the box that says so.", 409)
        store, matcher, now = self._house.store, self._house.matcher(), self._house.clock.now()
        decided = await result_desk.release_result(store, matcher, report.key, by=by, note=note, now=now, shown=report.changed_at)
        return _onward(decided, visitor)

    async def dismiss(self, request: Request, key: str) -> Response:
        """Leave it for good."""
        visitor, form, report = await self._begin(request, key)
        by, note, now = visitor.account.name, note_of(form), self._house.clock.now()
        decided = await result_desk.dismiss_result(
            self._house.store, report.key, by=by, note=note, now=now, shown=report.changed_at
        )
        return _onward(decided, visitor)

    async def seen(self, request: Request) -> Response:
        """Say that the refused messages of a laboratory system were looked at: as many as the page showed, and no more."""
        visitor, form = await self._gate.acting(request)
        source, store = form.get("source", ""), self._house.store
        if source not in {adapter.name for adapter in self._house.adapters}:
            raise Refused("There is no laboratory system of this name.", 404)
        counted = (await result_desk.refused(store, [source])).get(source, 0)
        if str(counted) != form.get("number"):
            raise Refused(f"Meanwhile {counted} messages are refused. Nothing was done; look again.", 409)
        if not await result_desk.refused_seen(store, source, now=self._house.clock.now(), number=counted):
            raise Refused("Somebody else has looked at these messages just now.", 409)
        log.info("refused messages seen", action="refused_seen", adapter=source, by=visitor.account.name)
        return RedirectResponse("/results?did=seen", 303)

    async def _begin(self, request: Request, key: str) -> tuple[Visitor, Mapping[str, str], ReportRecord]:
        """Who acts, the form, and the result, if it stands as the form showed it. Raises `SignInFirst` and `Refused`."""
        visitor, form = await self._gate.acting(request)
        report = await find(self._house, key)
        if form.get("seen") != report.changed_at.isoformat():
            raise Refused(_MOVED, 409)
        return visitor, form, report


def _onward(decided: Decided, visitor: Visitor) -> Response:
    """To the result, as it stands now."""
    report = decided.report
    log.info("result decided", action="result_decided", report=report.key, state=report.state, by=visitor.account.name)
    return RedirectResponse(f"/results/{report.key}?did=result-{report.state.value if decided.moved else 'waits'}", 303)
