"""A mark outside the database and its backups: how far the audit was. Records that were cut off at its end show by it.

The chain goes first; the file follows, and never goes back by itself.
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


@dataclass(frozen=True, slots=True)
class AuditMark:
    """The last record that was known: of which database, its number and its hash."""

    instance: str
    number: int
    hash: str


@dataclass(frozen=True, slots=True)
class AuditMarkFile:
    """The file. Everything here blocks: call it in a thread."""

    path: Path

    def read(self) -> AuditMark | None:
        """Give the mark; None if there is none yet. Raises `StoreError` if it cannot be read."""
        try:
            found = json.loads(self.path.read_bytes())
            return AuditMark(str(found["instance"]), int(found["number"]), str(found["hash"]))
        except FileNotFoundError:
            return None
        except OSError as exc:
            raise self._error(exc.strerror or "cannot be read") from exc
        except (ValueError, TypeError, KeyError) as exc:
            raise self._error("is damaged") from exc

    def advance(self, mark: AuditMark) -> None:
        """Write the mark, unless it is further already, or that of another database. Raises `StoreError`."""
        known = self.read()
        if known is None or (known.instance == mark.instance and known.number < mark.number):
            self.write(mark)

    def write(self, mark: AuditMark) -> None:
        """Write the mark, whatever it was. Raises `StoreError`."""
        text = json.dumps({"instance": mark.instance, "number": mark.number, "hash": mark.hash})
        try:
            write_atomically(self.path, text.encode())
        except OSError as exc:
            raise self._error(exc.strerror or "cannot be written") from exc

    def _error(self, what: str) -> StoreError:
        return StoreError(f"The file that marks how far the audit is, {self.path}, {what}.")


def accept_restore(settings: StoreSettings) -> int:
    """Let the mark begin anew, as the database is an older copy now; the number that it was at, for the audit to keep.

    Call it where the restore is recorded. Raises `StoreError`.
    """
    file = open_audit_mark(settings)
    if file is None:
        return 0
    known = file.read()
    try:
        file.path.unlink(missing_ok=True)
    except OSError as exc:
        raise StoreError(f"The file that marks how far the audit is, {file.path}, cannot be removed.") from exc
    return 0 if known is None else known.number


def open_audit_mark(settings: StoreSettings) -> AuditMarkFile | None:
    """Open the audit's mark: beside the database, or beside `store.mark`; None where there is no place for it."""
    if settings.mark is not None:
        return AuditMarkFile(settings.mark.with_name(f"{settings.mark.name}.audit"))
    file = sqlite_file(settings.url)
    return None if file is None else AuditMarkFile(beside_database(file, ".audit"))
