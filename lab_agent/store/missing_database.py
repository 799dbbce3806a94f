"""Whether a database that is missing or empty was lost, or is new: a lost one has left something behind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lab_agent.settings.root import Settings, UpgradeGroups
from lab_agent.shared.errors import SchemaMismatchError, StoreFault, StoreUnreachableError
from lab_agent.store.database_files import beside_database
from lab_agent.store.engine import sqlite_file
from lab_agent.store.store_mark import open_mark

LOCK_ENDING = ".lock"
"""Of the file beside a database that an agent has worked on; it stays when the agent has ended."""
_LOG_ENDINGS = ("-wal", "-shm")


@dataclass(frozen=True, slots=True)
class MissingDatabase:
    """There is no file at `store.url`. `remains` is a file that only a former database can have left; None if it is a new one."""

    file: Path
    remains: Path | None

    def to_error(self) -> StoreUnreachableError:
        """Make the error that it was lost."""
        return StoreUnreachableError(
            f"The database {self.file} is missing, and {self.remains} is there, which a former one has left. If this is a new "
            "installation, remove that file and run `lab-agent db upgrade`.",
            fault=StoreFault.DELETED,
        )


def find_missing_database(settings: Settings | UpgradeGroups) -> MissingDatabase | None:
    """Give the database that is missing; None where there is one, and for a database server."""
    file = sqlite_file(settings.store.url)
    if file is None or file.exists():
        return None
    return MissingDatabase(file, find_remains(settings))


def find_remains(settings: Settings | UpgradeGroups) -> Path | None:
    """Give a file that only a former database can have left; None where the database is missing or empty because it is new."""
    return next(_remains(sqlite_file(settings.store.url), settings), None)


def reject_lost(file: Path) -> None:
    """Raise `StoreUnreachableError` if a database is missing whose log is still there: a new one would destroy that."""
    if not file.exists() and any(_beside(file, _LOG_ENDINGS)):
        raise StoreUnreachableError(
            f"The database {file} is missing, and its write-ahead log {file.name}-wal is there: nothing was created. If the "
            "database was moved, move it back; else keep the log, and restore a backup.",
            fault=StoreFault.DELETED,
        )


def reject_missing(file: Path) -> None:
    """Raise `SchemaMismatchError`, which says what to do, if there is no database."""
    if not file.exists():
        hint = "restore it if it was lost; for a new installation run `lab-agent db upgrade`"
        raise SchemaMismatchError(f"There is no database at {file}; {hint}.", StoreFault.DELETED)


def _remains(file: Path | None, settings: Settings | UpgradeGroups) -> Iterator[Path]:
    """Its log, the lock of an agent that worked on it, the marks of it and of the labels issued from it, its backups."""
    if file is not None:
        yield from _beside(file, (LOCK_ENDING,) if file.exists() else (*_LOG_ENDINGS, LOCK_ENDING))
    mark, backups = open_mark(settings.store), settings.backup.folder
    marks = (settings.api.label_mark, mark.path if mark is not None else None)
    yield from (each for each in marks if each is not None and each.exists())
    if backups is not None:
        yield from (each for each in backups.rglob("*") if each.is_file())


def _beside(file: Path, endings: tuple[str, ...]) -> Iterator[Path]:
    return (other for ending in endings if (other := beside_database(file, ending)).exists())
