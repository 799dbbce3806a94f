"""A command whose standard output is a terminal of a given width."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from dataclasses import dataclass

_STYLES = re.compile("\x1b\\[[0-9;]*m")


@dataclass(frozen=True)
class Shown:
    """What a command wrote at its terminal, and on standard error."""

    code: int
    lines: list[str]
    err: str


def run_at_terminal(*args: str, columns: int, deadline: float = 60.0) -> Shown:
    """Run `lab-agent` at a terminal of so many columns; standard error is piped."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    script = "from lab_agent.cli import main; main()"
    environment = {key: value for key, value in os.environ.items() if key not in {"COLUMNS", "LINES"}}
    process = subprocess.Popen(
        [sys.executable, "-c", script, *args],
        stdin=theirs,
        stdout=theirs,
        stderr=subprocess.PIPE,
        env={**environment, "TERM": "xterm"},
    )
    os.close(theirs)
    written = _read_all(ours)
    _, err = process.communicate(timeout=deadline)
    return Shown(process.returncode, [line.rstrip() for line in _STYLES.sub("", written.decode()).splitlines()], err.decode())


def _read_all(terminal: int) -> bytes:
    """Read until the other side is closed, which Linux tells as an error."""
    parts = []
    try:
        while part := os.read(terminal, 65_536):
            parts.append(part)
    except OSError:
        pass
    finally:
        os.close(terminal)
    return b"".join(parts)
