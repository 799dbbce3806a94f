"""The pages: overview, orders, one order, what waits for a person, alerts. Looking changes nothing.

What the address of a page asks for: a part of a list, a search. Nonsense asks for nothing.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from lab_agent.domain.ids import OrderKey
from lab_agent.domain.state_machines import JOBS_NEEDING_OPERATOR, JobState, LineState, OrderState, ReportState
from lab_agent.ports.queries import DEFAULT_PAGE_SIZE
from lab_agent.status import formatting
from lab_agent.status.auth import HttpError, one_line
from lab_agent.status.context import PageGroup
from lab_agent.status.formatting import find_unconfirmed_submit
from lab_agent.workflow.operator_jobs import can_be_marked_done
from lab_agent.workflow.rejection_breaker import rule_from_alert_key
from lab_agent.workflow.result_inbox import rejected_messages_alert_key

_MAX_SEARCH_LENGTH = 200
_MAX_PAGE_NUMBER = 100_000


def page_number(request: Request) -> int:
    """The number of the page, from 1."""
    asked = request.query_params.get("page", "1")
    return min(int(asked), _MAX_PAGE_NUMBER) if asked.isascii() and asked.isdigit() and len(asked) < 10 and int(asked) else 1


def page_offset(number: int) -> int:
    """How many items stand before the page of this number."""
    return (number - 1) * DEFAULT_PAGE_SIZE


def search_text(request: Request) -> str:
    """What is searched for, as one line; empty for nothing."""
    return one_line(request.query_params.get("search", ""))[:_MAX_SEARCH_LENGTH]


_OVERVIEW_LIMIT = 10


class Pages(PageGroup):
    """The pages of a visitor."""

    def routes(self) -> APIRouter:
        """The routes."""
        router = APIRouter()
        router.add_api_route("/", self.overview, methods=["GET"])
        router.add_api_route("/orders", self.orders, methods=["GET"])
        router.add_api_route("/orders/{key}", self.order, methods=["GET"])
        router.add_api_route("/waiting", self.needs_attention, methods=["GET"])
        router.add_api_route("/alerts", self.alerts, methods=["GET"])
        return router

    async def overview(self, request: Request) -> Response:
        """How things stand."""
        visitor = await self._access.authorize_view(request)
        seen = await self._context.queries.overview(now=self._context.clock.now())
        return await self._renderer.render_page(
            "overview.html",
            visitor,
            seen=seen,
            troubles=await self._context.queries.needs_attention(limit=_OVERVIEW_LIMIT),
            adapters=self._context.adapters,
            cannot_write=self._context.is_store_unwritable(),
            away={alert.key for alert in seen.alerts},
            refused={rejected_messages_alert_key(adapter.name) for adapter in self._context.adapters},
            stopped=[(rule, alert) for alert in seen.alerts if (rule := rule_from_alert_key(alert.key))],
            states={"orders": OrderState, "lines": LineState, "jobs": JobState, "reports": ReportState},
            told=formatting.flash_message(request.query_params),
        )

    async def orders(self, request: Request) -> Response:
        """The list of orders, searched and filtered."""
        visitor = await self._access.authorize_view(request)
        search = search_text(request)
        states = [state for state in OrderState if state.value in request.query_params.getlist("state")]
        number = page_number(request)
        found = await self._context.queries.orders(search=search or None, states=states, offset=page_offset(number))
        query = [("search", search)] * bool(search) + [("state", state.value) for state in states]
        fields: dict[str, Any] = {"search": search, "chosen": states, "query": urlencode(query)}
        return await self._renderer.render_page("orders.html", visitor, page=found, number=number, states=OrderState, **fields)

    async def order(self, request: Request, key: str) -> Response:
        """One order, with all that belongs to it."""
        visitor = await self._access.authorize_view(request)
        detail = await self._context.queries.order(OrderKey(one_line(key)))
        if detail is None:
            raise HttpError("There is no order of this key. Search for it by Task id, requisition, accession or barcode.", 404)
        return await self._renderer.render_page(
            "order.html",
            visitor,
            detail=detail,
            retryable={JobState.DUE, *JOBS_NEEDING_OPERATOR},
            asking=JOBS_NEEDING_OPERATOR,
            doubtful=find_unconfirmed_submit(detail),
            may_be_marked_done=can_be_marked_done,
            told=formatting.flash_message(request.query_params),
        )

    async def needs_attention(self, request: Request) -> Response:
        """What waits for a person, longest first."""
        visitor = await self._access.authorize_view(request)
        number = page_number(request)
        return await self._renderer.render_page(
            "waiting.html",
            visitor,
            page=await self._context.queries.needs_attention(offset=page_offset(number)),
            number=number,
            query="",
            may_be_marked_done=can_be_marked_done,
            told=formatting.flash_message(request.query_params),
        )

    async def alerts(self, request: Request) -> Response:
        """Alerts, open and closed."""
        visitor = await self._access.authorize_view(request)
        number = page_number(request)
        found = await self._context.queries.alerts(offset=page_offset(number))
        return await self._renderer.render_page("alerts.html", visitor, page=found, number=number, query="")
