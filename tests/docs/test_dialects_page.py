"""The page of dialects is that of the dialects which the tests connect."""

from __future__ import annotations

from tests.harness.dialects import FOLDER, dialects
from tests.harness.paths import ROOT
from tools.docs.dialects import read_dialects, render_dialects_page

PAGE = ROOT / "docs" / "dialects.md"


def test_dialects_page_is_current() -> None:
    """Run `make docs` when this fails."""
    assert PAGE.read_text(encoding="utf-8") == render_dialects_page(read_dialects())


def test_every_message_is_on_the_page() -> None:
    assert {f"{name}.hl7" for name in read_dialects()} == {file.name for file in FOLDER.glob("*.hl7")}
    page = render_dialects_page(read_dialects())
    assert all(each.lines in page for each in dialects())
    assert page.count("\n## ") == len(dialects())


def test_rows_are_counted_in_words() -> None:
    one = {"system": "A system: all of it", "rows": {"units": 1, "codes": 7}}
    page = render_dialects_page({"one": one})
    assert "| [A system](#a-system) | 7 codes, 1 unit |\n" in page
    assert page.endswith("## A system\n\nAll of it.\n\nIn the mapping tables: 7 codes, 1 unit.\n")
