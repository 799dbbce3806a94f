"""`python -m tests.proof [NAME ...] [--again | --variants] [--jobs N] [--write]`: run the proofs, and print their table.

LAB_PROOF_SHARE is how much of each runs. A proof that has held with the same files and share is not run again, so an
interrupted run goes on where it was. In full, each proof has to find all of its known-bad variants; a shorter run tries one of
every fourth proof, others on each day. Each one's log and result lie in build/proof/, the table as `table.md` and `table.json`.
Exit code 0: every proof holds.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from tests.harness.paths import ROOT
from tests.harness.proof import SHARE
from tests.proof.mutants import Mutant, make_tree
from tests.proof.plan import HEADLINES, PROOFS, Proof
from tests.proof.results import (
    Result,
    format_headlines,
    format_table,
    load_published,
    load_result,
    read_figures,
    save_published,
    skipped_reasons,
)
from tests.proof.variants import MUTANTS

_BUILD = ROOT / "build" / "proof"
_PAGE, _README = ROOT / "docs" / "reliability.md", ROOT / "README.md"
_PUBLISHED = _PAGE.with_suffix(".json")
_PICTURES = {"soak": "soak.svg"}
"""What a proof draws beside its figures."""
_PROGRAMS = ("lab_agent", "lab_api", "lab_sandbox", "tests", "config", "systemd")
_TOLD_EVERY = 30.0
"""Seconds between two lines about what is running."""
_TEST_TIMEOUT = 4 * 3600
_MUTANT_TIMEOUT = 600
"""A known-bad variant may hang; a test with a limit of its own keeps that."""
_MUTANT_SHARE = 0.02
_TURNS = 4
"""Days until the short form tries a known-bad variant of the same proof again."""
_BEGIN, _END = "<!-- proof table -->", "<!-- end of the proof table -->"
_PASSED, _FAILED = 0, 1
"""Exit codes of pytest; another one is no finding: no test was there, or pytest could not begin."""


class ProofRun:
    """The proofs of one call, side by side."""

    def __init__(self, folder: Path, *, again: bool, variants_only: bool = False) -> None:
        """`variants_only`: of what was run before, only the known-bad variants are tried again."""
        self._folder = folder
        self._again = again
        self._variants_only = variants_only
        self._tree = _hash_tree()
        self._running: dict[str, float] = {}
        self._lock = threading.Lock()

    def run(self, proofs: Sequence[Proof], jobs: int) -> dict[str, Result]:
        """Run them all, those that take longest first, so that all lanes end together; the results by name."""
        self._folder.mkdir(parents=True, exist_ok=True)
        finished = threading.Event()
        teller = threading.Thread(target=self._tell_progress, args=(finished,), daemon=True)
        teller.start()
        try:
            with ThreadPoolExecutor(jobs) as threads:
                in_order = sorted(proofs, key=lambda proof: -proof.short_seconds)
                results = dict(zip((proof.name for proof in in_order), threads.map(self._prove, in_order), strict=True))
                return {proof.name: results[proof.name] for proof in proofs}
        finally:
            finished.set()
            teller.join()

    def _prove(self, proof: Proof) -> Result:
        kept = load_result(self._folder, proof.name)
        if kept is not None and kept.holds and not self._again and (kept.tree, kept.share) == (self._tree, SHARE):
            _say(f"{proof.name}: has held before, not run again")
            return kept
        if kept is not None and not kept.failed and self._variants_only:
            return self._conclude(proof, kept, kept.seconds - kept.mutant_seconds)
        begun = self._running[proof.name] = time.monotonic()
        _say(f"{proof.name}: begun")
        result = Result(name=proof.name, tree=self._tree, share=SHARE, date=f"{datetime.now(UTC):%Y-%m-%d}")
        figures = self._folder / f"{proof.name}.figures"
        figures.unlink(missing_ok=True)
        report = self._folder / f"{proof.name}.xml"
        options = ["-m", "proof", f"--junit-xml={report}"]
        if SHARE >= 1 and proof.processes > 1:
            options += ["-n", str(proof.processes), "--dist", "worksteal"]
        self._pytest(ROOT, [f"tests/{each}" for each in proof.tests], proof.name, SHARE, *options)
        _read_report(report, result)
        result.figures, _ = read_figures(figures)
        return self._conclude(proof, result, time.monotonic() - begun)

    def _conclude(self, proof: Proof, result: Result, seconds: float) -> Result:
        """Try the variants of a proof whose tests took so many seconds, and keep and tell what came of all."""
        tried = time.monotonic()
        if not result.failed:
            result.mutants = self._try_mutants(proof)
        result.mutant_seconds = round(time.monotonic() - tried, 1)
        result.variants = len(_variants_of(proof))
        result.seconds = round(seconds + result.mutant_seconds, 1)
        result.save(self._folder)
        with self._lock:
            self._running.pop(proof.name, None)
        _say(f"{proof.name}: {result.verdict}, {result.seconds:.0f} s; {self._folder.relative_to(ROOT)}/{proof.name}.log")
        for each in result.failed:
            _say(f"{proof.name}:   failed: {each}")
        for name, was_found in result.mutants.items():
            if not was_found:
                _say(f"{proof.name}:   not found: the known-bad variant {name}")
        return result

    def _try_mutants(self, proof: Proof) -> dict[str, bool]:
        """Of each variant, whether its tests fail beside it, and pass in a copy of the tree that is as it is.

        The short form tries one variant of every fourth proof, others on each day, and takes it that the tests that just
        passed would do so in a copy.
        """
        mutants = _variants_of(proof)
        passing = dict[tuple[str, ...], bool]()
        if SHARE < 1:
            turn, is_rest = divmod(datetime.now(UTC).toordinal() + PROOFS.index(proof), _TURNS)
            mutants = [] if is_rest else choose_in_turn(mutants, turn)
            passing = {each.tests: True for each in mutants}
        for tests in (each.tests for each in mutants):
            if tests not in passing:
                passing[tests] = self._run_in_copy(f"{proof.name}-unchanged", tests, None) == _PASSED
        return {each.name: passing[each.tests] and self._run_in_copy(each.name, each.tests, each) == _FAILED for each in mutants}

    def _run_in_copy(self, name: str, tests: Sequence[str], mutant: Mutant | None) -> int:
        tree = self._folder / "trees" / name
        make_tree(tree, mutant)
        try:
            return self._pytest(tree, [f"tests/{each}" for each in tests], f"tree-{name}", _MUTANT_SHARE, "-x")
        finally:
            shutil.rmtree(tree)

    def _pytest(self, tree: Path, tests: Sequence[str], name: str, share: float, *options: str) -> int:
        environment = os.environ | {
            "LAB_PROOF_SHARE": str(share),
            "LAB_PROOF_FIGURES": str(self._folder / f"{name}.figures"),
            "PYTHONPATH": str(tree),
        }
        if tree == ROOT:  # what a known-bad variant leaves is no finding
            environment["LAB_PROOF_FAILURES"] = str(self._folder / "failures")
        timeout = _TEST_TIMEOUT if tree == ROOT else _MUTANT_TIMEOUT
        more = ("-p", "tests.proof.failures_at_once", "--timeout", str(timeout))
        command = [sys.executable, "-m", "pytest", *tests, *options, *more]
        with (self._folder / f"{name}.log").open("w") as log:
            return subprocess.run(command, cwd=tree, env=environment, stdout=log, stderr=log, check=False).returncode

    def _tell_progress(self, finished: threading.Event) -> None:
        while not finished.wait(_TOLD_EVERY):
            with self._lock:
                running = dict(self._running)
            for name, begun in running.items():
                _, progress = read_figures(self._folder / f"{name}.figures")
                far = f"{progress[0]:,} of {progress[1]:,}, " if progress else ""
                _say(f"{name}: {far}{time.monotonic() - begun:.0f} s")


def choose_in_turn(variants: Sequence[Mutant], turn: int) -> list[Mutant]:
    """The variant whose turn it is, if there is any: each has its turn within as many as there are."""
    return [variants[turn % len(variants)]] if variants else []


def _variants_of(proof: Proof) -> list[Mutant]:
    return [each for each in MUTANTS if each.found_by == proof.name]


def _read_report(file: Path, result: Result) -> None:
    """Take over what passed, failed and was skipped from pytest's report."""
    if not file.exists():
        result.failed = ("pytest itself: see the log",)
        return
    failed, skipped = list[str](), list[str]()
    for case in ET.parse(file).iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        if case.find("failure") is not None or case.find("error") is not None:
            failed.append(name)
        elif (skip := case.find("skipped")) is not None:
            skipped.append(skip.get("message") or name)
        else:
            result.passed += 1
    result.failed, result.skipped = tuple(failed), tuple(skipped)


def _hash_tree() -> str:
    """The state of everything that a proof is about."""
    found = hashlib.sha256()
    for part in _PROGRAMS:
        for file in sorted((ROOT / part).rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                found.update(str(file.relative_to(ROOT)).encode() + b"\0" + file.read_bytes())
    return found.hexdigest()


def _write_pages() -> None:
    """Put the figures of the fullest runs, of those published before and those that lie here, into the pages.

    Raises `ValueError` for a page without a place for them.
    """
    results = load_published(_PUBLISHED)
    for folder in sorted(_BUILD.iterdir(), key=lambda each: float(each.name)):
        for proof in PROOFS:
            found = load_result(folder, proof.name)
            if found is not None and found.is_better_than(results.get(proof.name)):
                results[proof.name] = found
                if (picture := _PICTURES.get(proof.name)) and (drawn := folder / picture).exists():
                    shutil.copyfile(drawn, ROOT / "docs" / "images" / picture)
    save_published(_PUBLISHED, PROOFS, results)
    machine = f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python {platform.python_version()}"
    commands = "`make proof` in full length, `make proof SHORT=1` for a twentieth"
    _write_page(_PAGE, f"On {machine}; {commands}.\n\n{format_table(PROOFS, results)}")
    _write_page(_README, format_headlines(HEADLINES, results))


def _write_page(page: Path, text: str) -> None:
    old = page.read_text()
    new, times = re.subn(f"(?s){_BEGIN}.*{_END}", lambda _: f"{_BEGIN}\n\n{text}\n\n{_END}", old)
    if times != 1:
        raise ValueError(f"{page} has no place for the table")
    page.write_text(new)


def _describe_run() -> str:
    """When, where and how."""
    command = "make proof" if SHARE >= 1 else "make proof SHORT=1"
    machine = f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python {platform.python_version()}"
    return f"`{command}` on {datetime.now(UTC):%Y-%m-%d}, {machine}"


def _say(text: str) -> None:
    print(f"{datetime.now():%H:%M:%S} {text}", flush=True)  # noqa: T201, DTZ005 - for who sits in front of it


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="make proof", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(each.name for each in PROOFS))
    parser.add_argument("--again", action="store_true", help="run what has held before, too")
    parser.add_argument("--variants", action="store_true", help="of what was run before, only the known-bad variants again")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time")
    parser.add_argument(
        "--write", action="store_true", help="put the figures of the fullest runs into docs/reliability.md and README.md"
    )
    given = parser.parse_args()
    by_name = {each.name: each for each in PROOFS}
    if unknown := sorted(set(given.names) - set(by_name)):
        parser.error(f"there is no proof {', '.join(unknown)}; there are {', '.join(by_name)}")
    chosen = [each for each in PROOFS if not given.names or each.name in given.names]
    folder = _BUILD / f"{SHARE:g}"
    results = ProofRun(folder, again=given.again, variants_only=given.variants).run(chosen, given.jobs)
    table = f"{_describe_run()}\n\n{format_table(chosen, results)}"
    (folder / "table.md").write_text(table + "\n")
    (folder / "table.json").write_text(json.dumps([asdict(each) for each in results.values()], indent=2) + "\n")
    if given.write:
        _write_pages()
    print(f"\n{table}")  # noqa: T201
    for reason in skipped_reasons(results.values()):
        print(f"left out: {reason}")  # noqa: T201
    return 0 if all(each.verdict in {"holds", "skipped"} for each in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
