"""The demo's programs are started, watched and stopped, and never left running."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab_sandbox.demo.errors import DemoError
from lab_sandbox.demo.processes import ProcessGroup, Program
from lab_sandbox.demo.workspace import HOST, choose_ports, is_port_free
from tests.harness.clock import DEADLINE, wait_until
from tests.harness.programs import free_port

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
from lab_sandbox.demo.processes import ProcessGroup, Program
async def main():
    here = Path(sys.argv[1])
    async with ProcessGroup(here, here) as processes:
        await processes.start(Program("sleeper", (sys.executable, "-c", sys.argv[2])))
        await asyncio.sleep(600)
asyncio.run(main())
"""


def is_alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
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


@pytest.fixture
def occupied() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        listener.listen()
        yield int(listener.getsockname()[1])


def test_occupied_port_replaced_and_others_kept(occupied: int):
    free = free_port()
    ports = choose_ports([occupied, free])
    assert ports[free] == free
    assert ports[occupied] not in {occupied, free}
    assert is_port_free(ports[occupied])
    assert not is_port_free(occupied)


async def test_process_ready_once_it_answers(tmp_path: Path):
    port = free_port()
    async with ProcessGroup(tmp_path, tmp_path) as processes:
        running = await processes.start(Program("server", (PYTHON, "-c", SERVER, str(port)), f"http://{HOST}:{port}/"))
        await processes.wait_until_ready(running, DEADLINE)
    assert is_port_free(port)


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


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM])
async def test_killed_demo_leaves_no_processes(tmp_path: Path, sent: signal.Signals):
    holder = await asyncio.create_subprocess_exec(PYTHON, "-c", HOLDER, str(tmp_path), SLEEPER)
    pid = await pid_in(tmp_path)
    os.kill(holder.pid, sent)
    await holder.wait()
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
