"""The table of proofs: no long test is outside of it, no variant is stale, and none that failed is told as one that holds."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from tests.harness import proof
from tests.harness.paths import ROOT
from tests.harness.proof import Figures
from tests.proof.mutants import StaleMutantError
from tests.proof.plan import HEADLINES, PROOFS, Headline, Proof
from tests.proof.results import (
    Result,
    Verdict,
    format_headlines,
    format_table,
    load_published,
    missing_reasons,
    read_figures,
    save_published,
)
from tests.proof.runner import choose_in_turn
from tests.proof.variants import MUTANTS

pytestmark = pytest.mark.slow
AGES = Proof(name="ages", claim="Ages are told", tests=())


def test_every_long_test_belongs_to_one_proof():
    marked = {
        str(file.relative_to(ROOT / "tests"))
        for file in (ROOT / "tests").rglob("test_*.py")
        if "mark.proof" in file.read_text() and file.name not in {"test_plan.py", "test_runner.py"}
    }
    assert Counter(each for proof in PROOFS for each in proof.tests) == Counter(marked)


def test_variants_edit_one_place_and_can_be_imported():
    """Each has a name of its own, and is of a proof that has tests for it."""
    proofs = {each.name for each in PROOFS}
    for mutant in MUTANTS:
        edited = mutant.edit()
        if mutant.file.endswith(".py"):
            compile(edited, mutant.file, "exec")
        assert mutant.found_by in proofs
        assert mutant.tests
    assert len({each.name for each in MUTANTS}) == len(MUTANTS)
    assert {each.proof for each in HEADLINES} <= proofs
    with pytest.raises(StaleMutantError, match="is 0 times in"):
        replace(MUTANTS[0], old="no such text").edit()


def test_figures_of_several_tests_are_one(tmp_path):
    file = tmp_path / "figures"
    for kills, longest in ((3, 1.5), (4, 0.5)):
        figures = Figures(file)
        figures.add(kills=kills, lost=0)
        figures.most(longest_wait_s=longest)
        figures.progress(kills, 10)
    with file.open("a") as unfinished:
        unfinished.write('{"add": {"ki\n')
    told = read_figures(file)
    assert (told.figures, told.progress, told.tests) == ({"kills": 7, "lost": 0, "longest_wait_s": 1.5}, (4, 10), 0)
    Figures(file).test_ended()
    told = read_figures(file)
    assert (told.progress, told.tests) == (None, 1)


def made(**changes: Any) -> Result:
    """A full run whose two tests passed."""
    given = {"name": "ages", "share": 1.0, "date": "2026-01-31", "exit_code": 0, "passed": 2, "commit": "1a2b3c4d"} | changes
    return Result(**given)


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, Verdict.HOLDS),
        ({"missing": ("no JDK",)}, Verdict.IN_PART),
        ({"passed": 0, "missing": ("no JDK",)}, Verdict.SKIPPED),
        ({"failed": ("a",), "exit_code": 1}, Verdict.FAILS),
        ({"exit_code": 1}, Verdict.FAILS),
        ({"exit_code": -9}, Verdict.FAILS),
        ({"exit_code": 5, "passed": 0}, Verdict.FAILS),
        ({"exit_code": 5, "passed": 0, "share": 0.05}, Verdict.IN_FULL_ONLY),
        ({"exit_code": None}, Verdict.INTERRUPTED),
        ({"exit_code": None, "date": ""}, Verdict.NOT_RUN),
        ({"variants_tried": {"a": True, "b": False}, "variants": 2}, Verdict.VARIANT_LIVES),
        ({"variants_tried": {"a": True}, "variants": 2}, Verdict.INTERRUPTED),
        ({"variants": 2, "share": 0.05}, Verdict.HOLDS),
    ],
)
def test_verdict(changes, verdict):
    result = made(**changes)
    assert result.verdict is verdict
    assert result.fails is (verdict in {Verdict.FAILS, Verdict.VARIANT_LIVES})


@pytest.mark.parametrize(
    ("changes", "is_better"),
    [
        ({}, True),
        ({"date": "2026-02-01"}, True),
        ({"date": "2025-12-31"}, False),
        ({"share": 1.0, "date": "2025-12-31"}, True),
        ({"share": 0.05, "date": "2026-02-01"}, False),
        ({"missing": ("no JDK",)}, False),
        ({"share": 1.0, "missing": ("no JDK",)}, True),
        ({"variants_tried": {}, "date": "2026-02-01"}, False),
        ({"failed": ("a",), "exit_code": 1, "date": "2026-02-01"}, True),
        ({"failed": ("a",), "exit_code": 1, "share": 0.05, "date": "2026-02-01"}, False),
        ({"exit_code": None, "share": 1.0}, False),
        ({"passed": 0, "missing": ("no JDK",), "share": 1.0}, False),
    ],
)
def test_fuller_or_newer_result_is_published(changes, is_better):
    published = made(share=0.2, variants_tried={"a": True}, variants=1)
    assert replace(published, **changes).is_better_than(published) is is_better
    assert published.is_better_than(None)
    failing = replace(published, failed=("a",), exit_code=1)
    assert replace(published, date="2026-02-01").is_better_than(failing)
    assert not replace(published, date="2025-12-31").is_better_than(failing)


def test_failure_stands_in_the_table_and_is_no_headline(tmp_path):
    holds = made(
        figures={"kills": 1000, "longest_takeover_s": 16.25}, variants_tried={"a": True}, variants=1, missing=("no JDK",)
    )
    save_published(tmp_path / "page.json", [AGES], {"ages": holds, "gone": holds})
    assert load_published(tmp_path / "page.json") == {"ages": holds}
    assert missing_reasons([holds]) == ["ages: no JDK"]
    headline = Headline("ages", "kills", "kills")
    for failed, row, shown in (
        ((), "| 1,000 kills · 16.2 s longest takeover | 1 of 1 | full |", ["| 1,000 | kills |"]),
        (("tests.test_ages::test_leap_year: assert 1 == 2",), "| failed: `tests.test_ages::test_leap_year` |", []),
    ):
        result = replace(holds, failed=failed)
        assert row in format_table([AGES], {"ages": result})
        assert f"**{result.verdict.value}**" in format_table([AGES], {"ages": result})
        assert format_headlines([headline], {"ages": result}).splitlines()[2:] == shown


def test_shorter_run_says_how_much_of_it_and_tries_variants_in_turn(monkeypatch):
    assert [choose_in_turn(MUTANTS[:2], turn) for turn in (1, 2)] == [[MUTANTS[1]], [MUTANTS[0]]]
    short = made(share=0.05, figures={"orders": 40}, variants_tried={"a": True}, variants=3)
    row = format_table([replace(AGES, in_full=("orders", 8000))], {"ages": short})
    assert "| 1 of 1: `a`; 3 in turn | 40 of 8,000 orders |" in row
    assert "| 0.05 of it |" in format_table([AGES], {"ages": short})
    monkeypatch.setattr(proof, "SHARE", 0.05)
    assert (proof.share_of(1000), proof.share_of(10, at_least=3)) == (50, 3)
