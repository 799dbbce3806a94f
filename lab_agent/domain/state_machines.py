"""The states of order, line, report and effect, as tables.

The tables are the only place that knows which move is legal. An illegal move raises `IllegalMoveError` and changes nothing;
the pictures in the documentation are drawn from the same tables.

Sets of states that several of our modules ask about.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from lab_agent.errors import InvalidTransitionError


class OrderState(StrEnum):
    """Where an order stands."""

    SEEN = "seen"
    FETCHED = "fetched"
    HELD = "held"
    HANDED_OVER = "handed_over"
    REPORTED = "reported"
    REJECTED = "rejected"
    WITHDRAWN = "withdrawn"
    CLOSED = "closed"


class LineState(StrEnum):
    """Where an order line stands; `refused` and `cancelled` are Task status cancelled, `completed` is completed."""

    REQUESTED = "requested"
    HELD = "held"
    REJECTED = "rejected"
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


class JobState(StrEnum):
    """Where an effect (a row of the outbox) stands."""

    DUE = "due"
    IN_FLIGHT = "in_flight"
    OUTCOME_UNKNOWN = "outcome_unknown"
    NEEDS_REVIEW = "needs_review"
    DEAD_LETTER = "dead_letter"
    DONE = "done"
    OBSOLETE = "obsolete"
    DISMISSED = "dismissed"


StateT = TypeVar("StateT", bound=StrEnum)
Transitions = Mapping[StateT, frozenset[StateT]]


def _parse_transitions(states: type[StateT], table: str) -> Transitions[StateT]:
    """Read lines of the form `from -> to to to`; every state has a line."""
    rows = (line.split("->") for line in table.strip().splitlines())
    moves = {states(before.strip()): frozenset(states(word) for word in after.split()) for before, after in rows}
    return {state: moves[state] for state in states}


ORDER_TRANSITIONS = _parse_transitions(
    OrderState,
    """
    seen        -> fetched held rejected withdrawn closed
    held        -> fetched rejected withdrawn closed
    fetched     -> held handed_over rejected withdrawn
    handed_over -> reported withdrawn
    reported    -> handed_over closed withdrawn
    rejected     -> closed withdrawn
    withdrawn   -> closed
    closed      ->
    """,
)

LINE_TRANSITIONS = _parse_transitions(
    LineState,
    """
    requested -> held rejected accepted withdrawn
    held      -> rejected accepted withdrawn
    accepted  -> resulted completed cancelled withdrawn
    resulted  -> accepted completed cancelled withdrawn
    rejected   ->
    completed ->
    cancelled ->
    withdrawn ->
    """,
)

REPORT_TRANSITIONS = _parse_transitions(
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

JOB_TRANSITIONS = _parse_transitions(
    JobState,
    """
    due       -> in_flight obsolete
    in_flight -> done due outcome_unknown dead_letter needs_review obsolete
    outcome_unknown   -> done due needs_review dead_letter obsolete
    needs_review    -> due done obsolete dismissed
    dead_letter    -> due done obsolete dismissed
    done      ->
    obsolete  ->
    dismissed ->
    """,
)

OPEN_ORDERS = frozenset(OrderState) - {OrderState.CLOSED}
ENDED_LINES = frozenset({LineState.REJECTED, LineState.COMPLETED, LineState.CANCELLED, LineState.WITHDRAWN})
OPEN_JOBS = frozenset({JobState.DUE, JobState.IN_FLIGHT, JobState.OUTCOME_UNKNOWN, JobState.NEEDS_REVIEW, JobState.DEAD_LETTER})
BLOCKING_STATES = frozenset({JobState.DUE, JobState.IN_FLIGHT, JobState.OUTCOME_UNKNOWN, JobState.NEEDS_REVIEW})
"""A parked effect is settled as far as the machine goes: what comes after it in its lane goes on (law 9)."""
JOBS_NEEDING_OPERATOR = frozenset({JobState.NEEDS_REVIEW, JobState.DEAD_LETTER})
"""A person decides about them."""
REPORTS_NEEDING_OPERATOR = frozenset({ReportState.UNMATCHED, ReportState.UNMAPPED, ReportState.HELD})


def transition(table: Transitions[StateT], current: StateT, target: StateT) -> StateT:
    """Give `to` if the table allows the move from `now`; staying is no move. Raises `IllegalMoveError`."""
    if target == current or target in table[current]:
        return target
    raise InvalidTransitionError(f"{type(current).__name__}: {current.value} cannot become {target.value}; nothing was changed")


UNASSESSED_ORDERS = frozenset({OrderState.SEEN, OrderState.FETCHED, OrderState.HELD})
"""States of an order about which nothing is decided yet."""
LABEL_RELEASING = frozenset({LineState.REJECTED, LineState.WITHDRAWN})
"""States in which a line does not use its labels any more."""
AT_LABORATORY = frozenset({LineState.ACCEPTED, LineState.RESULTED, LineState.COMPLETED, LineState.CANCELLED})
"""States of a line that the laboratory was to perform."""
WITHDRAWN_LINES = frozenset({LineState.WITHDRAWN})
"""The state of a line that the partner withdrew; the laboratory may report on it all the same."""
CLAIMABLE_STATES = frozenset({JobState.DUE, JobState.OUTCOME_UNKNOWN})
"""Effects that an owner can be found for."""
IN_FLIGHT_STATES = frozenset({JobState.IN_FLIGHT})
"""Effects that may lapse."""
FINISHED_REPORTS = frozenset({ReportState.DELIVERED, ReportState.SUPERSEDED, ReportState.DISMISSED})
"""States of a report that need nothing more of its documents."""
