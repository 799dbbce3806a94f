"""The deeds: what an operator decides on the page. The desk does them; each is told in the order's timeline with who did it."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from lab_agent.domain.ids import EffectId, OrderKey
from lab_agent.domain.journal import Effect, EffectKind
from lab_agent.logs import get_logger
from lab_agent.status.gate import Gate, Refused, note_of, one_line
from lab_agent.status.house import House
from lab_agent.status.words import doubtful_handover, is_doubtful_handover
from lab_agent.steps import desk

log = get_logger(__name__)

_LARGEST_ID = 2**63 - 1


class Deeds:
    """What can be done on the page."""

    def __init__(self, house: House, gate: Gate) -> None:
        self._house = house
        self._gate = gate

    def routes(self) -> APIRouter:
        """The routes."""
        router = APIRouter()
        router.add_api_route("/effects/{effect}/retry", self.retry, methods=["POST"])
        router.add_api_route("/effects/{effect}/dismiss", self.dismiss, methods=["POST"])
        router.add_api_route("/effects/{effect}/done", self.done, methods=["POST"])
        router.add_api_route("/orders/{key}/retry", self.retry_order, methods=["POST"])
        router.add_api_route("/rules/{rule}/release", self.release, methods=["POST"])
        return router

    async def retry(self, request: Request, effect: str) -> Response:
        """Do an effect (again) now."""
        visitor, form = await self._gate.acting(request)
        current = await self._effect(effect)
        if is_doubtful_handover(current) and form.get("sure") != "yes":
            raise Refused("This hands the order over AGAIN. Tick the box if you are certain that it is not there.", 409)
        changed = await desk.retry_effect(self._house.store, current.id, by=visitor.account.name, now=self._house.clock.now())
        return _back(form, changed, "retried")

    async def dismiss(self, request: Request, effect: str) -> Response:
        """Leave an effect undone for good."""
        visitor, form = await self._gate.acting(request)
        current, note = await self._effect(effect), note_of(form)
        now = self._house.clock.now()
        changed = await desk.dismiss_effect(self._house.store, current.id, by=visitor.account.name, note=note, now=now)
        return _back(form, changed, "dismissed")

    async def done(self, request: Request, effect: str) -> Response:
        """Say that an effect has happened."""
        visitor, form = await self._gate.acting(request)
        current, note = await self._effect(effect), note_of(form)
        now = self._house.clock.now()
        changed = await desk.mark_effect_done(self._house.store, current.id, by=visitor.account.name, note=note, now=now)
        return _back(form, changed, "done")

    async def retry_order(self, request: Request, key: str) -> Response:
        """Do now whatever of an order waits."""
        visitor, _ = await self._gate.acting(request)
        detail = await self._house.views.order(OrderKey(one_line(key)))
        if detail is None:
            raise Refused("There is no order of this key.", 404)
        if doubtful := doubtful_handover(detail):
            raise Refused(f"Whether the order was handed over is in doubt. Decide about effect {doubtful.id} first.", 409)
        await desk.retry_order(self._house.store, OrderKey(key), by=visitor.account.name, now=self._house.clock.now())
        return RedirectResponse(f"/orders/{key}?did=order", 303)

    async def release(self, request: Request, rule: str) -> Response:
        """Let a stopped rule refuse again."""
        visitor, _ = await self._gate.acting(request)
        if not await desk.release(self._house.store, one_line(rule), now=self._house.clock.now()):
            raise Refused("This rule is not stopped; somebody may have released it just now.", 409)
        log.info("rule released", action="rule_released", rule=rule, by=visitor.account.name)
        return RedirectResponse("/?did=released", 303)

    async def _effect(self, number: str) -> Effect:
        known = number.isascii() and number.isdigit() and len(number) < 20 and int(number) <= _LARGEST_ID
        found = await self._house.views.effect(EffectId(int(number))) if known else None
        if found is None:
            raise Refused("There is no effect of this number.", 404)
        return found


def _back(form: Mapping[str, str], effect: Effect, did: str) -> Response:
    """Back to the page that the form was on."""
    on = form.get("on")
    there = f"/orders/{effect.order}" if on == "order" and effect.order else "/waiting"
    if on == "result" and effect.kind in {EffectKind.DELIVER, EffectKind.MATCH}:
        there = f"/results/{quote(effect.subject, safe='')}"
    return RedirectResponse(f"{there}?did={did}&effect={effect.id}", 303)
