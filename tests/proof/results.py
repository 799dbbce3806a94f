"""What a run of a proof came to, kept as JSON so that an interrupted run goes on; and the table of all of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.proof.plan import Headline, Proof


@dataclass(slots=True, kw_only=True)
class Result:
    """The outcome of one proof.

    `tree` is the state of the files that it was about; `mutants` says of each known-bad variant that was tried whether it was
    found, and `variants` how many there are.
    """

    name: str
    tree: str
    share: float
    date: str = ""
    passed: int = 0
    failed: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    figures: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    mutants: dict[str, bool] = field(default_factory=dict)
    variants: int = 0
    mutant_seconds: float = 0.0
    """Of `seconds`, what the variants took."""

    @property
    def holds(self) -> bool:
        """Whether all that ran passed, something ran, and every variant was found."""
        return self.passed > 0 and not self.failed and all(self.mutants.values())

    @property
    def verdict(self) -> str:
        """One or two words for the table."""
        if self.holds:
            return "holds"
        if not self.passed and not self.failed:
            return "skipped"
        return "FAILS" if self.failed else "MUTANT LIVES"

    def is_better_than(self, published: Result | None) -> bool:
        """Whether it is published in the place of the other one: it holds where that did not, is fuller, or as full and newer."""
        if published is None:
            return True
        return (self.holds, self.share, self.date) >= (published.holds, published.share, published.date)

    def save(self, folder: Path) -> None:
        """Keep it for the next run."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{self.name}.json").write_text(json.dumps(asdict(self), indent=2) + "\n")


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
    found = [asdict(results[each.name]) for each in proofs if each.name in results]
    file.write_text(json.dumps(found, indent=2) + "\n")


def _parse_result(read: Mapping[str, Any]) -> Result:
    return Result(**{**read, "failed": tuple(read["failed"]), "skipped": tuple(read["skipped"])})


def read_figures(file: Path) -> tuple[dict[str, float], tuple[int, int] | None]:
    """Sum up what the tests wrote (`tests.harness.proof.Figures`): the figures, and how far the last test was."""
    figures: dict[str, float] = {}
    progress: tuple[int, int] | None = None
    for text in file.read_text().splitlines() if file.exists() else ():
        try:
            line: Mapping[str, Any] = json.loads(text)
        except ValueError:
            continue  # its process was ended while it wrote
        for name, number in line.get("add", {}).items():
            figures[name] = figures.get(name, 0) + number
        for name, number in line.get("most", {}).items():
            figures[name] = max(figures.get(name, number), number)
        if "progress" in line:
            progress = (line["progress"][0], line["progress"][1])
    return figures, progress


def format_figures(result: Result) -> str:
    """`1,000 kills · 412 orders · 0 lost`: what was counted, or else the tests."""
    if not result.figures:
        return f"{result.passed:,} tests"
    return " · ".join(f"{_number(number)} {name.replace('_', ' ')}" for name, number in result.figures.items())


def format_table(proofs: Sequence[Proof], results: Mapping[str, Result]) -> str:
    """The table in Markdown, a row for each proof that has a result."""
    rows = [("Proof", "What it claims", "Figures", "Known-bad variants found", "Length", "Took", "Outcome")]
    for proof in proofs:
        result = results.get(proof.name)
        if result is None:
            continue
        found = _describe_variants(result)
        left_out = f" ({len(result.skipped)} left out)" if result.skipped else ""
        length = "full" if result.share >= 1 else f"1/{round(1 / result.share)}"
        took = f"{result.seconds / 60:.1f} min, {result.date}"
        outcome = result.verdict if result.holds else f"**{result.verdict}**"
        rows.append((f"`{proof.name}`", proof.claim, format_figures(result) + left_out, found, length, took, outcome))
    lines = [f"| {' | '.join(row)} |" for row in rows]
    lines.insert(1, "|" + "---|" * len(rows[0]))
    return "\n".join(lines)


def _describe_variants(result: Result) -> str:
    """`3 of 3`, or which one was found of those that are tried in turn."""
    if not result.mutants:
        return "–"
    found = f"{sum(result.mutants.values())} of {len(result.mutants)}"
    if result.variants <= len(result.mutants):
        return found
    return f"{found}: `{'`, `'.join(result.mutants)}`; {result.variants} in turn"


def format_headlines(headlines: Sequence[Headline], results: Mapping[str, Result]) -> str:
    """The figures that matter most, a row for each that was counted."""
    rows = [
        f"| {_number(results[each.proof].figures[each.figure])} | {each.text} |"
        for each in headlines
        if each.proof in results and results[each.proof].holds and each.figure in results[each.proof].figures
    ]
    return "\n".join(["| | |", "|--:|---|", *rows])


def skipped_reasons(results: Iterable[Result]) -> list[str]:
    """Each reason why something did not run, once."""
    return sorted({reason for result in results for reason in result.skipped})


def _number(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"
