"""The pages that only show: overview, orders, one order."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query
from starlette.responses import Response

from lab_agent.domain.state_machines import JobState, LineState, OrderState, ReportState
from lab_agent.monitoring.cause_groups import count_waiting
from lab_agent.monitoring.verdict import give_verdict
from lab_agent.status.auth import Viewer, one_line
from lab_agent.status.condition_pages import load_conditions
from lab_agent.status.context import Context, Renderer
from lab_agent.status.formatting import flash_message

router = APIRouter()

_MAX_SEARCH_LENGTH = 200


async def search_text(search: str = "") -> str:
    """What is searched for, as one line; empty for no search."""
    return one_line(search)[:_MAX_SEARCH_LENGTH]


SearchText = Annotated[str, Depends(search_text)]


async def hold_cause(cause: str = "") -> str:
    """The cause for which orders are held, as one line; empty for no such filter."""
    return one_line(cause)[:_MAX_SEARCH_LENGTH]


HoldCause = Annotated[str, Depends(hold_cause)]
StateNames = Annotated[list[str], Query(alias="state", default_factory=list)]
"""The states that a list is filtered by; what is no state is ignored."""
Flash = Annotated[str | None, Depends(flash_message)]
"""What a page says after an action redirected to it."""


@router.get("/")
async def show_overview(user: Viewer, context: Context, renderer: Renderer, flash: Flash) -> Response:
    """How things are."""
    now = context.clock.now()
    overview = await context.queries.overview(now=now)
    conditions = await load_conditions(context, overview)
    every_group = {each.key: each for each in await renderer.groups()}
    groups = [each for each in every_group.values() if each.waiting]
    return await renderer.render_page(
        "overview.html",
        user,
        verdict=give_verdict(conditions, now, count_waiting(groups)),
        overview=overview,
        groups=groups,
        groups_by_key=every_group,
        told_above={each.key for each in conditions},
        adapters=context.adapters,
        conditions=conditions,
        states={"orders": OrderState, "lines": LineState, "jobs": JobState, "reports": ReportState},
        flash=flash,
    )
