"""A real disk that can be full, read-only or not mounted: for root, who alone may mount one."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted_disk(folder: Path, size: int = 256_000) -> Iterator[Path]:
    """Mount an empty disk of `size` bytes at `folder`, which must exist; skips the test where that is not allowed."""
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], capture_output=True, check=False)
    if done.returncode:
        pytest.skip("mounting a disk needs root")
    try:
        yield folder
    finally:
        unmount(folder)


def unmount(folder: Path) -> None:
    """Take the disk away, whoever uses it; harmless where there is none."""
    subprocess.run(["umount", "--lazy", str(folder)], capture_output=True, check=False)


def fill(folder: Path) -> Path:
    """Write until the disk is full; gives the file, whose removal makes room."""
    path = folder / ".filler"
    with path.open("wb", buffering=0) as file:
        try:
            while file.write(os.urandom(4096)):
                pass
        except OSError:
            return path
    return path


def remount_read_only(folder: Path) -> None:
    """Let nothing be written there any more."""
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True, capture_output=True)
