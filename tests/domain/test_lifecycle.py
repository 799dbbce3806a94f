"""The state tables: what the design says may happen may happen, and nothing else."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab_agent.domain.ids import EffectId, OrderKey, ResourceId
from lab_agent.domain.journal import Effect, EffectKind, OrderRecord
from lab_agent.domain.lifecycle import (
    EFFECT_MOVES,
    ENDED_LINES,
    LINE_MOVES,
    ORDER_MOVES,
    REPORT_MOVES,
    EffectState,
    LineState,
    Moves,
    OrderState,
    move,
)
from lab_agent.errors import IllegalMoveError

TABLES: list[Moves[StrEnum]] = [ORDER_MOVES, LINE_MOVES, REPORT_MOVES, EFFECT_MOVES]  # type: ignore[list-item]
NOW = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)


@pytest.mark.parametrize("table", TABLES)
def test_every_state_has_a_row_and_leads_only_to_states_of_its_table(table: Moves[StrEnum]) -> None:
    states = set(type(next(iter(table))))
    assert set(table) == states
    assert all(to <= states for to in table.values())


@pytest.mark.parametrize("table", TABLES)
def test_staying_is_no_move_and_an_unlisted_move_raises(table: Moves[StrEnum]) -> None:
    for now in table:
        assert move(table, now, now) is now
        for to in set(table) - table[now] - {now}:
            with pytest.raises(IllegalMoveError, match=f"{now.value} cannot become {to.value}"):
                move(table, now, to)


@pytest.mark.parametrize(
    ("path", "table"),
    [
        ("seen fetched handed_over reported closed", ORDER_MOVES),
        ("seen held fetched held fetched refused closed", ORDER_MOVES),
        ("requested accepted resulted completed", LINE_MOVES),
        ("requested refused", LINE_MOVES),
        ("received unmatched matched delivered superseded", REPORT_MOVES),
        ("due in_flight unknown review done", EFFECT_MOVES),
        ("due in_flight parked due obsolete", EFFECT_MOVES),
    ],
)
def test_the_paths_of_the_design_are_open(path: str, table: Moves[StrEnum]) -> None:
    states = type(next(iter(table)))
    words = [states(word) for word in path.split()]
    for before, after in pairwise(words):
        assert move(table, before, after) is after


@pytest.mark.parametrize("state", sorted(set(OrderState) - {OrderState.CLOSED, OrderState.WITHDRAWN}))
def test_an_order_is_withdrawn_from_any_open_state(state: OrderState) -> None:
    assert OrderState.WITHDRAWN in ORDER_MOVES[state]


def test_what_has_ended_moves_no_more() -> None:
    assert all(not LINE_MOVES[state] for state in ENDED_LINES)
    assert not LINE_MOVES[LineState.COMPLETED]
    assert not EFFECT_MOVES[EffectState.DONE]


def test_an_expired_lease_never_makes_an_effect_due() -> None:
    claimed = effect().claimed("worker", NOW, timedelta(seconds=5))
    lapsed = claimed.lapsed(NOW + timedelta(seconds=6))
    assert lapsed.state is EffectState.UNKNOWN
    assert lapsed.fence > claimed.fence
    assert lapsed.owner is None


def test_the_owner_of_an_unknown_effect_looks_first() -> None:
    unknown = effect().claimed("a", NOW, timedelta(seconds=5)).unknown(NOW, NOW, "reply lost")
    assert unknown.claimed("b", NOW, timedelta(seconds=5)).state is EffectState.UNKNOWN


def test_only_what_was_begun_needs_a_look() -> None:
    assert effect().needs_no_look
    assert not effect().beginning(NOW).needs_no_look


@given(st.lists(st.sampled_from(list(OrderState)), max_size=12))
def test_an_illegal_move_changes_nothing(wishes: list[OrderState]) -> None:
    order = OrderRecord(key=OrderKey("R"), task_id=ResourceId("1"), seen_at=NOW, changed_at=NOW)
    for wish in wishes:
        before = order
        try:
            order = order.become(wish, NOW)
        except IllegalMoveError:
            assert order is before
            assert wish not in ORDER_MOVES[before.state]


def effect() -> Effect:
    return Effect(
        id=EffectId(1),
        kind=EffectKind.HANDOVER,
        once="handover:R",
        lane="lis:R",
        subject="R",
        order=OrderKey("R"),
        payload={},
        state=EffectState.DUE,
        due_at=NOW,
        created_at=NOW,
        changed_at=NOW,
    )
