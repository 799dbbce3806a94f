"""Runs the proofs side by side: their tests, and then, in copies of the tree, their known-bad variants."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ET
from collections.abc import Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from tests.harness.paths import ROOT
from tests.proof.mutants import SHARE_OF_VARIANTS, Mutant, make_tree
from tests.proof.plan import PROOFS, Proof
from tests.proof.results import (
    PYTEST_FAILED,
    PYTEST_PASSED,
    Result,
    Verdict,
    describe_commit,
    describe_machine,
    load_result,
    read_figures,
)
from tests.proof.variants import MUTANTS

_ABOUT = ("lab_agent", "lab_api", "lab_sandbox", "tests", "config", "systemd", "requirements", "pyproject.toml")
"""What each proof is about; `Proof.about` is more."""
_WRITTEN = ("reliability.md", "reliability.json", "soak.svg")
"""What `make proof WRITE=1` itself changes below docs."""
_TOLD_EVERY = 30.0
"""Seconds between two lines about what is running."""
_ENDING_SECONDS = 60
"""What an interrupted proof has to end its programs; then they are killed."""
_TEST_TIMEOUT = 4 * 3600
_VARIANT_TIMEOUT = 600
"""A known-bad variant may hang; a test with a limit of its own keeps that."""
_TURNS = 4
"""Days until a shorter run tries a known-bad variant of the same proof again."""


class ProofRun:
    def __init__(
        self, folder: Path, *, share: float = 1.0, again: bool = False, variants_only: bool = False, root: Path = ROOT
    ) -> None:
        """`variants_only`: of what was run before, only the known-bad variants are tried again."""
        self.is_interrupted = False
        self._folder, self._share, self._root = folder, share, root
        self._again, self._variants_only = again, variants_only
        self._commit, self._machine = describe_commit(root), describe_machine()
        self._tree = _hash_files(root, _ABOUT, self._machine)
        self._running: dict[str, float] = {}
        self._processes: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()

    def run(self, proofs: Sequence[Proof], jobs: int) -> dict[str, Result]:
        """Run them all, those that take longest first, so that all lanes end together; the results by name.

        A KeyboardInterrupt ends what runs, and is told by `is_interrupted`; what had not begun is "not run" in the results. A
        second one kills.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        finished = threading.Event()
        teller = threading.Thread(target=self._tell_progress, args=(finished,), daemon=True)
        teller.start()
        threads = ThreadPoolExecutor(jobs)
        in_order = sorted(proofs, key=lambda proof: -proof.short_seconds)
        futures = {proof.name: threads.submit(self._prove, proof) for proof in in_order}
        try:
            wait(futures.values())
        except KeyboardInterrupt:
            self._interrupt(futures.values())
        finally:
            threads.shutdown(cancel_futures=True)
            finished.set()
            teller.join()
        return {proof.name: self._not_run(proof) if (it := futures[proof.name]).cancelled() else it.result() for proof in proofs}

    def _interrupt(self, futures: Collection[Future[Result]]) -> None:
        with self._lock:
            self.is_interrupted = True
        say("interrupted: ending what runs; once more kills it")
        for future in futures:
            future.cancel()
        self._signal(signal.SIGINT)
        with suppress(KeyboardInterrupt):
            wait(futures, timeout=_ENDING_SECONDS)
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        with self._lock:
            for process in self._processes:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, number)

    def _prove(self, proof: Proof) -> Result:
        tree = _hash_files(self._root, proof.about, self._tree)
        kept = load_result(self._folder, proof.name)
        if self._variants_only:
            if kept is None or not kept.tests_passed:
                say(f"{proof.name}: its tests have not passed before, so no known-bad variant is tried")
                return self._not_run(proof)
            kept.variants_tried, kept.variant_seconds = {}, 0.0
            return self._conclude(proof, kept)
        if kept is not None and (kept.tree, kept.share) == (tree, self._share) and not self._again:
            if kept.verdict in {Verdict.HOLDS, Verdict.IN_FULL_ONLY}:
                say(f"{proof.name}: {kept.verdict}: run before with the same files, not run again")
                return kept
            if kept.tests_passed and kept.verdict is Verdict.INTERRUPTED:
                say(f"{proof.name}: its tests have passed before; its known-bad variants are left")
                return self._conclude(proof, kept)
        return self._run_tests(proof, tree)

    def _run_tests(self, proof: Proof, tree: str) -> Result:
        begun = self._begin(proof)
        report, figures = (self._folder / f"{proof.name}.{ending}" for ending in ("xml", "figures"))
        for former in (report, figures):
            former.unlink(missing_ok=True)
        options = ["-m", "proof", f"--junit-xml={report}"]
        if self._share >= 1 and proof.processes > 1:
            options += ["-n", str(proof.processes), "--dist", "worksteal"]
        result = self._not_run(proof)
        result.tree, result.date = tree, f"{datetime.now(UTC):%Y-%m-%d}"
        ended = self._pytest(self._root, [f"tests/{each}" for each in proof.tests], proof.name, self._share, *options)
        result.figures = read_figures(figures).figures
        result.test_seconds = round(time.monotonic() - begun, 1)
        if self.is_interrupted:
            return self._tell(result)
        result.exit_code = ended
        _read_report(report, result)
        return self._conclude(proof, result)

    def _conclude(self, proof: Proof, result: Result) -> Result:
        """Try the variants of a proof whose tests have passed, and keep and tell what came of all."""
        self._begin(proof)
        result.variants = len(_variants_of(proof))  # a kept result may have been of fewer
        result.save(self._folder)
        if result.tests_passed:
            self._try_variants(proof, result)
        return self._tell(result)

    def _begin(self, proof: Proof) -> float:
        with self._lock:
            is_new, begun = proof.name not in self._running, self._running.setdefault(proof.name, time.monotonic())
        if is_new:
            say(f"{proof.name}: begun")
        return begun

    def _tell(self, result: Result) -> Result:
        with self._lock:
            self._running.pop(result.name, None)
        say(f"{result.name}: {result.verdict}, {result.seconds:.0f} s; {self._log_of(result.name)}")
        for each in result.failed:
            say(f"{result.name}:   failed: {each}")
        for name, was_found in result.variants_tried.items():
            if not was_found:
                say(f"{result.name}:   not found: the known-bad variant {name}; {self._log_of('tree-' + name)}")
        return result

    def _log_of(self, name: str) -> str:
        return os.path.relpath(self._folder / f"{name}.log")

    def _not_run(self, proof: Proof) -> Result:
        variants = len(_variants_of(proof))
        return Result(name=proof.name, share=self._share, commit=self._commit, machine=self._machine, variants=variants)

    def _try_variants(self, proof: Proof, result: Result) -> None:
        """Note of each variant whether its tests fail beside it, and pass in a copy of the tree that is as it is.

        A shorter run tries one variant of every fourth proof, others on each day, and takes it that the tests that just passed
        would do so in a copy.
        """
        variants = [each for each in _variants_of(proof) if each.name not in result.variants_tried]
        passing = dict[tuple[str, ...], bool]()
        if self._share < 1:
            turn, is_rest = divmod(datetime.now(UTC).toordinal() + PROOFS.index(proof), _TURNS)
            variants = [] if is_rest else choose_in_turn(variants, turn)
            passing = {each.tests: True for each in variants}
        begun, before = time.monotonic(), result.variant_seconds
        for number, variant in enumerate(variants, 1):
            say(f"{proof.name}: known-bad variant {number} of {len(variants)}: {variant.name}")
            if variant.tests not in passing:
                passing[variant.tests] = self._run_in_copy(f"{proof.name}-unchanged", variant.tests, None) == PYTEST_PASSED
            was_found = passing[variant.tests] and self._run_in_copy(variant.name, variant.tests, variant) == PYTEST_FAILED
            if self.is_interrupted:
                return  # nothing is known of this one
            result.variants_tried[variant.name] = was_found
            result.variant_seconds = round(before + time.monotonic() - begun, 1)
            result.save(self._folder)

    def _run_in_copy(self, name: str, tests: Sequence[str], variant: Mutant | None) -> int:
        tree = self._folder / "trees" / name
        make_tree(tree, variant)
        try:
            share = SHARE_OF_VARIANTS if variant is None else variant.share
            return self._pytest(tree, [f"tests/{each}" for each in tests], f"tree-{name}", share, "-x")
        finally:
            shutil.rmtree(tree)

    def _pytest(self, tree: Path, tests: Sequence[str], name: str, share: float, *options: str) -> int:
        """pytest's exit code, or the negative number of the signal that ended it.

        It has a process group of its own, so that a signal to ours ends it only as `_interrupt` does: with its programs.
        """
        is_variant = tree != self._root
        environment = os.environ | {
            "LAB_PROOF_SHARE": str(share),
            "LAB_PROOF_FIGURES": str(self._folder / f"{name}.figures"),
            "PYTHONPATH": str(tree) if is_variant or tree == ROOT else os.pathsep.join(map(str, (tree, ROOT))),
        }
        if not is_variant:  # what a known-bad variant leaves is no finding
            environment["LAB_PROOF_FAILURES"] = str(self._folder / "failures")
        timeout = _VARIANT_TIMEOUT if is_variant else _TEST_TIMEOUT
        more = ("-p", "tests.proof.pytest_plugin", "--timeout", str(timeout))
        command = [sys.executable, "-m", "pytest", *tests, *options, *more]
        with (self._folder / f"{name}.log").open("w") as log:
            with self._lock:
                if self.is_interrupted:
                    return -signal.SIGINT
                process = subprocess.Popen(command, cwd=tree, env=environment, stdout=log, stderr=log, start_new_session=True)
                self._processes.add(process)
            try:
                return process.wait()
            finally:
                with self._lock:
                    self._processes.discard(process)

    def _tell_progress(self, finished: threading.Event) -> None:
        while not finished.wait(_TOLD_EVERY):
            with self._lock:
                running = dict(self._running)
            for name, begun in running.items():
                read = read_figures(self._folder / f"{name}.figures")
                tests = f"tests ended: {read.tests:,}, " if read.tests else ""
                far = f"one has come to {read.progress[0]:,} of {read.progress[1]:,}, " if read.progress else ""
                say(f"{name}: {tests}{far}{time.monotonic() - begun:.0f} s")


def choose_in_turn(variants: Sequence[Mutant], turn: int) -> list[Mutant]:
    """The variant whose turn it is, if there is any: each has its turn within as many as there are."""
    return [variants[turn % len(variants)]] if variants else []


def _variants_of(proof: Proof) -> list[Mutant]:
    return [each for each in MUTANTS if each.found_by == proof.name]


def _read_report(file: Path, result: Result) -> None:
    """Take over what passed, failed and could not run from pytest's report."""
    failed, missing = list[str](), list[str]()
    if result.exit_code not in {PYTEST_PASSED, PYTEST_FAILED} and result.verdict is not Verdict.IN_FULL_ONLY:
        failed.append(f"pytest itself, which ended with {result.exit_code}: see the log")
    for case in ET.parse(file).iter("testcase") if file.exists() else ():
        name = f"{case.get('classname')}::{case.get('name')}"
        problem = next((found for kind in ("failure", "error") if (found := case.find(kind)) is not None), None)
        if problem is not None:
            reason = (problem.get("message") or "").strip().partition("\n")[0]
            failed.append(f"{name}: {reason[:200]}" if reason else name)
        elif (skip := case.find("skipped")) is not None:
            missing.append(skip.get("message") or name)
        else:
            result.passed += 1
    result.failed, result.missing = tuple(failed), tuple(missing)


def _hash_files(root: Path, parts: Sequence[str], before: str) -> str:
    """The state of these files and folders, and of what comes before them."""
    found = hashlib.sha256(before.encode())
    for part in parts:
        files = sorted((root / part).rglob("*")) if (root / part).is_dir() else [root / part]
        for file in files:
            if file.is_file() and "__pycache__" not in file.parts and file.name not in _WRITTEN:
                found.update(str(file.relative_to(root)).encode() + b"\0" + file.read_bytes())
    return found.hexdigest()


def say(text: str) -> None:
    print(f"{datetime.now():%H:%M:%S} {text}", flush=True)  # noqa: T201, DTZ005
