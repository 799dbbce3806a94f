"""Tests that are stopped or delayed for a while: listed, announced and lifted, as `lab-agent eta` does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from lab_agent.catalogue import notices
from lab_agent.catalogue.notices import Announcement, NoticeBoard, NoticeOverview
from lab_agent.shared.errors import DataInvalidError, Problem, ProblemsError
from lab_agent.shared.logs import get_logger
from lab_agent.status.auth import HttpError, Operator, Viewer
from lab_agent.status.context import Context, Renderer
from lab_agent.status.forms import Form, one_line
from lab_agent.status.pages import Flash

T = TypeVar("T")
router = APIRouter()
_log = get_logger(__name__)

_MAX_CAPTION_LENGTH, _MAX_CODE = 500, 100
FORM_FIELDS = ("item", "contract", "kind", "hours", "from", "until", "caption")
_EMPTY_FORM = dict.fromkeys(FORM_FIELDS, "") | {"kind": "stop"}


async def get_notice_board(request: Request) -> NoticeBoard:
    """The board of this application, which keeps the catalogue that it has read."""
    board: NoticeBoard = request.app.state.notice_board
    return board


Board = Annotated[NoticeBoard, Depends(get_notice_board)]


@router.get("/turnaround")
async def show_notices(
    user: Viewer, context: Context, board: Board, renderer: Renderer, flash: Flash, item: str = "", contract: str = ""
) -> Response:
    """Current and upcoming notices, those of the catalogue's sheet too; the form begins with the test that is named."""
    overview = await board.load_overview(context.clock.now())
    fields = _EMPTY_FORM | {"item": one_line(item)[:_MAX_CODE], "contract": one_line(contract)[:_MAX_CODE]}
    return await renderer.render_page("notices.html", user, **_page_fields(overview, fields), flash=flash)


@router.post("/turnaround")
async def announce_notice(user: Operator, form: Form, context: Context, board: Board, renderer: Renderer) -> Response:
    """Stop or delay a test at once. Problems are shown at their fields, and the form keeps what was entered."""
    fields = {name: one_line(form.get(name, "")) for name in FORM_FIELDS}
    now = context.clock.now()
    try:
        announcement = parse_announcement(fields, now)
        notice = await notices.announce(context.store, announcement, by=user.name, now=now)
    except ProblemsError as exc:
        page_fields = _page_fields(await board.load_overview(now), fields, exc.problems)
        return await renderer.render_page("notices.html", user, status=422, **page_fields, flash=None)
    _log.info("notice announced", action="eta_announced", item=notice.item, until=notice.end, by=user.name)
    flash = "stopped" if notice.delay_hours is None else "delayed"
    if (await board.load_overview(now)).overriding(notice).current:
        flash = "announced-overridden"
    return RedirectResponse(f"/turnaround?flash={flash}", 303)


@router.post("/turnaround/lift")
async def lift_notices(user: Operator, form: Form, context: Context, board: Board) -> Response:
    """Lift what was announced for a test, in one contract or in all."""
    item, contract = form.get("item", ""), form.get("contract") or None
    now = context.clock.now()
    if not await notices.lift_notices(context.store, item, contract, by=user.name, now=now):
        raise HttpError("This test has no notice to lift; somebody may have lifted it just now.", 409)
    _log.info("notices lifted", action="eta_lifted", item=item, contract=contract, by=user.name)
    return RedirectResponse(f"/turnaround?flash={_lift_flash(await board.load_overview(now), item)}", 303)


def _lift_flash(overview: NoticeOverview, item: str) -> str:
    if overview.catalogue is None:
        return "lifted-unknown"
    status = overview.test_status(item)
    return "lifted-still-limited" if not status.is_normal else "lifted-later" if status.other_notices else "lifted"


def _page_fields(overview: NoticeOverview, fields: Mapping[str, str], problems: tuple[Problem, ...] = ()) -> dict[str, Any]:
    return {
        "notices": overview.notices,
        "staleness_warning": overview.staleness_warning,
        "fields": fields,
        "field_errors": {problem.where: problem for problem in problems},
        "other_errors": [problem for problem in problems if problem.where not in FORM_FIELDS],
        "max_caption_length": _MAX_CAPTION_LENGTH,
    }


def parse_announcement(fields: Mapping[str, str], now: datetime) -> Announcement:
    """What the form says. Raises `DataInvalidError` with every problem, each named by its field."""
    problems: list[Problem] = []

    def collect(parse: Callable[[], T], fallback: T) -> T:
        try:
            return parse()
        except DataInvalidError as exc:
            problems.extend(exc.problems)
            return fallback

    announcement = Announcement(
        item=fields["item"],
        contract=fields["contract"] or None,
        caption=fields["caption"],
        start=collect(lambda: notices.parse_time("from", fields["from"], now) if fields["from"] else now, now),
        end=collect(lambda: notices.parse_time("until", fields["until"], now), now),
        delay_hours=collect(lambda: _parse_delay(fields), None),
    )
    if not announcement.item:
        problems.append(Problem("item", "is empty", "enter the code of the test"))
    if len(announcement.caption) > _MAX_CAPTION_LENGTH:
        problems.append(Problem("caption", "is too long", f"use at most {_MAX_CAPTION_LENGTH} characters"))
    if problems:
        raise DataInvalidError(tuple(problems))
    return announcement


def _parse_delay(fields: Mapping[str, str]) -> Decimal | None:
    """The hours of a delay; None where the test is stopped."""
    if fields["kind"] not in {"stop", "delay"}:
        raise DataInvalidError((Problem("kind", "is neither stopped nor delayed", "choose one of the two"),))
    return None if fields["kind"] == "stop" else notices.parse_hours("hours", fields["hours"])
