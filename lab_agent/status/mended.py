"""What mended mapping tables release: first a preview that changes nothing, then the deed, if it is still as previewed."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from lab_agent.accounts import Role
from lab_agent.domain.journal import ReportRecord
from lab_agent.domain.lifecycle import WAITING_REPORTS
from lab_agent.logs import get_logger
from lab_agent.status.gate import Refused
from lab_agent.status.room import Room
from lab_agent.steps import result_desk

log = get_logger(__name__)

_MOST_SHOWN = 200
_OTHERWISE = "The tables or the results have changed since the preview. Nothing was done; look at the preview again."


class Mended(Room):
    """The preview, and the release of what it shows."""

    def routes(self) -> APIRouter:
        """The routes."""
        router = APIRouter()
        router.add_api_route("/results/mended", self.preview, methods=["GET"])
        router.add_api_route("/results/mended", self.release, methods=["POST"])
        return router

    async def preview(self, request: Request) -> Response:
        """What would become of each unmapped result with the tables as they lie in their folder now."""
        visitor = await self._gate.looking(request, Role.OPERATOR)
        would = await self._would()
        going, staying = _parted(would)
        return await self._paper.sheet(
            "mended.html",
            visitor,
            parts_of=(("Would go on", going), ("Would stay", staying)),
            going=len(going),
            preview=_mark(would),
            most=_MOST_SHOWN,
        )

    async def release(self, request: Request) -> Response:
        """Release what the preview showed."""
        visitor, form = await self._gate.acting(request)
        if form.get("preview") != _mark(await self._would()):
            raise Refused(_OTHERWISE, 409)
        store, now = self._house.store, self._house.clock.now()
        decided = await result_desk.release_mapped(store, self._house.matcher(), by=visitor.account.name, now=now)
        released = sum(each.moved for each in decided)
        log.info("mapped results released", action="results_released", count=released, by=visitor.account.name)
        return RedirectResponse("/results?did=mended", 303)

    async def _would(self) -> Sequence[ReportRecord]:
        return await result_desk.released_by_mappings(self._house.store, self._house.matcher(), now=self._house.clock.now())


def _parted(would: Sequence[ReportRecord]) -> tuple[list[ReportRecord], list[ReportRecord]]:
    """Those that would go on, and those that would still wait."""
    going = [report for report in would if report.state not in WAITING_REPORTS]
    return going, [report for report in would if report.state in WAITING_REPORTS]


def _mark(would: Sequence[ReportRecord]) -> str:
    """What tells one preview from another."""
    said = "\n".join(sorted(f"{report.key} {report.state.value}" for report in would))
    return hashlib.sha256(said.encode()).hexdigest()
