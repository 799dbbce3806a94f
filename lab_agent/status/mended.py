"""What mended mapping tables release: first a preview that changes nothing, then the deed, if it is still as previewed."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from lab_agent.accounts import Role
from lab_agent.domain.journal import ReportRecord
from lab_agent.domain.lifecycle import REPORTS_NEEDING_OPERATOR
from lab_agent.logs import get_logger
from lab_agent.status.gate import HttpError
from lab_agent.status.room import PageGroup
from lab_agent.steps import result_desk

log = get_logger(__name__)

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
        decided = await result_desk.release_mapped_results(
            store, self._context.create_matcher(), by=visitor.account.name, now=now
        )
        released = sum(each.moved for each in decided)
        log.info("mapped results released", action="results_released", count=released, by=visitor.account.name)
        return RedirectResponse("/results?did=mended", 303)

    async def _preview_reports(self) -> Sequence[ReportRecord]:
        return await result_desk.preview_mapping_release(
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
