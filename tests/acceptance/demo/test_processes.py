"""Programs on their leashes: started, watched, ended, and never left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab_sandbox.demo.errors import DemoError
from lab_sandbox.demo.processes import ProcessGroup, Program
from lab_sandbox.demo.workspace import HOST, choose_ports, is_port_free

PYTHON = sys.executable
SERVER = """
import http.server, sys, threading
class Ok(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Ok).serve_forever()
"""
SLEEPER = "import os, time; open('pid', 'w').write(str(os.getpid())); time.sleep(600)"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SLEEPER
HOLDER = """
import asyncio, sys
from pathlib import Path
from lab_sandbox.demo.processes import Program, Troupe
async def main():
    here = Path(sys.argv[1])
    async with Troupe(here, here) as troupe:
        await troupe.start(Program("sleeper", (sys.executable, "-c", sys.argv[2])))
        await asyncio.sleep(600)
asyncio.run(main())
"""


def alive(pid: int) -> bool:
    """Whether it runs; a zombie that nobody waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # it ended before the file was opened, or before it was read
        return False


async def gone(pid: int, within: float = 20.0) -> bool:
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        if not alive(pid):
            return True
        await asyncio.sleep(0.02)
    return False


async def pid_in(folder: Path) -> int:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if (folder / "pid").exists() and (text := (folder / "pid").read_text()):
            return int(text)
        await asyncio.sleep(0.02)
    raise AssertionError("the program never started")


def _free() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        listener.listen()
        yield int(listener.getsockname()[1])


def test_occupied_port_replaced_and_others_kept(taken: int):
    """A taken port is replaced by a free one, and the others stay."""
    free = _free()
    ports = choose_ports([taken, free])
    assert ports[free] == free
    assert ports[taken] not in {taken, free}
    assert is_port_free(ports[taken])
    assert not is_port_free(taken)


async def test_process_ready_once_it_answers(tmp_path: Path):
    at = _free()
    async with ProcessGroup(tmp_path, tmp_path) as troupe:
        running = await troupe.start(Program("server", (PYTHON, "-c", SERVER, str(at)), f"http://{HOST}:{at}/"))
        await troupe.wait_until_ready(running, 20)
    assert is_port_free(at)


async def test_early_exit_reported_with_log(tmp_path: Path):
    command = (PYTHON, "-c", "import sys; print('no such database'); sys.exit(3)")
    async with ProcessGroup(tmp_path, tmp_path) as troupe:
        running = await troupe.start(Program("agent", command, f"http://{HOST}:{_free()}/"))
        with pytest.raises(DemoError, match="agent ended with exit code 3") as raised:
            await troupe.wait_until_ready(running, 20)
    assert raised.value.log_tail == "no such database"


async def test_startup_timeout_reported(tmp_path: Path):
    async with ProcessGroup(tmp_path, tmp_path) as troupe:
        running = await troupe.start(Program("agent", (PYTHON, "-c", SLEEPER), f"http://{HOST}:{_free()}/"))
        with pytest.raises(DemoError, match="agent was not ready within"):
            await troupe.wait_until_ready(running, 0.3)
    assert await gone(await pid_in(tmp_path))


async def test_failed_or_slow_task_reported(tmp_path: Path):
    async with ProcessGroup(tmp_path, tmp_path) as troupe:
        await troupe.run_to_end(Program("good", (PYTHON, "-c", "")), 20)
        with pytest.raises(DemoError, match="bad ended with exit code 7"):
            await troupe.run_to_end(Program("bad", (PYTHON, "-c", "raise SystemExit(7)")), 20)
        with pytest.raises(DemoError, match="slow did not end within"):
            await troupe.run_to_end(Program("slow", (PYTHON, "-c", SLEEPER)), 0.3)


async def test_first_exited_process_reported(tmp_path: Path):
    async with ProcessGroup(tmp_path, tmp_path) as troupe:
        await troupe.start(Program("sleeper", (PYTHON, "-c", SLEEPER)))
        await troupe.start(Program("short", (PYTHON, "-c", "raise SystemExit(5)")))
        dead = await asyncio.wait_for(troupe.wait_for_first_exit(), 20)
    assert str(dead.exit_error()) == "short ended with exit code 5"


async def test_orderly_end_leaves_no_processes(tmp_path: Path):
    async with ProcessGroup(tmp_path, tmp_path) as troupe:
        await troupe.start(Program("sleeper", (PYTHON, "-c", SLEEPER)))
        pid = await pid_in(tmp_path)
        assert alive(pid)
    assert await gone(pid)


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM])
async def test_killed_demo_leaves_no_processes(tmp_path: Path, sent: signal.Signals):
    holder = await asyncio.create_subprocess_exec(PYTHON, "-c", HOLDER, str(tmp_path), SLEEPER)
    pid = await pid_in(tmp_path)
    os.kill(holder.pid, sent)
    await holder.wait()
    assert await gone(pid)


async def test_process_ignoring_termination_is_killed(tmp_path: Path):
    async with ProcessGroup(tmp_path, tmp_path, grace_period=0.3) as troupe:
        await troupe.start(Program("stubborn", (PYTHON, "-c", STUBBORN)))
        pid = await pid_in(tmp_path)
    assert await gone(pid)


async def test_environment_of_other_agent_not_inherited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Settings of another agent do not reach the programs."""
    monkeypatch.setenv("LAB_AGENT_STORE__URL", "sqlite:///elsewhere.db")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", "/run/credentials")
    code = "import os, sys; sys.exit(any(name.startswith(('LAB_AGENT_', 'CREDENTIALS')) for name in os.environ))"
    async with ProcessGroup(tmp_path, tmp_path) as troupe:
        await troupe.run_to_end(Program("looker", (PYTHON, "-c", code)), 20)
