"""The list of orders: narrowed by its address, searched for patients by those who may, exported, and decided about together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Annotated
from urllib.parse import parse_qsl, urlencode

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from lab_agent.operations.audit_log import record
from lab_agent.orders import job_actions
from lab_agent.orders.patient_search import PatientCriteria, words_of
from lab_agent.shared.conditions.model import AlertKey, ConditionId
from lab_agent.shared.errors import InvalidTransitionError, StoreError
from lab_agent.shared.ids import OrderKey
from lab_agent.shared.logs import get_logger
from lab_agent.shared.state_machines import OrderState
from lab_agent.shared.values import is_in_calendar
from lab_agent.status.auth import HttpError, Operator, Revealer, Viewer
from lab_agent.status.context import Context, Renderer, StatusContext, get_context
from lab_agent.status.csv_export import csv_file
from lab_agent.status.early_read import EarlyRead
from lab_agent.status.formatting import format_timestamp
from lab_agent.status.forms import Form, Note, one_line
from lab_agent.status.pages import Flash
from lab_agent.status.translation import gettext
from lab_agent.store.audit_records import AuditAction, AuditEntry
from lab_agent.store.read_models import MAX_MATCHED, OrderCriteria, OrderCursor, OrderList, OrderSummary

router = APIRouter()
_log = get_logger(__name__)

MAX_EXPORTED = 10_000
TICK_PREFIX = "order-"
_MAX_LENGTH = 200
_MAX_BULK = 100
_EXPORT_PORTION = 500
_MAX_QUERY = 2_000
_TEXT_FILTERS = ("search", "contract", "test", "system", "from", "until")
_FILTERS = frozenset({*_TEXT_FILTERS, "state", "cause"})
_YEARS = range(1970, 9000)
"""Of filters: with others, the days around them could not be computed in every time zone."""


@dataclass(frozen=True, slots=True)
class ListAddress:
    """What the address of the list says: the criteria, and their parameters as a form and a link repeat them."""

    criteria: OrderCriteria
    parameters: tuple[tuple[str, str], ...]
    problem: str | None = None

    @property
    def query_string(self) -> str:
        """The parameters, without the page."""
        return urlencode(self.parameters)

    def value(self, name: str) -> str:
        """One parameter; empty where it is not given."""
        return dict(self.parameters).get(name, "")


async def read_address(request: Request) -> ListAddress:
    """Read the filters; a date that is none is told, and left out.

    They are looked up here one by one: as parameters of this function, FastAPI would check each, which takes as long as a search.
    """
    asked = request.query_params
    states = [each for each in OrderState if each.value in asked.getlist("state")]
    values = {name: _asked_text(request, name) for name in _TEXT_FILTERS}
    held_for = _asked_text(request, "cause")
    problem = None
    days: dict[str, datetime | None] = {}
    for name in ("from", "until"):
        try:
            days[name] = start_of_day(values[name])
        except ValueError:
            days[name] = None
            problem = gettext("“%(text)s” is no date: write it as 2026-01-31.") % {"text": values[name]}
    until_day = days["until"]
    criteria = OrderCriteria(
        search=values["search"],
        states=frozenset(states),
        cause=held_for or None,
        contract=values["contract"],
        item=values["test"],
        adapter=values["system"],
        seen_from=days["from"],
        seen_before=None if until_day is None else until_day + timedelta(days=1),
    )
    parameters = [(name, text) for name, text in values.items() if text]
    parameters += [("state", each.value) for each in states]
    parameters += [("cause", held_for)] if held_for else []
    return ListAddress(criteria, tuple(parameters), problem)


def _asked_text(request: Request, name: str) -> str:
    return one_line(request.query_params.get(name, ""))[:_MAX_LENGTH]


def start_of_day(text: str) -> datetime | None:
    """The start of a day in this machine's time zone; None for no text. Raises `ValueError` for what is no day of our time."""
    if not text:
        return None
    day = date.fromisoformat(text)
    if day.year not in _YEARS:
        raise ValueError(text)
    return datetime.combine(day, datetime.min.time()).astimezone()


Address = Annotated[ListAddress, Depends(read_address)]


async def read_cursor(request: Request) -> OrderCursor | None:
    """Where the page begins, as its address says; nonsense is the first page."""
    before = request.query_params.get("before", "")
    text = before or request.query_params.get("after", "")
    at, _, key = text.partition("~")
    try:
        moment = datetime.fromisoformat(at)
    except ValueError:
        return None
    if moment.tzinfo is None or not is_in_calendar(moment) or not key.isprintable():
        return None
    return OrderCursor(at=moment, key=OrderKey(key[:_MAX_LENGTH]), backwards=bool(before))


def _write_cursor(order: OrderSummary, *, held: bool) -> str:
    at = order.held_since if held and order.held_since else order.seen_at
    return f"{at.isoformat()}~{order.key}"


@dataclass(frozen=True, slots=True)
class AskedList:
    """What a request asks of the list, and the orders as they are being read."""

    address: ListAddress
    orders: EarlyRead[OrderList]


async def ask_for_orders(request: Request) -> AskedList:
    """Begin to read the orders of a page."""
    address, cursor = await read_address(request), await read_cursor(request)
    context = await get_context(request)
    return AskedList(address, EarlyRead(request, lambda: context.queries.order_list(address.criteria, cursor=cursor)))


@router.get("/orders")
async def show_orders(
    asked: Annotated[AskedList, Depends(ask_for_orders)], user: Viewer, context: Context, renderer: Renderer, flash: Flash
) -> Response:
    """The list of orders, narrowed; its address is the filter, to be kept as a bookmark."""
    address, found = asked.address, await asked.orders.result()
    cause = address.criteria.cause
    held = cause is not None or address.criteria.states == {OrderState.HELD}
    return await renderer.render_page(
        "orders.html",
        user,
        found=found,
        address=address,
        links=_page_links(found, address, held=held),
        presets=_presets(context.clock.now()),
        states=OrderState,
        systems=[each.name for each in context.adapters],
        contracts=context.contracts(),
        cause=AlertKey(ConditionId.ORDERS_HELD, cause) if cause else None,
        max_matched=MAX_MATCHED,
        max_exported=MAX_EXPORTED,
        test_name=context.test_name,
        flash=flash,
    )


def _page_links(found: OrderList, address: ListAddress, *, held: bool) -> Mapping[str, str]:
    """The addresses of the pages beside this one."""
    links: dict[str, str] = {}
    if found.orders and found.has_before:
        links["before"] = urlencode([*address.parameters, ("before", _write_cursor(found.orders[0], held=held))])
    if found.orders and found.has_after:
        links["after"] = urlencode([*address.parameters, ("after", _write_cursor(found.orders[-1], held=held))])
    return links


def _presets(now: datetime) -> tuple[tuple[str, str], ...]:
    """Filters that are wanted every day, by their names."""
    today = now.astimezone().date()
    yesterday = today - timedelta(days=1)
    return (
        (gettext("All"), ""),
        (gettext("Today"), f"from={today}"),
        (gettext("Yesterday"), f"from={yesterday}&until={yesterday}"),
        (gettext("Held"), "state=held"),
        (gettext("At the laboratory"), "state=handed_over"),
        (gettext("Closed"), "state=closed"),
    )


# --- patients ------------------------------------------------------------------------------------------------------------
@router.get("/orders/patient")
async def show_patient_form(user: Revealer, renderer: Renderer) -> Response:
    """The form of the search by patient; what it finds is shown by the answer alone, so that no address names anybody."""
    return await renderer.render_page("patient_search.html", user, fields={}, found=None, problem=None)


@router.post("/orders/patient")
async def search_patient(user: Revealer, form: Form, context: Context, renderer: Renderer) -> Response:
    """Find the orders of a patient by name or birth date. The search is in the audit before anything is shown."""
    fields = {name: one_line(form.get(name, ""))[:_MAX_LENGTH] for name in ("name", "birth_date")}
    criteria = _read_criteria(fields)
    if criteria is None:
        problem = gettext("Give a name, or a birth date as 1961-04-12, or both.")
        return await renderer.render_page(
            "patient_search.html", user, status=422, fields=fields, found=None, problem=problem, test_name=context.test_name
        )
    found = await context.queries.order_list(OrderCriteria(patient=criteria))
    details = {"found": len(found.orders)}
    now = context.clock.now()
    await record(context.store, AuditEntry(at=now, action=AuditAction.PATIENT_SEARCHED, by=user.name, details=details))
    return await renderer.render_page(
        "patient_search.html", user, fields=fields, found=found, problem=None, test_name=context.test_name
    )


def _read_criteria(fields: Mapping[str, str]) -> PatientCriteria | None:
    """Who is meant; None where neither a name nor a birth date is given, or that is none."""
    try:
        born = date.fromisoformat(fields["birth_date"]) if fields["birth_date"] else None
    except ValueError:
        return None
    return PatientCriteria(name=fields["name"], birth_date=born) if words_of(fields["name"]) or born else None


# --- export --------------------------------------------------------------------------------------------------------------
_COLUMNS = (
    "order",
    "state",
    "requisition",
    "accession",
    "contract",
    "laboratory_systems",
    "tests",
    "lines",
    "ended_lines",
    "seen_at",
    "changed_at",
    "expected_at",
    "reason",
)


@router.get("/orders.csv")
async def export_orders(user: Viewer, context: Context, address: Address) -> Response:
    """The list as CSV, without identification: at most `MAX_EXPORTED` orders."""
    rows: list[OrderSummary] = []
    cursor: OrderCursor | None = None
    held = address.criteria.cause is not None or address.criteria.states == {OrderState.HELD}
    while len(rows) < MAX_EXPORTED:
        found = await context.queries.order_list(address.criteria, cursor=cursor, limit=_EXPORT_PORTION)
        rows += found.orders
        if not found.has_after or not found.orders:
            break
        last = found.orders[-1]
        cursor = OrderCursor(at=(last.held_since if held else None) or last.seen_at, key=last.key)
    now = context.clock.now()
    details = {"orders": len(rows)}
    await record(context.store, AuditEntry(at=now, action=AuditAction.ORDERS_EXPORTED, by=user.name, details=details))
    return csv_file("orders", now, _COLUMNS, map(_csv_values, rows[:MAX_EXPORTED]))


def _csv_values(order: OrderSummary) -> tuple[str, ...]:
    return (
        order.key,
        order.state.value,
        order.requisition.value if order.requisition else "",
        " ".join(part.accession for part in order.work_orders if part.accession),
        order.contract or "",
        " ".join(part.adapter for part in order.work_orders),
        " ".join(order.items),
        str(order.lines),
        str(order.ended_lines),
        format_timestamp(order.seen_at),
        format_timestamp(order.changed_at),
        format_timestamp(order.expected_at),
        order.reason or "",
    )


# --- several orders at once ----------------------------------------------------------------------------------------------
def _ticked(form: Mapping[str, str]) -> tuple[OrderKey, ...]:
    names = (name for name, value in form.items() if name.startswith(TICK_PREFIX) and value == "yes")
    keys = tuple(OrderKey(one_line(name.removeprefix(TICK_PREFIX))) for name in names)
    if not keys:
        raise HttpError(gettext("Tick the orders first; nothing was done."), 422)
    if len(keys) > _MAX_BULK:
        raise HttpError(gettext("These are too many orders at once; nothing was done."), 422)
    return keys


@router.post("/orders/selected")
async def preview_selected(user: Operator, form: Form, context: Context, renderer: Renderer) -> Response:
    """Say what retrying the ticked orders would do to each; nothing is done yet."""
    keys = _ticked(form)
    details = [found for key in keys if (found := await context.queries.order(key)) is not None]
    return await renderer.render_page(
        "orders_selected.html",
        user,
        details=details,
        waiting={each.order.key: [job for job in each.jobs if job.state in job_actions.WAITING_STATES] for each in details},
        tick_prefix=TICK_PREFIX,
        filters=_filters(form),
    )


def _filters(form: Mapping[str, str]) -> str:
    """The query string of the list that the orders were ticked on, so that it is shown again; nothing but filters."""
    given = parse_qsl(form.get("filters", "")[:_MAX_QUERY])
    return urlencode([(name, one_line(text)[:_MAX_LENGTH]) for name, text in given if name in _FILTERS])


@router.post("/orders/selected/retry")
async def retry_selected(user: Operator, form: Form, context: Context, note: Note) -> Response:
    """Make what waits of each ticked order due now; where nothing waits, or nobody knows what came of it, it is left alone."""
    done = left = 0
    for key in _ticked(form):
        if await _retry(context, key, user.name, note):
            done += 1
        else:
            left += 1
    _log.info("orders retried", action="orders_retried", count=done, by=user.name)
    filters = _filters(form)
    return RedirectResponse(f"/orders?{filters}{'&' if filters else ''}flash=orders-retried&done={done}&left={left}", 303)


async def _retry(context: StatusContext, key: OrderKey, by: str, note: str) -> bool:
    now = context.clock.now()
    try:
        await job_actions.retry_order(context.store, key, by=by, now=now, note=note)
    except (StoreError, InvalidTransitionError):
        return False
    return True
