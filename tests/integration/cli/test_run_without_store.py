"""`lab-agent run` that does not find a database it may use: it says why, tells it once, and takes up its work by itself."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from lab_agent.conditions.ids import ConditionId
from lab_agent.store.schema import upgrade
from tests.harness.canned_server import Canned, canned_server
from tests.harness.clock import DEADLINE, wait_until
from tests.harness.daemon import running, title, wait_told
from tests.integration.cli.conftest import KEY, edit

pytestmark = pytest.mark.slow
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
    """A reload signal that comes before the handler is installed does not end the daemon."""
    command = [sys.executable, "-c", HANGS_UP_AT_ITS_START, "run", "--config", str(lab.config)]
    done = subprocess.run(command, cwd=lab.folder, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "lives\n"), (signal.SIGHUP, done.stderr)
