"""The demo's programs as processes: which ones, in which order they start, and how they are watched and stopped.

Each has its own log and runs under `subprocess_guard`, so that nothing is left running even if the demo is killed.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import httpx

from lab_sandbox.demo.console import DemoConsole
from lab_sandbox.demo.errors import DemoError
from lab_sandbox.demo.scenarios import HAEMOLYSED_ITEM, STAGED_ITEM
from lab_sandbox.demo.workspace import Workspace

GRACE_PERIOD = 10.0
"""Seconds between SIGTERM and SIGKILL."""
START_TIMEOUT = 60.0
"""Seconds that a program may take to become ready."""
STATUS_USER, STATUS_PASSWORD = "demo", "demo-status-password"
"""The login of the status page; its database is deleted after the demo."""
_LOG_TAIL_LINES = 25
_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Program:
    """What is started: a display name, a command, and a URL that answers 200 when the program is ready, if it has one."""

    name: str
    command: Sequence[str]
    ready_url: str | None = None


@dataclass(frozen=True, slots=True)
class RunningProgram:
    """A program that was started."""

    program: Program
    process: asyncio.subprocess.Process
    log: Path

    def log_tail(self) -> str:
        """The last lines of its log."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-_LOG_TAIL_LINES:])

    def exit_error(self) -> DemoError:
        """The error that it exited, with its exit code and the end of its log."""
        return DemoError(f"The {self.program.name} exited with code {self.process.returncode}.", self.log_tail())


class ProcessGroup:
    """All programs of one demo, stopped together in reverse order of their start."""

    def __init__(self, folder: Path, logs: Path, grace_period: float = GRACE_PERIOD) -> None:
        self._folder = folder
        self._logs = logs
        self._grace_period = grace_period
        self._running: list[RunningProgram] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None) -> None:
        for one in reversed(self._running):
            await _stop(one, self._grace_period + 5)

    async def start(self, program: Program) -> RunningProgram:
        """Starts a program under the guard, without waiting until it is ready."""
        guard = (sys.executable, "-m", "lab_sandbox.demo.subprocess_guard", str(self._grace_period))
        log = self._log_path(program)
        with log.open("ab") as file:
            process = await self._spawn((*guard, *program.command), file)
        running = RunningProgram(program, process, log)
        self._running.append(running)
        return running

    async def run_to_end(self, program: Program, timeout: float, stdin_text: str = "") -> None:
        """Runs a program that ends by itself, with `stdin_text` on its standard input.

        `DemoError` if it fails or takes longer than `timeout` seconds. It needs no guard: it is always waited for.
        """
        log = self._log_path(program)
        with log.open("ab") as file:
            process = await self._spawn(program.command, file)
        running = RunningProgram(program, process, log)
        try:
            await asyncio.wait_for(process.communicate(stdin_text.encode()), timeout)
        except TimeoutError as exc:
            raise DemoError(f"The {program.name} did not end within {timeout:.0f} s.", running.log_tail()) from exc
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            raise running.exit_error()

    async def wait_until_ready(self, running: RunningProgram, timeout: float) -> None:
        """Waits until the program answers; `DemoError` if it exits, or does not answer within `timeout` seconds."""
        deadline = time.monotonic() + timeout
        async with httpx.AsyncClient(timeout=2.0, trust_env=False) as http:
            while not await _is_answering(http, running.program.ready_url):
                if running.process.returncode is not None:
                    raise running.exit_error()
                if time.monotonic() > deadline:
                    raise DemoError(f"The {running.program.name} was not ready within {timeout:.0f} s.", running.log_tail())
                await asyncio.sleep(_POLL_SECONDS)

    async def stop(self, running: RunningProgram) -> None:
        """Stops one program before the others."""
        self._running.remove(running)
        await _stop(running, self._grace_period + 5)

    async def wait_for_first_exit(self) -> RunningProgram:
        """Waits until one of the programs exits, which none should do."""
        waits = {asyncio.create_task(one.process.wait()): one for one in self._running}
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        return waits[done.pop()]

    def _log_path(self, program: Program) -> Path:
        return self._logs / f"{program.name.replace(' ', '-')}.log"

    async def _spawn(self, command: Sequence[str], log: IO[bytes]) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=log,
            stderr=log,
            cwd=self._folder,
            env=_child_environment(os.environ),
            start_new_session=True,  # Ctrl-C reaches the demo alone, which stops the others in order
        )


def program_path(name: str) -> str:
    """The path of one of our programs, beside the Python that runs this one."""
    path = Path(sys.executable).with_name(name)
    if not path.exists():
        raise DemoError(f"{path} does not exist. Install the project into this environment.")
    return str(path)


def _child_environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """Our environment without settings of another agent on this machine, and without what systemd passes to a service."""
    foreign = ("LAB_AGENT_", "CREDENTIALS_DIRECTORY", "NOTIFY_SOCKET", "WATCHDOG_")
    rest = {name: value for name, value in inherited.items() if not name.startswith(foreign)}
    return {**rest, "PYTHONUNBUFFERED": "1", "NO_COLOR": "1"}


async def _is_answering(http: httpx.AsyncClient, address: str | None) -> bool:
    if address is None:
        return True
    try:
        return (await http.get(address)).status_code == 200
    except httpx.TransportError:
        return False


async def _stop(running: RunningProgram, timeout: float) -> None:
    """Closes the guard's standard input and waits; then kills the process group of what is left."""
    if running.process.stdin is not None:
        running.process.stdin.close()
    try:
        await asyncio.wait_for(running.process.wait(), timeout)
    except TimeoutError:
        os.killpg(running.process.pid, signal.SIGKILL)
        await running.process.wait()


async def start_all(processes: ProcessGroup, workspace: Workspace, console: DemoConsole) -> None:
    """Starts all programs; returns when they are ready."""
    console.heading("Starting the programs")
    early = [await processes.start(_exchange_service_program(workspace))]
    await processes.run_to_end(_database_upgrade_program(workspace), START_TIMEOUT)
    console.step("the database is ready")
    early.append(await processes.start(_lab_api_program(workspace)))
    if workspace.connection.kind == "sql":
        await processes.run_to_end(staging_tables_program(workspace), START_TIMEOUT)
    await processes.run_to_end(_status_user_program(workspace), START_TIMEOUT, stdin_text=f"{STATUS_PASSWORD}\n")
    systems = (_lis_program(workspace), *_microbiology_programs(workspace))
    late = [await processes.start(one) for one in (*systems, _agent_program(workspace))]
    await asyncio.gather(*(_wait_until_ready(processes, one, console) for one in (*early, *late)))


async def _wait_until_ready(processes: ProcessGroup, running: RunningProgram, console: DemoConsole) -> None:
    await processes.wait_until_ready(running, START_TIMEOUT)
    console.step(f"the {running.program.name} is ready")


def _exchange_service_program(workspace: Workspace) -> Program:
    command = (program_path("lab-sandbox"), "run", "--config", str(workspace.service_settings))
    return Program("exchange service", command, f"{workspace.service_url}healthz")


def _lab_api_program(workspace: Workspace) -> Program:
    command = (program_path("lab-api"), "run", "--config", str(workspace.agent_settings))
    return Program("laboratory API", command, f"{workspace.api_url}/readyz")


def _database_upgrade_program(workspace: Workspace) -> Program:
    return Program("database upgrade", (program_path("lab-agent"), "db", "upgrade", "--config", str(workspace.agent_settings)))


def _status_user_program(workspace: Workspace) -> Program:
    command = (
        program_path("lab-agent"),
        "user",
        "add",
        STATUS_USER,
        "--role",
        "admin",
        "--config",
        str(workspace.agent_settings),
    )
    return Program("status page user", command)


def _agent_program(workspace: Workspace) -> Program:
    command = (program_path("lab-agent"), "run", "--config", str(workspace.agent_settings))
    return Program("agent", command, f"{workspace.status_url}/readyz")


def staging_tables_program(workspace: Workspace) -> Program:
    """Makes the staging tables of the sql adapter, once, before the agent starts."""
    return Program(
        "staging tables", (program_path("lab-agent"), "adapter", "sql", "ddl", "--config", str(workspace.agent_settings))
    )


def _lis_program(workspace: Workspace) -> Program:
    folders = ("--orders", str(workspace.orders), "--results", str(workspace.results), "--own", str(workspace.lis))
    behaviour = ("--staged", STAGED_ITEM, "--refused", HAEMOLYSED_ITEM)
    return Program(
        "LIS simulator",
        (program_path("lab-sandbox"), "stand-in-lis", *folders, *behaviour, *workspace.connection.simulator_options),
    )


def _microbiology_programs(workspace: Workspace) -> Iterator[Program]:
    if ports := workspace.connection.microbiology_ports:
        arguments = ("--own", str(workspace.microbiology), "--port", str(ports[0]), "--agent-port", str(ports[1]))
        yield Program("microbiology system", (program_path("lab-sandbox"), "microbiology-lis", *arguments))
