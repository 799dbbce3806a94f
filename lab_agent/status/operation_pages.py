"""The pages about operation: the sign-in at the exchange service, laboratory systems, and the rules."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from fastapi import APIRouter
from starlette.responses import RedirectResponse, Response

from lab_agent.operations.audit_log import record
from lab_agent.orders.pause_actions import load_pauses, pause_adapter, resume_adapter
from lab_agent.queue.pauses import AdapterPause
from lab_agent.rules.engine import RULES
from lab_agent.rules.rule import Rule
from lab_agent.shared.conditions.model import OpenCondition
from lab_agent.shared.errors import Failure, InvalidTransitionError, LabAgentError
from lab_agent.shared.logs import get_logger
from lab_agent.status.auth import Admin, HttpError, Operator, Viewer
from lab_agent.status.charts import format_seconds
from lab_agent.status.condition_pages import list_open_conditions
from lab_agent.status.context import AdapterStatus, Context, Renderer, StatusContext
from lab_agent.status.forms import Form, Note, one_line
from lab_agent.status.pages import Flash
from lab_agent.status.translation import gettext, marked
from lab_agent.store.activity_records import HOUR, HourlyActivity, Measure, hour_of
from lab_agent.store.audit_records import AuditAction, AuditEntry
from lab_agent.store.read_models import LisTraffic, Overview
from lab_agent.store.unit_of_work import UnitOfWork

router = APIRouter()
_log = get_logger(__name__)

_TRIAL_ORDERS = 1_000
_SHOWN_OF_TRIAL = 20
_HITS_DAYS = 7


async def _measure(look: Callable[[], Awaitable[None]]) -> tuple[str | None, str]:
    """Do it: what went wrong (None: nothing), and how long it took."""
    begun, problem = time.perf_counter(), None
    try:
        await look()
    except (Failure, LabAgentError, OSError) as exc:
        problem = str(exc)
    return problem, format_seconds(time.perf_counter() - begun)


def _conditions_about(context: StatusContext, overview: Overview, *subjects: str) -> list[OpenCondition]:
    return [each for each in list_open_conditions(context, overview) if each.condition.id.value.partition(".")[0] in subjects]


# --- the connection to the exchange service -------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class SignInStatus:
    """The sign-in as it is stored, without a token: its generation counts the refreshes since the first sign-in."""

    generation: int
    expires_at: datetime | None
    can_refresh: bool
    signed_in_at: datetime | None
    obtained_at: datetime | None


@router.get("/connection")
async def show_connection(user: Viewer, context: Context, renderer: Renderer, flash: Flash) -> Response:
    """How the exchange service is reached, and how long our sign-in lasts."""
    return await _connection_page(user, context, renderer, flash=flash)


async def _connection_page(
    user: Viewer, context: Context, renderer: Renderer, *, flash: str | None = None, test: tuple[str | None, str] | None = None
) -> Response:
    now = context.clock.now()
    stored = await context.store.run_read_only(lambda uow: uow.oauth_tokens.current())
    status = None
    if stored is not None:
        status = SignInStatus(
            generation=stored.generation,
            expires_at=stored.expires_at,
            can_refresh=stored.refresh_token is not None,
            signed_in_at=stored.signed_in_at,
            obtained_at=stored.obtained_at,
        )
    overview = await context.queries.overview(now=now)
    calls: tuple[HourlyActivity, ...] = await context.queries.activity(since=hour_of(now) - HOUR)
    return await renderer.render_page(
        "connection.html",
        user,
        desk=context.connection,
        sign_in=status,
        overview=overview,
        conditions=_conditions_about(context, overview, "exchange", "clock"),
        calls=[each for each in calls if each.measure is Measure.EXCHANGE_CALLS],
        format_seconds=format_seconds,
        test=test,
        flash=flash,
    )


@router.post("/connection/test")
async def check_connection(user: Operator, _: Form, context: Context, renderer: Renderer) -> Response:
    """Ask the service something harmless with our sign-in, and show what came."""
    return await _connection_page(user, context, renderer, test=await _measure(context.connection.check))


@router.post("/connection/refresh")
async def refresh_sign_in(user: Admin, _: Form, context: Context) -> Response:
    """Get a new token now."""
    try:
        await context.connection.refresh()
    except Failure as exc:
        raise HttpError(gettext("The sign-in was not refreshed: %(reason)s") % {"reason": exc}, 409) from exc
    now = context.clock.now()
    await record(context.store, AuditEntry(at=now, action=AuditAction.SIGN_IN_REFRESHED, by=user.name))
    return RedirectResponse("/connection?flash=sign-in-refreshed", 303)


@router.post("/connection/forget")
async def forget_sign_in(user: Admin, form: Form, context: Context, note: Note) -> Response:
    """Delete our tokens: nothing is sent or fetched until somebody signs in again."""
    if form.get("confirmed") != "yes":
        raise HttpError("Tick the box: without the sign-in no order is fetched and no result is delivered.", 409)
    await context.connection.forget()
    now = context.clock.now()
    await record(context.store, AuditEntry(at=now, action=AuditAction.SIGN_IN_FORGOTTEN, by=user.name, note=note))
    _log.warning("sign-in forgotten", action="sign_in_forgotten", by=user.name)
    return RedirectResponse("/connection?flash=sign-in-forgotten", 303)


# --- laboratory systems ---------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterView:
    """A laboratory system with what is known of it."""

    status: AdapterStatus
    conditions: tuple[OpenCondition, ...]
    to_hand_over: int
    waiting_lines: int
    traffic: LisTraffic
    pause: AdapterPause | None


@router.get("/adapters")
async def show_adapters(user: Viewer, context: Context, renderer: Renderer, flash: Flash) -> Response:
    """The laboratory systems."""
    return await _adapters_page(user, context, renderer, flash=flash)


async def _adapters_page(
    user: Viewer,
    context: Context,
    renderer: Renderer,
    *,
    flash: str | None = None,
    tested: Mapping[str, tuple[str | None, str]] | None = None,
) -> Response:
    overview = await context.queries.overview(now=context.clock.now())
    conditions = _conditions_about(context, overview, "lis")
    names = [each.name for each in context.adapters]
    pauses = await context.store.run_read_only(lambda uow: load_pauses(uow, names))
    views = [
        AdapterView(
            status=each,
            conditions=tuple(one for one in conditions if one.subject == each.name),
            to_hand_over=overview.affected.orders_to_hand_over.get(each.name, 0),
            waiting_lines=overview.affected.waiting_lines.get(each.name, 0),
            traffic=await context.queries.lis_traffic(each.name),
            pause=pauses.get(each.name),
        )
        for each in context.adapters
    ]
    return await renderer.render_page("adapters.html", user, views=views, tested=tested or {}, flash=flash)


@router.post("/adapters/{name}/test")
async def check_adapter(name: str, user: Operator, _: Form, context: Context, renderer: Renderer) -> Response:
    """Let the adapter look whether its laboratory system can be reached; nothing is handed over."""
    known = one_line(name)
    if known not in {each.name for each in context.adapters if each.loaded}:
        raise HttpError("There is no such laboratory system, or its adapter is not loaded.", 404)
    tested = {known: await _measure(lambda: context.check_adapter(known))}
    return await _adapters_page(user, context, renderer, tested=tested)


@router.post("/adapters/{name}/pause")
async def pause(name: str, user: Admin, _: Form, context: Context, note: Note) -> Response:
    """Hand nothing over to a laboratory system, and cancel and ask nothing there, until it is resumed."""
    system = _configured(context, name)
    now = context.clock.now()
    await _decide(context, lambda uow: pause_adapter(uow, system, by=user.name, note=note, now=now))
    return RedirectResponse("/adapters?flash=adapter-paused", 303)


@router.post("/adapters/{name}/resume")
async def resume(name: str, user: Admin, _: Form, context: Context, note: Note) -> Response:
    """Let a paused laboratory system go on where it stopped."""
    system = _configured(context, name)
    now = context.clock.now()
    await _decide(context, lambda uow: resume_adapter(uow, system, by=user.name, note=note, now=now))
    return RedirectResponse("/adapters?flash=adapter-resumed", 303)


def _configured(context: StatusContext, name: str) -> str:
    """Raise `HttpError` for a laboratory system that is not in the settings."""
    known = one_line(name)
    if known not in {each.name for each in context.adapters}:
        raise HttpError(gettext("There is no such laboratory system."), 404)
    return known


async def _decide(context: StatusContext, decide: Callable[[UnitOfWork], object]) -> None:
    """Write a decision. Raises `HttpError` where somebody was faster."""

    def write(uow: UnitOfWork) -> None:
        decide(uow)

    try:
        await context.store.transact(write)
    except InvalidTransitionError as exc:
        raise HttpError(str(exc), 409) from exc


# --- rules ----------------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class RuleView:
    """A rule as it is here: its severity, how often it rejected of late, and how many orders it holds now."""

    rule: Rule
    severity: str
    is_changed: bool
    hits: int
    holds: int
    is_stopped: bool


@router.get("/rules")
async def show_rules(user: Viewer, context: Context, renderer: Renderer, flash: Flash) -> Response:
    """Every rule, what it does here, and how often it did of late."""
    hits = await context.queries.rule_hits(since=context.clock.now() - timedelta(days=_HITS_DAYS))
    held = {each.key.subject: each.count for each in await renderer.groups(user) if each.key.condition.value == "orders.held"}
    overview = await context.queries.overview(now=context.clock.now())
    stopped = {each.subject for each in _conditions_about(context, overview, "rule")}
    views = [
        RuleView(
            rule=each,
            severity=context.rule_severities.get(each.id, each.severity.value),
            is_changed=context.rule_severities.get(each.id, each.severity.value) != each.severity.value,
            hits=hits.get(each.id, 0),
            holds=held.get(each.id, 0),
            is_stopped=each.id in stopped,
        )
        for each in RULES
    ]
    return await renderer.render_page("rules.html", user, views=views, days=_HITS_DAYS, flash=flash)


@router.get("/rules/{rule}")
async def show_rule_trial(rule: str, user: Viewer, context: Context, renderer: Renderer) -> Response:
    """What a rule has done to the newest orders, and so what another severity would have changed."""
    found = next((each for each in RULES if each.id == one_line(rule)), None)
    if found is None:
        raise HttpError("There is no such rule.", 404)
    return await renderer.render_page(
        "rule_trial.html",
        user,
        rule=found,
        severity=context.rule_severities.get(found.id, found.severity.value),
        allowed=sorted(each.value for each in found.allowed_severities),
        trial=await context.queries.rule_trial(found.id, newest=_TRIAL_ORDERS),
        effects=_EFFECTS,
        shown=_SHOWN_OF_TRIAL,
    )


_EFFECTS = {
    "refuse": marked("rejects the line or the order: the clinic reads why, and draws blood again"),
    "hold": marked("holds the order until a person has looked, or its cause has gone"),
    "warn": marked("lets the order pass, with a remark in its timeline"),
    "off": marked("is not applied at all"),
}
"""What each severity does."""
