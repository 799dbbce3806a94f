"""Three addresses for machines: does it live, is it ready, and the numbers. Open to whoever reaches the port; nobody is named."""

from __future__ import annotations

from datetime import datetime

from fastapi import APIRouter
from starlette.responses import JSONResponse, Response

from lab_agent.domain.state_machines import OPEN_ORDERS
from lab_agent.errors import StoreError
from lab_agent.metrics import CONTENT_TYPE, StoreGauges
from lab_agent.ports.queries import Overview, StateCounts
from lab_agent.status.context import StatusContext


class HealthEndpoints:
    """`/healthz`, `/readyz` and `/metrics`."""

    def __init__(self, context: StatusContext) -> None:
        self._context = context

    def routes(self) -> APIRouter:
        """The routes."""
        router = APIRouter()
        router.add_api_route("/healthz", self.healthz, methods=["GET"])
        router.add_api_route("/readyz", self.readyz, methods=["GET"])
        router.add_api_route("/metrics", self.metrics, methods=["GET"])
        return router

    async def healthz(self) -> Response:
        """Whether the process lives: its event loop answers, and every part of the worker runs. 200 or 503."""
        missing = sorted(self._context.missing_tasks())
        return JSONResponse({"status": "failing" if missing else "ok", "missing": missing}, 503 if missing else 200)

    async def readyz(self) -> Response:
        """Whether work can be taken: the store answers, and takes what is written. 200 or 503.

        A service or a laboratory system that is away is no reason to be unready, since work waits for it in the store; `alerts`
        names what is open.
        """
        now = self._context.clock.now()
        try:
            seen = await self._context.queries.overview(now=now)
        except StoreError as exc:
            return self._not_ready(type(exc).__name__)
        if self._context.is_store_unwritable():
            return self._not_ready("cannot be written")
        last = None if seen.last_poll is None else seen.last_poll.isoformat()
        alerts = sorted(alert.key for alert in seen.alerts)
        return JSONResponse({"status": "ready", "mode": self._context.mode, "store": "ok", "last_poll": last, "alerts": alerts})

    def _not_ready(self, store: str) -> Response:
        return JSONResponse({"status": "not ready", "mode": self._context.mode, "store": store}, 503)

    async def metrics(self) -> Response:
        """The numbers, in the text form of Prometheus. While the store is away, its numbers are missing rather than old."""
        house = self._context
        now = house.clock.now()
        try:
            counts, seen = await house.queries.counts(now=now), await house.queries.overview(now=now)
        except StoreError:
            house.metrics.clear_store()
        else:
            house.metrics.update_store(_build_metrics(counts, seen, now))
        return Response(house.metrics.render(), headers={"Content-Type": CONTENT_TYPE})


def _build_metrics(counts: StateCounts, overview: Overview, now: datetime) -> StoreGauges:
    open_since = [since for state, since in overview.oldest_orders.items() if state in OPEN_ORDERS]
    return StoreGauges(
        orders=counts.orders,
        lines=counts.lines,
        reports=counts.reports,
        jobs=counts.jobs,
        oldest_order=_age_seconds(min(open_since, default=None), now),
        oldest_job=_age_seconds(counts.due_since, now),
        alerts_open=counts.alerts,
        last_poll=None if counts.last_poll is None else counts.last_poll.timestamp(),
    )


def _age_seconds(since: datetime | None, now: datetime) -> float:
    return 0.0 if since is None else max(0.0, (now - since).total_seconds())
