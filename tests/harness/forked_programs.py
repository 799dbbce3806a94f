"""Our programs as processes that start at once: each is forked from one that has imported them, which takes a second or more.

What a start itself imports, and the programs as they are installed, are tested by `integration/cli/test_imports.py` and by the
acceptance tests.
"""

from __future__ import annotations

import atexit
import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import IO, Any

from tests.harness.paths import ROOT


class ForkedProgram:
    """A running program, with what tests use of `subprocess.Popen`; a pipe that was asked for is text."""

    def __init__(self, reply: socket.socket, stdout: IO[str] | None, stderr: IO[str] | None) -> None:
        self.pid = int(reply.recv(20))
        self.returncode: int | None = None
        self.stdout, self.stderr = stdout, stderr
        self._reply = reply

    def poll(self) -> int | None:
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self._reply.settimeout(timeout)
            try:
                code = self._reply.recv(20)
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired("a forked program", timeout or 0) from None
            assert code, "whoever waits for the program has died"
            self._reply.close()
            self.returncode = int(code)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """What it wrote, one pipe after the other: for little output."""
        written = ["" if each is None else each.read() for each in (self.stdout, self.stderr)]
        self.wait(timeout)
        self.close()
        return written[0], written[1]

    def close(self) -> None:
        for each in (self.stdout, self.stderr):
            if each is not None:
                each.close()


def start(
    module: str,
    *words: str,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: int | IO[Any] | None = None,
    stdout: int | IO[Any] | None = None,
    stderr: int | IO[Any] | None = None,
) -> ForkedProgram:
    """Start the `main` of a module, `lab_agent.cli` say. A stream is a file or `PIPE`; by default it is that of the tests."""
    environment = dict(os.environ if env is None else env)
    request = {"module": module, "words": words, "cwd": str(cwd or Path.cwd()), "environment": environment}
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    given, pipes = [0 if stdin is None else _number(stdin)], []
    for number, each in ((1, stdout), (2, stderr)):
        read, write = os.pipe() if each == subprocess.PIPE else (None, None)
        pipes.append((read, write))
        given.append(number if each is None else _number(each) if write is None else write)
    with theirs:
        socket.send_fds(_server(), [json.dumps(request).encode()], [*given, theirs.fileno()])
    for _, write in pipes:
        if write is not None:
            os.close(write)
    return ForkedProgram(ours, *(None if read is None else os.fdopen(read) for read, _ in pipes))


def prepare(module: str) -> None:
    """Import a module that is not one of our programs, so that it starts as quickly as they do."""
    _server().send(module.encode())


def run(module: str, *words: str, **more: Any) -> subprocess.CompletedProcess[str]:
    program = start(module, *words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)
    out, err = program.communicate()
    return subprocess.CompletedProcess([module, *words], program.wait(), out, err)


def process_context() -> BaseContext:
    """For functions of tests in processes of their own: none of this one's threads and loops, and the imports made once."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["lab_agent.bootstrap", "lab_api.app", "pytest"])
    return context


def _number(stream: int | IO[Any]) -> int:
    return stream if isinstance(stream, int) else stream.fileno()


@cache
def _server() -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        command = [sys.executable, "-m", "tests.harness.forking_server", str(theirs.fileno())]
        server = subprocess.Popen(command, cwd=ROOT, pass_fds=[theirs.fileno()])

    def end() -> None:
        ours.close()
        server.wait()

    atexit.register(end)
    return ours
