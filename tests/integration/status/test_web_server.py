"""Taking an address, serving and ending; and the daemon with its page as a real process."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from lab_agent import web_server
from lab_agent.errors import SettingsError
from tests.harness.paths import ROOT

DEADLINE = 30.0


def taken() -> socket.socket:
    sock = socket.create_server(("127.0.0.1", 0))
    assert sock.getsockname()[1]
    return sock


async def test_answer_does_not_wait_for_the_clients_acknowledgement():
    accepted = asyncio.get_running_loop().create_future()
    server = await asyncio.start_server(
        lambda _, writer: accepted.set_result(writer), sock=web_server.listen("127.0.0.1", 0, settings_group="status")
    )
    async with server:
        _, client = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer = await asyncio.wait_for(accepted, DEADLINE)
        assert writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
        for each in (client, writer):
            each.close()
            await each.wait_closed()


def test_address_that_cannot_be_taken_names_the_setting():
    """One in use, and one that is not of this machine."""
    with taken() as sock:
        port = sock.getsockname()[1]
        with pytest.raises(SettingsError, match=f"^Cannot listen on 127.0.0.1:{port}: address already in use — ") as caught:
            web_server.listen("127.0.0.1", port, settings_group="status")
    assert caught.value.problems[0].where == "status.port"
    for host in ("no-such-host.invalid", "203.0.113.7"):
        with pytest.raises(SettingsError, match=rf"^Cannot listen on {host}:0: .+ — .*api.host"):
            web_server.listen(host, 0, settings_group="api")


async def test_running_request_finishes_before_shutdown():
    started, go = asyncio.Event(), asyncio.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        started.set()
        await go.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"late"})

    sock = web_server.listen("127.0.0.1", 0, settings_group="status")
    address = f"http://127.0.0.1:{sock.getsockname()[1]}/"
    server = asyncio.create_task(web_server.serve(slow, sock, drain=10))
    async with httpx.AsyncClient(timeout=DEADLINE) as client:
        asked = asyncio.create_task(client.get(address))
        await asyncio.wait_for(started.wait(), DEADLINE)
        server.cancel()
        await asyncio.sleep(0)
        assert not server.done()
        go.set()
        assert (await asked).text == "late"
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(server, DEADLINE)
        with pytest.raises(httpx.ConnectError):
            await client.get(address)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the sandbox's settings, a port of its own, and nobody to talk to."""
    shutil.copytree(ROOT / "config", tmp_path / "config")
    settings = tmp_path / "config" / "sandbox.toml"
    text = settings.read_text().replace("port = 8481", "port = 0").replace("8480", "9")
    settings.write_text(text)
    for name in ("orders", "results"):
        (tmp_path / "var" / "demo" / "lis" / name).mkdir(parents=True)
    return tmp_path


def agent(folder: Path, *words: str, **options: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", "from lab_agent.cli import main; main()", *words, "--config", "config/sandbox.toml"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LAB_AGENT_")}
    return subprocess.Popen(
        command, cwd=folder, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


@contextmanager
def running(folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`lab-agent run`, and the address of its page."""
    process = agent(folder, "run")
    try:
        assert process.stderr
        for line in process.stderr:
            if found := re.search(r"action=status_listens host=(\S+) port=(\d+)", line):
                yield process, f"http://{found[1]}:{found[2]}"
                return
        raise AssertionError("it ended before it listened")
    finally:
        process.kill()
        process.communicate()


def get(address: str) -> tuple[int, bytes]:
    """An answer, as soon as there is one."""
    deadline = time.monotonic() + DEADLINE
    while True:
        try:
            with urllib.request.urlopen(address, timeout=DEADLINE) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as exc:
            return exc.code, exc.read()
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


@pytest.mark.slow
def test_daemon_ready_without_exchange_accepts_new_user(folder: Path):
    """The daemon is ready while the exchange is unavailable, and a new user can log in."""
    for words, given in ((("db", "upgrade"), ""), (("user", "add", "demo", "--role", "admin"), "demo-status-password\n")):
        process = agent(folder, *words)
        process.communicate(given, timeout=DEADLINE)
        assert process.returncode == 0
    with running(folder) as (process, address):
        status, body = get(f"{address}/readyz")
        assert (status, json.loads(body)["store"]) == (200, "ok")
        status, body = get(f"{address}/healthz")
        assert (status, json.loads(body)) == (200, {"status": "ok", "missing": []})
        assert b"lab_agent_build_info" in get(f"{address}/metrics")[1]
        with httpx.Client(base_url=address, follow_redirects=True, timeout=DEADLINE) as client:
            answer = client.post("/sign-in", data={"name": "demo", "password": "demo-status-password"})
            assert answer.status_code == 200
            assert "Overview" in answer.text
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE) == 0


@pytest.mark.slow
def test_port_in_use_stops_daemon_before_start(folder: Path):
    """A port in use ends the daemon with one sentence before anything was started."""
    with taken() as sock:
        port = sock.getsockname()[1]
        settings = folder / "config" / "sandbox.toml"
        settings.write_text(re.sub(r"(\[status\][^\[]*port = )0", rf"\g<1>{port}", settings.read_text()))
        process = agent(folder, "run")
        out, err = process.communicate(timeout=DEADLINE)
    assert process.returncode == 1
    assert out == ""
    *logged, said = err.strip().splitlines()
    assert said.startswith(f"Cannot listen on 127.0.0.1:{port}: address already in use — ")
    assert [f"alert=agent.port_taken/127.0.0.1:{port}" in line for line in logged] == [True]
    assert not (folder / "var" / "demo" / "lab-agent.db").exists()
