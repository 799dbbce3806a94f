"""Several `lab-api` processes on one store, SQLite and PostgreSQL: labels, a restart, notices."""

from __future__ import annotations

import asyncio
import itertools
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.harness import forked_programs
from tests.harness.clock import DEADLINE
from tests.harness.forked_programs import ForkedProgram
from tests.harness.programs import TOKEN, NotifySocket, free_port, running_api, write_settings_file
from tests.harness.proof import SHARE
from tests.integration.lab_api.parts import basket, new_guids

QUIET = '[logging]\nlevel = "warning"\n'
POOL = "[[api.pools]]\nname = 'main'\npattern = '77######%'\nlast = 999999\ncheck_digit = 'luhn'\n"


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/lab.db" if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))


class ApiProcesses:
    """Four processes, each on a port of its own."""

    def __init__(self, folder: Path, url: str, systemd: NotifySocket, stack: ExitStack) -> None:
        ports = [free_port() for _ in range(4)]
        mark = f"label_mark = '{folder.parent}/mark.json'\nburst = 100000\n"
        self.configs = [write_settings_file(folder, port, url=url, api=mark + QUIET + POOL) for port in ports]
        self.bases = [f"http://127.0.0.1:{port}" for port in ports]
        self._systemd, self._stack = systemd, stack
        self.processes = [self._start(config) for config in self.configs]
        for _ in ports:
            systemd.wait_for("READY=1")

    def _start(self, config: Path) -> ForkedProgram:
        return self._stack.enter_context(running_api(config, self._systemd.environ))

    def restart(self, number: int) -> None:
        self.processes[number].send_signal(signal.SIGTERM)
        assert self.processes[number].wait(DEADLINE) == 0
        self.processes[number] = self._start(self.configs[number])
        self._systemd.wait_for("READY=1")

    def command(self, *words: str) -> None:
        words = (*words, "--config", str(self.configs[0]))
        done = forked_programs.run("lab_agent.cli", *words)
        assert done.returncode == 0, done.stderr

    def statuses(self) -> set[str]:
        """What each process says of one test."""
        answers = (httpx.get(f"{base}/eta?contract=C-100", headers=TOKEN, timeout=DEADLINE).json() for base in self.bases)
        return {each["status"] for answer in answers for each in answer if each["id"] == "001.001"}

    def labels(self, guids: list[str], *numbers: int) -> list[str]:
        """The labels of one basket for each guid, asked of these processes (all) in turn, all at once."""

        async def whole() -> list[str]:
            bases = itertools.cycle([self.bases[number] for number in numbers or range(4)])
            async with httpx.AsyncClient(headers=TOKEN, timeout=DEADLINE) as client:
                asked = (client.post(f"{next(bases)}/preanalytics", json=basket("002.002", guids=[guid])) for guid in guids)
                answers = await asyncio.gather(*asked)
            return [_label(answer) for answer in answers]

        return asyncio.run(whole())


def _label(answer: httpx.Response) -> str:
    assert answer.status_code == 200, answer.text
    (tube,) = answer.json()["specimens"]
    return str(tube["label"])


@pytest.fixture
def processes(folder: Path, url: str, systemd: NotifySocket) -> Iterator[ApiProcesses]:
    with ExitStack() as stack:
        yield ApiProcesses(folder, url, systemd, stack)


@pytest.mark.proof
def test_four_processes_behave_as_one_laboratory(processes: ApiProcesses) -> None:
    """Every basket is asked for twice, of different processes, and once more after a restart; so are notices."""
    for _ in range(max(1, int(10 * SHARE))):
        guids = new_guids(100)
        first = processes.labels(guids)
        assert len(set(first)) == 100
        assert processes.labels(guids[1:] + guids[:1]) == first[1:] + first[:1]
        processes.restart(0)
        assert processes.labels(guids, 0) == first
    assert set(processes.labels(new_guids(10), 0, 1)).isdisjoint(first)

    assert processes.statuses() == {"available"}
    processes.command("eta", "delay", "001.001", "--hours", "12", "--until", "3d")
    _soon(lambda: processes.statuses() == {"delayed"})
    processes.command("eta", "clear", "001.001")
    _soon(lambda: processes.statuses() == {"available"})


def _soon(true: Any) -> None:
    deadline = time.monotonic() + DEADLINE
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.1)
