"""`/healthz`, `/readyz` and `/metrics` for machines: open to whoever reaches the port, and without any name in them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from lab_agent.operations.report import list_conditions
from lab_agent.shared.conditions.model import OpenCondition
from lab_agent.shared.conditions.store import STORE_CONDITIONS
from lab_agent.shared.errors import CryptoError, StoreError
from lab_agent.shared.metrics import CONTENT_TYPE, StoreGauges
from lab_agent.shared.state_machines import OPEN_ORDERS
from lab_agent.status.auth import HttpError, LoginRequired, OwnPasswordRequired, require_viewer
from lab_agent.status.condition_pages import list_open_conditions, list_store_conditions
from lab_agent.status.context import Context
from lab_agent.status.sessions import SESSION_COOKIE, Sessions
from lab_agent.store.read_models import Overview

router = APIRouter()


@router.get("/healthz")
async def healthz(context: Context) -> Response:
    """Whether the process is alive: its event loop answers, and every part of the worker runs. 200 or 503."""
    missing = sorted(context.missing_tasks())
    return JSONResponse({"status": "failing" if missing else "ok", "missing": missing}, 503 if missing else 200)


@router.get("/readyz")
async def readyz(request: Request, context: Context) -> Response:
    """Whether work can be accepted: the database can be read and written, and no part that all work needs fails. 200 or 503.

    An unavailable exchange service or laboratory system does not make it unready, since work waits for it in the database;
    `conditions` lists all that holds, worst first. Whoever reaches the port may read this: words and subjects, which may be paths
    and addresses, are for whoever is signed in.
    """
    try:
        overview = await context.queries.overview(now=context.clock.now())
        conditions, last_poll = list_open_conditions(context, overview), overview.last_poll
    except (StoreError, CryptoError) as exc:
        conditions, last_poll = list_store_conditions(context, exc), None
    return tell_readiness(context.mode, conditions, last_poll, in_full=await _is_signed_in(request))


async def _is_signed_in(request: Request) -> bool:
    """As far as that is known without the database, where it does not work."""
    sessions: Sessions = request.app.state.sessions
    try:
        await require_viewer(request)
    except (LoginRequired, OwnPasswordRequired, HttpError):
        return False
    except (StoreError, CryptoError):
        return sessions.has_session(request.cookies.get(SESSION_COOKIE))
    return True


def tell_readiness(mode: str, conditions: Sequence[OpenCondition], last_poll: datetime | None, *, in_full: bool) -> Response:
    """The answer; without `in_full`, conditions by id, severity and beginning alone."""
    reason = next((each for each in conditions if each.condition.is_unready), None)
    body = {
        "status": "not ready" if reason else "ready",
        "mode": mode,
        "store": reason.condition.id.value if reason and reason.condition in STORE_CONDITIONS else "ok",
        "last_poll": None if last_poll is None else last_poll.isoformat(),
        "conditions": [_condition_to_json(each, in_full=in_full) for each in conditions],
    }
    if reason:
        body["reason"] = reason.condition.id.value
        body |= {"title": reason.title, "mend": reason.mend} if in_full else {}
    return JSONResponse(body, 503 if reason else 200)


def _condition_to_json(each: OpenCondition, *, in_full: bool) -> dict[str, object]:
    """A condition without its detail."""
    told: dict[str, object] = {
        "id": each.condition.id.value,
        "severity": each.condition.severity.value,
        "since": each.since.isoformat(),
    }
    if in_full:
        told |= {
            "subject": each.subject,
            "title": each.title,
            "affected": [{"number": one.number, "text": str(one), "is_exact": one.is_exact} for one in each.affected],
        }
    return told


@router.get("/metrics")
async def metrics(context: Context) -> Response:
    """The metrics in Prometheus' text format. While the database is unavailable its gauges are missing rather than stale.

    What this process knows of the database's own trouble is told all the same.
    """
    now, observed = context.clock.now(), context.observed_conditions()
    try:
        overview = await context.queries.overview(now=now)
    except StoreError:
        context.metrics.clear_store()
        context.metrics.update_conditions(list_conditions((), None, observed), is_complete=False)
    else:
        context.metrics.update_store(_build_gauges(overview, now))
        context.metrics.update_conditions(list_conditions(overview.alerts, overview.affected, observed))
    return Response(context.metrics.render(), headers={"Content-Type": CONTENT_TYPE})


def _build_gauges(overview: Overview, now: datetime) -> StoreGauges:
    open_since = [since for state, since in overview.oldest_orders.items() if state in OPEN_ORDERS]
    return StoreGauges(
        orders=overview.orders,
        lines=overview.lines,
        reports=overview.reports,
        jobs=overview.jobs_by_kind,
        refused_messages=overview.refused_messages,
        oldest_order=_age_seconds(min(open_since, default=None), now),
        oldest_job=_age_seconds(overview.due_since, now),
        alerts_open=len(overview.alerts),
        last_poll=None if overview.last_poll is None else overview.last_poll.timestamp(),
    )


def _age_seconds(since: datetime | None, now: datetime) -> float:
    return 0.0 if since is None else max(0.0, (now - since).total_seconds())
