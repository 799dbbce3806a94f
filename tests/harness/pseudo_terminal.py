"""A command whose standard output is a terminal of a given width."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from dataclasses import dataclass

from tests.harness import forked_programs

_STYLES = re.compile("\x1b\\[[0-9;]*m")


@dataclass(frozen=True)
class Shown:
    code: int
    lines: list[str]
    err: str


def run_at_terminal(*args: str, columns: int, deadline: float = 60.0) -> Shown:
    """Run `lab-agent` at a terminal of so many columns; standard error is piped."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    environment = {key: value for key, value in os.environ.items() if key not in {"COLUMNS", "LINES"}}
    environment["TERM"] = "xterm"
    streams = {"stdin": theirs, "stdout": theirs, "stderr": subprocess.PIPE}
    process = forked_programs.start("lab_agent.cli", *args, env=environment, **streams)
    os.close(theirs)
    written = _read_all(ours)
    _, err = process.communicate(timeout=deadline)
    return Shown(process.wait(), [line.rstrip() for line in _STYLES.sub("", written.decode()).splitlines()], err)


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
