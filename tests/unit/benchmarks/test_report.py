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


def test_table_names_aim_and_outcome_and_json_exact_values() -> None:
    table = to_markdown(RESULTS, "make bench")
    assert "| **intake** | CPU | 12.3 | ms/order |  |  |" in table
    assert "|  | floor / ours (by CPU) | 0.31 |  | ≥ 0.30 | reached |" in table
    assert "|  | statements | 26 | per order | ≤ 25 | missed |" in table
    found = json.loads(to_json(RESULTS, "make bench"))
    assert ([each["value"] for each in found["measurements"]], found["command"]) == ([12.34, 0.31, 26], "make bench")


def test_page_keeps_its_prose_around_the_table(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- make bench WRITE=1 begins -->\nold\n<!-- make bench WRITE=1 ends -->\nafter\n")
    put_into_page(page, "new\n")
    assert page.read_text() == "before\n<!-- make bench WRITE=1 begins -->\nnew\n<!-- make bench WRITE=1 ends -->\nafter\n"
    page.write_text("nothing\n")
    with pytest.raises(ValueError, match="lacks"):
        put_into_page(page, "new\n")
