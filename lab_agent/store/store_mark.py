"""A mark outside the database and its backups: how far the database was. A database that is behind it was restored.

The database counts; the file follows. So the file is never ahead of the database that it belongs to.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from lab_agent.settings.groups import StoreSettings
from lab_agent.shared.atomic_file import write_atomically
from lab_agent.shared.errors import StoreError
from lab_agent.store.database_files import beside_database
from lab_agent.store.engine import sqlite_file
from lab_agent.store.restoration import MarkedNumber


@dataclass(frozen=True, slots=True)
class FileMark:
    """The file, for one agent. Everything here blocks: call it in a thread."""

    path: Path

    def read(self) -> MarkedNumber | None:
        """Give the mark; None if there is none yet. Raises `StoreError` if it cannot be read."""
        try:
            found = json.loads(self.path.read_bytes())
            return MarkedNumber(str(found["instance"]), int(found["number"]))
        except FileNotFoundError:
            return None
        except OSError as exc:
            raise self._error(exc.strerror or "cannot be read") from exc
        except (ValueError, TypeError, KeyError) as exc:
            raise self._error("is damaged; remove it if no backup was restored") from exc

    def write(self, number: MarkedNumber) -> None:
        """Put the mark on the disk. Raises `StoreError` if it cannot be written."""
        text = json.dumps({"instance": number.instance, "number": number.number})
        try:
            write_atomically(self.path, text.encode())
        except OSError as exc:
            raise self._error(exc.strerror or "cannot be written") from exc

    def _error(self, what: str) -> StoreError:
        return StoreError(f"The file that marks how far the database is, {self.path}, {what}.")


def open_mark(settings: StoreSettings) -> FileMark | None:
    """Open the mark that shows whether the database was restored; None where there is no place for it."""
    if settings.mark is not None:
        return FileMark(settings.mark)
    file = sqlite_file(settings.url)
    return None if file is None else FileMark(beside_database(file, ".mark"))
