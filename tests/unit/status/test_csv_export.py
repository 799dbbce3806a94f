"""Lists as CSV files: no cell is a formula, none steers a terminal."""

from __future__ import annotations

import pytest

from lab_agent.status.csv_export import csv_lines


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("\x1b[31mred", "\\u001b[31mred"),
        ("\x9b2J", "\\u009b2J"),
        ("a\x1b]0;title\x07", "a\\u001b]0;title\\u0007"),
        ("\u202ecod", "\\u202ecod"),
        ("\x08\x08\x08", "\\u0008" * 3),
        ("=1+1", "'=1+1"),
        ("\r=1+1", "'\\u000d=1+1"),
        ("\t=1+1", "'\t=1+1"),
        ("\ufeff=1+1", "\\ufeff=1+1"),
        ("Grün, 4 µl", '"Grün, 4 µl"'),
    ],
)
def test_cell_is_written_harmless(text: str, written: str):
    assert list(csv_lines(["a"], [[text]])) == ["\ufeff", "a\r\n", f"{written}\r\n"]
