"""A disk that reports errors to a running process: strace lets its calls on given files fail."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.harness.clock import DEADLINE


@contextmanager
def failing_calls(process: int, files: tuple[Path, ...], error: str = "EIO") -> Iterator[None]:
    """Let everything that the process writes or syncs in these files fail with `error`; skips the test without strace."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    calls = "write,pwrite64,fsync,fdatasync"
    paths = [part for file in files for part in ("-P", str(file))]
    tracer = subprocess.Popen(
        ["strace", "-f", "-p", str(process), *paths, "-e", f"trace={calls}", "-e", f"inject={calls}:error={error}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_attached(process, tracer)
        yield
    finally:
        if tracer.poll() is None:
            tracer.send_signal(signal.SIGINT)  # it lets go of the process
        tracer.wait(DEADLINE)


def _wait_attached(process: int, tracer: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + DEADLINE
    while f"TracerPid:\t{tracer.pid}\n" not in Path(f"/proc/{process}/status").read_text():
        if tracer.poll() is not None:
            pytest.skip("strace may not look at processes here")
        assert time.monotonic() < deadline, "strace did not attach"
