"""The match desk: results that wait for a person, one result whole, and the way to its order. Looking changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from lab_agent.accounts import Role
from lab_agent.domain.ids import OrderKey, ReportKey
from lab_agent.domain.journal import Event, ReportRecord
from lab_agent.domain.lifecycle import ASKING_EFFECTS, WAITING_REPORTS, ReportState
from lab_agent.domain.results import LabRefusal, LabReport
from lab_agent.ports.views import OrderDetail
from lab_agent.status import asked, told
from lab_agent.status.gate import Refused, one_line
from lab_agent.status.house import House
from lab_agent.status.result_words import opened
from lab_agent.status.room import Room
from lab_agent.steps import result_desk
from lab_agent.steps.inbox import refused_alert

_CANDIDATES = 10
_MOST_SHOWN = 500
"""Observations of one result on its page; nobody reads more, and the command shows them all."""


@dataclass(frozen=True, slots=True)
class Told:
    """A line of a result's history."""

    at: datetime
    text: str
    by: str | None = None


class MatchDesk(Room):
    """The pages of the match desk."""

    def routes(self) -> APIRouter:
        """The routes."""
        router = APIRouter()
        router.add_api_route("/results", self.results, methods=["GET"])
        router.add_api_route("/results/{key}", self.result, methods=["GET"])
        router.add_api_route("/results/{key}/match", self.match, methods=["GET"])
        return router

    async def results(self, request: Request) -> Response:
        """What waits, longest first; or all results in the states that are asked for, newest first."""
        visitor = await self._gate.looking(request)
        chosen = [state for state in ReportState if state.value in request.query_params.getlist("state")]
        number = asked.page_number(request)
        offset, views = asked.offset(number), self._house.views
        fields: dict[str, Any] = {"chosen": chosen, "query": urlencode([("state", state.value) for state in chosen])}
        if chosen:
            fields |= {"page": await views.reports(states=chosen, offset=offset), "waiting": ()}
        else:
            page = await views.desk(offset=offset)
            fields |= {"page": page, "waiting": [opened(report) for report in page.items]}
        overview = await views.overview(now=self._house.clock.now())
        return await self._paper.sheet(
            "results.html",
            visitor,
            number=number,
            states=ReportState,
            refused=await result_desk.refused(self._house.store, [adapter.name for adapter in self._house.adapters]),
            alerts={alert.key: alert for alert in overview.alerts},
            refused_alert=refused_alert,
            unmapped=overview.reports.get(ReportState.UNMAPPED, 0),
            told=told.sentence(request.query_params),
            **fields,
        )

    async def result(self, request: Request, key: str) -> Response:
        """One result, with all that belongs to it."""
        visitor = await self._gate.looking(request)
        report = await find(self._house, key)
        whole, order = opened(report), await self._order(report)
        kept = {document.file for document in whole.documents if document.file}
        effects = [each for each in order.effects if each.subject == report.key] if order else []
        return await self._paper.sheet(
            "result.html",
            visitor,
            result=whole,
            report=report,
            undecided=report.state in WAITING_REPORTS,
            effects=effects,
            asking=ASKING_EFFECTS,
            dismissible=_dismissible(report, [each.state for each in effects]),
            versions=await self._house.views.versions(report),
            sizes=await self._house.views.document_sizes(kept) if kept else {},
            history=_history(report, await self._house.views.history(report.key)),
            most=_MOST_SHOWN,
            told=told.sentence(request.query_params),
        )

    async def match(self, request: Request, key: str) -> Response:
        """The way to the order of a result: search, choose, tick lines."""
        visitor = await self._gate.looking(request, Role.OPERATOR)
        report = await find(self._house, key)
        if report.state not in WAITING_REPORTS:
            return RedirectResponse(f"/results/{report.key}", 303)
        search, views = asked.search(request), self._house.views
        found = await views.orders(search=search, limit=_CANDIDATES) if search else None
        wanted = one_line(request.query_params.get("order", ""))
        if not wanted and found is not None and found.total == 1:
            wanted = found.items[0].key
        whole = opened(report)
        fields: Mapping[str, Any] = {"result": whole, "report": report, "search": search, "found": found}
        return await self._paper.sheet(
            "match.html",
            visitor,
            chosen=await views.order(OrderKey(wanted)) if wanted else None,
            wanted=wanted,
            takes_lines=isinstance(whole.message, LabReport | LabRefusal),
            **fields,
        )

    async def _order(self, report: ReportRecord) -> OrderDetail | None:
        return None if report.order is None else await self._house.views.order(report.order)


async def find(house: House, key: str) -> ReportRecord:
    """The result of this key. Raises `Refused`."""
    report = await house.views.report(ReportKey(one_line(key)))
    if report is None:
        raise Refused("There is no result of this key.", 404)
    return report


def _dismissible(report: ReportRecord, effects: list[Any]) -> bool:
    """Whether it can be left for good: it waits, or its delivery waits for a person."""
    parked = any(state in ASKING_EFFECTS for state in effects)
    return report.state in WAITING_REPORTS or (report.state is ReportState.MATCHED and parked)


def _history(report: ReportRecord, events: tuple[Event, ...]) -> tuple[Told, ...]:
    """What was told of a result, from its arrival; where nothing was told, how it stands."""
    told_so = [Told(event.at, event.text, event.by) for event in events]
    if not told_so and report.state is not ReportState.RECEIVED:
        told_so = [Told(report.changed_at, f"{report.state.value}: {report.reason}" if report.reason else report.state.value)]
    return (Told(report.received_at, f"received from {report.source}"), *told_so)
