"""`lab-agent run` on a PostgreSQL that hangs or is stopped: told as what it is, and all goes on when it is back."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from lab_agent.conditions.ids import ConditionId
from lab_agent.store.schema import upgrade
from tests.harness.clock import wait_until
from tests.harness.daemon import running, wait_told

pytestmark = pytest.mark.slow


@pytest.fixture
def on_postgresql(lab: Any, postgres_url: str) -> Any:
    """The laboratory with its database on a PostgreSQL server."""
    upgrade(postgres_url)
    lab.config.write_text(lab.config.read_text().replace("sqlite:///lab.db", postgres_url))
    return lab


def server_processes(url: str) -> list[int]:
    """The server and all that it has started, itself first."""
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute("SELECT current_setting('data_directory')").fetchone()
    assert row is not None
    postmaster = int((Path(row[0]) / "postmaster.pid").read_text().splitlines()[0])
    children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
    return [postmaster, *(int(each) for each in children)]


@contextmanager
def frozen(url: str) -> Iterator[None]:
    """Let every process of the server stand still."""
    stopped = server_processes(url)
    try:
        for each in stopped:
            os.kill(each, signal.SIGSTOP)
        yield
    finally:
        for each in stopped:
            try:
                os.kill(each, signal.SIGCONT)
            except ProcessLookupError:
                continue  # a connection that has ended meanwhile


@contextmanager
def stopped(url: str) -> Iterator[None]:
    """Cut every connection, and let nobody connect: the server is as good as stopped for its clients."""
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute("SELECT current_setting('unix_socket_directories')").fetchone()
        assert row is not None
        socket = Path(row[0]) / ".s.PGSQL.5432"
        away = socket.rename(socket.with_name("away"))
        others = "datname = current_database() AND pid <> pg_backend_pid()"
        connection.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}")
        try:
            yield
        finally:
            away.rename(socket)


async def test_frozen_server_is_no_lock(on_postgresql: Any, postgres_url: str) -> None:
    async with running(on_postgresql) as daemon:
        await wait_until(daemon.is_ready)
        with frozen(postgres_url):
            await wait_told(daemon, ConditionId.STORE_UNREACHABLE, 60)
            assert (await daemon.client.get("/healthz")).status_code == 200
        await wait_until(daemon.is_ready, "it goes on", 60)
        assert daemon.count("action=outage_started outage=store.unreachable") == 1
        assert daemon.count("action=outage_started outage=store.locked") == 0


async def test_daemon_waits_for_a_frozen_server(on_postgresql: Any, postgres_url: str) -> None:
    with frozen(postgres_url):
        async with running(on_postgresql) as daemon:
            await wait_told(daemon, ConditionId.STORE_UNREACHABLE)
            await wait_until(lambda: daemon.count("action=outage_started outage=store.unreachable") == 1, "the log", 60)


async def test_stopped_server_is_told_and_its_return(on_postgresql: Any, postgres_url: str) -> None:
    async with running(on_postgresql) as daemon:
        await wait_until(daemon.is_ready)
        with stopped(postgres_url):
            await wait_told(daemon, ConditionId.STORE_UNREACHABLE, 60)
        await wait_until(daemon.is_ready, "it goes on", 60)
        assert daemon.count("action=outage_ended outage=store.unreachable") == 1
