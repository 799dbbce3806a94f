"""Equal problems of consecutive rows are one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab_agent.errors import Cell, Problem, fold_rows
from lab_agent.mappings.loader import MappingsError, load_mapping_tables


def empty(row: int, column: str | None = "unit", source: str = "units.csv", what: str = "is empty") -> Problem:
    return Problem.in_cell(Cell(source, row, column, row), what, "fill it")


def texts(*problems: Problem) -> list[str]:
    return [str(each) for each in fold_rows(problems)]


def test_consecutive_rows_are_one_line() -> None:
    assert texts(*map(empty, range(2, 32))) == ["units.csv rows 2–31, column unit: is empty — fill it"]


def test_gap_begins_a_new_line() -> None:
    assert texts(empty(2), empty(3), empty(5)) == [
        "units.csv rows 2–3, column unit: is empty — fill it",
        "units.csv row 5, column unit: is empty — fill it",
    ]


def test_two_columns_of_each_row_are_two_lines() -> None:
    found = texts(*(empty(row, column) for row in range(2, 5) for column in ("unit", "ucum")))
    assert [each.partition(":")[0] for each in found] == ["units.csv rows 2–4, column unit", "units.csv rows 2–4, column ucum"]


@pytest.mark.parametrize("other", [empty(3, None), empty(3, source="codes.csv"), empty(3, what="is odd"), empty(2)])
def test_unequal_problems_stay_apart(other: Problem) -> None:
    assert len(fold_rows([empty(2), other])) == 2


def test_problem_outside_tables_stays_as_it_is() -> None:
    problem = Problem("units.csv", "is not UTF-8")
    assert fold_rows([problem, problem]) == (problem, problem)


def test_forgotten_mapping_column_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "units.csv").write_text("unit,ucum\n" + "".join(f"u{number},\n" for number in range(30)))
    with pytest.raises(MappingsError) as caught:
        load_mapping_tables(tmp_path)
    assert [each.where for each in caught.value.problems] == ["units.csv rows 2–31, column ucum"]
