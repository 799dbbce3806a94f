"""The state tables: what the design says may happen may happen, and nothing else."""

from __future__ import annotations

from enum import StrEnum

import pytest

from lab_agent.shared import state_machines
from lab_agent.shared.errors import InvalidTransitionError
from lab_agent.shared.state_machines import (
    JOB_TRANSITIONS,
    LINE_TRANSITIONS,
    ORDER_TRANSITIONS,
    REPORT_TRANSITIONS,
    WORK_ORDER_TRANSITIONS,
    Transitions,
    transition,
)

LEGAL: dict[str, tuple[Transitions[StrEnum], str]] = {
    "order": (
        ORDER_TRANSITIONS,  # type: ignore[dict-item]
        """
                    seen fetched held handed_over reported rejected withdrawn closed
        seen        .    x       x    .           .        x        x         x
        fetched     .    .       x    x           .        x        x         .
        held        .    x       .    x           .        x        x         x
        handed_over .    .       .    .           x        .        x         .
        reported    .    .       .    x           .        .        x         x
        rejected    x    .       .    .           .        .        x         x
        withdrawn   .    .       .    .           .        .        .         x
        closed      x    .       x    x           .        .        .         .
        """,
    ),
    "part of an order": (
        WORK_ORDER_TRANSITIONS,  # type: ignore[dict-item]
        """
                    accepted handed_over cancelled
        accepted    .        x           x
        handed_over .        .           .
        cancelled   x        x           .
        """,
    ),
    "line": (
        LINE_TRANSITIONS,  # type: ignore[dict-item]
        """
                  requested held rejected accepted resulted completed cancelled withdrawn
        requested .         x    x        x        .        .         .         x
        held      .         .    x        x        .        .         .         x
        rejected  x         x    .        .        .        .         .         .
        accepted  x         .    .        .        x        x         x         x
        resulted  .         .    .        x        .        x         x         x
        completed .         x    .        .        x        .         .         .
        cancelled x         x    .        .        .        .         .         .
        withdrawn x         x    .        .        .        .         .         .
        """,
    ),
    "report": (
        REPORT_TRANSITIONS,  # type: ignore[dict-item]
        """
                   received matched unmatched unmapped held delivered superseded dismissed
        received   .        x       x         x        x    .         x          x
        matched    .        .       .         x        x    x         x          x
        unmatched  .        x       .         x        x    .         x          x
        unmapped   .        x       x         .        x    .         x          x
        held       .        x       x         x        .    .         x          x
        delivered  .        x       .         .        .    .         x          .
        superseded .        .       .         .        .    .         .          .
        dismissed  .        .       .         .        .    .         .          .
        """,
    ),
    "job": (
        JOB_TRANSITIONS,  # type: ignore[dict-item]
        """
                        due in_flight outcome_unknown needs_review dead_letter done obsolete dismissed
        due             .   x         .               .            .           .    x        .
        in_flight       x   .         x               x            x           x    x        .
        outcome_unknown x   .         .               x            x           x    x        .
        needs_review    x   .         x               .            .           x    x        x
        dead_letter     x   .         .               .            .           x    x        x
        done            .   .         .               .            .           .    .        .
        obsolete        .   .         .               .            .           .    .        .
        dismissed       .   .         .               .            .           .    .        .
        """,
    ),
}
"""Of each kind of state, the table, and which state (a row) may become which (a column).

A line that has ended is only held or assessed anew, one with a result is not: the laboratory must not get it twice by itself.
"""


@pytest.mark.parametrize("name", LEGAL)
def test_state_becomes_what_the_matrix_allows_and_nothing_else(name: str) -> None:
    """Staying is no transition."""
    table, matrix = LEGAL[name]
    states = type(next(iter(table)))
    header, *rows = [line.split() for line in matrix.strip().splitlines()]
    assert {row[0] for row in rows} == set(header) == {each.value for each in states} == {each.value for each in table}
    for now, *marks in rows:
        for to, mark in zip(header, marks, strict=True):
            if mark == "x" or now == to:
                assert transition(table, states(now), states(to)) is states(to)
            else:
                with pytest.raises(InvalidTransitionError, match=f"{now} cannot become {to}"):
                    transition(table, states(now), states(to))


@pytest.mark.parametrize(
    ("group", "states"),
    [
        ("OPEN_ORDERS", "seen fetched held handed_over reported rejected withdrawn"),
        ("UNDECIDED_ORDERS", "seen held"),
        ("ORDERS_BEFORE_HANDOVER", "seen held fetched"),
        ("ORDERS_AWAITING_RESULTS", "fetched handed_over reported"),
        ("ENDED_LINES", "rejected completed cancelled withdrawn"),
        ("UNDONE_LINES", "rejected cancelled withdrawn"),
        ("LINES_WITH_RESULT", "resulted completed"),
        ("OPEN_LINES", "requested held accepted resulted"),
        ("WAITING_LINES", "accepted resulted"),
        ("AT_LABORATORY", "accepted resulted completed cancelled"),
        ("WITHDRAWN_LINES", "withdrawn"),
        ("LABEL_RELEASING", "rejected withdrawn"),
        ("REPORTS_NEEDING_OPERATOR", "unmatched unmapped held"),
        ("REPORTS_OF_THEIR_ORDER", "matched delivered superseded"),
        ("FINISHED_REPORTS", "delivered superseded dismissed"),
        ("UNFINISHED_REPORTS", "received matched unmatched unmapped held"),
        ("JOBS_NEEDING_OPERATOR", "needs_review dead_letter"),
        ("OPEN_JOBS", "due in_flight outcome_unknown needs_review dead_letter"),
        ("BLOCKING_STATES", "due in_flight outcome_unknown needs_review"),
        ("CLAIMABLE_STATES", "due outcome_unknown"),
        ("IN_FLIGHT_STATES", "in_flight"),
    ],
)
def test_group_of_states_has_its_members(group: str, states: str) -> None:
    assert {each.value for each in getattr(state_machines, group)} == set(states.split())
