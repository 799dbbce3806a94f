"""The pages: overview, orders, one order, what waits for a person, alerts. Looking changes nothing."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from lab_agent.domain.ids import OrderKey
from lab_agent.domain.lifecycle import EffectState, LineState, OrderState, ReportState
from lab_agent.ports.views import PAGE
from lab_agent.status import told
from lab_agent.status.gate import Gate, Refused, one_line
from lab_agent.status.house import House
from lab_agent.status.paper import Paper
from lab_agent.status.words import doubtful_handover
from lab_agent.steps.catch import stopped_rule
from lab_agent.steps.desk import WAITS_FOR_A_PERSON, may_be_marked_done

_SHOWN = 10
_LONGEST_SEARCH = 200
_LAST_PAGE = 100_000


class Looks:
    """The pages of a visitor."""

    def __init__(self, house: House, gate: Gate, paper: Paper) -> None:
        self._house = house
        self._gate = gate
        self._paper = paper

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
        return self._paper.page(
            "overview.html",
            visitor,
            seen=seen,
            troubles=await self._house.views.failures(limit=_SHOWN),
            adapters=self._house.adapters,
            away={alert.key for alert in seen.alerts},
            stopped=[(rule, alert) for alert in seen.alerts if (rule := stopped_rule(alert.key))],
            states={"orders": OrderState, "lines": LineState, "effects": EffectState, "reports": ReportState},
            told=told.sentence(request.query_params),
        )

    async def orders(self, request: Request) -> Response:
        """The list of orders, searched and filtered."""
        visitor = await self._gate.looking(request)
        search = one_line(request.query_params.get("search", ""))[:_LONGEST_SEARCH]
        states = [state for state in OrderState if state.value in request.query_params.getlist("state")]
        number = _page_number(request)
        found = await self._house.views.orders(search=search or None, states=states, offset=(number - 1) * PAGE)
        query = [("search", search)] * bool(search) + [("state", state.value) for state in states]
        fields: dict[str, Any] = {"search": search, "chosen": states, "query": urlencode(query)}
        return self._paper.page("orders.html", visitor, page=found, number=number, states=OrderState, **fields)

    async def order(self, request: Request, key: str) -> Response:
        """One order, with all that belongs to it."""
        visitor = await self._gate.looking(request)
        detail = await self._house.views.order(OrderKey(one_line(key)))
        if detail is None:
            raise Refused("There is no order of this key. Search for it by Task id, requisition, accession or barcode.", 404)
        return self._paper.page(
            "order.html",
            visitor,
            detail=detail,
            retryable={EffectState.DUE, *WAITS_FOR_A_PERSON},
            asking=WAITS_FOR_A_PERSON,
            doubtful=doubtful_handover(detail),
            may_be_marked_done=may_be_marked_done,
            told=told.sentence(request.query_params),
        )

    async def waiting(self, request: Request) -> Response:
        """What waits for a person, longest first."""
        visitor = await self._gate.looking(request)
        number = _page_number(request)
        return self._paper.page(
            "waiting.html",
            visitor,
            page=await self._house.views.failures(offset=(number - 1) * PAGE),
            number=number,
            query="",
            may_be_marked_done=may_be_marked_done,
            told=told.sentence(request.query_params),
        )

    async def alerts(self, request: Request) -> Response:
        """Alerts, open and closed."""
        visitor = await self._gate.looking(request)
        number = _page_number(request)
        found = await self._house.views.alerts(offset=(number - 1) * PAGE)
        return self._paper.page("alerts.html", visitor, page=found, number=number, query="")


def _page_number(request: Request) -> int:
    asked = request.query_params.get("page", "1")
    return min(int(asked), _LAST_PAGE) if asked.isascii() and asked.isdigit() and len(asked) < 10 and int(asked) else 1
