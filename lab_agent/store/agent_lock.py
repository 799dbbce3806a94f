"""One agent at a time on a SQLite database: the daemon holds a lock of the operating system on a file beside it.

The system frees the lock when the process ends, however it ends. It holds between containers on one machine, too; and SQLite's
write-ahead log works on one machine alone. PostgreSQL needs none: there, workers share the work.

The lock is beside the file itself, whatever symbolic links lead there: two paths to one database have one lock.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import socket
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from lab_agent.shared.errors import StoreFault, StoreUnreachableError
from lab_agent.store.database_files import beside_database
from lab_agent.store.engine import sqlite_file
from lab_agent.store.error_translation import from_os_error
from lab_agent.store.missing_database import LOCK_ENDING, reject_missing

_UNSUPPORTED = frozenset({errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})
_MAX_CONTENT = 300
_HOLDER = re.compile(r"host (?P<host>.+), process (?P<pid>\d+), since (?P<since>[-\d]+ [:\d]+) UTC")


@dataclass(frozen=True, slots=True)
class LockHolder:
    """The process that took the lock last, as the lock file says; it may be gone since."""

    host: str
    pid: int
    started_at: datetime

    def __str__(self) -> str:
        return f"host {self.host}, process {self.pid}, since {self.started_at:%Y-%m-%d %H:%M:%S} UTC"

    @classmethod
    def parse(cls, text: str) -> LockHolder | None:
        """Read what `str` writes; None for anything else."""
        found = _HOLDER.fullmatch(text.strip())
        if found is None:
            return None
        since = datetime.strptime(found["since"], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
        return cls(found["host"], int(found["pid"]), since)


def read_holder(url: str) -> LockHolder | None:
    """Who took the lock on the database at `url` last; None where that is not known. The lock itself is not touched."""
    file = sqlite_file(url)
    if file is None:
        return None
    try:
        text = beside_database(file, LOCK_ENDING).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return LockHolder.parse(text[:_MAX_CONTENT])


class AgentLock:
    """The lock of one process on the database at `url`, held from `acquire` to `release`."""

    def __init__(self, url: str) -> None:
        file = sqlite_file(url)
        self._file = file
        self._descriptor: int | None = None

    def acquire(self, now: datetime, *, needs_database: bool = True) -> None:
        """Take the lock, if it is not held already. Raises `StoreUnreachableError`, which names the agent that has it.

        Without a database no lock file is made (`needs_database`): where one is, there was a database.
        """
        if self._file is None or self._descriptor is not None:
            return
        path = beside_database(self._file, LOCK_ENDING)
        if needs_database and not path.exists():
            reject_missing(self._file)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as exc:
            raise from_os_error(exc, f"The lock file {path} cannot be opened") from exc
        try:
            _lock(descriptor, path, now)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor

    def release(self) -> None:
        """Let another agent have it."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _lock(descriptor: int, path: Path, now: datetime) -> None:
    own = LockHolder(socket.gethostname(), os.getpid(), now)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as exc:
        holder = os.pread(descriptor, _MAX_CONTENT, 0).decode("utf-8", "replace").strip() or "unknown"
        text = f"Another agent has the database: {holder}. The one that waits for it: host {own.host}, process {own.pid}."
        raise StoreUnreachableError(text, StoreFault.SECOND_AGENT) from exc
    except OSError as exc:
        if exc.errno not in _UNSUPPORTED:  # a file system without locks: nothing can be said about others
            raise from_os_error(exc, f"The lock file {path} cannot be locked") from exc
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(own).encode(), 0)
    except OSError as exc:
        if exc.errno not in {errno.ENOSPC, errno.EDQUOT}:  # the lock is held; only its holder's name is missing
            raise from_os_error(exc, f"The lock file {path} cannot be written") from exc
