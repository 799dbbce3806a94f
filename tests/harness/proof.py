"""What a long test is told and what it tells: how large a share of it runs, what it counted, and how far it is.

`make proof` reads the figures from the file that LAB_PROOF_FIGURES names; without one, nobody asks for them.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import pytest

SHARE = float(os.environ.get("LAB_PROOF_SHARE", "1"))
"""Of its full length, how much a long test runs: 1 with `make proof`, a twentieth with `make proof SHORT=1`."""
in_full = pytest.mark.in_full
"""For a long test that has no short form: it is not there in a shorter run."""
_FILE = os.environ.get("LAB_PROOF_FIGURES")
T = TypeVar("T")


def share_of(full: int, *, at_least: int = 1) -> int:
    """As many of `full` as the share says, but never fewer than `at_least`."""
    return max(at_least, round(full * SHARE))


def in_turn(all_of_them: Sequence[T], parts: int) -> Sequence[T]:
    """All in full; of a shorter run one of so many parts, another one each day."""
    return all_of_them if SHARE >= 1 else all_of_them[datetime.now(UTC).toordinal() % parts :: parts]


class Figures:
    """What the tests of a proof have counted; all of one proof count together."""

    def __init__(self, file: Path | None) -> None:
        self._file = file

    def add(self, **counts: int) -> None:
        """Count: `add(kills=1)`. Write "0 lost" once it was checked: `add(lost=0)`. Underscores become spaces in the table."""
        self._write(add=counts)

    def most(self, **values: float) -> None:
        """Keep the largest: `most(longest_wait_s=3.2)`."""
        self._write(most=values)

    def progress(self, done: int, total: int) -> None:
        self._write(progress=[done, total])

    def test_ended(self) -> None:
        self._write(tests=1)

    def _write(self, **line: object) -> None:
        if self._file is not None:
            with self._file.open("a") as file:
                file.write(json.dumps(line) + "\n")


FIGURES = Figures(Path(_FILE) if _FILE else None)
_FAILURES = os.environ.get("LAB_PROOF_FAILURES")


def keep_failed(folder: Path, error: BaseException) -> None:
    """Keep the files with which a long test failed where LAB_PROOF_FAILURES says, and note it."""
    if _FAILURES is not None:
        kept = Path(_FAILURES) / folder.name
        shutil.copytree(folder, kept, ignore=lambda path, names: [each for each in names if (Path(path) / each).is_socket()])
        error.add_note(f"its settings, databases, messages and logs: {kept}")
