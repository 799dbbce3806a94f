"""A disk that reports errors to a running process: strace lets its calls on given files fail."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from tests.harness.traced_calls import traced


def failing_calls(process: int, files: tuple[Path, ...], error: str = "EIO") -> AbstractContextManager[None]:
    """Let everything that the process writes or syncs in these files fail with `error`; skips the test without strace."""
    calls = "write,pwrite64,fsync,fdatasync"
    paths = [part for file in files for part in ("-P", str(file))]
    return traced(process, Path("/dev/null"), *paths, "-e", f"trace={calls}", "-e", f"inject={calls}:error={error}")
