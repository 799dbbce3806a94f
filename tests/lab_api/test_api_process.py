"""`lab-api` as a process: start, reload, stop, and what it says when it cannot start."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from lab_agent.store.migrate import upgrade

TOKEN = {"Authorization": "Bearer process-token"}
DEADLINE = 30.0


def settings_file(folder: Path, port: int) -> Path:
    path = folder.parent / "settings.toml"
    upgrade(f"sqlite:///{folder.parent}/agent.db")
    path.write_text(
        f"""
[exchange]
base_url = "http://127.0.0.1:1/"
lab_codes_url = "http://codes.lab.example"
second_labels_system = "http://codes.lab.example/second-labels"
laboratory = "8b9e7a52-0f64-4c1f-a6a5-52d3f2b7a002"
[exchange.oauth]
grant = "password"
auth_url = "http://127.0.0.1:1"
client_id = "lab-agent"
client_secret = "secret"
username = "laboratory"
password = "password"
[exchange.contracts.C-100]
[store]
url = "sqlite:///{folder.parent}/agent.db"
encryption_keys = ["mBhtlW3ttGseDcUuF61rb-sYuo32K-3GRXN3KNo1Lvc="]
[lis]
default = "folder"
[lis.folder]
orders = "{folder.parent}/orders"
results = "{folder.parent}/results"
[api]
port = {port}
catalogue = "{folder}"
drain = 2
[[api.tokens]]
name = "exchange"
sha256 = "{hashlib.sha256(b"process-token").hexdigest()}"
"""
    )
    return path


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@contextmanager
def running(config: Path, environ: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", "from lab_api.cli import main; main()", "run", "--config", str(config)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, **environ})
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stderr
        process.stderr.close()


class Notices:
    """The socket on which systemd listens."""

    def __init__(self, path: Path) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.sock.bind(str(path))
        self.sock.settimeout(DEADLINE)
        self.environ = {"NOTIFY_SOCKET": str(path)}

    def wait_for(self, state: str) -> None:
        while state not in self.sock.recv(4096).decode().split("\n"):
            pass


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[Notices]:
    notices = Notices(tmp_path / "notify")
    yield notices
    notices.sock.close()


def test_start_reload_and_graceful_stop(folder: Path, systemd: Notices) -> None:
    port = free_port()
    address = f"http://127.0.0.1:{port}/nomenclature?contract=C-100"
    with running(settings_file(folder, port), {**systemd.environ, "WATCHDOG_USEC": "200000"}) as process:
        systemd.wait_for("READY=1")
        systemd.wait_for("WATCHDOG=1")
        assert httpx.get(address, headers=TOKEN).json()[0]["price"] == 480.0
        prices = folder / "contract_items.csv"
        good = prices.read_text()
        for text, price in ((good.replace("480.00", "free"), 480.0), (good.replace("480.00", "510.00"), 510.0)):
            prices.write_text(text)
            process.send_signal(signal.SIGHUP)
            systemd.wait_for("READY=1")
            assert httpx.get(address, headers=TOKEN).json()[0]["price"] == price
        process.send_signal(signal.SIGTERM)
        systemd.wait_for("STOPPING=1")
        assert process.wait(DEADLINE) == 0
        assert process.stderr
        log = process.stderr.read()
    assert log.count("catalogue.refused") == 1
    assert "contract=C-100" not in log
    assert "process-token" not in log


def test_an_import_by_command_is_served_without_a_restart(folder: Path, systemd: Notices) -> None:
    port = free_port()
    config = settings_file(folder, port)
    address = f"http://127.0.0.1:{port}/nomenclature?contract=C-100"
    with running(config, systemd.environ):
        systemd.wait_for("READY=1")
        prices = folder / "contract_items.csv"
        prices.write_text(prices.read_text().replace("480.00", "520.00"))
        words = ["catalogue", "import", str(folder), "--yes", "--config", str(config)]
        command = [sys.executable, "-c", "from lab_agent.cli import main; main()", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert "price: 480.00 → 520.00" in done.stdout, done.stderr
        deadline = time.monotonic() + DEADLINE
        while httpx.get(address, headers=TOKEN).json()[0]["price"] != 520.0:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def test_a_request_in_flight_is_answered_before_the_stop(folder: Path, systemd: Notices) -> None:
    port = free_port()
    body = b'{"contract":"C-100","analyticsrequests":[{"id":"001.001"}]}'

    async def ask(process: subprocess.Popen[str]) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = f"POST /preanalytics HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer process-token\r\nContent-Length: {len(body)}\r\n"
        writer.write(head.encode() + b"Connection: close\r\nExpect: 100-continue\r\n\r\n")
        await writer.drain()
        assert b"100 Continue" in await reader.readuntil(b"\r\n\r\n")  # the request is being read
        process.send_signal(signal.SIGTERM)
        await asyncio.to_thread(systemd.wait_for, "STOPPING=1")
        writer.write(body)
        answer = await reader.read()
        writer.close()
        return answer

    with running(settings_file(folder, port), systemd.environ) as process:
        systemd.wait_for("READY=1")
        answer = asyncio.run(asyncio.wait_for(ask(process), DEADLINE))
        assert answer.startswith(b"HTTP/1.1 200")
        assert b'"specimens"' in answer
        assert process.wait(DEADLINE) == 0


def test_a_port_in_use_is_one_clear_sentence(folder: Path) -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        port = sock.getsockname()[1]
        with running(settings_file(folder, port), {}) as process:
            assert process.wait(DEADLINE) == 1
            assert process.stderr
            said = process.stderr.read().strip()
    assert said == (
        f"Cannot listen on 127.0.0.1:{port}: address already in use — "
        "stop the program that uses it, or set another api.host or api.port."
    )


def test_an_invalid_catalogue_does_not_start(folder: Path) -> None:
    (folder / "contracts.csv").unlink()
    with running(settings_file(folder, 0), {}) as process:
        assert process.wait(DEADLINE) == 1
        assert process.stderr
        assert "contracts.csv: is missing" in process.stderr.read()


def call(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from lab_api.cli import main; main()", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_hashes() -> None:
    token, digest = (line.split()[1] for line in call("new-token").stdout.splitlines())
    assert hashlib.sha256(token.encode()).hexdigest() == digest
    assert call("hash-password", "--password", "x").stdout.startswith("$argon2id$")
