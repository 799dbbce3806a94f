"""The table of the benchmarks, and its place in a page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.measurement import Measurement
from benchmarks.report import put_into_page, to_json, to_markdown

RESULTS = {
    "intake": [
        Measurement(name="CPU", value=12.34, unit="ms/order"),
        Measurement(name="floor / ours", value=0.31, unit="", at_least=0.3, note="by CPU"),
        Measurement(name="statements", value=26, unit="per order", at_most=25),
    ]
}


def test_markdown_names_aim_and_outcome() -> None:
    table = to_markdown(RESULTS, "make bench")
    assert "| **intake** | CPU | 12.3 | ms/order |  |  |" in table
    assert "|  | floor / ours (by CPU) | 0.31 |  | ≥ 0.30 | reached |" in table
    assert "|  | statements | 26 | per order | ≤ 25 | missed |" in table


def test_json_has_exact_values_and_circumstances() -> None:
    found = json.loads(to_json(RESULTS, "make bench"))
    assert [each["value"] for each in found["measurements"]] == [12.34, 0.31, 26]
    assert found["command"] == "make bench"
    assert found["cores"] >= 1


def test_page_keeps_its_prose_around_the_table(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- make bench WRITE=1 begins -->\nold\n<!-- make bench WRITE=1 ends -->\nafter\n")
    put_into_page(page, "new\n")
    assert page.read_text() == "before\n<!-- make bench WRITE=1 begins -->\nnew\n<!-- make bench WRITE=1 ends -->\nafter\n"


def test_page_without_markers_is_an_error(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("nothing\n")
    with pytest.raises(ValueError, match="lacks"):
        put_into_page(page, "new\n")
