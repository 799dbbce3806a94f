"""What a person decides about a held order, or about a line that came after its order was assessed (law 10)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.responses import RedirectResponse, Response

from lab_agent.orders import order_actions
from lab_agent.orders.records import LineRecord, OrderRecord
from lab_agent.rules.engine import RELEASABLE_RULES
from lab_agent.shared.ids import LineKey, OrderKey
from lab_agent.shared.logs import get_logger
from lab_agent.shared.state_machines import LineState, OrderState
from lab_agent.status.auth import HttpError, Operator, Viewer
from lab_agent.status.context import Context
from lab_agent.status.forms import Form, Note, one_line
from lab_agent.status.translation import gettext
from lab_agent.store.read_models import OrderDetail

router = APIRouter()
_log = get_logger(__name__)


async def get_order(key: str, context: Context, _: Viewer) -> OrderDetail:
    """The order of the address. Raises `HttpError`."""
    detail = await context.queries.order(OrderKey(one_line(key)))
    if detail is None:
        message = "There is no order with this key. Search for it by Task id, requisition, accession or barcode."
        raise HttpError(gettext(message), 404)
    return detail


Detail = Annotated[OrderDetail, Depends(get_order)]


def can_release(order: OrderRecord) -> bool:
    """Whether a person may override what holds the order."""
    return order.state is OrderState.HELD and order.hold_cause in RELEASABLE_RULES


def can_reject(order: OrderRecord) -> bool:
    """Whether a person may reject the order: it is held, and its lines are known."""
    return order.state is OrderState.HELD and order.received is not None


def held_lines(detail: OrderDetail) -> Sequence[LineRecord]:
    """The lines that wait for a decision of their own: those of a held order are decided about with it."""
    is_held = detail.order.state is OrderState.HELD
    return () if is_held else tuple(each for each in detail.lines if each.state is LineState.HELD)


def systems_of(detail: OrderDetail, line: LineRecord) -> Sequence[str]:
    """The laboratory systems in which a held line may have been entered."""
    return (line.adapter,) if line.adapter else tuple(each.adapter for each in detail.work_orders)


def _confirm(form: Mapping[str, str]) -> None:
    if form.get("confirmed") != "yes":
        raise HttpError(gettext("Tick the box that says what you have made sure of; nothing was done."), 409)


@router.post("/orders/{key}/release")
async def release_order(user: Operator, form: Form, context: Context, detail: Detail, note: Note) -> Response:
    """Override what holds the order, as it is found now; it is assessed again and goes on."""
    _confirm(form)
    key = detail.order.key
    holds = (await context.assess_order(key)).assessment.holds
    await order_actions.release_order(context.store, key, holds, note, by=user.name, now=context.clock.now())
    _log.info("order released", action="order_released", order=key, by=user.name)
    return RedirectResponse(f"/orders/{key}?flash=order-released", 303)


@router.post("/orders/{key}/reject")
async def reject_order(user: Operator, form: Form, context: Context, detail: Detail, note: Note) -> Response:
    """Reject the held order for good; the clinic reads the note at every line."""
    _confirm(form)
    key, base_url = detail.order.key, context.connection.base_url
    await order_actions.reject_order(context.store, base_url, key, note, by=user.name, now=context.clock.now())
    _log.info("order rejected by hand", action="order_rejected_by_hand", order=key, by=user.name)
    return RedirectResponse(f"/orders/{key}?flash=order-rejected", 303)


async def get_line(line: str, detail: Detail) -> LineRecord:
    """The line of the address, if it is one of the order. Raises `HttpError`."""
    wanted = LineKey(one_line(line))
    found = next((each for each in detail.lines if each.key == wanted), None)
    if found is None:
        raise HttpError("The order has no line with this key.", 404)
    return found


Line = Annotated[LineRecord, Depends(get_line)]


@router.post("/orders/{key}/lines/{line}/accept")
async def accept_line(user: Operator, form: Form, context: Context, detail: Detail, line: Line) -> Response:
    """Take note that the held line was entered in the laboratory system by hand; its results are delivered."""
    _confirm(form)
    system = form.get("system") or None
    if system is not None and system not in systems_of(detail, line):
        raise HttpError("The order is not at a laboratory system with this name.", 404)
    await order_actions.accept_line(context.store, line.key, adapter=system, by=user.name, now=context.clock.now())
    _log.info("line accepted", action="line_accepted", order=detail.order.key, line=line.key, by=user.name)
    return RedirectResponse(f"/orders/{detail.order.key}?flash=line-accepted", 303)


@router.post("/orders/{key}/lines/{line}/reject")
async def reject_line(user: Operator, _: Form, context: Context, detail: Detail, line: Line, note: Note) -> Response:
    """Reject the held line; the clinic reads the note."""
    await order_actions.reject_line(context.store, line.key, note, by=user.name, now=context.clock.now())
    _log.info("line rejected", action="line_rejected", order=detail.order.key, line=line.key, by=user.name)
    return RedirectResponse(f"/orders/{detail.order.key}?flash=line-rejected", 303)
