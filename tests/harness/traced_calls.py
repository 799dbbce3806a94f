"""strace around a process: lists its calls on some files, or lets one of them fail or be its last.

The process waits until the tracer is attached. All calls are counted by the file that they are about, and by nothing else.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import pytest

from tests.harness.clock import DEADLINE

CALLS = (
    *("write", "pwrite64", "writev", "pwritev", "ftruncate", "fsync", "fdatasync", "link", "linkat"),
    *("rename", "renameat", "renameat2", "unlink", "unlinkat"),
)
"""What changes files, or puts changes on the disk."""
_LINE = re.compile(r"^\d+ +(?P<name>\w+)\((?P<rest>.*)$")
_RESUMED = re.compile(r"^\d+ +<\.\.\. \w+ resumed>")
_OPEN_FILE = re.compile(r"\d+<(?P<path>[^>]*)>")
_NAME = re.compile(r'(?:AT_FDCWD(?:<[^>]*>)?, )?"(?P<path>[^"]*)"')


class Fault(Enum):
    """What becomes of one call, as strace is told. Both kinds of kill end the process as SIGKILL does: nothing of it runs after.

    A SIGKILL comes before the call, which is not made any more; another signal that ends a process comes when it was made.
    """

    EIO = "error=EIO"
    ENOSPC = "error=ENOSPC"
    KILLED_BEFORE = "signal=SIGKILL"
    KILLED_AFTER = "signal=SIGUSR2"

    @property
    def kills(self) -> bool:
        return self in {Fault.KILLED_BEFORE, Fault.KILLED_AFTER}

    @property
    def exit_code(self) -> int | None:
        return {Fault.KILLED_BEFORE: -signal.SIGKILL, Fault.KILLED_AFTER: -signal.SIGUSR2}.get(self)


@dataclass(frozen=True, slots=True, order=True)
class TracedCall:
    """The `number`-th call of this name on a file, by one process. A renamed file goes by its old name."""

    name: str
    path: str
    number: int


def parse_calls(log: str, folder: Path, aliases: Mapping[str, str]) -> list[TracedCall]:
    """The calls on files in `folder`, in turn; their paths begin below it, and what is a key of `aliases` is its value."""
    counts: Counter[tuple[str, str]] = Counter()
    found = []
    for line in log.splitlines():
        match = _LINE.match(line)
        if match is None or _RESUMED.match(line):
            continue
        for path in _find_paths(match["name"], match["rest"]):
            if not path.startswith(f"{folder}/"):
                continue
            below = path.removeprefix(f"{folder}/")
            for real, alias in aliases.items():
                below = below.replace(real, alias)
            counts[match["name"], below] += 1
            found.append(TracedCall(match["name"], below, counts[match["name"], below]))
    return found


def _find_paths(name: str, rest: str) -> list[str]:
    """The file of a call: an open one by its number, or the first that is named."""
    if name.startswith(("rename", "link", "unlink")):
        return [each["path"] for each in _NAME.finditer(rest)][:1]
    opened = _OPEN_FILE.match(rest)
    return [opened["path"]] if opened else []


@contextmanager
def traced(process: int, log: Path, *options: str) -> Iterator[None]:
    """Attach strace to a process with these options; skips the test where that cannot be."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    tracer = subprocess.Popen(
        ["strace", "-f", "-y", "-s", "0", "-o", str(log), *options, "-p", str(process)],
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


def listing() -> tuple[str, ...]:
    return ("-e", f"trace={','.join(CALLS)}")


def injecting(call: TracedCall, path: Path, fault: Fault) -> tuple[str, ...]:
    """Options that let one call fail, on a file whose path is known in full."""
    return ("-P", str(path), "-e", f"trace={call.name}", "-e", f"inject={call.name}:{fault.value}:when={call.number}")


def _wait_attached(process: int, tracer: subprocess.Popen[bytes]) -> None:
    """Wait until strace has the process; skips the test where it may not."""
    deadline = time.monotonic() + DEADLINE
    while f"TracerPid:\t{tracer.pid}\n" not in Path(f"/proc/{process}/status").read_text():
        if tracer.poll() is not None:
            pytest.skip("strace may not look at processes here")
        assert time.monotonic() < deadline, "strace did not attach"
