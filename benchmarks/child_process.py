"""Processes that are measured: each takes commands as lines of JSON on its standard input and answers on its standard output."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

Json = dict[str, Any]
_REPOSITORY = Path(__file__).resolve().parents[1]
_STOP_SECONDS = 40


class ChildProcess:
    """A running child, for whoever started it."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self._log = log
        self.greeting = self._read_line()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def ask(self, **command: Any) -> Json:
        """Send a command and wait for its answer. Raises `RuntimeError` with the end of its log if it has died."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise RuntimeError(self._last_words()) from None
        return self._read_line()

    def _read_line(self) -> Json:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(self._last_words())
        answer: Json = json.loads(line)
        return answer

    def _last_words(self) -> str:
        return f"the process has ended:\n{self._log.read_text(errors='replace')[-4000:]}"


@contextmanager
def start_child(folder: Path, module: str, *arguments: str) -> Iterator[ChildProcess]:
    """Run `python -m module` until the block ends; its log is a file in `folder`."""
    log = folder / f"{module.rpartition('.')[2]}-{len(list(folder.glob('*.log')))}.log"
    with log.open("w") as stderr:
        process = subprocess.Popen(  # noqa: S603 - one of our own modules
            [sys.executable, "-m", module, *arguments],
            cwd=_REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            env={**os.environ, "PYTHONPATH": str(_REPOSITORY)},
        )
        try:
            yield ChildProcess(process, log)
        finally:
            _stop(process)


def _stop(process: subprocess.Popen[str]) -> None:
    """Close its input, which ends it; what does not end is killed."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    process.stdout.close()


def announce(answer: Json) -> None:
    """In a child: say something to whoever started it."""
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


async def serve_commands(run: Callable[[Json], Awaitable[Json]]) -> None:
    """In a child: run commands until the input ends."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=2**20)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        announce(await run(json.loads(line)))


def cpu_seconds() -> float:
    """CPU that this process has used so far, in seconds, with all its threads."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def peak_memory() -> int:
    """The most memory that this process has had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
