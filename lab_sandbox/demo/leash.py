"""Holds one program on a leash: `python -m lab_sandbox.demo.leash PATIENCE PROGRAM ARGUMENT…`.

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


def hold(command: Sequence[str], patience: float) -> int:
    """Runs the program until it ends or the leash is let go; gives its exit code, 128 and more for a signal.

    `patience` is how many seconds lie between asking it to end and making it end.
    """
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL)  # noqa: S603 - the demo's own programs
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: child.terminate())
    threading.Thread(target=_end_when_let_go, args=(child, patience), daemon=True).start()
    code = child.wait()
    return code if code >= 0 else 128 - code


def _end_when_let_go(child: subprocess.Popen[bytes], patience: float) -> None:
    while os.read(STDIN, 4096):  # not sys.stdin: its lock would be held while the interpreter ends
        pass
    child.terminate()
    try:
        child.wait(patience)
    except subprocess.TimeoutExpired:
        child.kill()


if __name__ == "__main__":
    sys.exit(hold(sys.argv[2:], float(sys.argv[1])))
