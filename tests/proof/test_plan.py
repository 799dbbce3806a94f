"""The table of proofs: no long test is outside of it, and the runner tells a found variant from one that lives."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from tests.harness import proof
from tests.harness.paths import ROOT
from tests.harness.proof import Figures
from tests.proof.mutants import Mutant, StaleMutantError
from tests.proof.plan import HEADLINES, PROOFS, Headline, Proof
from tests.proof.results import (
    Result,
    Verdict,
    format_headlines,
    format_table,
    load_published,
    load_result,
    missing_reasons,
    read_figures,
    save_published,
)
from tests.proof.runner import ProofRun, choose_in_turn
from tests.proof.variants import MUTANTS

pytestmark = pytest.mark.slow
SHARE_IGNORED = Mutant(
    name="share_is_ignored",
    what="runs a long test in full",
    file="tests/harness/proof.py",
    old="round(full * SHARE)",
    new="full",
    found_by="share",
    tests=("proof/test_plan.py::test_share_of_a_long_test",),
)


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


def test_variant_whose_text_is_gone_is_told():
    with pytest.raises(StaleMutantError, match=r"is 0 times in tests/harness/proof\.py"):
        replace(SHARE_IGNORED, old="no such text").edit()


def test_figures_of_several_tests_are_one(tmp_path):
    file = tmp_path / "figures"
    for kills, longest in ((3, 1.5), (4, 0.5)):
        figures = Figures(file)
        figures.add(kills=kills, lost=0)
        figures.most(longest_wait_s=longest)
        figures.progress(kills, 10)
    with file.open("a") as unfinished:
        unfinished.write('{"add": {"ki')
        unfinished.write("\n")
    told = read_figures(file)
    assert (told.figures, told.progress, told.tests) == ({"kills": 7, "lost": 0, "longest_wait_s": 1.5}, (4, 10), 0)
    Figures(file).test_ended()
    told = read_figures(file)
    assert (told.progress, told.tests) == (None, 1)


def made(**changes: Any) -> Result:
    """A full run whose two tests passed."""
    given = {"name": "ages", "share": 1.0, "date": "2026-01-31", "exit_code": 0, "passed": 2, "commit": "1a2b3c4d"} | changes
    return Result(**given)


def row_of(result: Result, **fields: Any) -> str:
    (row,) = format_table([Proof(name="ages", claim="Ages are told", tests=(), **fields)], {"ages": result}).splitlines()[2:]
    return row


def test_result_is_read_as_it_was_kept_and_shown_in_the_table(tmp_path):
    result = made(figures={"kills": 1000, "lost": 0}, test_seconds=80, variant_seconds=10, variants_tried={"a": True}, variants=1)
    result.save(tmp_path)
    assert load_result(tmp_path, "ages") == result
    assert load_result(tmp_path, "other") is None
    assert json.loads((tmp_path / "ages.json").read_text())["verdict"] == "holds"
    took = "1.5 min, 2026-01-31, `1a2b3c4d`"
    assert row_of(result) == f"| `ages` | Ages are told | 1,000 kills · 0 lost | 1 of 1 | full | {took} | holds |"
    headline = Headline("ages", "kills", "kills")
    assert format_headlines([headline], {"ages": result}).splitlines()[2:] == ["| 1,000 | kills |"]
    failing = replace(result, failed=("tests.test_ages::test_leap_year: assert 1 == 2",))
    assert format_headlines([headline], {"ages": failing}).splitlines()[2:] == []
    assert "| failed: `tests.test_ages::test_leap_year` |" in row_of(failing)


def test_figures_and_lengths_are_told_in_the_table():
    figures = {"longest_takeover_s": 16.25, "oldest_work_h": 0, "database_mb": 36.4, "kills": 3}
    assert "| 16.2 s longest takeover · 0 h oldest work · 36.4 MB database · 3 kills |" in row_of(made(figures=figures))
    assert "| 40 of 8,000 orders |" in row_of(made(share=0.2, figures={"orders": 40}), in_full=("orders", 8000))
    assert "| 0.2 of it |" in row_of(made(share=0.2))


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


def test_published_results_are_kept_for_known_proofs(tmp_path):
    results = {name: made(name=name, missing=("no JDK",)) for name in ("ages", "gone")}
    assert load_published(tmp_path / "page.json") == {}
    save_published(tmp_path / "page.json", [Proof(name="ages", claim="", tests=())], results)
    assert load_published(tmp_path / "page.json") == {"ages": results["ages"]}
    assert missing_reasons(results.values()) == ["ages, gone: no JDK"]


def test_each_variant_has_its_turn_within_as_many_as_there_are():
    lives = replace(SHARE_IGNORED, name="comment")
    chosen = [choose_in_turn([SHARE_IGNORED, lives], turn) for turn in (1, 2)]
    assert sorted(each.name for (each,) in chosen) == ["comment", "share_is_ignored"]
    assert choose_in_turn([], 1) == []
    assert "| 1 of 1: `a`; 3 in turn |" in row_of(made(share=0.05, variants_tried={"a": True}, variants=3))
    assert "| 0 of 3 tried |" in row_of(made(share=0.05, variants=3))
    assert "| has none |" in row_of(made())


@pytest.mark.parametrize(("share", "expected"), [(1.0, 1000), (0.05, 50), (0.0001, 3)])
def test_share_of_a_long_test(monkeypatch, share, expected):
    monkeypatch.setattr(proof, "SHARE", share)
    assert proof.share_of(1000, at_least=3) == expected


@pytest.mark.timeout(600)
def test_variant_is_found_only_by_a_test_that_fails_beside_it(tmp_path, monkeypatch):
    """The runner on a proof of one quick test: a variant that it must find, and one that nobody can."""
    lives = replace(SHARE_IGNORED, name="comment", old="As many of", new="So many of")
    monkeypatch.setattr("tests.proof.runner.MUTANTS", (SHARE_IGNORED, lives))
    result = made(name="share", variants=1)
    ProofRun(tmp_path)._conclude(Proof(name="share", claim="", tests=()), result)
    assert result.variants_tried == {"share_is_ignored": True, "comment": False}
    assert result.variants == 2
    assert load_result(tmp_path, "share") == result
