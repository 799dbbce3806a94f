"""The process that `tests.harness.forked_programs` starts: it imports our programs, and forks one whenever it is told to.

    python -m tests.harness.forking_server FD

FD is a socket. Each message on it names a program as JSON, with four open files: its standard input, output and error, and a
socket, on which its process id is answered, and the exit code at its end. A message without files is the name of another
module to import. The server ends when FD is closed.
"""

from __future__ import annotations

import faulthandler
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import time
from typing import Any

IMPORTED = (
    *("lab_agent.cli.app", "lab_agent.cli.check", "lab_agent.daemon", "lab_agent.worker_bootstrap", "lab_agent.status.app"),
    *("lab_api.cli", "lab_api.server", "lab_sandbox.cli", "lab_sandbox.app", "uvicorn.protocols.http.h11_impl"),
    *("tests.harness.crashing_agent", "tests.harness.killed_clinic", "tests.harness.killed_lis"),
)
MAX_REQUEST = 1_000_000


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    for name in IMPORTED:
        importlib.import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system reaps those who wait for a program
    gc.freeze()
    while True:
        message, files, _, _ = socket.recv_fds(control, MAX_REQUEST, 4)
        if not message:
            return None
        if not files:
            importlib.import_module(message.decode())
            gc.freeze()
            continue
        if not os.fork():
            control.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            return run(json.loads(message), files)
        for each in files:
            os.close(each)


def run(request: dict[str, Any], files: list[int]) -> None:
    """Be the program, or the process that waits for it: its pid is free only when whoever started it knows of the end.

    The program ends with the process that started it, however that ends: an interrupted test leaves none behind.
    """
    if not (pid := os.fork()):
        os.close(files[3])
        return be_program(request, files[:3])
    for each in files[:3]:
        os.close(each)
    reply = socket.socket(fileno=files[3])
    reply.send(str(pid).encode())
    program = os.pidfd_open(pid)
    if program not in select.select([program, reply], [], [])[0]:  # whoever started it has ended
        os.kill(pid, signal.SIGKILL)
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert ended is not None
    reply.send(str(ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status).encode())
    reply.recv(1)
    os._exit(0)


def be_program(request: dict[str, Any], files: list[int]) -> None:
    """Be a program as `python -c` would start it."""
    for number, each in enumerate(files):
        os.dup2(each, number)
        os.close(each)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    unbuffered = "PYTHONUNBUFFERED" in os.environ
    sys.stdin = sys.__stdin__ = os.fdopen(0, closefd=False)
    sys.stdout = sys.__stdout__ = os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.__stderr__ = os.fdopen(2, "w", closefd=False)
    sys.stdout.reconfigure(line_buffering=sys.stdout.isatty(), write_through=unbuffered)
    sys.stderr.reconfigure(line_buffering=True, write_through=unbuffered, errors="backslashreplace")
    if os.environ.get("PYTHONFAULTHANDLER"):
        faulthandler.enable()
    sys.argv = ["-c", *request["words"]]
    importlib.import_module(request["module"]).main()


if __name__ == "__main__":
    main()
