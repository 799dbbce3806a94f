"""The records of orders, their lines and labels, alerts and events. Frozen; a change makes a new value.

Workflow and store exchange these records; how the store keeps them in rows is its own business. Nothing here identifies a
patient: identification data is kept apart, encrypted (law 7).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from lab_agent.domain.ids import LineKey, OrderKey, ResourceId
from lab_agent.domain.order_holds import OrderHold
from lab_agent.domain.state_machines import (
    ENDED_LINES,
    LINE_TRANSITIONS,
    ORDER_TRANSITIONS,
    LineState,
    OrderState,
    transition,
)
from lab_agent.domain.values import Identifier


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderRecord:
    """An order.

    `seen_lines` are the line Task ids with their statuses, as the last part-of answer had them (an order is assessed after two
    equal ones). `received` is the order as fetched, without identification data; `lab_order` the part of `LabOrder` that
    identifies nobody; both are JSON. `released_findings` are digests of the findings whose hold an operator has overridden.
    `reason` says why it is in its state. `sent_statuses` are the
    statuses that we ever *sent* for the order-level Task, as with lines. `ended_as` is the status with which the order-level
    Task ended, whoever set it; None while it is open, or was left alone. A closed order is checked once more at `recheck_at`.
    `reopened` counts how often the order was taken up again after a decision. `unreadable_since` is the time since when it
    could not be read whole, although the service answers; None once it could.

    While it is held, `held_since` is since when, whatever has held it meanwhile, and `hold_cause` the code of what holds it now:
    the id of a rule, or a `HoldCause`. `task_unreadable_since` is the time since when the Task of a decided order cannot be read.
    """

    key: OrderKey
    task_id: ResourceId
    state: OrderState = OrderState.SEEN
    seen_at: datetime
    changed_at: datetime
    contract: str | None = None
    requisition: Identifier | None = None
    counterparty: str | None = None
    patient_reference: str | None = None
    released_findings: tuple[str, ...] = ()
    expected_at: datetime | None = None
    reason: str | None = None
    seen_lines: tuple[str, ...] | None = None
    received: bytes | None = None
    lab_order: bytes | None = None
    sent_statuses: tuple[str, ...] = ()
    ended_as: str | None = None
    recheck_at: datetime | None = None
    reopened: int = 0
    unreadable_since: datetime | None = None
    held_since: datetime | None = None
    hold_cause: str | None = None
    task_unreadable_since: datetime | None = None

    def transition_to(self, state: OrderState, now: datetime, reason: str | None = None) -> OrderRecord:
        """Move to `state`. Raises `InvalidTransitionError`, and `ValueError` for the held one, which needs a cause: `hold`."""
        if state is OrderState.HELD:
            raise ValueError("an order is held by `hold`, with a cause")
        moved = replace(self, state=transition(ORDER_TRANSITIONS, self.state, state), changed_at=now, reason=reason)
        unreadable_since = None if state is OrderState.CLOSED else self.task_unreadable_since
        return replace(moved, held_since=None, hold_cause=None, task_unreadable_since=unreadable_since)

    def hold(self, now: datetime, hold: OrderHold) -> OrderRecord:
        """Hold it, or hold it still. Raises `InvalidTransitionError`."""
        state = transition(ORDER_TRANSITIONS, self.state, OrderState.HELD)
        since = self.held_since or now
        return replace(self, state=state, changed_at=now, reason=hold.text, held_since=since, hold_cause=hold.cause)


@dataclass(frozen=True, slots=True, kw_only=True)
class LineRecord:
    """An order line: one ProcedureRequest and its Task.

    `adapter` names the laboratory system that it is routed to, once it was accepted: a route that changes later moves no line.
    `outputs` are the sentences that its Task has (or will have) in `output[].valueString`; `sent_statuses` every status that we
    ever *sent* for its Task, answered or not: those are ours, any other is somebody else's. `ended_as` is the status with which
    its Task ended, whoever set it: one that is requested after that was put back. `reopened` counts how often that happened.
    `task_unreadable_since` is the time since when its Task cannot be read; None once it can, or the line has ended.
    """

    key: LineKey
    order: OrderKey
    task_id: ResourceId
    procedure_request_id: ResourceId | None = None
    item: str | None = None
    state: LineState = LineState.REQUESTED
    changed_at: datetime
    adapter: str | None = None
    accession: str | None = None
    outputs: tuple[str, ...] = ()
    sent_statuses: tuple[str, ...] = ()
    ended_as: str | None = None
    reopened: int = 0
    task_unreadable_since: datetime | None = None

    def reopen(self, state: LineState, now: datetime) -> LineRecord:
        """Take up a line that had ended, as `state`; what we sent for its Task is not ours any more."""
        moved = self.transition_to(state, now, ())
        return replace(moved, sent_statuses=(), ended_as=None, reopened=self.reopened + 1)

    def transition_to(self, state: LineState, now: datetime, outputs: tuple[str, ...] | None = None) -> LineRecord:
        """Move to `state`. Raises `InvalidTransitionError`."""
        return replace(
            self,
            state=transition(LINE_TRANSITIONS, self.state, state),
            changed_at=now,
            outputs=self.outputs if outputs is None else outputs,
            task_unreadable_since=None if state in ENDED_LINES else self.task_unreadable_since,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelUse:
    """A barcode that an order uses: for which patient, in which line. A result that names only the barcode is matched by it."""

    barcode: str
    order: OrderKey
    line: LineKey
    specimen_id: str
    patient_reference: str
