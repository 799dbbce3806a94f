"""Which columns of a list fit."""

from __future__ import annotations

import pytest

from lab_agent.cli.columns import GAP, ListColumns, choose_columns, lay_out
from lab_agent.errors import InputError

IMPORTANCE = ("key", "state", "reason", "seen")
NATURAL = {"key": 36, "seen": 25, "state": 8, "reason": 90}


def test_all_fit_where_there_is_room() -> None:
    layout = lay_out(ListColumns(IMPORTANCE), NATURAL, 200)
    assert layout.widths == NATURAL
    assert layout.left_out == ()


def test_least_important_is_left_out_first() -> None:
    layout = lay_out(ListColumns(IMPORTANCE), NATURAL, 80)
    assert layout.left_out == ("seen",)
    assert layout.widths == {"key": 36, "state": 8, "reason": 80 - 36 - 8 - 2 * GAP}


def test_key_stays_whole_wider_than_terminal() -> None:
    layout = lay_out(ListColumns(IMPORTANCE), NATURAL, 20)
    assert layout.widths == {"key": 36}
    assert layout.left_out == ("seen", "reason", "state")


def test_short_text_leaves_room_to_long() -> None:
    layout = lay_out(None, {"what": 200, "detail": 30}, 100)
    assert layout.widths == {"what": 100 - GAP - 30, "detail": 30}


@pytest.mark.parametrize("columns", [ListColumns(IMPORTANCE, wide=True), None])
def test_wide_and_inner_tables_leave_nothing_out(columns: ListColumns | None) -> None:
    layout = lay_out(columns, NATURAL, 60)
    assert set(layout.widths) == set(NATURAL)
    assert layout.left_out == ()


def test_named_columns_come_in_their_order() -> None:
    layout = lay_out(choose_columns(IMPORTANCE, "seen, key", wide=False), NATURAL, 40)
    assert list(layout.widths.items()) == [("seen", 25), ("key", 36)]


@pytest.mark.parametrize("names", ["key,kay", ",", ""])
def test_unknown_column_lists_known_ones(names: str) -> None:
    with pytest.raises(InputError, match="key, state, reason, seen"):
        choose_columns(IMPORTANCE, names, wide=False)
