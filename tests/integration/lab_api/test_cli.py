"""`lab-api` as a process: start, reload, stop, and what it says when it cannot start."""

from __future__ import annotations

import asyncio
import hashlib
import signal
import socket
import time
from pathlib import Path

import httpx
import pytest

from tests.harness import forked_programs
from tests.harness.clock import DEADLINE
from tests.harness.daemon import NO_KEEP_ALIVE
from tests.harness.forked_programs import ForkedProgram
from tests.harness.programs import TOKEN, NotifySocket, free_port, running_api, write_settings_file


def test_process_starts_reloads_and_stops_gracefully(folder: Path, systemd: NotifySocket) -> None:
    """Without the secrets that only the worker needs."""
    port = free_port()
    address = f"http://127.0.0.1:{port}/nomenclature?contract=C-100"
    config = write_settings_file(folder, port)
    config.write_text(config.read_text() + '[notify.webhook.chat]\ntemplate = "mattermost"\n')
    with running_api(config, {**systemd.environ, "WATCHDOG_USEC": "200000"}) as process:
        systemd.wait_for("READY=1")
        systemd.wait_for("WATCHDOG=1")
        assert httpx.get(address, headers=TOKEN, timeout=DEADLINE).json()[0]["price"] == 480.0
        prices = folder / "contract_items.csv"
        good = prices.read_text()
        for text, price in ((good.replace("480.00", "free"), 480.0), (good.replace("480.00", "510.00"), 510.0)):
            prices.write_text(text)
            process.send_signal(signal.SIGHUP)
            systemd.wait_for("READY=1")
            assert httpx.get(address, headers=TOKEN, timeout=DEADLINE).json()[0]["price"] == price
        process.send_signal(signal.SIGTERM)
        systemd.wait_for("STOPPING=1")
        assert process.wait(DEADLINE) == 0
        assert process.stderr
        log = process.stderr.read()
    assert log.count("catalogue.refused") == 1
    assert "contract=C-100" not in log
    assert "process-token" not in log


@pytest.mark.slow
def test_in_flight_request_answered_before_stop(folder: Path, systemd: NotifySocket) -> None:
    port = free_port()
    body = b'{"contract":"C-100","analyticsrequests":[{"id":"001.001"}]}'

    async def ask(process: ForkedProgram) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = f"POST /preanalytics HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer process-token\r\nContent-Length: {len(body)}\r\n"
        writer.write(head.encode() + b"Content-Type: application/json\r\nConnection: close\r\nExpect: 100-continue\r\n\r\n")
        await writer.drain()
        assert b"100 Continue" in await reader.readuntil(b"\r\n\r\n")  # the request is being read
        process.send_signal(signal.SIGTERM)
        await asyncio.to_thread(systemd.wait_for, "STOPPING=1")
        writer.write(body)
        answer = await reader.read()
        writer.close()
        return answer

    with running_api(write_settings_file(folder, port), systemd.environ) as process:
        systemd.wait_for("READY=1")
        answer = asyncio.run(asyncio.wait_for(ask(process), DEADLINE))
        assert answer.startswith(b"HTTP/1.1 200")
        assert b'"specimens"' in answer
        assert process.wait(DEADLINE) == 0


def test_start_that_fails_says_why(folder: Path) -> None:
    def fail_to_start(config: Path) -> str:
        with running_api(config, {}) as process:
            assert process.wait(DEADLINE) == 1
            assert process.stderr
            return process.stderr.read()

    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]
        assert fail_to_start(write_settings_file(folder, port)).startswith(f"Cannot listen on 127.0.0.1:{port}: address already")
    (folder / "contracts.csv").unlink()
    assert "contracts.csv: is missing" in fail_to_start(write_settings_file(folder, 0))


def test_process_waits_for_its_database_and_serves_without_it(folder: Path, systemd: NotifySocket) -> None:
    """It says that it is not ready, and why, before there was a database and while there is none."""
    port = free_port()
    config = write_settings_file(folder, port)
    database, away = folder.parent / "agent.db", folder.parent / "away.db"

    def wait_until_ready(status: int) -> dict[str, str]:
        deadline = time.monotonic() + DEADLINE
        while (told := client.get("/readyz")).status_code != status:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        return dict(told.json())

    database.rename(away)
    with (
        running_api(config, systemd.environ) as process,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=TOKEN, timeout=DEADLINE, limits=NO_KEEP_ALIVE) as client,
    ):
        systemd.wait_for("READY=1")
        refused = client.get("/nomenclature?contract=C-100")
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "10")
        assert refused.json()["issue"][0]["code"] == "transient"
        assert client.get("/healthz").status_code == 200
        assert wait_until_ready(503)["reason"] == "store.deleted"
        away.rename(database)
        systemd.wait_for("READY=1")
        wait_until_ready(200)
        for each in folder.parent.glob("agent.db*"):
            each.rename(each.with_name(each.name.replace("agent", "away")))
        said = wait_until_ready(503)
        assert (said["status"], said["service"], said["reason"]) == ("not ready", "lab-api", "store.deleted")
        assert said["mend"]
        assert client.get("/nomenclature?contract=C-100").status_code == 200
        assert "lab_api_ready 0.0" in client.get("/metrics").text
        for each in folder.parent.glob("agent.db*"):
            each.unlink()
        for each in folder.parent.glob("away.db*"):
            each.rename(each.with_name(each.name.replace("away", "agent")))
        wait_until_ready(200)
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE) == 0
        assert process.stderr
        log = process.stderr.read()
    assert [log.count(f"outage_{each}") for each in ("started", "ended")] == [2, 2]


def test_process_that_waits_for_its_database_can_be_stopped(folder: Path, systemd: NotifySocket) -> None:
    config = write_settings_file(folder, 0)
    (folder.parent / "agent.db").unlink()
    with running_api(config, systemd.environ) as process:
        systemd.wait_for("READY=1")
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE) == 0


def test_token_and_password_hash_commands() -> None:
    said = forked_programs.run("lab_api.cli", "new-token").stdout
    token, digest = (line.split()[1] for line in said.splitlines())
    assert hashlib.sha256(token.encode()).hexdigest() == digest
    hashed = forked_programs.run("lab_api.cli", "hash-password", "--password", "x").stdout
    assert hashed.startswith("$argon2id$")
