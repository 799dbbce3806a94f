"""Tests that are stopped or delayed for a time: seen, announced and lifted, as `lab-agent eta` does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import TypeVar

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from lab_agent.catalogue_service import notices
from lab_agent.catalogue_service.notices import Announcement, NoticeBoard, NoticeOverview
from lab_agent.errors import DataInvalidError, Problem, ProblemsError
from lab_agent.logs import get_logger
from lab_agent.status import formatting
from lab_agent.status.auth import AccessControl, CurrentUser, HttpError, one_line
from lab_agent.status.context import PageGroup, StatusContext, TemplateRenderer

T = TypeVar("T")
log = get_logger(__name__)

_MAX_CAPTION_LENGTH = 500
FORM_FIELDS = ("item", "contract", "kind", "hours", "from", "until", "caption")
_EMPTY_FORM = dict.fromkeys(FORM_FIELDS, "") | {"kind": "stop"}


class NoticePages(PageGroup):
    """The page of notices, and what can be done on it."""

    def __init__(self, context: StatusContext, access: AccessControl, renderer: TemplateRenderer) -> None:
        super().__init__(context, access, renderer)
        self._board = NoticeBoard(context.store)

    def routes(self) -> APIRouter:
        """The routes."""
        router = APIRouter()
        router.add_api_route("/turnaround", self.show, methods=["GET"])
        router.add_api_route("/turnaround", self.announce, methods=["POST"])
        router.add_api_route("/turnaround/lift", self.lift, methods=["POST"])
        return router

    async def show(self, request: Request) -> Response:
        """The notices in force and to come, those of the sheet too."""
        visitor = await self._access.authorize_view(request)
        return await self._render(visitor, _EMPTY_FORM, (), flash=formatting.flash_message(request.query_params))

    async def announce(self, request: Request) -> Response:
        """Stop or delay a test at once. What is wrong is said at its field, and the form keeps what was written."""
        visitor, form = await self._access.authorize_action(request)
        fields = {name: one_line(form.get(name, "")) for name in FORM_FIELDS}
        now = self._context.clock.now()
        try:
            said = parse_announcement(fields, now)
            notice = await notices.announce(self._context.store, said, by=visitor.account.name, now=now)
        except ProblemsError as exc:
            return await self._render(visitor, fields, exc.problems, status=422)
        log.info("test announced", action="eta_announced", item=notice.item, until=notice.end, by=visitor.account.name)
        did = "stopped" if notice.delay_hours is None else "delayed"
        if (await self._board.load_overview(now)).overriding(notice).current:
            did = "outweighed"
        return RedirectResponse(f"/turnaround?did={did}", 303)

    async def lift(self, request: Request) -> Response:
        """Lift what was announced for a test: in one contract, or in all. What still holds is said, and listed."""
        visitor, form = await self._access.authorize_action(request)
        item, contract = form.get("item", ""), form.get("contract") or None
        now = self._context.clock.now()
        if not await notices.lift_notices(self._context.store, item, contract, now=now):
            raise HttpError("This test has no notice that could be lifted; somebody may have lifted it just now.", 409)
        log.info("notices lifted", action="eta_lifted", item=item, contract=contract, by=visitor.account.name)
        return RedirectResponse(f"/turnaround?did={_lift_flash(await self._board.load_overview(now), item)}", 303)

    async def _render(
        self,
        user: CurrentUser,
        fields: Mapping[str, str],
        problems: tuple[Problem, ...],
        *,
        status: int = 200,
        flash: str | None = None,
    ) -> Response:
        seen = await self._board.load_overview(self._context.clock.now())
        return await self._renderer.render_page(
            "turnaround.html",
            user,
            status=status,
            notices=seen.notices,
            doubt=seen.staleness_warning,
            fields=fields,
            wrong={problem.where: problem for problem in problems},
            elsewhere=[problem for problem in problems if problem.where not in FORM_FIELDS],
            longest=_MAX_CAPTION_LENGTH,
            told=flash,
        )


def parse_announcement(fields: Mapping[str, str], now: datetime) -> Announcement:
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
        start=tried(lambda: notices.parse_time("from", fields["from"], now) if fields["from"] else now, now),
        end=tried(lambda: notices.parse_time("until", fields["until"], now), now),
        delay_hours=tried(lambda: _parse_delay(fields), None),
    )
    if not said.item:
        problems.append(Problem("item", "is empty", "write the code of the test"))
    if len(said.caption) > _MAX_CAPTION_LENGTH:
        problems.append(Problem("caption", "is too long", f"{_MAX_CAPTION_LENGTH} characters are enough"))
    if problems:
        raise DataInvalidError(tuple(problems))
    return said


def _lift_flash(notices_overview: NoticeOverview, item: str) -> str:
    """The word for what `told` says after a lift."""
    outlook = notices_overview.test_status(item)
    if notices_overview.catalogue is None:
        return "lifted-unread"
    return "lifted-still" if not outlook.is_normal else "lifted-later" if outlook.other_notices else "lifted"


def _parse_delay(fields: Mapping[str, str]) -> Decimal | None:
    """The hours of a delay; None where the test is stopped."""
    if fields["kind"] not in {"stop", "delay"}:
        raise DataInvalidError((Problem("kind", "is neither stopped nor delayed", "choose one of the two"),))
    return None if fields["kind"] == "stop" else notices.parse_hours("hours", fields["hours"])
