"""The state tables: what the design says may happen may happen, and nothing else."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab_agent.domain import state_machines
from lab_agent.domain.ids import JobId, OrderKey, ResourceId
from lab_agent.domain.job_records import Job, JobKind
from lab_agent.domain.order_holds import OrderHold
from lab_agent.domain.records import OrderRecord
from lab_agent.domain.state_machines import (
    ENDED_LINES,
    JOB_TRANSITIONS,
    LINE_TRANSITIONS,
    ORDER_TRANSITIONS,
    REPORT_TRANSITIONS,
    WORK_ORDER_TRANSITIONS,
    JobState,
    LineState,
    OrderState,
    ReportState,
    Transitions,
    WorkOrderState,
    transition,
)
from lab_agent.errors import InvalidTransitionError

TABLES: list[Transitions[StrEnum]] = [ORDER_TRANSITIONS, LINE_TRANSITIONS, REPORT_TRANSITIONS, JOB_TRANSITIONS]  # type: ignore[list-item]
NOW = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)


LEGAL: dict[type[StrEnum], tuple[Transitions[StrEnum], str]] = {
    OrderState: (
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
    WorkOrderState: (
        WORK_ORDER_TRANSITIONS,  # type: ignore[dict-item]
        """
                    accepted handed_over cancelled
        accepted    .        x           x
        handed_over .        .           .
        cancelled   x        x           .
        """,
    ),
    LineState: (
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
    ReportState: (
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
    JobState: (
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
"""Of each kind of state, the table, and which state (a row) may become which (a column)."""


@pytest.mark.parametrize("states", LEGAL, ids=lambda each: each.__name__)
def test_table_allows_what_the_matrix_says(states: type[StrEnum]) -> None:
    table, matrix = LEGAL[states]
    header, *rows = [line.split() for line in matrix.strip().splitlines()]
    legal = {row[0]: {to for to, mark in zip(header, row[1:], strict=True) if mark == "x"} for row in rows}
    assert {state.value: {each.value for each in after} for state, after in table.items()} == legal


@pytest.mark.parametrize(
    ("group", "states"),
    [
        (state_machines.OPEN_ORDERS, "seen fetched held handed_over reported rejected withdrawn"),
        (state_machines.UNDECIDED_ORDERS, "seen held"),
        (state_machines.ORDERS_BEFORE_HANDOVER, "seen held fetched"),
        (state_machines.ORDERS_AWAITING_RESULTS, "fetched handed_over reported"),
        (state_machines.ENDED_LINES, "rejected completed cancelled withdrawn"),
        (state_machines.UNDONE_LINES, "rejected cancelled withdrawn"),
        (state_machines.LINES_WITH_RESULT, "resulted completed"),
        (state_machines.OPEN_LINES, "requested held accepted resulted"),
        (state_machines.WAITING_LINES, "accepted resulted"),
        (state_machines.AT_LABORATORY, "accepted resulted completed cancelled"),
        (state_machines.WITHDRAWN_LINES, "withdrawn"),
        (state_machines.LABEL_RELEASING, "rejected withdrawn"),
        (state_machines.REPORTS_NEEDING_OPERATOR, "unmatched unmapped held"),
        (state_machines.FINISHED_REPORTS, "delivered superseded dismissed"),
        (state_machines.UNFINISHED_REPORTS, "received matched unmatched unmapped held"),
        (state_machines.JOBS_NEEDING_OPERATOR, "needs_review dead_letter"),
        (state_machines.OPEN_JOBS, "due in_flight outcome_unknown needs_review dead_letter"),
        (state_machines.BLOCKING_STATES, "due in_flight outcome_unknown needs_review"),
        (state_machines.CLAIMABLE_STATES, "due outcome_unknown"),
        (state_machines.IN_FLIGHT_STATES, "in_flight"),
    ],
)
def test_group_of_states_has_its_members(group: frozenset[StrEnum], states: str) -> None:
    assert {each.value for each in group} == set(states.split())


@pytest.mark.parametrize("table", TABLES)
def test_every_state_transitions_within_its_table(table: Transitions[StrEnum]) -> None:
    """Every state has a row and leads only to states of its table."""
    states = set(type(next(iter(table))))
    assert set(table) == states
    assert all(to <= states for to in table.values())


@pytest.mark.parametrize("table", TABLES)
def test_unlisted_transition_raises_and_same_state_does_not(table: Transitions[StrEnum]) -> None:
    """Staying is no transition, and an unlisted transition raises."""
    for now in table:
        assert transition(table, now, now) is now
        for to in set(table) - table[now] - {now}:
            with pytest.raises(InvalidTransitionError, match=f"{now.value} cannot become {to.value}"):
                transition(table, now, to)


@pytest.mark.parametrize(
    ("path", "table"),
    [
        ("seen fetched handed_over reported closed", ORDER_TRANSITIONS),
        ("seen held fetched held fetched rejected closed", ORDER_TRANSITIONS),
        ("requested accepted resulted completed", LINE_TRANSITIONS),
        ("requested rejected", LINE_TRANSITIONS),
        ("received unmatched matched delivered superseded", REPORT_TRANSITIONS),
        ("due in_flight outcome_unknown needs_review done", JOB_TRANSITIONS),
        ("due in_flight dead_letter due obsolete", JOB_TRANSITIONS),
    ],
)
def test_designed_transitions_are_allowed(path: str, table: Transitions[StrEnum]) -> None:
    states = type(next(iter(table)))
    words = [states(word) for word in path.split()]
    for before, after in pairwise(words):
        assert transition(table, before, after) is after


@pytest.mark.parametrize("state", sorted(set(OrderState) - {OrderState.CLOSED, OrderState.WITHDRAWN}))
def test_order_withdrawable_from_any_open_state(state: OrderState) -> None:
    assert OrderState.WITHDRAWN in ORDER_TRANSITIONS[state]


def test_ended_line_is_only_held_or_assessed_again() -> None:
    """What comes back to life is decided anew: nothing leads from one end to another. A lost result is sent again."""
    anew = {LineState.HELD, LineState.REQUESTED}
    assert all(LINE_TRANSITIONS[state] <= anew for state in ENDED_LINES - {LineState.COMPLETED})
    assert not JOB_TRANSITIONS[JobState.DONE]


def test_line_with_result_is_never_assessed_again() -> None:
    """A person decides about it: the laboratory must not get it twice by itself."""
    assert LINE_TRANSITIONS[LineState.COMPLETED] == {LineState.HELD, LineState.RESULTED}


def test_expired_lease_never_makes_job_due() -> None:
    """An expired lease makes a job's outcome unknown, never due again."""
    claimed = effect().claim("worker", NOW, timedelta(seconds=5))
    lapsed = claimed.lease_expired(NOW + timedelta(seconds=6))
    assert lapsed.state is JobState.OUTCOME_UNKNOWN
    assert lapsed.fencing_token > claimed.fencing_token
    assert lapsed.owner is None


def test_owner_of_unknown_job_verifies_first() -> None:
    unknown = effect().claim("a", NOW, timedelta(seconds=5)).outcome_unknown(NOW, NOW, "reply lost")
    assert unknown.claim("b", NOW, timedelta(seconds=5)).state is JobState.OUTCOME_UNKNOWN


def test_only_started_job_needs_verification() -> None:
    assert effect().safe_to_retry
    assert not effect().mark_started(NOW).safe_to_retry


@given(st.lists(st.sampled_from(list(OrderState)), max_size=12))
def test_invalid_transition_changes_nothing(wishes: list[OrderState]) -> None:
    order = OrderRecord(key=OrderKey("R"), task_id=ResourceId("1"), seen_at=NOW, changed_at=NOW)
    for wish in wishes:
        before = order
        try:
            hold = OrderHold("no_contract", "no contract")
            order = order.hold(NOW, hold) if wish is OrderState.HELD else order.transition_to(wish, NOW)
        except InvalidTransitionError:
            assert order is before
            assert wish not in ORDER_TRANSITIONS[before.state]


def effect() -> Job:
    return Job(
        id=JobId(1),
        kind=JobKind.SUBMIT_ORDER,
        dedup_key="handover:R",
        ordering_key="lis:R",
        target="R",
        order=OrderKey("R"),
        payload={},
        state=JobState.DUE,
        due_at=NOW,
        first_due_at=NOW,
        created_at=NOW,
        changed_at=NOW,
    )
