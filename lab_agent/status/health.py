"""`/healthz`, `/readyz` and `/metrics` for machines: open to whoever reaches the port, and without any name in them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from fastapi import APIRouter
from starlette.responses import JSONResponse, Response

from lab_agent.conditions.model import OpenCondition
from lab_agent.domain.state_machines import OPEN_ORDERS
from lab_agent.errors import CryptoError, StoreError
from lab_agent.metrics import CONTENT_TYPE, StoreGauges
from lab_agent.monitoring.report import list_conditions
from lab_agent.ports.read_models import Overview
from lab_agent.status.condition_pages import list_open_conditions, list_store_conditions
from lab_agent.status.context import Context, StatusContext

router = APIRouter()


@router.get("/healthz")
async def healthz(context: Context) -> Response:
    """Whether the process is alive: its event loop answers, and every part of the worker runs. 200 or 503."""
    missing = sorted(context.missing_tasks())
    return JSONResponse({"status": "failing" if missing else "ok", "missing": missing}, 503 if missing else 200)


@router.get("/readyz")
async def readyz(context: Context) -> Response:
    """Whether work can be accepted: the database can be read and written. 200 or 503.

    An unavailable exchange service or laboratory system does not make it unready, since work waits for it in the database;
    `conditions` lists all that holds, worst first. Details are left out: whoever reaches the port may read this.
    """
    try:
        overview = await context.queries.overview(now=context.clock.now())
        conditions = list_open_conditions(context, overview)
    except (StoreError, CryptoError) as exc:
        return _tell_readiness(context, list_store_conditions(context, exc), None)
    return _tell_readiness(context, conditions, overview.last_poll)


def _tell_readiness(context: StatusContext, conditions: Sequence[OpenCondition], last_poll: datetime | None) -> Response:
    reason = next((each for each in conditions if each.condition.is_unready), None)
    body = {
        "status": "not ready" if reason else "ready",
        "mode": context.mode,
        "store": reason.condition.id.value if reason else "ok",
        "last_poll": None if last_poll is None else last_poll.isoformat(),
        "conditions": [condition_to_json(each) for each in conditions],
    }
    if reason:
        body |= {"reason": reason.condition.id.value, "title": reason.title, "mend": reason.mend}
    return JSONResponse(body, 503 if reason else 200)


def condition_to_json(each: OpenCondition) -> dict[str, object]:
    """A condition as `/readyz` lists it, without its details."""
    return {
        "id": each.condition.id.value,
        "subject": each.subject,
        "severity": each.condition.severity.value,
        "since": each.since.isoformat(),
        "title": each.title,
        "affected": [{"number": one.number, "text": str(one), "is_exact": one.is_exact} for one in each.affected],
    }


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
