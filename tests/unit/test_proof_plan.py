"""The table of proofs: no long test is outside of it, and the runner tells a found variant from one that lives."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from tests.harness.paths import ROOT
from tests.harness.proof import Figures
from tests.proof.__main__ import ProofRun, choose_in_turn
from tests.proof.mutants import Mutant, StaleMutantError
from tests.proof.plan import HEADLINES, PROOFS, Headline, Proof
from tests.proof.results import (
    Result,
    format_headlines,
    format_table,
    load_published,
    load_result,
    read_figures,
    save_published,
)
from tests.proof.variants import MUTANTS

SHARE_IGNORED = Mutant(
    name="share_is_ignored",
    what="runs a long test in full",
    file="tests/harness/proof.py",
    old="round(full * SHARE)",
    new="full",
    found_by="share",
    tests=("unit/test_proof_share.py",),
)


def test_every_long_test_belongs_to_one_proof():
    marked = {
        str(file.relative_to(ROOT / "tests"))
        for file in (ROOT / "tests").rglob("test_*.py")
        if "mark.proof" in file.read_text() and file.name != "test_proof_plan.py"
    }
    assert Counter(each for proof in PROOFS for each in proof.tests) == Counter(marked)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda each: each.name)
def test_variant_edits_one_place_and_can_be_imported(mutant):
    edited = mutant.edit()
    if mutant.file.endswith(".py"):
        compile(edited, mutant.file, "exec")
    assert mutant.found_by in {proof.name for proof in PROOFS}
    assert mutant.tests


def test_headlines_are_about_proofs():
    assert {each.proof for each in HEADLINES} <= {proof.name for proof in PROOFS}


def test_variants_have_names_of_their_own():
    assert len({each.name for each in MUTANTS}) == len(MUTANTS)


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
    assert read_figures(file) == ({"kills": 7, "lost": 0, "longest_wait_s": 1.5}, (4, 10))


def test_result_is_read_as_it_was_kept_and_shown_in_the_table(tmp_path):
    proof = Proof(name="ages", claim="Ages are told", tests=())
    result = Result(name="ages", tree="x", share=1, passed=2, figures={"kills": 1000, "lost": 0}, seconds=90, mutants={"a": True})
    result.date = "2026-01-31"
    result.save(tmp_path)
    assert load_result(tmp_path, "ages") == result
    assert load_result(tmp_path, "other") is None
    (row,) = format_table([proof], {"ages": result}).splitlines()[2:]
    assert row == "| `ages` | Ages are told | 1,000 kills · 0 lost | 1 of 1 | full | 1.5 min, 2026-01-31 | holds |"
    headline = Headline("ages", "kills", "kills")
    assert format_headlines([headline], {"ages": result}).splitlines()[2:] == ["| 1,000 | kills |"]
    assert format_headlines([headline], {"ages": replace(result, failed=("x",))}).splitlines()[2:] == []


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({"passed": 1}, "holds"),
        ({"passed": 1, "failed": ("a",)}, "FAILS"),
        ({"passed": 1, "mutants": {"a": False}}, "MUTANT LIVES"),
        ({"skipped": ("no JDK",)}, "skipped"),
    ],
)
def test_verdict(changes, verdict):
    assert Result(name="ages", tree="x", share=1, **changes).verdict == verdict


@pytest.mark.parametrize(
    ("changes", "is_better"),
    [
        ({}, True),
        ({"date": "2026-02-01"}, True),
        ({"date": "2025-12-31"}, False),
        ({"share": 1.0, "date": "2025-12-31"}, True),
        ({"share": 0.05, "date": "2026-02-01"}, False),
        ({"share": 1.0, "failed": ("a",)}, False),
    ],
)
def test_fuller_or_newer_result_is_published(changes, is_better):
    published = Result(name="ages", tree="x", share=0.2, passed=1, date="2026-01-31")
    assert replace(published, **changes).is_better_than(published) is is_better
    assert published.is_better_than(None)


def test_published_results_are_kept_for_known_proofs(tmp_path):
    results = {name: Result(name=name, tree="x", share=1, passed=1, skipped=("no JDK",)) for name in ("ages", "gone")}
    assert load_published(tmp_path / "page.json") == {}
    save_published(tmp_path / "page.json", [Proof(name="ages", claim="", tests=())], results)
    assert load_published(tmp_path / "page.json") == {"ages": results["ages"]}


def test_each_variant_has_its_turn_within_as_many_as_there_are(tmp_path):
    lives = replace(SHARE_IGNORED, name="comment")
    chosen = [choose_in_turn([SHARE_IGNORED, lives], turn) for turn in (1, 2)]
    assert sorted(each.name for (each,) in chosen) == ["comment", "share_is_ignored"]
    assert choose_in_turn([], 1) == []
    result = Result(name="ages", tree="x", share=0.05, passed=1, mutants={"a": True}, variants=3)
    (row,) = format_table([Proof(name="ages", claim="", tests=())], {"ages": result}).splitlines()[2:]
    assert "| 1 of 1: `a`; 3 in turn |" in row


@pytest.mark.timeout(200)
def test_variant_is_found_only_by_a_test_that_fails_beside_it(tmp_path, monkeypatch):
    """The runner on a proof of one quick test: a variant that it must find, and one that nobody can."""
    lives = replace(SHARE_IGNORED, name="comment", old="As many of", new="So many of")
    monkeypatch.setattr("tests.proof.__main__.MUTANTS", (SHARE_IGNORED, lives))
    monkeypatch.setattr("tests.proof.__main__.SHARE", 1.0)
    run = ProofRun(tmp_path, again=False)
    assert run._try_mutants(Proof(name="share", claim="", tests=())) == {"share_is_ignored": True, "comment": False}
