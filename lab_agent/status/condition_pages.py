"""What can be wrong and what was: the table of conditions, to be read on the spot, and the history of alerts."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Depends
from starlette.responses import Response

from lab_agent.operations.report import list_conditions, to_open_condition
from lab_agent.shared.conditions.model import OpenCondition, Severity
from lab_agent.shared.conditions.table import CONDITIONS
from lab_agent.shared.errors import CryptoError, StoreError, StoreFault, StoreUnreachableError
from lab_agent.status.auth import Viewer
from lab_agent.status.context import Context, Renderer, StatusContext
from lab_agent.status.paging import PageNumber, page_offset
from lab_agent.store.read_models import Overview
from lab_agent.store.store_health import to_open_condition as to_store_condition

router = APIRouter()


def list_open_conditions(context: StatusContext, overview: Overview) -> tuple[OpenCondition, ...]:
    """What holds now, worst first then oldest first, with what it affects."""
    return list_conditions(overview.alerts, overview.affected, context.observed_conditions())


def list_store_conditions(context: StatusContext, error: StoreError | CryptoError) -> tuple[OpenCondition, ...]:
    """What holds as far as it is known without reading the database, which has failed with `error`: that at least."""
    if not isinstance(error, StoreUnreachableError):
        fault = StoreFault.OTHER_KEY if isinstance(error, CryptoError) else StoreFault.UNREACHABLE
        error = StoreUnreachableError(str(error), fault)
    found = to_store_condition(error, context.store.health, context.clock.now())
    return list_conditions((), None, (found, *context.observed_conditions()))


async def only_open(show: str = "") -> bool | None:
    """Whether open alerts alone are asked for, or closed ones alone; None for all."""
    return {"open": True, "closed": False}.get(show)


@router.get("/alerts")
async def show_alerts(
    user: Viewer, context: Context, renderer: Renderer, page: PageNumber, is_open: Annotated[bool | None, Depends(only_open)]
) -> Response:
    """Alerts, open and closed, newest first."""
    found = await context.queries.alerts(is_open=is_open, offset=page_offset(page))
    show = "" if is_open is None else "open" if is_open else "closed"
    return await renderer.render_page(
        "alerts.html",
        user,
        page=found,
        page_number=page,
        query_string=urlencode({"show": show}) if show else "",
        entries=[(alert, to_open_condition(alert)) for alert in found.items],
        show=show,
    )


@router.get("/conditions")
async def show_table(user: Viewer, renderer: Renderer) -> Response:
    """The whole table of conditions, so that it can be read where there is no other documentation at hand."""
    by_rank = sorted(CONDITIONS.values(), key=lambda each: list(Severity).index(each.severity))
    return await renderer.render_page("conditions.html", user, by_rank=by_rank, conditions=CONDITIONS.values())
