"""Hints; and equal problems of consecutive rows, which are one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab_agent.results.mapping_loader import MappingsError, load_mapping_tables
from lab_agent.shared.errors import Cell, Problem, did_you_mean, fold_rows


@pytest.mark.parametrize(
    ("given", "hint"), [("efective", "did you mean 'effective'?"), ("001.0011", "did you mean '001.001'?"), ("tls", ""), ("", "")]
)
def test_did_you_mean_names_the_closest_known_name(given: str, hint: str) -> None:
    assert did_you_mean(given, {"effective", "issued", "001.001", "lis"}) == hint


def empty(row: int, column: str | None = "unit", source: str = "units.csv", what: str = "is empty") -> Problem:
    return Problem.in_cell(Cell(source, row, column, row), what, "fill it")


@pytest.mark.parametrize(
    ("problems", "places"),
    [
        ([empty(row) for row in range(2, 32)], ["units.csv rows 2–31, column unit"]),
        ([empty(2), empty(3), empty(5)], ["units.csv rows 2–3, column unit", "units.csv row 5, column unit"]),
        (
            [empty(row, column) for row in range(2, 5) for column in ("unit", "ucum")],
            ["units.csv rows 2–4, column unit", "units.csv rows 2–4, column ucum"],
        ),
        *(([empty(2), other], ["units.csv row 2, column unit", other.where]) for other in (empty(3, None), empty(3, source="c"))),
        *(([empty(2), other], ["units.csv row 2, column unit", other.where]) for other in (empty(3, what="is odd"), empty(2))),
        ([Problem("units.csv", "is not UTF-8")] * 2, ["units.csv"] * 2),
    ],
)
def test_equal_problems_of_consecutive_rows_are_one_line(problems: list[Problem], places: list[str]) -> None:
    found = fold_rows(problems)
    assert [each.where for each in found] == places
    assert {str(each).partition(": ")[2] for each in found} == {str(each).partition(": ")[2] for each in problems}


def test_forgotten_mapping_column_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "units.csv").write_text("unit,ucum\n" + "".join(f"u{number},\n" for number in range(30)))
    with pytest.raises(MappingsError) as caught:
        load_mapping_tables(tmp_path)
    assert [each.where for each in caught.value.problems] == ["units.csv rows 2–31, column ucum"]
