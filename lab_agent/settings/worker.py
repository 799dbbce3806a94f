"""When the worker does what, and how patient it is."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AwareDatetime, Field

from lab_agent.settings.base import Seconds, SettingsGroup


class WorkerSettings(SettingsGroup):
    """The daemon `lab-agent run`."""

    mode: Literal["normal", "observe"] = "normal"
    """`observe` fetches and judges orders, and writes nothing to the service or the LIS."""
    ignore_before: AwareDatetime | None = None
    """Orders created before this time are left alone: the backlog at a first start.
    With an offset, as in 2026-01-31T00:00:00+01:00."""
    poll_interval: Seconds = 15.0
    """Seconds between two looks for new orders while orders come in."""
    poll_longest: Seconds = 120.0
    """The interval grows up to this many seconds while nothing new comes in."""
    second_look_after: Seconds = 5.0
    """Seconds between the first list of an order's Tasks and the second; the order is judged when both are equal."""
    lease: Seconds = 180.0
    """Seconds for which a worker holds what it has claimed. Must be longer than one call to the service or to a LIS may take."""
    concurrency: Annotated[int, Field(ge=1, le=256)] = 8
    """How many effects of one kind (handovers, uploads, Task updates) are worked on side by side."""
    acknowledge_status: Literal["received", "accepted", "ready", "in-progress", "on-hold"] | None = None
    """Task status to set when the laboratory takes a line. Without it Tasks stay `requested` until they end."""
    on_line_error: Literal["cancel_line", "cancel_order"] = "cancel_line"
    """What a refused line does to the others: `cancel_line` leaves them alone, `cancel_order` refuses the whole order."""
    reconcile_interval: Seconds = 300.0
    """Seconds between two rounds over the open orders, looking for withdrawn ones."""
    hold_retry: Seconds = 300.0
    """Seconds after which a held order is judged again by itself."""
    unreadable_after: Seconds = 900.0
    """Seconds for which an unreadable resource of an order is tried again before the order is held with an alert."""
    unreadable_refuse_after: Seconds | None = None
    """Seconds after which an order with an unreadable resource is refused. Left out, it is held until it can be read."""
    drain_timeout: Seconds = 30.0
    """Seconds that running work has to end after a stop was asked for."""
    backoff_first: Seconds = 2.0
    """Ceiling in seconds of the first wait after a failure; it doubles with each try."""
    backoff_longest: Seconds = 300.0
    """Ceiling in seconds of the longest wait between two tries."""
