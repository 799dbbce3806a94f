"""The match desk: results that wait for a person, one result whole, and the way to its order. Looking changes nothing.

What mended mapping tables release: first a preview that changes nothing, then the deed, if it is still as previewed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from lab_agent.accounts import Role
from lab_agent.domain.ids import OrderKey, ReportKey
from lab_agent.domain.lab_messages import LabRejection, LabReport
from lab_agent.domain.records import Event, ReportRecord
from lab_agent.domain.state_machines import JOBS_NEEDING_OPERATOR, REPORTS_NEEDING_OPERATOR, ReportState
from lab_agent.logs import get_logger
from lab_agent.ports.queries import OrderDetail
from lab_agent.status import formatting, pages
from lab_agent.status.auth import HttpError, one_line
from lab_agent.status.context import PageGroup, StatusContext
from lab_agent.status.formatting import load_result
from lab_agent.workflow import operator_results
from lab_agent.workflow.result_inbox import rejected_messages_alert_key

log = get_logger(__name__)

_MAX_CANDIDATES = 10
_MAX_OBSERVATIONS = 500
"""Observations of one result on its page; nobody reads more, and the command shows them all."""


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """A line of a result's history."""

    at: datetime
    text: str
    by: str | None = None


class ResultPages(PageGroup):
    """The pages of the match desk."""

    def routes(self) -> APIRouter:
        """The routes."""
        router = APIRouter()
        router.add_api_route("/results", self.results, methods=["GET"])
        router.add_api_route("/results/{key}", self.result, methods=["GET"])
        router.add_api_route("/results/{key}/match", self.assign_form, methods=["GET"])
        return router

    async def results(self, request: Request) -> Response:
        """What waits, longest first; or all results in the states that are asked for, newest first."""
        visitor = await self._access.authorize_view(request)
        chosen = [state for state in ReportState if state.value in request.query_params.getlist("state")]
        number = pages.page_number(request)
        offset, views = pages.page_offset(number), self._context.queries
        fields: dict[str, Any] = {"chosen": chosen, "query": urlencode([("state", state.value) for state in chosen])}
        if chosen:
            fields |= {"page": await views.reports(states=chosen, offset=offset), "waiting": ()}
        else:
            page = await views.unmatched_reports(offset=offset)
            fields |= {"page": page, "waiting": [load_result(report) for report in page.items]}
        overview = await views.overview(now=self._context.clock.now())
        return await self._renderer.render_page(
            "results.html",
            visitor,
            number=number,
            states=ReportState,
            refused=await operator_results.rejected_message_counts(
                self._context.store, [adapter.name for adapter in self._context.adapters]
            ),
            alerts={alert.key: alert for alert in overview.alerts},
            refused_alert=rejected_messages_alert_key,
            unmapped=overview.reports.get(ReportState.UNMAPPED, 0),
            told=formatting.flash_message(request.query_params),
            **fields,
        )

    async def result(self, request: Request, key: str) -> Response:
        """One result, with all that belongs to it."""
        visitor = await self._access.authorize_view(request)
        report = await get_report(self._context, key)
        whole, order = load_result(report), await self._get_order(report)
        kept = {document.file for document in whole.documents if document.file}
        jobs = [each for each in order.jobs if each.target == report.key] if order else []
        return await self._renderer.render_page(
            "result.html",
            visitor,
            result=whole,
            report=report,
            undecided=report.state in REPORTS_NEEDING_OPERATOR,
            jobs=jobs,
            asking=JOBS_NEEDING_OPERATOR,
            dismissible=_can_dismiss(report, [each.state for each in jobs]),
            versions=await self._context.queries.versions(report),
            sizes=await self._context.queries.document_sizes(kept) if kept else {},
            history=_history_entries(report, await self._context.queries.report_events(report.key)),
            most=_MAX_OBSERVATIONS,
            told=formatting.flash_message(request.query_params),
        )

    async def assign_form(self, request: Request, key: str) -> Response:
        """The way to the order of a result: search, choose, tick lines."""
        visitor = await self._access.authorize_view(request, Role.OPERATOR)
        report = await get_report(self._context, key)
        if report.state not in REPORTS_NEEDING_OPERATOR:
            return RedirectResponse(f"/results/{report.key}", 303)
        search, views = pages.search_text(request), self._context.queries
        found = await views.orders(search=search, limit=_MAX_CANDIDATES) if search else None
        wanted = one_line(request.query_params.get("order", ""))
        if not wanted and found is not None and found.total == 1:
            wanted = found.items[0].key
        whole = load_result(report)
        fields: Mapping[str, Any] = {"result": whole, "report": report, "search": search, "found": found}
        return await self._renderer.render_page(
            "match.html",
            visitor,
            chosen=await views.order(OrderKey(wanted)) if wanted else None,
            wanted=wanted,
            takes_lines=isinstance(whole.message, LabReport | LabRejection),
            **fields,
        )

    async def _get_order(self, report: ReportRecord) -> OrderDetail | None:
        return None if report.order is None else await self._context.queries.order(report.order)


async def get_report(context: StatusContext, key: str) -> ReportRecord:
    """The result of this key. Raises `Refused`."""
    report = await context.queries.report(ReportKey(one_line(key)))
    if report is None:
        raise HttpError("There is no result of this key.", 404)
    return report


def _can_dismiss(report: ReportRecord, job_states: list[Any]) -> bool:
    """Whether it can be left for good: it waits, or its delivery waits for a person."""
    parked = any(state in JOBS_NEEDING_OPERATOR for state in job_states)
    return report.state in REPORTS_NEEDING_OPERATOR or (report.state is ReportState.MATCHED and parked)


def _history_entries(report: ReportRecord, events: tuple[Event, ...]) -> tuple[HistoryEntry, ...]:
    """What was told of a result, from its arrival; where nothing was told, how it stands."""
    told_so = [HistoryEntry(event.at, event.text, event.by) for event in events]
    if not told_so and report.state is not ReportState.RECEIVED:
        told_so = [
            HistoryEntry(report.changed_at, f"{report.state.value}: {report.reason}" if report.reason else report.state.value)
        ]
    return (HistoryEntry(report.received_at, f"received from {report.source}"), *told_so)


_MAX_PREVIEW = 200
_PREVIEW_OUTDATED = "The tables or the results have changed since the preview. Nothing was done; look at the preview again."


class MappingRelease(PageGroup):
    """The preview, and the release of what it shows."""

    def routes(self) -> APIRouter:
        """The routes."""
        router = APIRouter()
        router.add_api_route("/results/mended", self.preview, methods=["GET"])
        router.add_api_route("/results/mended", self.release, methods=["POST"])
        return router

    async def preview(self, request: Request) -> Response:
        """What would become of each unmapped result with the tables as they lie in their folder now."""
        visitor = await self._access.authorize_view(request, Role.OPERATOR)
        would = await self._preview_reports()
        going, staying = _split_released(would)
        return await self._renderer.render_page(
            "mended.html",
            visitor,
            parts_of=(("Would go on", going), ("Would stay", staying)),
            going=len(going),
            preview=_preview_digest(would),
            most=_MAX_PREVIEW,
        )

    async def release(self, request: Request) -> Response:
        """Release what the preview showed."""
        visitor, form = await self._access.authorize_action(request)
        if form.get("preview") != _preview_digest(await self._preview_reports()):
            raise HttpError(_PREVIEW_OUTDATED, 409)
        store, now = self._context.store, self._context.clock.now()
        decided = await operator_results.release_mapped_results(
            store, self._context.create_matcher(), by=visitor.account.name, now=now
        )
        released = sum(each.moved for each in decided)
        log.info("mapped results released", action="results_released", count=released, by=visitor.account.name)
        return RedirectResponse("/results?did=mended", 303)

    async def _preview_reports(self) -> Sequence[ReportRecord]:
        return await operator_results.preview_mapping_release(
            self._context.store, self._context.create_matcher(), now=self._context.clock.now()
        )


def _split_released(reports: Sequence[ReportRecord]) -> tuple[list[ReportRecord], list[ReportRecord]]:
    """Those that would go on, and those that would still wait."""
    going = [report for report in reports if report.state not in REPORTS_NEEDING_OPERATOR]
    return going, [report for report in reports if report.state in REPORTS_NEEDING_OPERATOR]


def _preview_digest(reports: Sequence[ReportRecord]) -> str:
    """What tells one preview from another."""
    said = "\n".join(sorted(f"{report.key} {report.state.value}" for report in reports))
    return hashlib.sha256(said.encode()).hexdigest()
