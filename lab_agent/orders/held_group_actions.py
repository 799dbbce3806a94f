"""What a person decides about all held orders of a cause, and all results that wait for one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from lab_agent.orders.audit_trail import note_decision
from lab_agent.orders.group_actions import (
    PORTION,
    ActionOutcome,
    ActionPreview,
    GroupAction,
    LeftOut,
    OutcomeCounter,
    change_in_portions,
)
from lab_agent.orders.group_alerts import held_orders_alert_key
from lab_agent.orders.job_actions import validate_note
from lab_agent.orders.order_actions import make_assessment_due, override_holds
from lab_agent.orders.order_assessment import AssessedOrder
from lab_agent.orders.records import HoldCause, OrderRecord
from lab_agent.results.records import HoldReason, ReportRecord, result_alert_key
from lab_agent.results.result_actions import dismiss_result, release_result
from lab_agent.results.result_matching import ReportMatcher
from lab_agent.rules.engine import RELEASABLE_RULES, RULES, RULES_RELEASED_TOGETHER
from lab_agent.rules.rule import Finding
from lab_agent.shared.conditions.model import AlertKey
from lab_agent.shared.errors import InputError, InvalidTransitionError, LabAgentError, StoreUnreachableError, did_you_mean
from lab_agent.shared.ids import OrderKey
from lab_agent.shared.state_machines import REPORTS_NEEDING_OPERATOR, OrderState, ReportState
from lab_agent.store.audit_records import AuditAction
from lab_agent.store.event_records import Event
from lab_agent.store.unit_of_work import Store, UnitOfWork

AssessOrder = Callable[[OrderKey], Awaitable[AssessedOrder]]
"""Assesses an order as it was last fetched (`order_assessment.reassess`)."""
_HOLD_CAUSES = frozenset(HoldCause) | {each.id for each in RULES}
_NOT_HELD = "not held for this any more"
_ASSESSED_ALREADY = "being assessed already"
_NOT_RELEASABLE = "held by no rule that a person may override: their cause has to be mended, or they be refused"
_LOOK_AT_ORDERS = "the tubes of each have to be looked at: release each by itself"
_NEVER_RELEASED_TOGETHER = {
    HoldReason.PATIENT_MISMATCH: "the patient of each has to be compared: release or dismiss each by itself",
    HoldReason.WAITS_FOR_VERSION: "they follow by themselves, once the version that each waits for is settled",
    HoldReason.DEFECT: "no release sends what cannot be sent in this form: have them sent again, or dismiss them",
}
"""Results of which each needs a look, or that no release sends."""


def can_release_orders(cause: str) -> bool:
    """Whether a person may release all orders at once that are held for this cause."""
    return cause in RULES_RELEASED_TOGETHER


def check_hold_cause(cause: str) -> None:
    """Raise `InputError` for a cause that holds no orders."""
    if cause not in _HOLD_CAUSES:
        hint = did_you_mean(cause, _HOLD_CAUSES) or "`lab-agent status` lists what waits"
        raise InputError(f"There is no cause {cause!r} of held orders; {hint}. Nothing was changed.")


async def preview_assessment(store: Store, cause: str) -> ActionPreview:
    """Say what assessing the held orders of a cause now does. Nothing is written. Raises `InputError` for an unknown cause."""
    check_hold_cause(cause)
    number = await _count_held(store, cause)
    does = (f"{number} × order: each is read again and assessed now; those that are right by now go on",) if number else ()
    return ActionPreview(GroupAction.RETRY, number, does)


async def assess_held_orders(store: Store, cause: str, *, by: str, now: datetime) -> ActionOutcome:
    """Have the held orders of a cause assessed now. Raises `StoreUnreachableError`."""

    def change(uow: UnitOfWork, seen: OrderRecord) -> str | None:
        if not _is_held_for(uow.orders.get_for_update(seen.key), cause):
            return _NOT_HELD
        if not make_assessment_due(uow, seen.key, now):
            return _ASSESSED_ALREADY
        text = f"to be assessed now, with all that are held for {cause}"
        event = Event(order=seen.key, at=now, action="operator", text=text, by=by)
        note_decision(uow, event, AuditAction.ORDER_REASSESSED, details={"cause": cause})
        return None

    return await change_in_portions(store, lambda uow, last: _load_held(uow, cause, last), change)


async def preview_order_release(store: Store, cause: str) -> ActionPreview:
    """Say what releasing the held orders of a cause does. Nothing is written. Raises `InputError` for an unknown cause."""
    check_hold_cause(cause)
    number = await _count_held(store, cause)
    if not can_release_orders(cause):
        left_out = (LeftOut(number, _why_not_released(cause)),) if number else ()
        return ActionPreview(GroupAction.RELEASE, 0, (), left_out, needs_note=True)
    does = (f"{number} × order: each goes on in spite of {cause}, unless something else holds it; others of its rules stay",)
    return ActionPreview(GroupAction.RELEASE, number, does if number else (), needs_note=True)


async def release_held_orders(
    store: Store, cause: str, assess: AssessOrder, *, by: str, note: str, now: datetime
) -> ActionOutcome:
    """Release the held orders of a cause: what its rule finds in each now is overridden, and nothing else.

    Raises `InputError` for an empty or too long note, or for a cause that cannot be released.
    """
    note = validate_note(note)
    if not can_release_orders(cause):
        raise InputError(f"orders held for {cause} cannot be released together: {_why_not_released(cause)}. Nothing was changed.")
    holds: dict[OrderKey, list[Finding] | str] = {}

    async def prepare(portion: Sequence[OrderRecord]) -> None:
        holds.clear()
        for order in portion:
            holds[order.key] = await _find_holds(assess, order.key, cause)

    def change(uow: UnitOfWork, seen: OrderRecord) -> str | None:
        found = holds[seen.key]
        if not _is_held_for(uow.orders.get_for_update(seen.key), cause) or not found:
            return _NOT_HELD
        if isinstance(found, str):
            return found
        override_holds(uow, seen.key, found, note, by=by, now=now)
        return None

    return await change_in_portions(store, lambda uow, last: _load_held(uow, cause, last), change, prepare=prepare)


@dataclass(frozen=True, slots=True)
class ResultGroup:
    """All results that wait in a state, of held ones for one reason. As text it is that reason, or the state."""

    state: ReportState
    hold_reason: HoldReason | None = None

    @classmethod
    def parse(cls, cause: str) -> ResultGroup:
        """Read it. Raises `InputError`."""
        if cause in {ReportState.UNMATCHED.value, ReportState.UNMAPPED.value}:
            return cls(ReportState(cause))
        if cause in set(HoldReason):
            return cls(ReportState.HELD, HoldReason(cause))
        known = sorted([*HoldReason, ReportState.UNMATCHED, ReportState.UNMAPPED])
        hint = did_you_mean(cause, known) or f"there are {', '.join(known)}"
        raise InputError(f"There is no cause {cause!r} of waiting results; {hint}. Nothing was changed.")

    @classmethod
    def of_alert(cls, key: AlertKey) -> ResultGroup:
        """The results that an alert is about (`result_alert_key`)."""
        return cls.parse(key.subject or key.condition.value.removeprefix("results."))

    def __str__(self) -> str:
        return (self.hold_reason or self.state).value


def why_results_stay(group: ResultGroup, action: GroupAction) -> str | None:
    """Why the results of a group are not released or dismissed together; None where they may be."""
    if action is GroupAction.DISMISS and group.hold_reason is not HoldReason.WAITS_FOR_VERSION:
        return None
    return None if group.hold_reason is None else _NEVER_RELEASED_TOGETHER.get(group.hold_reason)


async def preview_results(store: Store, group: ResultGroup, action: GroupAction) -> ActionPreview:
    """Say what releasing or dismissing the waiting results of a group does. Nothing is written."""
    number = await _count_waiting(store, result_alert_key(group.state, group.hold_reason))
    why = why_results_stay(group, action)
    if why is not None:
        return ActionPreview(action, 0, (), (LeftOut(number, why),) if number else (), needs_note=True)
    what = "delivered anyway, if it is formally valid" if action is GroupAction.RELEASE else "never delivered"
    return ActionPreview(action, number, (f"{number} × result: each is {what}",) if number else (), needs_note=True)


async def release_results(
    store: Store, group: ResultGroup, matcher: ReportMatcher, *, by: str, note: str, now: datetime
) -> ActionOutcome:
    """Release the results of a group, each as if it were released alone.

    Raises `InputError` for an empty or too long note, or for a group that is not released together.
    """
    note = validate_note(note)
    _check_decidable(group, GroupAction.RELEASE)

    async def release(report: ReportRecord) -> str | None:
        decided = await release_result(store, matcher, report.key, by=by, note=note, now=now, seen_changed_at=report.changed_at)
        return None if decided.moved else f"still waiting: {decided.report.state.value}"

    return await _decide_each(store, group, release)


async def dismiss_results(store: Store, group: ResultGroup, *, by: str, note: str, now: datetime) -> ActionOutcome:
    """Dismiss the results of a group, each as if it were dismissed alone. Raises `InputError` as `release_results` does."""
    note = validate_note(note)
    _check_decidable(group, GroupAction.DISMISS)

    async def dismiss(report: ReportRecord) -> str | None:
        await dismiss_result(store, report.key, by=by, note=note, now=now, seen_changed_at=report.changed_at)
        return None

    return await _decide_each(store, group, dismiss)


def _check_decidable(group: ResultGroup, action: GroupAction) -> None:
    why = why_results_stay(group, action)
    if why is not None:
        raise InputError(f"results that wait for {group} are not decided about together: {why}. Nothing was changed.")


async def _decide_each(
    store: Store, group: ResultGroup, decide: Callable[[ReportRecord], Awaitable[str | None]]
) -> ActionOutcome:
    """Decide about each result in a unit of work of its own: what follows from one (its next version goes) the next one sees."""
    counter, after = OutcomeCounter(), 0
    while portion := await store.run_read_only(lambda uow, after=after: _load_waiting(uow, group, after)):  # type: ignore[misc]
        for report in portion:
            try:
                reason = await decide(report)
            except StoreUnreachableError:
                raise
            except InvalidTransitionError:
                reason = "changed meanwhile"
            except LabAgentError as exc:
                reason = str(exc)
            if reason is None:
                counter.done += 1
            else:
                counter.leave_out(reason)
        after = portion[-1].sequence
    return counter.outcome()


async def _find_holds(assess: AssessOrder, key: OrderKey, cause: str) -> list[Finding] | str:
    try:
        assessed = await assess(key)
    except StoreUnreachableError:
        raise
    except LabAgentError as exc:
        return str(exc)
    return [each for each in assessed.assessment.holds if each.rule == cause]


def _why_not_released(cause: str) -> str:
    return _LOOK_AT_ORDERS if cause in RELEASABLE_RULES else _NOT_RELEASABLE


async def _count_held(store: Store, cause: str) -> int:
    return await _count_waiting(store, held_orders_alert_key(cause))


async def _count_waiting(store: Store, key: AlertKey) -> int:
    groups = await store.run_read_only(lambda uow: uow.waiting_groups())
    return next((each.count for each in groups if each.key == key), 0)


def _is_held_for(order: OrderRecord, cause: str) -> bool:
    return order.state is OrderState.HELD and order.hold_cause == cause


def _load_held(uow: UnitOfWork, cause: str, last: OrderRecord | None) -> Sequence[OrderRecord]:
    return uow.orders.held(cause, after=None if last is None else last.key, limit=PORTION)


def _load_waiting(uow: UnitOfWork, group: ResultGroup, after: int) -> Sequence[ReportRecord]:
    found = uow.reports.waiting(group.state, group.hold_reason, after=after, limit=PORTION)
    return [each for each in found if each.state in REPORTS_NEEDING_OPERATOR]
