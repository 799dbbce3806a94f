"""Tests that are stopped or delayed for a time: seen, announced and lifted, as `lab-agent eta` does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import TypeVar

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from lab_agent.catalogues import notices, spoken
from lab_agent.catalogues.board import Board, Seen
from lab_agent.catalogues.notices import Announcement
from lab_agent.errors import DataInvalidError, Problem, ProblemsError
from lab_agent.logs import get_logger
from lab_agent.status import told
from lab_agent.status.gate import Gate, Refused, one_line
from lab_agent.status.house import House
from lab_agent.status.paper import Paper
from lab_agent.status.room import Room
from lab_agent.status.sessions import Visitor

T = TypeVar("T")
log = get_logger(__name__)

_LONGEST_CAPTION = 500
FIELDS = ("item", "contract", "kind", "hours", "from", "until", "caption")
_EMPTY = dict.fromkeys(FIELDS, "") | {"kind": "stop"}


class Turnaround(Room):
    """The page of notices, and what can be done on it."""

    def __init__(self, house: House, gate: Gate, paper: Paper) -> None:
        super().__init__(house, gate, paper)
        self._board = Board(house.store)

    def routes(self) -> APIRouter:
        """The routes."""
        router = APIRouter()
        router.add_api_route("/turnaround", self.show, methods=["GET"])
        router.add_api_route("/turnaround", self.announce, methods=["POST"])
        router.add_api_route("/turnaround/lift", self.lift, methods=["POST"])
        return router

    async def show(self, request: Request) -> Response:
        """The notices in force and to come, those of the sheet too."""
        visitor = await self._gate.looking(request)
        return await self._page(visitor, _EMPTY, (), done=told.sentence(request.query_params))

    async def announce(self, request: Request) -> Response:
        """Stop or delay a test at once. What is wrong is said at its field, and the form keeps what was written."""
        visitor, form = await self._gate.acting(request)
        fields = {name: one_line(form.get(name, "")) for name in FIELDS}
        now = self._house.clock.now()
        try:
            said = read(fields, now)
            notice = await notices.announce(self._house.store, said, by=visitor.account.name, now=now)
        except ProblemsError as exc:
            return await self._page(visitor, fields, exc.problems, status=422)
        log.info("test announced", action="eta_announced", item=notice.item, until=notice.end, by=visitor.account.name)
        did = "stopped" if notice.delay_hours is None else "delayed"
        if (await self._board.look(now)).outweighing(notice).now:
            did = "outweighed"
        return RedirectResponse(f"/turnaround?did={did}", 303)

    async def lift(self, request: Request) -> Response:
        """Lift what was announced for a test: in one contract, or in all. What still holds is said, and listed."""
        visitor, form = await self._gate.acting(request)
        item, contract = form.get("item", ""), form.get("contract") or None
        now = self._house.clock.now()
        if not await notices.clear(self._house.store, item, contract, now=now):
            raise Refused("This test has no notice that could be lifted; somebody may have lifted it just now.", 409)
        log.info("notices lifted", action="eta_lifted", item=item, contract=contract, by=visitor.account.name)
        return RedirectResponse(f"/turnaround?did={_lifted(await self._board.look(now), item)}", 303)

    async def _page(
        self,
        visitor: Visitor,
        fields: Mapping[str, str],
        problems: tuple[Problem, ...],
        *,
        status: int = 200,
        done: str | None = None,
    ) -> Response:
        seen = await self._board.look(self._house.clock.now())
        return await self._paper.sheet(
            "turnaround.html",
            visitor,
            status=status,
            notices=seen.notices,
            doubt=seen.doubt,
            fields=fields,
            wrong={problem.where: problem for problem in problems},
            elsewhere=[problem for problem in problems if problem.where not in FIELDS],
            longest=_LONGEST_CAPTION,
            told=done,
        )


def read(fields: Mapping[str, str], now: datetime) -> Announcement:
    """What the form says. Raises `DataInvalidError` with every problem, each named by its field."""
    problems: list[Problem] = []

    def tried(make: Callable[[], T], otherwise: T) -> T:
        try:
            return make()
        except DataInvalidError as exc:
            problems.extend(exc.problems)
            return otherwise

    said = Announcement(
        item=fields["item"],
        contract=fields["contract"] or None,
        caption=fields["caption"],
        start=tried(lambda: spoken.moment("from", fields["from"], now) if fields["from"] else now, now),
        end=tried(lambda: spoken.moment("until", fields["until"], now), now),
        delay_hours=tried(lambda: _delay(fields), None),
    )
    if not said.item:
        problems.append(Problem("item", "is empty", "write the code of the test"))
    if len(said.caption) > _LONGEST_CAPTION:
        problems.append(Problem("caption", "is too long", f"{_LONGEST_CAPTION} characters are enough"))
    if problems:
        raise DataInvalidError(tuple(problems))
    return said


def _lifted(seen: Seen, item: str) -> str:
    """The word for what `told` says after a lift."""
    outlook = seen.outlook(item)
    if seen.catalogue is None:
        return "lifted-unread"
    return "lifted-still" if not outlook.usual else "lifted-later" if outlook.besides else "lifted"


def _delay(fields: Mapping[str, str]) -> Decimal | None:
    """The hours of a delay; None where the test is stopped."""
    if fields["kind"] not in {"stop", "delay"}:
        raise DataInvalidError((Problem("kind", "is neither stopped nor delayed", "choose one of the two"),))
    return None if fields["kind"] == "stop" else spoken.hours("hours", fields["hours"])
