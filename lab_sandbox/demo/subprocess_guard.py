"""Runs one program until standard input closes: `python -m lab_sandbox.demo.subprocess_guard GRACE_PERIOD PROGRAM ARGUMENT…`.

Standard input is a pipe that the demo holds. When it closes, on purpose or because the demo was killed, the program is
terminated, and killed after the grace period: even a killed demo leaves nothing running.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence

STDIN = 0


def supervise(command: Sequence[str], grace_period: float) -> int:
    """Runs the program until it ends or standard input closes; gives its exit code, 128 and more for a signal.

    `grace_period` is the number of seconds between SIGTERM and SIGKILL.
    """
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL)  # noqa: S603 - the demo's own programs
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: child.terminate())
    threading.Thread(target=_stop_when_stdin_closes, args=(child, grace_period), daemon=True).start()
    code = child.wait()
    return code if code >= 0 else 128 - code


def _stop_when_stdin_closes(child: subprocess.Popen[bytes], grace_period: float) -> None:
    while os.read(STDIN, 4096):  # not sys.stdin: its lock would still be held when the interpreter exits
        pass
    child.terminate()
    try:
        child.wait(grace_period)
    except subprocess.TimeoutExpired:
        child.kill()


if __name__ == "__main__":
    sys.exit(supervise(sys.argv[2:], float(sys.argv[1])))
