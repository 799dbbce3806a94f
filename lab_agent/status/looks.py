"""The pages: overview, orders, one order, what waits for a person, alerts. Looking changes nothing."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from lab_agent.domain.ids import OrderKey
from lab_agent.domain.lifecycle import ASKING_EFFECTS, EffectState, LineState, OrderState, ReportState
from lab_agent.status import asked, told
from lab_agent.status.gate import Refused, one_line
from lab_agent.status.room import Room
from lab_agent.status.words import doubtful_handover
from lab_agent.steps.catch import stopped_rule
from lab_agent.steps.desk import may_be_marked_done
from lab_agent.steps.inbox import refused_alert

_SHOWN = 10


class Looks(Room):
    """The pages of a visitor."""

    def routes(self) -> APIRouter:
        """The routes."""
        router = APIRouter()
        router.add_api_route("/", self.overview, methods=["GET"])
        router.add_api_route("/orders", self.orders, methods=["GET"])
        router.add_api_route("/orders/{key}", self.order, methods=["GET"])
        router.add_api_route("/waiting", self.waiting, methods=["GET"])
        router.add_api_route("/alerts", self.alerts, methods=["GET"])
        return router

    async def overview(self, request: Request) -> Response:
        """How things stand."""
        visitor = await self._gate.looking(request)
        seen = await self._house.views.overview(now=self._house.clock.now())
        return await self._paper.sheet(
            "overview.html",
            visitor,
            seen=seen,
            troubles=await self._house.views.failures(limit=_SHOWN),
            adapters=self._house.adapters,
            cannot_write=self._house.cannot_write(),
            away={alert.key for alert in seen.alerts},
            refused={refused_alert(adapter.name) for adapter in self._house.adapters},
            stopped=[(rule, alert) for alert in seen.alerts if (rule := stopped_rule(alert.key))],
            states={"orders": OrderState, "lines": LineState, "effects": EffectState, "reports": ReportState},
            told=told.sentence(request.query_params),
        )

    async def orders(self, request: Request) -> Response:
        """The list of orders, searched and filtered."""
        visitor = await self._gate.looking(request)
        search = asked.search(request)
        states = [state for state in OrderState if state.value in request.query_params.getlist("state")]
        number = asked.page_number(request)
        found = await self._house.views.orders(search=search or None, states=states, offset=asked.offset(number))
        query = [("search", search)] * bool(search) + [("state", state.value) for state in states]
        fields: dict[str, Any] = {"search": search, "chosen": states, "query": urlencode(query)}
        return await self._paper.sheet("orders.html", visitor, page=found, number=number, states=OrderState, **fields)

    async def order(self, request: Request, key: str) -> Response:
        """One order, with all that belongs to it."""
        visitor = await self._gate.looking(request)
        detail = await self._house.views.order(OrderKey(one_line(key)))
        if detail is None:
            raise Refused("There is no order of this key. Search for it by Task id, requisition, accession or barcode.", 404)
        return await self._paper.sheet(
            "order.html",
            visitor,
            detail=detail,
            retryable={EffectState.DUE, *ASKING_EFFECTS},
            asking=ASKING_EFFECTS,
            doubtful=doubtful_handover(detail),
            may_be_marked_done=may_be_marked_done,
            told=told.sentence(request.query_params),
        )

    async def waiting(self, request: Request) -> Response:
        """What waits for a person, longest first."""
        visitor = await self._gate.looking(request)
        number = asked.page_number(request)
        return await self._paper.sheet(
            "waiting.html",
            visitor,
            page=await self._house.views.failures(offset=asked.offset(number)),
            number=number,
            query="",
            may_be_marked_done=may_be_marked_done,
            told=told.sentence(request.query_params),
        )

    async def alerts(self, request: Request) -> Response:
        """Alerts, open and closed."""
        visitor = await self._gate.looking(request)
        number = asked.page_number(request)
        found = await self._house.views.alerts(offset=asked.offset(number))
        return await self._paper.sheet("alerts.html", visitor, page=found, number=number, query="")
