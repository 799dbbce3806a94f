"""The highest label number issued of each range, in a file outside the database and its backups.

A database restored from a backup does not know the labels issued since; the file does, and issuing continues after it.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lab_agent.atomic_file import write_atomically
from lab_agent.errors import StoreError

LastNumbers = Mapping[str, Mapping[int, int]]
"""By pattern, and by the first number of the range: the last number issued."""


@dataclass(frozen=True, slots=True)
class HighWaterMark:
    """The file. Processes of one machine, or of a shared folder, share it."""

    path: Path

    def read(self) -> LastNumbers:
        """The last number of each range; empty if there is no file yet. Raises `StoreError` if it cannot be read."""
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return {}
        except OSError as exc:
            raise self._error(exc.strerror or "cannot be read") from exc
        try:
            return {pattern: {int(first): int(last) for first, last in of.items()} for pattern, of in json.loads(text).items()}
        except (ValueError, TypeError, AttributeError) as exc:
            raise self._error("is damaged; restore its last copy, or remove it if no database backup was restored") from exc

    def raise_to(self, numbers: LastNumbers) -> None:
        """Write that these numbers were issued; a higher one in the file stays. On the disk when it returns."""
        try:
            with self._locked():
                raised = {pattern: dict(ranges) for pattern, ranges in self.read().items()}
                for pattern, ranges in numbers.items():
                    marks = raised.setdefault(pattern, {})
                    marks.update({first: max(last, marks.get(first, last)) for first, last in ranges.items()})
                write_atomically(self.path, json.dumps(raised, sort_keys=True).encode(), mode=0o644)
        except OSError as exc:
            raise self._error(exc.strerror or "cannot be written") from exc

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.with_name(f".{self.path.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _error(self, what: str) -> StoreError:
        return StoreError(f"The file of issued label numbers, {self.path}, {what}.")
