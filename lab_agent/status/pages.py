"""The pages that only show: overview, orders, one order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Query
from starlette.responses import Response

from lab_agent.accounts import Role
from lab_agent.audit_log import note_look
from lab_agent.conditions.ids import ConditionId
from lab_agent.conditions.model import AlertKey
from lab_agent.domain.audit import AuditAction
from lab_agent.domain.ids import JobId, OrderKey
from lab_agent.domain.job_records import ServiceMessage
from lab_agent.domain.records import Event, OrderRecord
from lab_agent.domain.state_machines import JOBS_NEEDING_OPERATOR, JobState, LineState, OrderState, ReportState
from lab_agent.monitoring.cause_groups import count_waiting
from lab_agent.monitoring.verdict import give_verdict
from lab_agent.status.auth import HttpError, Viewer, one_line
from lab_agent.status.condition_pages import load_conditions
from lab_agent.status.context import Context, Renderer
from lab_agent.status.formatting import find_unconfirmed_submit, flash_message
from lab_agent.status.paging import PageNumber, page_offset
from lab_agent.workflow.operator_jobs import can_be_marked_done

router = APIRouter()

_MAX_SEARCH_LENGTH = 200


async def search_text(search: str = "") -> str:
    """What is searched for, as one line; empty for no search."""
    return one_line(search)[:_MAX_SEARCH_LENGTH]


SearchText = Annotated[str, Depends(search_text)]


async def hold_cause(cause: str = "") -> str:
    """The cause for which orders are held, as one line; empty for no such filter."""
    return one_line(cause)[:_MAX_SEARCH_LENGTH]


HoldCause = Annotated[str, Depends(hold_cause)]
StateNames = Annotated[list[str], Query(alias="state", default_factory=list)]
"""The states that a list is filtered by; what is no state is ignored."""
Flash = Annotated[str | None, Depends(flash_message)]
"""What a page says after an action redirected to it."""


@router.get("/")
async def show_overview(user: Viewer, context: Context, renderer: Renderer, flash: Flash) -> Response:
    """How things are."""
    now = context.clock.now()
    overview = await context.queries.overview(now=now)
    conditions = await load_conditions(context, overview)
    every_group = {each.key: each for each in await renderer.groups()}
    groups = [each for each in every_group.values() if each.waiting]
    return await renderer.render_page(
        "overview.html",
        user,
        verdict=give_verdict(conditions, now, count_waiting(groups)),
        overview=overview,
        groups=groups,
        groups_by_key=every_group,
        told_above={each.key for each in conditions},
        adapters=context.adapters,
        conditions=conditions,
        states={"orders": OrderState, "lines": LineState, "jobs": JobState, "reports": ReportState},
        flash=flash,
    )


@router.get("/orders")
async def show_orders(
    user: Viewer,
    context: Context,
    renderer: Renderer,
    search: SearchText,
    page: PageNumber,
    state_names: StateNames,
    held_for: HoldCause,
) -> Response:
    """The list of orders, searched and filtered; or those that are held for one cause."""
    states = [state for state in OrderState if state.value in state_names]
    query = [("search", search)] * bool(search) + [("state", state.value) for state in states]
    query += [("cause", held_for)] * bool(held_for)
    return await renderer.render_page(
        "orders.html",
        user,
        page=await context.queries.orders(search=search or None, states=states, cause=held_for or None, offset=page_offset(page)),
        page_number=page,
        query_string=urlencode(query),
        search=search,
        states=OrderState,
        selected_states=states,
        cause=AlertKey(ConditionId.ORDERS_HELD, held_for) if held_for else None,
    )


@router.get("/orders/{key}")
async def show_order(key: str, user: Viewer, context: Context, renderer: Renderer, flash: Flash) -> Response:
    """One order, with all that belongs to it."""
    detail = await context.queries.order(OrderKey(one_line(key)))
    if detail is None:
        raise HttpError("There is no order with this key. Search for it by Task id, requisition, accession or barcode.", 404)
    is_operator = user.account.has_role(Role.OPERATOR)  # what the service says may name the patient
    order = detail.order.key
    said = await context.store.run_read_only(lambda uow: uow.vault.service_messages(order)) if is_operator else {}
    if said:
        await note_look(context.store, AuditAction.SERVICE_WORDS_SHOWN, order, by=user.name, now=context.clock.now())
    return await renderer.render_page(
        "order.html",
        user,
        detail=detail,
        held_for=_held_for(detail.order),
        retryable_states={JobState.DUE, *JOBS_NEEDING_OPERATOR},
        needing_operator=JOBS_NEEDING_OPERATOR,
        unconfirmed_submit=find_unconfirmed_submit(detail),
        can_be_marked_done=can_be_marked_done,
        service_messages=said,
        timeline=_merge_timeline(detail.events, said),
        flash=flash,
    )


def _held_for(order: OrderRecord) -> AlertKey | None:
    """The alert that tells why an order is held."""
    return AlertKey(ConditionId.ORDERS_HELD, order.hold_cause or "") if order.state is OrderState.HELD else None


@dataclass(frozen=True, slots=True)
class _TimelineEntry:
    at: datetime
    text: str
    by: str | None = None
    said: bool = False
    """Whether these are the service's own words."""


def _merge_timeline(events: Sequence[Event], messages: Mapping[JobId, Sequence[ServiceMessage]]) -> list[_TimelineEntry]:
    """The events of an order, and what the service said to the attempts at its jobs, oldest first."""
    entries = [_TimelineEntry(each.at, each.text, each.by) for each in events]
    entries += [
        _TimelineEntry(each.at, f"job {job}, attempt {each.attempt}: {each.answer}. The service said: {each.text}", said=True)
        for job, said in messages.items()
        for each in said
    ]
    return sorted(entries, key=lambda entry: entry.at)
