"""The states of order, line, report and effect, as tables.

The tables are the only place that knows which move is legal. An illegal move raises `IllegalMoveError` and changes nothing;
the pictures in the documentation are drawn from the same tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from lab_agent.errors import IllegalMoveError


class OrderState(StrEnum):
    """Where an order stands."""

    SEEN = "seen"
    FETCHED = "fetched"
    HELD = "held"
    HANDED_OVER = "handed_over"
    REPORTED = "reported"
    REFUSED = "refused"
    WITHDRAWN = "withdrawn"
    CLOSED = "closed"


class LineState(StrEnum):
    """Where an order line stands; `refused` and `cancelled` are Task status cancelled, `completed` is completed."""

    REQUESTED = "requested"
    HELD = "held"
    REFUSED = "refused"
    ACCEPTED = "accepted"
    RESULTED = "resulted"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    WITHDRAWN = "withdrawn"


class ReportState(StrEnum):
    """Where one version of a report stands."""

    RECEIVED = "received"
    MATCHED = "matched"
    UNMATCHED = "unmatched"
    UNMAPPED = "unmapped"
    HELD = "held"
    DELIVERED = "delivered"
    SUPERSEDED = "superseded"
    DISMISSED = "dismissed"


class EffectState(StrEnum):
    """Where an effect (a row of the outbox) stands."""

    DUE = "due"
    IN_FLIGHT = "in_flight"
    UNKNOWN = "unknown"
    REVIEW = "review"
    PARKED = "parked"
    DONE = "done"
    OBSOLETE = "obsolete"
    DISMISSED = "dismissed"


ORDER_MOVES: Mapping[OrderState, frozenset[OrderState]] = {
    OrderState.SEEN: frozenset(
        {OrderState.FETCHED, OrderState.HELD, OrderState.REFUSED, OrderState.WITHDRAWN, OrderState.CLOSED}
    ),
    OrderState.HELD: frozenset({OrderState.FETCHED, OrderState.REFUSED, OrderState.WITHDRAWN}),
    OrderState.FETCHED: frozenset({OrderState.HELD, OrderState.HANDED_OVER, OrderState.REFUSED, OrderState.WITHDRAWN}),
    OrderState.HANDED_OVER: frozenset({OrderState.REPORTED, OrderState.WITHDRAWN}),
    OrderState.REPORTED: frozenset({OrderState.CLOSED, OrderState.WITHDRAWN}),
    OrderState.REFUSED: frozenset({OrderState.CLOSED, OrderState.WITHDRAWN}),
    OrderState.WITHDRAWN: frozenset({OrderState.CLOSED}),
    OrderState.CLOSED: frozenset(),
}

LINE_MOVES: Mapping[LineState, frozenset[LineState]] = {
    LineState.REQUESTED: frozenset({LineState.HELD, LineState.REFUSED, LineState.ACCEPTED, LineState.WITHDRAWN}),
    LineState.HELD: frozenset({LineState.REFUSED, LineState.ACCEPTED, LineState.WITHDRAWN}),
    LineState.ACCEPTED: frozenset({LineState.RESULTED, LineState.COMPLETED, LineState.CANCELLED, LineState.WITHDRAWN}),
    LineState.RESULTED: frozenset({LineState.COMPLETED, LineState.CANCELLED, LineState.WITHDRAWN}),
    LineState.REFUSED: frozenset(),
    LineState.COMPLETED: frozenset(),
    LineState.CANCELLED: frozenset(),
    LineState.WITHDRAWN: frozenset(),
}

REPORT_MOVES: Mapping[ReportState, frozenset[ReportState]] = {
    ReportState.RECEIVED: frozenset(
        {ReportState.MATCHED, ReportState.UNMATCHED, ReportState.UNMAPPED, ReportState.HELD, ReportState.SUPERSEDED}
    ),
    ReportState.UNMATCHED: frozenset(
        {ReportState.MATCHED, ReportState.UNMAPPED, ReportState.HELD, ReportState.SUPERSEDED, ReportState.DISMISSED}
    ),
    ReportState.UNMAPPED: frozenset(
        {ReportState.MATCHED, ReportState.UNMATCHED, ReportState.HELD, ReportState.SUPERSEDED, ReportState.DISMISSED}
    ),
    ReportState.HELD: frozenset(
        {ReportState.MATCHED, ReportState.UNMATCHED, ReportState.UNMAPPED, ReportState.SUPERSEDED, ReportState.DISMISSED}
    ),
    ReportState.MATCHED: frozenset({ReportState.DELIVERED, ReportState.SUPERSEDED, ReportState.HELD}),
    ReportState.DELIVERED: frozenset({ReportState.SUPERSEDED}),
    ReportState.SUPERSEDED: frozenset(),
    ReportState.DISMISSED: frozenset(),
}

EFFECT_MOVES: Mapping[EffectState, frozenset[EffectState]] = {
    EffectState.DUE: frozenset({EffectState.IN_FLIGHT, EffectState.OBSOLETE}),
    EffectState.IN_FLIGHT: frozenset(
        {EffectState.DONE, EffectState.DUE, EffectState.UNKNOWN, EffectState.PARKED, EffectState.REVIEW, EffectState.OBSOLETE}
    ),
    EffectState.UNKNOWN: frozenset({EffectState.DONE, EffectState.DUE, EffectState.REVIEW, EffectState.PARKED}),
    EffectState.REVIEW: frozenset({EffectState.DUE, EffectState.DONE, EffectState.DISMISSED}),
    EffectState.PARKED: frozenset({EffectState.DUE, EffectState.DONE, EffectState.DISMISSED}),
    EffectState.DONE: frozenset(),
    EffectState.OBSOLETE: frozenset(),
    EffectState.DISMISSED: frozenset(),
}

OPEN_ORDERS = frozenset(O) - {OrderState.CLOSED}
ENDED_LINES = frozenset({LineState.REFUSED, LineState.COMPLETED, LineState.CANCELLED, LineState.WITHDRAWN})
OPEN_EFFECTS = frozenset({EffectState.DUE, EffectState.IN_FLIGHT, EffectState.UNKNOWN, EffectState.REVIEW, EffectState.PARKED})
LANE_BLOCKING = frozenset({EffectState.DUE, EffectState.IN_FLIGHT, EffectState.UNKNOWN, EffectState.REVIEW})
"""A parked effect is settled as far as the machine goes: what comes after it in its lane goes on (law 9)."""
WAITING_REPORTS = frozenset({ReportState.UNMATCHED, ReportState.UNMAPPED, ReportState.HELD})

S = TypeVar("S", bound=StrEnum)


def move(table: Mapping[S, frozenset[S]], now: S, to: S) -> S:
    """Give `to` if the table allows the move from `now`; staying is no move. Raises `IllegalMoveError`."""
    if to == now or to in table[now]:
        return to
    raise IllegalMoveError(f"{type(now).__name__}: {now.value} cannot become {to.value}; nothing was changed")
