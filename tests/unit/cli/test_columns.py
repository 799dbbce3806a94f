"""Which columns of a list fit."""

from __future__ import annotations

import pytest

from lab_agent.cli.columns import GAP, ListColumns, choose_columns, lay_out
from lab_agent.shared.errors import InputError

IMPORTANCE = ("key", "state", "reason", "seen")
NATURAL = {"key": 36, "seen": 25, "state": 8, "reason": 90}


@pytest.mark.parametrize(
    ("columns", "natural", "width", "widths", "left_out"),
    [
        (ListColumns(IMPORTANCE), NATURAL, 200, NATURAL, ()),
        (ListColumns(IMPORTANCE), NATURAL, 80, {"key": 36, "state": 8, "reason": 80 - 36 - 8 - 2 * GAP}, ("seen",)),
        (ListColumns(IMPORTANCE), NATURAL, 20, {"key": 36}, ("seen", "reason", "state")),
        (None, {"what": 200, "detail": 30}, 100, {"what": 100 - GAP - 30, "detail": 30}, ()),
        (choose_columns(IMPORTANCE, "seen, key", wide=False), NATURAL, 40, {"seen": 25, "key": 36}, ()),
    ],
    ids=["all fit", "least important", "key whole", "short beside long", "named"],
)
def test_columns_that_fit_are_shown(
    columns: ListColumns | None, natural: dict[str, int], width: int, widths: dict[str, int], left_out: tuple[str, ...]
) -> None:
    layout = lay_out(columns, natural, width)
    assert (list(layout.widths.items()), layout.left_out) == (list(widths.items()), left_out)


@pytest.mark.parametrize("columns", [ListColumns(IMPORTANCE, wide=True), None])
def test_wide_and_inner_tables_leave_nothing_out(columns: ListColumns | None) -> None:
    layout = lay_out(columns, NATURAL, 60)
    assert (set(layout.widths), layout.left_out) == (set(NATURAL), ())


@pytest.mark.parametrize("names", ["key,kay", ",", ""])
def test_unknown_column_lists_known_ones(names: str) -> None:
    with pytest.raises(InputError, match="key, state, reason, seen"):
        choose_columns(IMPORTANCE, names, wide=False)
