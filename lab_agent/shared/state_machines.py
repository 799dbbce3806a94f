"""The states of order, line, report and job, their transition tables, and the sets of states that several modules ask about.

The tables alone know which transition is legal: any other raises `InvalidTransitionError` and changes nothing. The diagrams in
the documentation are drawn from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from lab_agent.shared.errors import InvalidTransitionError


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


class WorkOrderState(StrEnum):
    """Where the part of an order stands that goes to one laboratory system."""

    ACCEPTED = "accepted"
    HANDED_OVER = "handed_over"
    CANCELLED = "cancelled"


class LineState(StrEnum):
    """Where an order line stands; the Task of a `rejected` or `cancelled` line is cancelled."""

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
    """Where a job (a row of the outbox) stands."""

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
    targets = {states(before.strip()): frozenset(states(word) for word in after.split()) for before, after in rows}
    return {state: targets[state] for state in states}


ORDER_TRANSITIONS = _parse_transitions(
    OrderState,
    """
    seen        -> fetched held rejected withdrawn closed
    held        -> fetched handed_over rejected withdrawn closed
    fetched     -> held handed_over rejected withdrawn
    handed_over -> reported withdrawn
    reported    -> handed_over closed withdrawn
    rejected    -> seen closed withdrawn
    withdrawn   -> closed
    closed      -> seen held handed_over
    """,
)

WORK_ORDER_TRANSITIONS = _parse_transitions(
    WorkOrderState,
    """
    accepted    -> handed_over cancelled
    handed_over ->
    cancelled   -> accepted handed_over
    """,
)

LINE_TRANSITIONS = _parse_transitions(
    LineState,
    """
    requested -> held rejected accepted withdrawn
    held      -> rejected accepted withdrawn
    accepted  -> requested resulted completed cancelled withdrawn
    resulted  -> accepted completed cancelled withdrawn
    rejected  -> requested held
    completed -> held resulted
    cancelled -> requested held
    withdrawn -> requested held
    """,
)

REPORT_TRANSITIONS = _parse_transitions(
    ReportState,
    """
    received   -> matched unmatched unmapped held superseded dismissed
    unmatched  -> matched unmapped held superseded dismissed
    unmapped   -> matched unmatched held superseded dismissed
    held       -> matched unmatched unmapped superseded dismissed
    matched    -> delivered superseded held unmapped dismissed
    delivered  -> superseded matched
    superseded ->
    dismissed  ->
    """,
)

JOB_TRANSITIONS = _parse_transitions(
    JobState,
    """
    due             -> in_flight obsolete
    in_flight       -> done due outcome_unknown dead_letter needs_review obsolete
    outcome_unknown -> done due needs_review dead_letter obsolete
    needs_review    -> due outcome_unknown done obsolete dismissed
    dead_letter     -> due done obsolete dismissed
    done            ->
    obsolete        ->
    dismissed       ->
    """,
)


def transition(table: Transitions[StateT], current: StateT, target: StateT) -> StateT:
    """Give `target` if the table allows it after `current`; staying is no transition. Raises `InvalidTransitionError`."""
    if target == current or target in table[current]:
        return target
    raise InvalidTransitionError(f"{type(current).__name__}: {current.value} cannot become {target.value}; nothing was changed")


OPEN_ORDERS = frozenset(OrderState) - {OrderState.CLOSED}
UNDECIDED_ORDERS = frozenset({OrderState.SEEN, OrderState.HELD})
"""Orders whose lines are neither accepted nor rejected yet."""
ORDERS_BEFORE_HANDOVER = UNDECIDED_ORDERS | {OrderState.FETCHED}

ORDERS_AWAITING_RESULTS = frozenset({OrderState.FETCHED, OrderState.HANDED_OVER, OrderState.REPORTED})
"""Orders that were accepted, and of which the laboratory has not reported everything yet."""

ENDED_LINES = frozenset({LineState.REJECTED, LineState.COMPLETED, LineState.CANCELLED, LineState.WITHDRAWN})
UNDONE_LINES = ENDED_LINES - {LineState.COMPLETED}
"""Lines that ended without a result: their ProcedureRequests may be ordered again."""
LINES_WITH_RESULT = frozenset({LineState.RESULTED, LineState.COMPLETED})
"""Lines with a final result on the service, or on its way there."""
OPEN_LINES = frozenset(LineState) - ENDED_LINES
WAITING_LINES = frozenset({LineState.ACCEPTED, LineState.RESULTED})
"""Lines of which the laboratory has not reported everything yet, so that its system is still needed."""
AT_LABORATORY = LINES_WITH_RESULT | {LineState.ACCEPTED, LineState.CANCELLED}
"""Lines that the laboratory was to perform."""
WITHDRAWN_LINES = frozenset({LineState.WITHDRAWN})
"""Lines that the partner or the service withdrew; the laboratory may report on them all the same."""
LABEL_RELEASING = frozenset({LineState.REJECTED, LineState.WITHDRAWN})
"""Lines that do not use their labels any more."""

REPORTS_NEEDING_OPERATOR = frozenset({ReportState.UNMATCHED, ReportState.UNMAPPED, ReportState.HELD})
REPORTS_OF_THEIR_ORDER = frozenset({ReportState.MATCHED, ReportState.DELIVERED, ReportState.SUPERSEDED})
"""Reports that went to their order, or are on the way: a further version of one is of the same order."""
FINISHED_REPORTS = frozenset({ReportState.DELIVERED, ReportState.SUPERSEDED, ReportState.DISMISSED})
"""Reports whose documents are not needed any more."""
UNFINISHED_REPORTS = frozenset(ReportState) - FINISHED_REPORTS

JOBS_NEEDING_OPERATOR = frozenset({JobState.NEEDS_REVIEW, JobState.DEAD_LETTER})
OPEN_JOBS = JOBS_NEEDING_OPERATOR | {JobState.DUE, JobState.IN_FLIGHT, JobState.OUTCOME_UNKNOWN}
BLOCKING_STATES = OPEN_JOBS - {JobState.DEAD_LETTER}
"""Jobs that later ones with the same ordering key wait for. A dead letter blocks nothing: the others go on (law 9)."""
CLAIMABLE_STATES = frozenset({JobState.DUE, JobState.OUTCOME_UNKNOWN})
IN_FLIGHT_STATES = frozenset({JobState.IN_FLIGHT})
"""Jobs whose lease may expire."""
