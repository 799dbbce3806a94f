"""`python -m benchmarks [NAME ...] [--quick] [--large] [--json FILE] [--markdown FILE]`: run benchmarks and print their table."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks import api, bad_input, comparison, delivery, growth, hl7v2, intake, start, status_page
from benchmarks.measurement import Measurement, RunOptions
from benchmarks.report import print_table, put_into_page, to_json, to_markdown

Benchmark = Callable[[RunOptions], list[Measurement]]
BENCHMARKS: dict[str, Benchmark] = {
    "intake": intake.measure,
    "delivery": delivery.measure,
    "comparison": comparison.measure,
    "api": api.measure,
    "hl7v2": hl7v2.measure,
    "start": start.measure,
    "growth": growth.measure,
    "status_page": status_page.measure,
    "bad_input": bad_input.measure,
}


def main() -> None:
    """Run what was asked for."""
    given = _parse(sys.argv[1:])
    options = RunOptions(quick=given.quick, large=given.large)
    results = {}
    for name in given.names or BENCHMARKS:
        started = time.monotonic()
        results[name] = BENCHMARKS[name](options)
        _tell(f"{name}: {time.monotonic() - started:.0f} s")
    command = _make_command(given)
    if given.page is not None:
        put_into_page(given.page, to_markdown(results, command))
    print_table(results)
    for path, text in ((given.json, to_json(results, command)), (given.markdown, to_markdown(results, command))):
        if path is not None:
            path.write_text(text, encoding="utf-8")
            _tell(f"written: {path}")


def _parse(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*BENCHMARKS, []], help="all, if none is named", metavar="NAME")
    parser.add_argument("--quick", action="store_true", help="the short form, for a look")
    parser.add_argument("--large", action="store_true", help="with what takes many minutes")
    parser.add_argument("--json", type=Path, help="file for the numbers as JSON")
    parser.add_argument("--markdown", type=Path, help="file for the table as Markdown")
    parser.add_argument("--page", type=Path, help="Markdown page whose table is replaced")
    return parser.parse_args(words)


def _make_command(given: argparse.Namespace) -> str:
    """The command as people give it."""
    only = f" ONLY='{' '.join(given.names)}'" if given.names else ""
    return f"make bench{only}{' QUICK=1' if given.quick else ''}{' LARGE=1' if given.large else ''}"


def _tell(text: str) -> None:
    sys.stderr.write(text + "\n")


if __name__ == "__main__":
    main()
