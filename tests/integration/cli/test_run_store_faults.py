"""`lab-agent run` whose database goes wrong while it works: which fault, told once, and what goes on by itself."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from lab_agent.conditions.ids import ConditionId
from tests.harness.clock import wait_until
from tests.harness.daemon import Daemon, alerts, running, title, wait_told
from tests.harness.small_disk import fill, mounted_disk

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


def test_command_says_cause_and_mend_while_the_database_is_missing(lab: Any, cli: Callable[..., Any]) -> None:
    (lab.folder / "lab.db").rename(lab.folder / "lab.db.lock")  # what an agent leaves: there was a database
    for command, code in (("alert show disk.low", 1), ("orders list", 1), ("status", 2)):
        done = cli(*command.split())
        said = done.out + done.err
        assert (done.code, "Traceback" in said, title(ConditionId.STORE_DELETED) in said) == (code, False, True), command
