"""Writing a file all at once, so that neither a reader nor a power cut ever meets half of it.

Everything here blocks: call it in a thread.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


def write_atomically(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Put `data` at `path`, in the place of what is there; on the disk when it returns. Raises `OSError`."""
    with temporary_file(path, data, mode) as temporary:
        temporary.replace(path)
    sync_folder(path.parent)


def rewrite_atomically(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Put `data` in the place of a person's file, which keeps its permissions and its owner; a link stays one.

    `mode` is that of a new file. Raises `OSError`.
    """
    target = path.resolve()
    before = target.stat() if target.exists() else None
    with temporary_file(target, data, mode if before is None else before.st_mode & 0o777) as temporary:
        if before is not None and (before.st_uid, before.st_gid) != (os.geteuid(), os.getegid()):
            os.chown(temporary, before.st_uid, before.st_gid)
        temporary.replace(target)
    sync_folder(target.parent)


@contextmanager
def temporary_file(path: Path, data: bytes, mode: int = 0o600) -> Iterator[Path]:
    """Give a hidden neighbour of `path` that holds `data` on the disk; it is removed at the end unless it was renamed.

    For whoever looks at the file before it gets its name, or links it where nothing may be overwritten.
    """
    temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        with os.fdopen(os.open(temporary, _CREATE_FLAGS, mode), "wb") as file:
            os.fchmod(file.fileno(), mode)  # the umask has taken bits of what was asked for
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Put the names in a folder on the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
