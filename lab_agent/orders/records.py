"""Records of orders, of their parts for each laboratory system, of lines and labels, and why an order is held, as a code.

Frozen; a change makes a new value. How the store keeps them in rows is its own business. Nothing here identifies a patient:
identification data is kept apart, encrypted (law 7).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from lab_agent.shared.ids import LineKey, OrderKey, ResourceId, WorkOrderKey, work_order_key
from lab_agent.shared.state_machines import (
    ENDED_LINES,
    LINE_TRANSITIONS,
    ORDER_TRANSITIONS,
    WORK_ORDER_TRANSITIONS,
    LineState,
    OrderState,
    WorkOrderState,
    transition,
)
from lab_agent.shared.values import Identifier


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


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkOrder:
    """The part of an order that goes to one laboratory system: its lines that are routed to the `adapter`.

    `accession` is the number that this laboratory system gave the order; `reason` says why it is in its state. `waits_since` is
    the time since when it is held back although another laboratory system has its part; None where it is not.
    """

    order: OrderKey
    adapter: str
    state: WorkOrderState = WorkOrderState.ACCEPTED
    changed_at: datetime
    accession: str | None = None
    reason: str | None = None
    waits_since: datetime | None = None

    @property
    def key(self) -> WorkOrderKey:
        """What the identifiers of its reports begin with: two laboratory systems may give the same report id for one order."""
        return work_order_key(self.order, self.adapter)

    def transition_to(self, state: WorkOrderState, now: datetime, reason: str | None = None) -> WorkOrder:
        """Move to `state`. Raises `InvalidTransitionError`."""
        moved = transition(WORK_ORDER_TRANSITIONS, self.state, state)
        return replace(self, state=moved, changed_at=now, reason=reason, waits_since=None)


def route_line(line: LineRecord, adapter: str) -> LineRecord:
    """Give a line to a laboratory system. The number of another one does not go with it: it may be somebody else's there."""
    return replace(line, adapter=adapter, accession=line.accession if line.adapter == adapter else None)


class HoldCause(StrEnum):
    """What holds an order besides a rule. Its words are in `shared/conditions/orders_and_results.py`."""

    UNREADABLE = "unreadable"  # its resources, or its Tasks, cannot be read
    MAKES_SERVICE_PAUSE = "makes_service_pause"  # reading it makes the service ask everybody to wait
    LINES_DIFFER = "lines_differ"  # two lists of its line Tasks are never equal
    SEARCH_NOT_FILTERED = "search_not_filtered"  # the answers hold what was not asked for
    NOT_REQUESTED = "not_requested"  # somebody else has put it on hold, or works on it
    OFFERED_AGAIN = "offered_again"  # it came back after its end, and it is not clear what is wanted
    IN_OTHER_ORDER = "in_other_order"  # another order has its line, or its test
    NO_CONTRACT = "no_contract"  # it comes under no contract of the settings
    NO_ROUTE = "no_route"  # no laboratory system can be chosen for an item
    RULE_STOPPED = "rule_stopped"  # the rule that would reject it rejected too many


@dataclass(frozen=True, slots=True)
class OrderHold:
    """That an order is held: the `cause` is the id of a rule or a `HoldCause`, and the `text` its sentence for people."""

    cause: str
    text: str
