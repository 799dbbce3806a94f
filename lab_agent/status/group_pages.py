"""What waits for a person, by cause: the groups, their members, and what is done to all of a group at once.

A group is decided about in two steps: a page that says what would be done and to how many, and the form on it that does it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Depends
from starlette.responses import RedirectResponse, Response

from lab_agent.operations.cause_groups import CauseGroup
from lab_agent.orders import held_group_actions, job_actions
from lab_agent.orders.group_actions import ActionOutcome, ActionPreview, GroupAction
from lab_agent.orders.held_group_actions import ResultGroup
from lab_agent.orders.job_actions import JobGroup, can_be_marked_done, validate_note
from lab_agent.queue.failure_causes import FailureCause
from lab_agent.shared.conditions.model import AlertKey, ConditionId
from lab_agent.shared.errors import InputError
from lab_agent.shared.logs import get_logger
from lab_agent.status.auth import HttpError, Operator, Viewer
from lab_agent.status.context import Context, Renderer, StatusContext, TemplateRenderer
from lab_agent.status.forms import Form, one_line
from lab_agent.status.pages import Flash
from lab_agent.status.paging import PageNumber, page_offset
from lab_agent.status.sessions import CurrentUser
from lab_agent.status.translation import gettext, marked
from lab_agent.store.read_models import AGE_LIMITS, AttentionItem, WaitingSpan

router = APIRouter()
_log = get_logger(__name__)

_SHOWN_AT_ONCE = 3
"""Members of a group that its line shows; a larger one has a page of its own."""
_GONE = marked("Nothing waits for this cause any more.")


async def get_group(renderer: Renderer, user: Viewer, cause: str = "") -> CauseGroup:
    """The group of the address. Raises `HttpError`."""
    return await _find_group(renderer, user, cause)


Group = Annotated[CauseGroup, Depends(get_group)]


async def _find_group(renderer: TemplateRenderer, user: CurrentUser, cause: str) -> CauseGroup:
    try:
        key = AlertKey.parse(one_line(cause))
    except ValueError as exc:
        raise HttpError("There is no such cause.", 404) from exc
    for group in await renderer.groups(user):
        if group.key == key:
            return group
    raise HttpError(_GONE, 404)


@router.get("/waiting")
async def show_groups(user: Viewer, context: Context, renderer: Renderer, flash: Flash) -> Response:
    """What waits for a person and what is tried again, by cause, longest first; of small groups the members, too."""
    groups = await renderer.groups(user)
    members: dict[AlertKey, tuple[AttentionItem, ...]] = {}
    for each in groups:
        if 0 < each.waiting <= _SHOWN_AT_ONCE:
            members[each.key] = (await context.queries.needs_attention(cause=each.key, limit=_SHOWN_AT_ONCE)).items
    return await renderer.render_page(
        "needs_attention.html",
        user,
        waiting_groups=[each for each in groups if each.waiting],
        retried_groups=[each for each in groups if not each.waiting],
        members=members,
        can_be_marked_done=can_be_marked_done,
        flash=flash,
    )


@router.get("/waiting/members")
async def show_members(
    user: Viewer, context: Context, renderer: Renderer, page: PageNumber, group: Group, flash: Flash
) -> Response:
    """The members of one group that wait for a person, longest first."""
    return await renderer.render_page(
        "cause_group.html",
        user,
        group=group,
        page=await context.queries.needs_attention(cause=group.key, offset=page_offset(page)),
        page_number=page,
        query_string=urlencode({"cause": str(group.key)}),
        can_be_marked_done=can_be_marked_done,
        flash=flash,
    )


@router.get("/failures")
async def show_failures(user: Viewer, context: Context, renderer: Renderer) -> Response:
    """What fails or waits for a person, by cause and by how long it has: each number leads to what it counts."""
    now = context.clock.now()
    rows = await context.queries.failures_by_age(now=now)
    actions = {each.key: each for each in await renderer.groups(user)}
    return await renderer.render_page(
        "failures.html",
        user,
        rows=rows,
        groups_by_key=actions,
        columns=_age_columns(),
        totals=[sum(numbers) for numbers in zip(*(row.counts for row in rows), strict=True)],
    )


def _age_columns() -> tuple[str, ...]:
    return (
        gettext("under 1 h"),
        gettext("1 to 3 h"),
        gettext("3 to 24 h"),
        gettext("1 to 3 d"),
        gettext("3 to 7 d"),
        gettext("over 7 d"),
    )


@router.get("/failures/members")
async def show_failures_of_age(
    user: Viewer, context: Context, renderer: Renderer, page: PageNumber, cause: str = "", age: str = ""
) -> Response:
    """What fails or waits for a cause, and has for as long as a column says; also what is tried again by itself."""
    try:
        key = AlertKey.parse(one_line(cause))
    except ValueError as exc:
        raise HttpError("There is no such cause.", 404) from exc
    column = int(age) if age in map(str, range(len(AGE_LIMITS) + 1)) else None
    now = context.clock.now()
    after = now - AGE_LIMITS[column] if column is not None and column < len(AGE_LIMITS) else None
    until = now - AGE_LIMITS[column - 1] if column else None
    groups = {each.key: each for each in await renderer.groups(user)}
    return await renderer.render_page(
        "failures_of_age.html",
        user,
        cause=key,
        group=groups.get(key),
        age_name=None if column is None else _age_columns()[column],
        page=await context.queries.needs_attention(
            cause=key, span=WaitingSpan(after=after, until=until), offset=page_offset(page)
        ),
        page_number=page,
        query_string=urlencode([("cause", str(key)), *([("age", str(column))] if column is not None else [])]),
        can_be_marked_done=can_be_marked_done,
    )


@dataclass(frozen=True, slots=True)
class Decision:
    """What is to be done to all of a group."""

    group: CauseGroup
    action: GroupAction

    @property
    def needs_review(self) -> bool:
        """Whether somebody has to have looked at each before: a result that is delivered is read by a clinic."""
        return self.action is GroupAction.RELEASE and self.group.is_of_results


async def get_action(action: str) -> GroupAction:
    """The action of the address. Raises `HttpError`."""
    try:
        return GroupAction(action)
    except ValueError as exc:
        raise HttpError("There is no such action.", 404) from exc


Action = Annotated[GroupAction, Depends(get_action)]


@router.get("/waiting/all/{action}")
async def preview_group_action(user: Operator, context: Context, renderer: Renderer, group: Group, action: Action) -> Response:
    """What an action would do to all of a group; nothing is done yet."""
    decision = _check(group, action)
    return await renderer.render_page(
        "group_action.html", user, decision=decision, group=group, action=action, preview=await _preview(context, decision)
    )


@router.post("/waiting/all/{action}")
async def decide_group(user: Operator, form: Form, context: Context, renderer: Renderer, action: Action) -> Response:
    """Do it to all of a group."""
    decision = _check(await _find_group(renderer, user, form.get("cause", "")), action)
    if decision.needs_review and form.get("reviewed") != "yes":
        raise HttpError("This delivers results that were held. Review them, and tick the box that says so.", 409)
    outcome = await _carry_out(context, decision, user.name, _read_note(decision, form))
    left = sum(each.number for each in outcome.left_out)
    _log.info("group decided", action="group_decided", alert=str(decision.group.key), count=outcome.done, by=user.name)
    query = urlencode({"flash": f"group-{_flash_name(decision)}", "done": outcome.done, "left": left})
    return RedirectResponse(f"/waiting?{query}", 303)


def _check(group: CauseGroup, action: GroupAction) -> Decision:
    if action not in group.actions:
        raise HttpError("This cannot be done to all that waits for this cause; decide about each.", 409)
    return Decision(group, action)


def _read_note(decision: Decision, form: Mapping[str, str]) -> str:
    if decision.action is GroupAction.RETRY:
        return ""
    try:
        return validate_note(one_line(form.get("note", "")))
    except InputError as exc:
        raise HttpError(str(exc), 422) from exc


def _flash_name(decision: Decision) -> str:
    is_assessment = decision.action is GroupAction.RETRY and not decision.group.is_of_jobs
    return "assess" if is_assessment else decision.action.value


def _job_group(key: AlertKey) -> JobGroup:
    return JobGroup(FailureCause(key.condition.value.removeprefix("jobs.")), key.subject or None)


async def _preview(context: StatusContext, decision: Decision) -> ActionPreview:
    key, action, store = decision.group.key, decision.action, context.store
    if decision.group.is_of_jobs:
        preview = job_actions.preview_retry if action is GroupAction.RETRY else job_actions.preview_dismissal
        return await preview(store, _job_group(key))
    if decision.group.is_of_results:
        return await held_group_actions.preview_results(store, ResultGroup.of_alert(key), action)
    assess = action is GroupAction.RETRY
    return await (held_group_actions.preview_assessment if assess else held_group_actions.preview_order_release)(
        store, key.subject
    )


async def _carry_out(context: StatusContext, decision: Decision, by: str, note: str) -> ActionOutcome:
    key, store, now = decision.group.key, context.store, context.clock.now()
    if decision.group.is_of_jobs:
        if decision.action is GroupAction.RETRY:
            return await job_actions.retry_group(store, _job_group(key), by=by, now=now)
        return await job_actions.dismiss_group(store, _job_group(key), by=by, note=note, now=now)
    if key.condition is ConditionId.ORDERS_HELD:
        if decision.action is GroupAction.RETRY:
            return await held_group_actions.assess_held_orders(store, key.subject, by=by, now=now)
        assess = context.assess_order
        return await held_group_actions.release_held_orders(store, key.subject, assess, by=by, note=note, now=now)
    if decision.action is GroupAction.DISMISS:
        return await held_group_actions.dismiss_results(store, ResultGroup.of_alert(key), by=by, note=note, now=now)
    matcher = context.create_matcher()
    return await held_group_actions.release_results(store, ResultGroup.of_alert(key), matcher, by=by, note=note, now=now)
