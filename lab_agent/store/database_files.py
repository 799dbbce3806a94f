"""Whether the files of a SQLite database are still those that were opened.

SQLite goes on writing into a file that was deleted or replaced, as long as it has it open: all seems well, and everything is lost
with the process. So the files at the path are compared with those that were opened, before a transaction and before its callers
are answered; that costs two calls of `stat`.
"""

from __future__ import annotations

import os
from pathlib import Path

from sqlalchemy import Connection

from lab_agent.shared.errors import StoreFault, StoreUnreachableError

_INFO_KEY = "database files"
_FileId = tuple[int, int]


class DatabaseFiles:
    """The database file that was opened first; whatever lies at its path later must be the same one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._opened: _FileId | None = None

    def opened(self) -> OpenedFiles:
        """Note the files that a connection has just opened. Raises `StoreUnreachableError` if it is another database file."""
        found = _identify(self.path)
        if self._opened is None:
            self._opened = found
        if found is None or found != self._opened:
            raise _deleted_error(self.path, found)
        return OpenedFiles(self.path, found)


class OpenedFiles:
    """The files of one connection: the database, and its write-ahead log, which lasts as long as somebody has it open."""

    def __init__(self, path: Path, database: _FileId) -> None:
        self._path, self._log_path = path, beside_database(path, "-wal")
        self._database = database
        self._log = _identify(self._log_path)

    def check(self) -> None:
        """Raise `StoreUnreachableError` where another file, or none, is at the path of one that is open."""
        if (found := _identify(self._path)) != self._database:
            raise _deleted_error(self._path, found)
        log = _identify(self._log_path)
        if self._log is None:  # a database that was empty when it was opened
            self._log = log
        elif log != self._log:
            raise _log_deleted_error(self._log_path, log)


def beside_database(path: Path, ending: str) -> Path:
    """Give a file beside the database at `path`, as SQLite does: where the file itself is, if `path` is a symbolic link."""
    return Path(f"{os.path.realpath(path)}{ending}")


def attach_files(info: dict[str, object], files: DatabaseFiles) -> None:
    """Keep with a connection which files it has opened; `info` is its dictionary."""
    info[_INFO_KEY] = files.opened()


def check_files(connection: Connection) -> None:
    """Raise `StoreUnreachableError` where a file of this connection was deleted or replaced."""
    if isinstance(opened := connection.info.get(_INFO_KEY), OpenedFiles):
        opened.check()


def missing_file_error(path: Path) -> StoreUnreachableError:
    """Make the error that there is no database file."""
    text = f"The database is unavailable: its file cannot be opened, since there is none at {path}; nothing was written."
    return StoreUnreachableError(text, StoreFault.DELETED)


def _identify(path: Path) -> _FileId | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - twice for each transaction: pathlib's takes three times as long
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _deleted_error(path: Path, found: _FileId | None) -> StoreUnreachableError:
    return StoreUnreachableError(f"The database is unavailable: {path} {_what(found)} while it was open.", StoreFault.DELETED)


def _log_deleted_error(path: Path, found: _FileId | None) -> StoreUnreachableError:
    text = f"The database is unavailable: its write-ahead log {path} {_what(found)} while it was open; its file is in place."
    return StoreUnreachableError(text, StoreFault.LOG_DELETED)


def _what(found: _FileId | None) -> str:
    return "was deleted, or moved away" if found is None else "was replaced by another file"
