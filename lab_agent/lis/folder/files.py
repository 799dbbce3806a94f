"""Writing, reading and moving files with the care that a power cut asks for. All of it blocks; call it in a thread.

File names: which are temporary, which are safe, and how a hostile one is written down.

Whether a file has stopped changing: seen alike at two looks that are far enough apart.
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

_CLAIM_PREFIX = ".taken-"
_CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """Which file it is, and in which state: another write makes another identity."""

    device: int
    inode: int
    size: int
    mtime_ns: int

    @classmethod
    def from_stat(cls, status: os.stat_result) -> FileIdentity:
        """Take it from a status."""
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


class FileTooLargeError(OSError):
    """The file is larger than may be read."""


class NotRegularFileError(OSError):
    """It is a link, a pipe or something else that is no plain file."""


def write_atomically(path: Path, data: bytes, mode: int) -> None:
    """Put `data` at `path` all at once: a temporary name of its own, fsync, rename, fsync of the folder."""
    temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        with os.fdopen(os.open(temporary, _CREATE_FLAGS, mode), "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Put the names in a folder on the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def identity_of(path: Path) -> FileIdentity:
    """Look which file is at `path`. Raises `FileNotFoundError`, `NotPlainError`."""
    status = path.lstat()
    if not stat.S_ISREG(status.st_mode):
        raise NotRegularFileError(path.name)
    return FileIdentity.from_stat(status)


def read_regular_file(path: Path, limit: int) -> tuple[bytes, FileIdentity]:
    """Read a plain file of at most `limit` bytes. Raises `FileNotFoundError`, `TooLargeError`, `NotPlainError`."""
    identity = identity_of(path)
    with os.fdopen(os.open(path, _READ_FLAGS), "rb") as file:
        opened = FileIdentity.from_stat(os.fstat(file.fileno()))
        if opened.size > limit:
            raise FileTooLargeError(path.name)
        data = file.read(limit + 1)
        if opened != identity or len(data) != opened.size or FileIdentity.from_stat(os.fstat(file.fileno())) != opened:
            raise FileNotFoundError(path.name)  # it was changed under our hands: look again later
    return data, opened


def claim_and_move(path: Path, identity: FileIdentity, folder: Path) -> Path | None:
    """Move the file that we read into `folder`, under a name that is free there.

    None if another file has taken its place since: that one has not been read yet, and goes back. The file is claimed under
    a hidden name first, so that one that we took by mistake is found again even if we die with it in our hands
    (`put_back_claimed`). A name is taken by creating it, so that nothing is ever overwritten.
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
    """Give files their names back that were claimed by a process which died."""
    for claimed in folder.glob(f"{_CLAIM_PREFIX}*"):
        _restore_name(claimed, claimed.name.removeprefix(_CLAIM_PREFIX)[9:])


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
    """Create an empty file of a name that is free in `folder`, as near to `name` as can be."""
    stem, suffix = os.path.splitext(name)  # noqa: PTH122 — a Path would not take every name
    candidates = (name, *(f"{shorten_name(stem, 200)}~{secrets.token_hex(4)}{suffix}" for _ in range(20)))
    for candidate in candidates:
        try:
            os.close(os.open(folder / candidate, _CREATE_FLAGS, 0o600))
        except FileExistsError:
            continue
        return folder / candidate
    raise FileExistsError(name)


def shorten_name(name: str, length: int) -> str:
    """Keep the end of a name: its suffix says what it is."""
    return os.fsdecode(os.fsencode(name)[-length:])


_TEMPORARY_SUFFIXES = (".part", ".tmp", ".temp", ".filepart", ".crdownload", "~")
_MAX_SHOWN_LENGTH = 200
_UNSAFE_CHARACTER = re.compile(r"[^A-Za-z0-9_-]")


def is_temporary(name: str) -> bool:
    """Whether a file of this name is still being written, or is nobody's business."""
    return name.startswith(".") or name.lower().endswith(_TEMPORARY_SUFFIXES)


def matches_pattern(name: str, pattern: str) -> bool:
    """Whether a file of this name is meant by a pattern such as `RES_*.json`, in any case."""
    return fnmatchcase(name.lower(), pattern.lower()) and not is_temporary(name)


def format_file_name(pattern: str, values: Mapping[str, str]) -> str:
    """Give the name that a pattern means; what others wrote is made harmless, and the key (which is ours) makes it single."""
    name = pattern
    for word, value in values.items():
        name = name.replace(f"{{{word}}}", _UNSAFE_CHARACTER.sub("_", value)[:60] or "_")
    return name


def is_safe_relative_path(name: str) -> bool:
    """Whether a name that a report gives leads to a file within the folder, by its spelling alone."""
    parts = name.split("/")
    plain = name.isprintable() and not {"\\", ":"} & set(name)
    return plain and not PurePosixPath(name).is_absolute() and not any(part.startswith(".") or not part for part in parts)


def printable_name(name: str) -> str:
    """Write a file name so that any log, page or database takes it."""
    text = os.fsencode(name).decode("utf-8", "backslashreplace")
    shown = "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)
    return shown if len(shown) <= _MAX_SHOWN_LENGTH else shown[:_MAX_SHOWN_LENGTH] + "…"


def is_safe_key(key: str) -> bool:
    """Whether a key can be part of a file name."""
    return 0 < len(key) <= 64 and key.isascii() and key.replace("-", "").replace("_", "").isalnum()


@dataclass(slots=True)
class SettleTracker:
    """Remembers since when each file looks as it does. Times are seconds of a clock that never goes back."""

    settle: float
    _unchanged_since: dict[str, tuple[FileIdentity, float]] = field(default_factory=dict)
    _waiting_since: dict[str, float] = field(default_factory=dict)

    def is_settled(self, name: str, identity: FileIdentity, now: float) -> bool:
        """Whether the file has looked the same for long enough, by what was seen so far and now."""
        known, since = self._unchanged_since.get(name, (None, now))
        if known != identity:
            since = now
            self._unchanged_since[name] = (identity, now)
        return now - since >= self.settle

    def seconds_waiting(self, message: str, now: float) -> float:
        """Seconds since this message was first asked about."""
        return now - self._waiting_since.setdefault(message, now)

    def forget(self, *names: str) -> None:
        """Forget files or messages that were put away."""
        for name in names:
            self._unchanged_since.pop(name, None)
            self._waiting_since.pop(name, None)

    def keep_only(self, names: frozenset[str]) -> None:
        """Forget all files but these."""
        self._unchanged_since = {name: seen for name, seen in self._unchanged_since.items() if name in names}
