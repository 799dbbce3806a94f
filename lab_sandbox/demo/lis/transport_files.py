"""Atomic writes, so that no reader sees half a file: a temporary name, fsync, rename, fsync of the folder."""

from __future__ import annotations

import os
from pathlib import Path

TEMPORARY_SUFFIX = ".part"


def write_atomically(folder: Path, name: str, content: bytes) -> Path:
    """Writes a file into the folder, whole or not at all."""
    temporary, final = folder / f".{name}{TEMPORARY_SUFFIX}", folder / name
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(final)
    _fsync_folder(folder)
    return final


def _fsync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
