"""`lab-agent run` whose database or disk goes wrong while it works: which fault, told once, and what goes on by itself."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from lab_agent.conditions.ids import ConditionId
from lab_agent.store.schema import upgrade
from tests.harness.clock import DEADLINE, wait_until
from tests.harness.daemon import Daemon, alerts, running, title, wait_told
from tests.harness.failing_disk import failing_calls
from tests.harness.programs import free_port
from tests.harness.small_disk import fill, mounted_disk
from tests.integration.cli.conftest import edit

pytestmark = pytest.mark.slow


@pytest.fixture
def on_small_disk(lab: Any, cli: Callable[..., Any]) -> Iterator[Path]:
    """The laboratory's database on a disk of its own that can be full; for root, who may mount one."""
    disk = lab.folder / "disk"
    disk.mkdir()
    with mounted_disk(disk, 8_000_000):
        lab.config.write_text(lab.config.read_text().replace("sqlite:///lab.db", f"sqlite:///{disk}/lab.db"))
        assert cli("db", "upgrade").code == 0
        yield disk


async def check_told_once(daemon: Daemon, condition: ConditionId) -> None:
    """It is told in `/readyz`, and on the page to whoever wants to write; the process lives."""
    await wait_told(daemon, condition)
    _, answer = await daemon.readyz()
    assert answer["reason"] == condition.value
    if condition is not ConditionId.STORE_DISK_FULL:  # then it can be read, and whoever only reads is served
        refused = await daemon.client.post("/sign-in", data={"name": "anna", "password": "x"})
        assert (refused.status_code, title(condition) in refused.text) == (503, True)
    assert (await daemon.client.get("/healthz")).status_code == 200
    assert daemon.count(f"action=outage_started outage={condition.value}") == 1


async def check_ends(daemon: Daemon, condition: ConditionId) -> None:
    await wait_until(daemon.is_ready, "the database works again")
    assert daemon.count(f"action=outage_ended outage={condition.value}") == 1
    assert daemon.count(f"action=outage_started outage={condition.value}") == 1


async def test_full_disk_is_told_and_goes_on_when_there_is_room(lab: Any, on_small_disk: Path) -> None:
    async with running(lab) as daemon:
        await wait_until(daemon.is_ready)
        filler = await asyncio.to_thread(fill, on_small_disk)
        await check_told_once(daemon, ConditionId.STORE_DISK_FULL)
        filler.unlink()
        await check_ends(daemon, ConditionId.STORE_DISK_FULL)


@pytest.mark.parametrize("names", [("lab.db", "lab.db-wal"), ("lab.db-wal",)])
async def test_deleted_files_can_be_copied_from_the_running_agent(lab: Any, names: tuple[str, ...]) -> None:
    """The procedure of docs/operations.md (Deleted database files) keeps what was written last."""
    files = [lab.folder / name for name in ("lab.db", "lab.db-wal")]
    async with running(lab) as daemon:
        await wait_until(daemon.is_ready)
        await asyncio.to_thread(lab.write, lambda uow: uow.key_values.set("written", "last"))
        for name in names:
            (lab.folder / name).unlink()
        if names == ("lab.db-wal",):  # what would be written into it is lost with the process: nothing is acknowledged
            await check_told_once(daemon, ConditionId.STORE_LOG_DELETED)
        await wait_until(lambda: daemon.count("action=outage_started outage=store.") >= 1, "it is told")
        opened = open_files(daemon.process.pid)
        for file in files:
            shutil.copy(opened[str(file)], f"{file}.rescued")
        daemon.process.kill()
    for file in files:
        file.unlink(missing_ok=True)
        file.with_name(f"{file.name}.rescued").rename(file)
    (lab.folder / "lab.db-shm").unlink()
    async with running(lab, "again") as daemon:
        await wait_until(daemon.is_ready)
    assert await asyncio.to_thread(lab.write, lambda uow: uow.key_values.get("written")) == "last"


def open_files(process: int) -> dict[str, Path]:
    """Paths of what a process has open, whether it was deleted or not."""
    links = [each for each in Path(f"/proc/{process}/fd").iterdir() if each.is_symlink()]
    return {str(each.readlink()).removesuffix(" (deleted)"): each for each in links}


async def test_database_overwritten_in_place_is_told_and_not_written(lab: Any, cli: Callable[..., Any]) -> None:
    """`cp backup.db lab.db`: the same file, another database."""
    other = lab.folder / "other.db"
    former = lab.config.read_text()
    lab.config.write_text(former.replace("lab.db", "other.db"))
    assert (await asyncio.to_thread(cli, "db", "upgrade")).code == 0
    lab.config.write_text(former)
    async with running(lab) as daemon:
        await wait_until(daemon.is_ready)
        content = other.read_bytes()
        (lab.folder / "lab.db").write_bytes(content)
        # Which of its faults is met first depends on who reads first; a second one may follow within the same look.
        await wait_until(lambda: daemon.count("action=outage_started outage=store.") >= 1, "it is told")
        assert not await daemon.is_ready()
        assert daemon.process.poll() is None


async def test_database_damaged_while_running_is_told(lab: Any) -> None:
    async with running(lab) as daemon:
        await wait_until(daemon.is_ready)
        file = lab.folder / "lab.db"
        with closing(sqlite3.connect(file, isolation_level=None)) as other:
            other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        with file.open("r+b") as stream:
            stream.write(b"nothing of ours " * (file.stat().st_size // 16))
        await check_told_once(daemon, ConditionId.STORE_DAMAGED)


async def test_schema_upgraded_while_running_is_told_and_goes_on_when_it_is_back(lab: Any) -> None:
    def change(version: str) -> str:
        with closing(sqlite3.connect(lab.folder / "lab.db", isolation_level=None, timeout=20)) as other:
            (former,) = other.execute("SELECT version_num FROM alembic_version").fetchone()
            other.execute("UPDATE alembic_version SET version_num = ?", (version,))
            return str(former)

    async with running(lab) as daemon:
        await wait_until(daemon.is_ready)
        former = change("from-the-future")
        await wait_told(daemon, ConditionId.STORE_OTHER_SCHEMA, 60)
        assert daemon.count("action=outage_started outage=store.other_schema") == 1
        change(former)
        await check_ends(daemon, ConditionId.STORE_OTHER_SCHEMA)
        await wait_until(lambda: ("store.other_schema", True) in alerts(lab), "the closed alert")


async def test_error_of_the_disk_is_told_and_goes_on_when_it_is_over(lab: Any) -> None:
    files = tuple(lab.folder / name for name in ("lab.db", "lab.db-wal"))
    async with running(lab) as daemon:
        await wait_until(daemon.is_ready)
        with failing_calls(daemon.process.pid, files):
            await wait_told(daemon, ConditionId.STORE_UNREACHABLE)
            assert "its disk reports an error" in daemon.log
            assert (await daemon.client.get("/healthz")).status_code == 200
            assert daemon.count("action=outage_started outage=store.unreachable") == 1
        await check_ends(daemon, ConditionId.STORE_UNREACHABLE)
    assert await asyncio.to_thread(lab.write, lambda uow: uow.key_values.get("instance")) is not None


async def test_full_disk_of_the_mark_is_told_and_stops_nothing(lab: Any) -> None:
    folder = lab.folder / "marks"
    folder.mkdir()
    with mounted_disk(folder) as disk:
        lab.config.write_text(lab.config.read_text().replace("[store]\n", f'[store]\nmark = "{disk}/mark"\n'))
        await asyncio.to_thread(fill, disk)
        async with running(lab) as daemon:
            await wait_until(daemon.is_ready)
            await wait_until(lambda: daemon.count("action=store_mark_failed") >= 1, "it is told that there is no mark")
            assert daemon.process.poll() is None
        assert not await asyncio.to_thread((disk / "mark").exists)


async def test_agent_works_on_while_its_log_cannot_be_written(lab: Any) -> None:
    """Its output is on a disk that is always full."""
    port = free_port()
    edit(lab, "[status]\nport = 0", f"[status]\nport = {port}")
    command = [sys.executable, "-c", "from lab_agent.cli import main; main()", "run", "--config", str(lab.config)]
    with await asyncio.to_thread(Path("/dev/full").open, "wb") as full:
        start = partial(subprocess.Popen, command, cwd=lab.folder, stdout=full, stderr=full)
        process = await asyncio.to_thread(start, env={**os.environ, "PYTHONUNBUFFERED": "1"})
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=DEADLINE) as client:

            async def is_ready() -> bool:
                assert process.poll() is None, "it has ended"
                try:
                    return (await client.get("/readyz")).status_code == 200
                except httpx.TransportError:
                    return False

            await wait_until(is_ready, "it works")
    finally:
        process.terminate()
    assert await asyncio.to_thread(process.wait, DEADLINE) == 0


@pytest.fixture
def on_postgresql(lab: Any, postgres_url: str) -> Any:
    """The laboratory with its database on a PostgreSQL server."""
    upgrade(postgres_url)
    lab.config.write_text(lab.config.read_text().replace("sqlite:///lab.db", postgres_url))
    return lab


@contextmanager
def frozen(url: str) -> Iterator[None]:
    """Let the server and all that it has started stand still."""
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute("SELECT current_setting('data_directory')").fetchone()
    assert row is not None
    postmaster = int((Path(row[0]) / "postmaster.pid").read_text().splitlines()[0])
    children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
    stopped = [postmaster, *(int(each) for each in children)]
    try:
        for each in stopped:
            os.kill(each, signal.SIGSTOP)
        yield
    finally:
        for each in stopped:
            with suppress(ProcessLookupError):  # a connection that has ended meanwhile
                os.kill(each, signal.SIGCONT)


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
