"""`make proof` on small proofs of a tree of its own: what is not at its end is never taken for a proof that holds."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.harness.clock import DEADLINE
from tests.harness.paths import ROOT
from tests.proof.mutants import read_variants
from tests.proof.plan import Proof
from tests.proof.results import Result, Verdict, load_result
from tests.proof.runner import ProofRun

pytestmark = pytest.mark.slow
GOOD = """
import pytest
pytestmark = pytest.mark.proof
def test_it(): pass
"""
MIXED = f"""{GOOD}
def test_missing(): pytest.skip("no JDK")
@pytest.mark.in_full
def test_long(): pass
"""
BAD = f"""{GOOD}
def test_bad(): assert 1 == 2, "a value was lost"
"""
OF_PROGRAM = f"""{GOOD}
def test_age(): assert "AGE = 1" in open("lab_agent/ages.py").read()
"""
VARIANTS = read_variants("""
== ages
wrong_age: tells another age
    lab_agent/ages.py test_it.py
  - AGE = 1
  + AGE = 2
comment: says the same
    lab_agent/ages.py test_it.py
  - in years
  + in whole years
""")
SLOW = f"""{GOOD}
import subprocess, sys, time
def test_slow(tmp_path):
    program = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    try:
        open("program", "w").write(str(program.pid))
        time.sleep(600)
    finally:
        program.kill()
        program.wait()
"""
SETTINGS = """
[tool.pytest.ini_options]
addopts = "-p no:cacheprovider -p pytest_timeout --import-mode=importlib"
markers = ["proof: of a proof", "in_full: without a short form"]
"""
TWO_PROOFS = """
import signal, sys
from pathlib import Path
from tests.proof.plan import Proof
from tests.proof.runner import ProofRun
signal.signal(signal.SIGINT, signal.default_int_handler)
tree = Path(sys.argv[1])
proofs = [Proof(name=name, claim="", tests=("test_it.py",), short_seconds=left) for name, left in (("ages", 2), ("other", 1))]
run = ProofRun(tree.parent / "kept", root=tree)
results = run.run(proofs, jobs=1)
print(run.is_interrupted, *(each.verdict for each in results.values()), sep=";")
"""


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # most of the time that a pytest takes to begin
    (tmp_path / "tree" / "tests").mkdir(parents=True)
    (tmp_path / "tree" / "pyproject.toml").write_text(SETTINGS)
    return tmp_path / "tree"


def prove(tree: Path, text: str, **options: Any) -> Result:
    (tree / "tests" / "test_it.py").write_text(text)
    run = ProofRun(tree.parent / "kept", root=tree, **options)
    return run.run([Proof(name="ages", claim="Ages are told", tests=("test_it.py",))], jobs=1)["ages"]


def test_what_passed_is_not_run_again_until_a_file_changes(tree: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert prove(tree, GOOD, variants_only=True).verdict is Verdict.NOT_RUN
    assert prove(tree, GOOD).verdict is Verdict.HOLDS
    assert prove(tree, GOOD).passed == 1
    assert "not run again" in capfd.readouterr().out
    for _ in range(2):
        result = prove(tree, MIXED)
        assert (result.verdict, result.passed, len(result.missing)) == (Verdict.IN_PART, 2, 1)
        assert "no JDK" in result.missing[0]
    assert prove(tree, GOOD, again=True).verdict is Verdict.HOLDS
    assert "not run again" not in capfd.readouterr().out


def test_failure_is_kept_with_its_reason_whatever_ran_before(tree: Path) -> None:
    assert prove(tree, GOOD).verdict is Verdict.HOLDS
    assert prove(tree, "this is no python").verdict is Verdict.FAILS
    killed = prove(tree, f"{GOOD}\nimport os, signal\ndef test_killed(): os.kill(os.getpid(), signal.SIGKILL)\n")
    assert (killed.verdict, killed.failed) == (Verdict.FAILS, ("pytest itself, which ended with -9: see the log",))
    result = prove(tree, BAD)
    assert result.verdict is Verdict.FAILS
    assert re.fullmatch(r"tests\.test_it::test_bad: AssertionError: a value was lost.*", *result.failed)
    assert json.loads((tree.parent / "kept" / "ages.json").read_text())["verdict"] == "FAILS"


def test_variant_is_found_only_by_a_test_that_fails_beside_it(
    tree: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """One that a test finds, and one that nobody can; a run that was interrupted between them goes on with the second."""
    for name in ("proof/__init__.py", "proof/pytest_plugin.py", "harness/proof.py"):  # of a copy, nothing is taken from here
        (tree / "tests" / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / "tests" / name, tree / "tests" / name)
    (tree / "lab_agent").mkdir()
    (tree / "lab_agent" / "ages.py").write_text("AGE = 1  # in years\n")
    monkeypatch.setattr("tests.proof.mutants.ROOT", tree)
    monkeypatch.setattr("tests.proof.runner.MUTANTS", VARIANTS)
    result = prove(tree, OF_PROGRAM)
    assert (result.verdict, result.variants_tried) == (Verdict.VARIANT_LIVES, {"wrong_age": True, "comment": False})
    kept = tree.parent / "kept"
    assert load_result(kept, "ages") == result
    del result.variants_tried["comment"]
    result.save(kept)
    assert result.verdict is Verdict.INTERRUPTED
    assert prove(tree, OF_PROGRAM).verdict is Verdict.VARIANT_LIVES
    told = capfd.readouterr().out.rpartition("its known-bad variants are left")[2]
    assert "known-bad variant 1 of 1: comment" in told


def test_interrupted_run_leaves_nothing_and_is_begun_again(tree: Path) -> None:
    """The signal comes to the runner alone, as `kill` sends it; its tests end what they had started."""
    (tree / "tests" / "test_it.py").write_text(SLOW)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", TWO_PROOFS, str(tree)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as runner:
        try:
            started = psutil.Process(wait_for_number(tree / "program"))
            tests = psutil.Process(runner.pid).children(recursive=True)
            runner.send_signal(signal.SIGINT)
            output, _ = runner.communicate(timeout=DEADLINE)
        finally:
            runner.kill()
    assert output.splitlines()[-1] == "True;interrupted;not run"
    assert [each for each in (started, *tests) if each.is_running()] == []
    assert not (tree.parent / "kept" / "ages.json").exists()
    assert prove(tree, GOOD).verdict is Verdict.HOLDS


def wait_for_number(file: Path) -> int:
    end = time.monotonic() + DEADLINE
    while not (file.exists() and file.read_text()):
        assert time.monotonic() < end, f"{file.name} is not there"
        time.sleep(0.02)
    return int(file.read_text())
