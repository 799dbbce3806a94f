"""`lab-agent run` whose database or disk is or goes wrong: which fault, told once, and what goes on by itself."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
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

from lab_agent.shared.conditions.model import ConditionId
from lab_agent.store.schema import upgrade
from tests.harness.canned_server import Canned, canned_server
from tests.harness.clock import DEADLINE, wait_until
from tests.harness.daemon import Daemon, alerts, running, title, wait_told
from tests.harness.failing_disk import failing_calls
from tests.harness.programs import free_port
from tests.harness.small_disk import fill, mounted_disk
from tests.integration.cli.conftest import KEY, edit

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


# --- no database that it may use

OTHER_KEY = "YTEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="


async def test_new_database_in_place_of_the_old_one_is_not_taken(lab: Any, cli: Callable[..., Any]) -> None:
    async with running(lab) as daemon:
        await wait_until(daemon.is_ready)
        for file in lab.folder.glob("lab.db*"):
            if not file.name.endswith(".lock"):
                file.rename(file.with_name("old-" + file.name))
        refused = await asyncio.to_thread(cli, "db", "upgrade")
        assert (refused.code, "lab.db.lock" in refused.err) == (1, True)
        await asyncio.to_thread(upgrade, lab.url)
        await wait_told(daemon, ConditionId.STORE_DELETED)
        with closing(sqlite3.connect(lab.folder / "lab.db")) as connection:
            assert connection.execute("SELECT count(*) FROM key_values WHERE key = 'store.probe'").fetchone() == (0,)
        assert daemon.process.poll() is None


async def test_daemon_without_database_ends_on_request_or_waits_for_one(lab: Any, cli: Callable[..., Any]) -> None:
    (lab.folder / "lab.db").unlink()
    async with running(lab) as daemon:
        await wait_told(daemon, ConditionId.STORE_DELETED)
        daemon.process.terminate()
        assert await asyncio.to_thread(daemon.process.wait, 30) == 0
    async with running(lab) as daemon:
        await wait_told(daemon, ConditionId.STORE_DELETED)
        answer = await daemon.client.get("/orders")
        assert answer.status_code == 503
        assert title(ConditionId.STORE_DELETED) in answer.text
        assert "Anna" not in answer.text
        assert answer.headers["x-content-type-options"] == "nosniff"
        await asyncio.to_thread(cli, "db", "upgrade")
        await wait_until(daemon.is_ready)
        assert daemon.count("action=outage_started outage=store.deleted") == 1


async def test_stop_signal_is_heard_while_the_worker_begins(lab: Any) -> None:
    async with running(lab) as first:
        await wait_until(first.is_ready)
        async with running(lab, "second") as second:
            await wait_told(second, ConditionId.STORE_SECOND_AGENT)
            first.process.kill()
            await wait_until(lambda: second.count("action=outage_ended") == 1, "the database is open", interval=0.001)
            second.process.terminate()
            assert await asyncio.to_thread(second.process.wait, DEADLINE) == 0, second.log


async def test_daemon_that_cannot_open_its_database_says_why(lab: Any, cli: Callable[..., Any]) -> None:
    """As for another key, each fault of a database is an incident; none lets the worker start."""
    await asyncio.to_thread(cli, "user", "remove", "nobody")  # the database is marked with the key of the settings
    edit(lab, KEY, OTHER_KEY)
    async with running(lab) as daemon:
        await wait_told(daemon, ConditionId.STORE_OTHER_KEY)
        assert title(ConditionId.STORE_OTHER_KEY) in (await daemon.client.get("/")).text
        assert daemon.count("action=outage_started") == 1
        assert not [each for each in ("worker started", "Traceback") if each in daemon.log]


async def test_second_agent_waits_and_takes_over(lab: Any) -> None:
    async with running(lab) as first:
        await wait_until(first.is_ready)
        async with running(lab, "second") as second:
            await wait_told(second, ConditionId.STORE_SECOND_AGENT)
            _, answer = await second.readyz()
            assert f"process {first.process.pid}" in second.log
            page = (await second.client.get("/")).text
            told = f"{answer} {page}"
            assert all(word not in told for word in (f"process {first.process.pid}", socket.gethostname(), str(lab.folder)))
            assert "worker started" not in second.log
            assert await first.is_ready(), "the first one goes on"
            first.process.kill()
            await wait_until(second.is_ready, "the second one takes over")
            assert second.count("action=outage_started outage=store.second_agent") == 1


async def test_second_agent_through_a_symbolic_link_waits(lab: Any) -> None:
    real = lab.folder / "elsewhere"
    real.mkdir()
    (lab.folder / "lab.db").rename(real / "lab.db")
    (lab.folder / "lab.db").symlink_to(real / "lab.db")
    async with running(lab) as first:
        await wait_until(first.is_ready)
        lab.config.write_text(lab.config.read_text().replace("sqlite:///lab.db", "sqlite:///elsewhere/lab.db"))
        async with running(lab, "second") as second:
            await wait_told(second, ConditionId.STORE_SECOND_AGENT)
            assert f"process {first.process.pid}" in second.log
            assert f"process {second.process.pid}" in second.log, "so that the right one is stopped"
        (real / "lab.db-wal").unlink()
        await wait_told(first, ConditionId.STORE_LOG_DELETED)


KEEP = "import sys; open(sys.argv[1], 'a').write(sys.stdin.read() + chr(10))"


@pytest.fixture
def told(lab: Any) -> Callable[[], list[tuple[str, str]]]:
    """What the channel was told so far: each change with its condition."""
    file = lab.folder / "told.txt"
    argv = json.dumps([sys.executable, "-c", KEEP, str(file)])
    settings = f"first_after = 1\nended_after = 1\n[notify.command.sms]\nargv = {argv}"
    lab.config.write_text(f"{lab.config.read_text()}\n[notify]\n{settings}\n")

    def read() -> list[tuple[str, str]]:
        lines = [json.loads(line) for line in file.read_text().splitlines() if line] if file.exists() else []
        found = [(each["change"], each["condition"]) for message in lines for each in message["conditions"]]
        return [each for each in found if each[1].startswith("store.")]

    return read


STARTED, ENDED = ("started", "store.deleted"), ("ended", "store.deleted")


async def test_waiting_daemon_tells_start_and_end_once(lab: Any, told: Any) -> None:
    database, away = lab.folder / "lab.db", lab.folder / "away.db"
    database.rename(away)
    async with running(lab) as daemon:
        await wait_until(lambda: told() == [STARTED], "the start is told")
        away.rename(database)
        await wait_until(daemon.is_ready)
        await wait_until(lambda: told() == [STARTED, ENDED], "the end is told")


async def test_end_of_an_outage_of_a_former_run_is_told(lab: Any, told: Any) -> None:
    """The process that told the start is killed, another one waits without telling it again, and a third one tells the end."""
    database, away = lab.folder / "lab.db", lab.folder / "away.db"
    async with running(lab) as first:
        await wait_until(first.is_ready)
        database.rename(away)
        await wait_until(lambda: told() == [STARTED], "the start is told")
        await wait_until(lambda: kept_as_told(lab.folder), "it is kept for the next process")
        first.process.kill()
    async with running(lab, "second") as second:
        await wait_told(second, ConditionId.STORE_DELETED)
    away.rename(database)
    async with running(lab, "third"):
        await wait_until(lambda: told() == [STARTED, ENDED], "the end is told once")
        await wait_until(lambda: not kept_as_told(lab.folder), "nothing is left to tell")


def kept_as_told(folder: Path) -> bool:
    (file,) = [*folder.glob("told-of-database-*.json")] or [None]
    return file is not None and any(each["told_at"] for each in json.loads(file.read_text())["told"])


async def test_waiting_daemon_calls_the_dead_mans_switch_as_failing(lab: Any) -> None:
    (lab.folder / "lab.db").unlink()
    asked: list[str] = []

    class Answers(dict[str, Canned]):
        def get(self, key: str, default: Any = None) -> Any:
            asked.append(key)
            return default

    with canned_server(Answers(), Canned(200)) as port:
        address = f"http://127.0.0.1:{port}"
        lab.config.write_text(f'{lab.config.read_text()}\n[notify.ping]\nurl = "{address}/well"\nfail_url = "{address}/fail"\n')
        async with running(lab):
            await wait_until(lambda: bool(asked), "a call")
    assert set(asked) == {"/fail"}


HANGS_UP_AT_ITS_START = """
import os, signal
from lab_agent import daemon
from lab_agent.cli import main

async def run(settings, config):
    os.kill(os.getpid(), signal.SIGHUP)
    print("lives")

daemon.run = run
main()
"""


def test_early_sighup_does_not_end_daemon(lab):
    command = [sys.executable, "-c", HANGS_UP_AT_ITS_START, "run", "--config", str(lab.config)]
    done = subprocess.run(command, cwd=lab.folder, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "lives\n"), (signal.SIGHUP, done.stderr)
