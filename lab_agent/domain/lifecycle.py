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


S = TypeVar("S", bound=StrEnum)
Moves = Mapping[S, frozenset[S]]


def _moves(states: type[S], table: str) -> Moves[S]:
    """Read lines of the form `from -> to to to`; every state has a line."""
    rows = (line.split("->") for line in table.strip().splitlines())
    moves = {states(before.strip()): frozenset(states(word) for word in after.split()) for before, after in rows}
    return {state: moves[state] for state in states}


ORDER_MOVES = _moves(
    OrderState,
    """
    seen        -> fetched held refused withdrawn closed
    held        -> fetched refused withdrawn closed
    fetched     -> held handed_over refused withdrawn
    handed_over -> reported withdrawn
    reported    -> handed_over closed withdrawn
    refused     -> closed withdrawn
    withdrawn   -> closed
    closed      ->
    """,
)

LINE_MOVES = _moves(
    LineState,
    """
    requested -> held refused accepted withdrawn
    held      -> refused accepted withdrawn
    accepted  -> resulted completed cancelled withdrawn
    resulted  -> accepted completed cancelled withdrawn
    refused   ->
    completed ->
    cancelled ->
    withdrawn ->
    """,
)

REPORT_MOVES = _moves(
    ReportState,
    """
    received   -> matched unmatched unmapped held superseded
    unmatched  -> matched unmapped held superseded dismissed
    unmapped   -> matched unmatched held superseded dismissed
    held       -> matched unmatched unmapped superseded dismissed
    matched    -> delivered superseded held unmapped dismissed
    delivered  -> superseded
    superseded ->
    dismissed  ->
    """,
)

EFFECT_MOVES = _moves(
    EffectState,
    """
    due       -> in_flight obsolete
    in_flight -> done due unknown parked review obsolete
    unknown   -> done due review parked obsolete
    review    -> due done obsolete dismissed
    parked    -> due done obsolete dismissed
    done      ->
    obsolete  ->
    dismissed ->
    """,
)

OPEN_ORDERS = frozenset(OrderState) - {OrderState.CLOSED}
ENDED_LINES = frozenset({LineState.REFUSED, LineState.COMPLETED, LineState.CANCELLED, LineState.WITHDRAWN})
OPEN_EFFECTS = frozenset({EffectState.DUE, EffectState.IN_FLIGHT, EffectState.UNKNOWN, EffectState.REVIEW, EffectState.PARKED})
LANE_BLOCKING = frozenset({EffectState.DUE, EffectState.IN_FLIGHT, EffectState.UNKNOWN, EffectState.REVIEW})
"""A parked effect is settled as far as the machine goes: what comes after it in its lane goes on (law 9)."""
ASKING_EFFECTS = frozenset({EffectState.REVIEW, EffectState.PARKED})
"""A person decides about them."""
WAITING_REPORTS = frozenset({ReportState.UNMATCHED, ReportState.UNMAPPED, ReportState.HELD})


def move(table: Moves[S], now: S, to: S) -> S:
    """Give `to` if the table allows the move from `now`; staying is no move. Raises `IllegalMoveError`."""
    if to == now or to in table[now]:
        return to
    raise IllegalMoveError(f"{type(now).__name__}: {now.value} cannot become {to.value}; nothing was changed")
