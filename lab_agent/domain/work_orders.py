"""The part of an order that goes to one laboratory system: handed over, numbered, cancelled and reported on its own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from lab_agent.domain.ids import OrderKey, WorkOrderKey, work_order_key
from lab_agent.domain.records import LineRecord
from lab_agent.domain.state_machines import WORK_ORDER_TRANSITIONS, WorkOrderState, transition


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
