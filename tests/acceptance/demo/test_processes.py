"""The demo's programs are started, watched and stopped, and never left running."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lab_sandbox.demo.errors import DemoError
from lab_sandbox.demo.processes import ProcessGroup, Program
from lab_sandbox.demo.workspace import HOST
from tests.harness.clock import DEADLINE, wait_until
from tests.harness.programs import free_port

PYTHON = sys.executable
SLEEPER = "import os, time; open('pid', 'w').write(str(os.getpid())); time.sleep(600)"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SLEEPER


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # it exited before the file was opened, or before it was read
        return False


async def wait_until_gone(pid: int) -> None:
    await wait_until(lambda: not is_alive(pid), "the end of the program", interval=0.02)


async def pid_in(folder: Path) -> int:
    file = folder / "pid"
    await wait_until(lambda: file.exists() and bool(file.read_text()), "the start of the program", interval=0.02)
    return int(file.read_text())


async def test_early_exit_or_slow_start_reported(tmp_path: Path):
    command = (PYTHON, "-c", "import sys; print('no such database'); sys.exit(3)")
    async with ProcessGroup(tmp_path, tmp_path) as processes:
        running = await processes.start(Program("agent", command, f"http://{HOST}:{free_port()}/"))
        with pytest.raises(DemoError, match="agent exited with code 3") as raised:
            await processes.wait_until_ready(running, DEADLINE)
        slow = await processes.start(Program("slow", (PYTHON, "-c", SLEEPER), f"http://{HOST}:{free_port()}/"))
        with pytest.raises(DemoError, match="slow was not ready within"):
            await processes.wait_until_ready(slow, 0.3)
        pid = await pid_in(tmp_path)
    assert raised.value.log_tail == "no such database"
    await wait_until_gone(pid)


async def test_process_ignoring_termination_is_killed(tmp_path: Path):
    async with ProcessGroup(tmp_path, tmp_path, grace_period=0.3) as processes:
        await processes.start(Program("stubborn", (PYTHON, "-c", STUBBORN)))
        pid = await pid_in(tmp_path)
    await wait_until_gone(pid)


async def test_environment_of_other_agent_not_inherited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LAB_AGENT_STORE__URL", "sqlite:///elsewhere.db")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", "/run/credentials")
    code = "import os, sys; sys.exit(any(name.startswith(('LAB_AGENT_', 'CREDENTIALS')) for name in os.environ))"
    async with ProcessGroup(tmp_path, tmp_path) as processes:
        await processes.run_to_end(Program("checker", (PYTHON, "-c", code)), DEADLINE)
