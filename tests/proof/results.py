"""What a run of a proof came to, kept as JSON so that an interrupted run goes on; and the table of all of them."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Any

from tests.proof.plan import Headline, Proof

PYTEST_PASSED, PYTEST_FAILED, PYTEST_FOUND_NOTHING = 0, 1, 5
"""Exit codes of pytest; any other one says that it did not get to its end."""

_UNITS = {"s": "s", "h": "h", "mb": "MB"}


class Verdict(StrEnum):
    HOLDS = "holds"
    IN_PART = "holds in part"
    """All that ran passed, and something could not run here."""
    FAILS = "FAILS"
    VARIANT_LIVES = "VARIANT LIVES"
    """A known-bad variant was not found."""
    SKIPPED = "skipped"
    """Nothing of it could run here."""
    IN_FULL_ONLY = "in full only"
    """It has no short form."""
    INTERRUPTED = "interrupted"
    NOT_RUN = "not run"


@dataclass(slots=True, kw_only=True)
class Result:
    """The outcome of one proof.

    `exit_code` is pytest's, None while its tests have not come to their end; `tree` is the state of the files that it was about;
    `missing` says what could not run on that machine, and why; `variants_tried` says of each known-bad variant whether it was
    found, and `variants` how many there are.
    """

    name: str
    share: float
    variants: int = 0
    tree: str = ""
    commit: str = ""
    machine: str = ""
    date: str = ""
    exit_code: int | None = None
    passed: int = 0
    failed: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    figures: dict[str, float] = field(default_factory=dict)
    test_seconds: float = 0.0
    variants_tried: dict[str, bool] = field(default_factory=dict)
    variant_seconds: float = 0.0

    @property
    def seconds(self) -> float:
        return self.test_seconds + self.variant_seconds

    @property
    def tests_passed(self) -> bool:
        """Whether its tests came to their end, and each that could run passed."""
        return self.exit_code == PYTEST_PASSED and self.passed > 0 and not self.failed

    @property
    def verdict(self) -> Verdict:
        """In full, each variant has to be tried as well."""
        if not self.date:
            return Verdict.NOT_RUN
        if self.exit_code is None:
            return Verdict.INTERRUPTED
        if self.exit_code == PYTEST_FOUND_NOTHING and self.share < 1 and not self.failed:
            return Verdict.IN_FULL_ONLY
        if self.failed or self.exit_code != PYTEST_PASSED:
            return Verdict.FAILS
        if not self.passed:
            return Verdict.SKIPPED
        if not all(self.variants_tried.values()):
            return Verdict.VARIANT_LIVES
        if self.share >= 1 and len(self.variants_tried) < self.variants:
            return Verdict.INTERRUPTED
        return Verdict.IN_PART if self.missing else Verdict.HOLDS

    @property
    def fails(self) -> bool:
        return self.verdict in {Verdict.FAILS, Verdict.VARIANT_LIVES}

    def is_better_than(self, published: Result | None) -> bool:
        """Whether it is published in the place of the other one.

        A failure is, if it is as full and as new. What holds is, if it is fuller, or as full and as new, and nothing was left out
        that the other one had.
        """
        if self.verdict not in {Verdict.HOLDS, Verdict.IN_PART} and not self.fails:
            return False
        if published is None:
            return True
        if self.fails or published.fails:
            return (self.share, self.date) >= (published.share, published.date)
        mine, others = ((each.share, -len(each.missing), len(each.variants_tried)) for each in (self, published))
        return (mine, self.date) >= (others, published.date)

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{self.name}.json").write_text(json.dumps(self.describe(), indent=2) + "\n")

    def describe(self) -> dict[str, Any]:
        """All of it for JSON, with the verdict."""
        return {**asdict(self), "verdict": self.verdict.value}


def load_result(folder: Path, name: str) -> Result | None:
    """What was kept; None if nothing was, or it cannot be read."""
    try:
        return _parse_result(json.loads((folder / f"{name}.json").read_text()))
    except (OSError, ValueError, TypeError, KeyError):
        return None


def load_published(file: Path) -> dict[str, Result]:
    """The results that the pages show, by proof. Raises `ValueError` for a damaged file."""
    return {each["name"]: _parse_result(each) for each in json.loads(file.read_text())} if file.exists() else {}


def save_published(file: Path, proofs: Sequence[Proof], results: Mapping[str, Result]) -> None:
    """Keep the results that the pages show, of those proofs that there are."""
    found = [results[each.name].describe() for each in proofs if each.name in results]
    file.write_text(json.dumps(found, indent=2) + "\n")


def _parse_result(read: Mapping[str, Any]) -> Result:
    known = {each.name: read[each.name] for each in fields(Result)}
    return Result(**{**known, "failed": tuple(read["failed"]), "missing": tuple(read["missing"])})


@dataclass(slots=True)
class Told:
    """What the tests of a proof have told so far: sums, how far one that runs has come, and how many have ended."""

    figures: dict[str, float] = field(default_factory=dict)
    progress: tuple[int, int] | None = None
    tests: int = 0


def read_figures(file: Path) -> Told:
    """Sum up what the tests wrote (`tests.harness.proof.Figures`)."""
    told = Told()
    for text in file.read_text().splitlines() if file.exists() else ():
        try:
            line: Mapping[str, Any] = json.loads(text)
        except ValueError:
            continue  # its process was ended while it wrote
        for name, number in line.get("add", {}).items():
            told.figures[name] = told.figures.get(name, 0) + number
        for name, number in line.get("most", {}).items():
            told.figures[name] = max(told.figures.get(name, number), number)
        if "progress" in line:
            told.progress = (line["progress"][0], line["progress"][1])
        if "tests" in line:
            told.tests, told.progress = told.tests + line["tests"], None
    return told


def format_figures(result: Result) -> str:
    """`1,000 kills · 412 orders · 0 lost`: what was counted, or else the tests; of a failing proof, what failed."""
    if result.failed:
        return "failed: " + " · ".join(f"`{each.partition(': ')[0]}`" for each in result.failed)
    if not result.figures:
        return f"{result.passed:,} tests"
    return " · ".join(_describe_figure(name, number) for name, number in result.figures.items())


def _describe_figure(name: str, number: float) -> str:
    """`412 orders`; with a unit at the end of its name, `16 s longest takeover`."""
    rest, _, unit = name.rpartition("_")
    words = f"{_UNITS[unit]} {rest}" if rest and unit in _UNITS else name
    return f"{_number(number)} {words.replace('_', ' ')}"


def format_table(proofs: Sequence[Proof], results: Mapping[str, Result]) -> str:
    """The table in Markdown, a row for each proof that has a result."""
    rows = [("Proof", "What it claims", "Figures", "Known-bad variants found", "Length", "Took", "Outcome")]
    for proof in proofs:
        result = results.get(proof.name)
        if result is None:
            continue
        took = f"{result.seconds / 60:.1f} min, {result.date}" if result.date else "–"
        took += f", `{result.commit}`" if result.commit and result.date else ""
        verdict = result.verdict.value if result.verdict is Verdict.HOLDS else f"**{result.verdict}**"
        outcome = f"{verdict} ({len(result.missing)} left out)" if result.missing else verdict
        figures = format_figures(result) if result.date else "–"
        rows.append(
            (f"`{proof.name}`", proof.claim, figures, _describe_variants(result), _describe_length(proof, result), took, outcome)
        )
    lines = [f"| {' | '.join(row)} |" for row in rows]
    lines.insert(1, "|" + "---|" * len(rows[0]))
    return "\n".join(lines)


def _describe_length(proof: Proof, result: Result) -> str:
    """`full`, or what was done of the full number where the plan has that, or else the share."""
    if result.share >= 1:
        return "full"
    if proof.in_full is not None and proof.in_full[0] in result.figures:
        name, number = proof.in_full
        return f"{_number(result.figures[name])} of {_number(number)} {name}"
    return f"{result.share:g} of it"


def _describe_variants(result: Result) -> str:
    """`3 of 3`, or which one was found of those that are tried in turn."""
    if not result.variants:
        return "has none"
    if not result.variants_tried:
        return f"0 of {result.variants} tried"
    found = f"{sum(result.variants_tried.values())} of {len(result.variants_tried)}"
    if result.variants <= len(result.variants_tried):
        return found
    return f"{found}: `{'`, `'.join(result.variants_tried)}`; {result.variants} in turn"


def format_headlines(headlines: Sequence[Headline], results: Mapping[str, Result]) -> str:
    """The figures that matter most, a row for each that was counted."""
    rows = [
        f"| {_number(results[each.proof].figures[each.figure])} | {each.text} |"
        for each in headlines
        if each.proof in results
        and results[each.proof].verdict in {Verdict.HOLDS, Verdict.IN_PART}
        and each.figure in results[each.proof].figures
    ]
    return "\n".join(["| | |", "|--:|---|", *rows])


def missing_reasons(results: Iterable[Result]) -> list[str]:
    proofs = dict[str, list[str]]()
    for result in results:
        for reason in dict.fromkeys(result.missing):
            proofs.setdefault(reason, []).append(result.name)
    return [f"{', '.join(names)}: {reason}" for reason, names in sorted(proofs.items())]


def describe_machine() -> str:
    """`2 cores, Linux x86_64, Python 3.11.7`."""
    return f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python {platform.python_version()}"


def describe_commit(root: Path) -> str:
    """The abbreviated commit of a checkout, with `+` where files differ from it; empty where that cannot be known."""
    try:
        commit, changed = (
            subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True).stdout.strip()
            for words in (("rev-parse", "--short=8", "HEAD"), ("status", "--porcelain", "--untracked-files=no"))
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return commit + ("+" if changed else "")


def _number(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"
