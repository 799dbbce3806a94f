"""Reads and moves files so that a crash or power cut loses nothing, and judges file names and whether a file still changes.

The functions that touch files block: call them in a thread.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

_CLAIM_PREFIX = ".claimed-"
_CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """Which file it is, and in which state: every write changes the identity."""

    device: int
    inode: int
    size: int
    mtime_ns: int

    @classmethod
    def from_stat(cls, status: os.stat_result) -> FileIdentity:
        """The identity in a stat result."""
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


class FileTooLargeError(OSError):
    """The file is larger than allowed."""


class NotRegularFileError(OSError):
    """It is a link, a pipe or something else that is not a regular file."""


def identity_of(path: Path) -> FileIdentity:
    """The identity of the file at `path`. Raises `FileNotFoundError`, `NotRegularFileError`."""
    status = path.lstat()
    if not stat.S_ISREG(status.st_mode):
        raise NotRegularFileError(path.name)
    return FileIdentity.from_stat(status)


def read_regular_file(path: Path, limit: int) -> tuple[bytes, FileIdentity]:
    """Read a regular file of at most `limit` bytes. Raises `FileNotFoundError`, `FileTooLargeError`, `NotRegularFileError`."""
    identity = identity_of(path)
    with os.fdopen(os.open(path, _READ_FLAGS), "rb") as file:
        opened = FileIdentity.from_stat(os.fstat(file.fileno()))
        if opened.size > limit:
            raise FileTooLargeError(path.name)
        data = file.read(limit + 1)
        if opened != identity or len(data) != opened.size or FileIdentity.from_stat(os.fstat(file.fileno())) != opened:
            raise FileNotFoundError(path.name)  # it changed while we read it: try again later
    return data, opened


def claim_and_move(path: Path, identity: FileIdentity, folder: Path) -> Path | None:
    """Move the file that was read into `folder`, under a name that is free there.

    Returns None if another file has taken its place since: that one has not been read yet, and is put back. The file is claimed
    under a hidden name first, so that one claimed by mistake is found again even after a crash (`restore_claimed_files`).
    Names are reserved by creating them, so that nothing is ever overwritten.
    """
    claimed = path.with_name(f"{_CLAIM_PREFIX}{secrets.token_hex(4)}-{shorten_name(path.name, 220)}")
    path.rename(claimed)
    try:
        if identity_of(claimed) == identity:
            return _move_to_free_name(claimed, folder, path.name)
    except OSError:
        _restore_name(claimed, path.name)
        raise
    _restore_name(claimed, path.name)
    return None


def restore_claimed_files(folder: Path) -> None:
    """Restore the names of files claimed by a process that died."""
    for claimed in folder.glob(f"{_CLAIM_PREFIX}*"):
        _restore_name(claimed, claimed.name.removeprefix(_CLAIM_PREFIX)[9:])


def restore_moved_file(path: Path, folder: Path, name: str) -> None:
    """Move a file back into `folder`, under `name` or one close to it."""
    with suppress(FileNotFoundError):
        _move_to_free_name(path, folder, name)


def _restore_name(claimed: Path, name: str) -> None:
    with suppress(FileNotFoundError):
        _move_to_free_name(claimed, claimed.parent, name)


def _move_to_free_name(path: Path, folder: Path, name: str) -> Path:
    target = _reserve_name(folder, name)
    try:
        return path.replace(target)
    except BaseException:
        target.unlink(missing_ok=True)
        raise


def _reserve_name(folder: Path, name: str) -> Path:
    """Create an empty file in `folder` under a free name, as close to `name` as possible."""
    stem, suffix = os.path.splitext(name)  # noqa: PTH122 — Path does not accept every name
    candidates = (name, *(f"{shorten_name(stem, 200)}~{secrets.token_hex(4)}{suffix}" for _ in range(20)))
    for candidate in candidates:
        try:
            os.close(os.open(folder / candidate, _CREATE_FLAGS, 0o600))
        except FileExistsError:
            continue
        return folder / candidate
    raise FileExistsError(name)


def shorten_name(name: str, length: int) -> str:
    """Shorten a name from the front, since its suffix matters."""
    return os.fsdecode(os.fsencode(name)[-length:])


_TEMPORARY_SUFFIXES = (".part", ".tmp", ".temp", ".filepart", ".crdownload", "~")
_MAX_SHOWN_LENGTH = 200
_UNSAFE_CHARACTER = re.compile(r"[^A-Za-z0-9_-]")


def is_temporary(name: str) -> bool:
    """Whether a file of this name is temporary or hidden."""
    return name.startswith(".") or name.lower().endswith(_TEMPORARY_SUFFIXES)


def matches_pattern(name: str, pattern: str) -> bool:
    """Whether a name matches a pattern such as `RES_*.json`, in any case."""
    return fnmatchcase(name.lower(), pattern.lower()) and not is_temporary(name)


def format_file_name(pattern: str, values: Mapping[str, str]) -> str:
    """Fill in a file name pattern. Foreign values are reduced to safe characters; our key makes the name unique."""
    name = pattern
    for word, value in values.items():
        name = name.replace(f"{{{word}}}", _UNSAFE_CHARACTER.sub("_", value)[:60] or "_")
    return name


def is_safe_relative_path(name: str) -> bool:
    """Whether a name given by a report stays within the folder, judged by its spelling alone."""
    parts = name.split("/")
    plain = name.isprintable() and not {"\\", ":"} & set(name)
    return plain and not PurePosixPath(name).is_absolute() and not any(part.startswith(".") or not part for part in parts)


def printable_name(name: str) -> str:
    """Write a file name so that any log, page or database accepts it."""
    text = os.fsencode(name).decode("utf-8", "backslashreplace")
    shown = "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)
    return shown if len(shown) <= _MAX_SHOWN_LENGTH else shown[:_MAX_SHOWN_LENGTH] + "…"


def is_safe_key(key: str) -> bool:
    """Whether a key can be part of a file name."""
    return 0 < len(key) <= 64 and key.isascii() and key.replace("-", "").replace("_", "").isalnum()


@dataclass(slots=True)
class SettleTracker:
    """Remembers since when each file is unchanged. Times are seconds of a monotonic clock."""

    settle: float
    _unchanged_since: dict[str, tuple[FileIdentity, float]] = field(default_factory=dict)
    _waiting_since: dict[str, float] = field(default_factory=dict)

    def is_settled(self, name: str, identity: FileIdentity, now: float) -> bool:
        """Whether the file has been unchanged for long enough."""
        known, since = self._unchanged_since.get(name, (None, now))
        if known != identity:
            since = now
            self._unchanged_since[name] = (identity, now)
        return now - since >= self.settle

    def seconds_unchanged(self, name: str, identity: FileIdentity, now: float) -> float:
        """Seconds for which the file has been seen unchanged."""
        known, since = self._unchanged_since.get(name, (None, now))
        return now - since if known == identity else 0.0

    def seconds_waiting(self, message: str, now: float) -> float:
        """Seconds since this message was first asked about."""
        return now - self._waiting_since.setdefault(message, now)

    def forget(self, *names: str) -> None:
        """Forget files or messages that were moved away."""
        for name in names:
            self._unchanged_since.pop(name, None)
            self._waiting_since.pop(name, None)

    def keep_only(self, names: frozenset[str]) -> None:
        """Forget all files but these."""
        self._unchanged_since = {name: seen for name, seen in self._unchanged_since.items() if name in names}
