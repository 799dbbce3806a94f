"""Holds one program on a leash: `python -m lab_sandbox.demo.subprocess_guard PATIENCE PROGRAM ARGUMENT…`.

The leash is a pipe on standard input. When it is let go (closed on purpose, or because whoever held it was killed), the program
is asked to end, and made to end if it does not: so a demo that is killed leaves nothing running behind.
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
    """Runs the program until it ends or the leash is let go; gives its exit code, 128 and more for a signal.

    `patience` is how many seconds lie between asking it to end and making it end.
    """
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL)  # noqa: S603 - the demo's own programs
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: child.terminate())
    threading.Thread(target=_stop_when_stdin_closes, args=(child, grace_period), daemon=True).start()
    code = child.wait()
    return code if code >= 0 else 128 - code


def _stop_when_stdin_closes(child: subprocess.Popen[bytes], grace_period: float) -> None:
    while os.read(STDIN, 4096):  # not sys.stdin: its lock would be held while the interpreter ends
        pass
    child.terminate()
    try:
        child.wait(grace_period)
    except subprocess.TimeoutExpired:
        child.kill()


if __name__ == "__main__":
    sys.exit(supervise(sys.argv[2:], float(sys.argv[1])))
