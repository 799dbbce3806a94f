"""`lab-agent run` whose database is out when it starts: channels are told once, and of the end, whoever is there by then."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lab_agent.conditions.ids import ConditionId
from tests.harness.canned_server import Canned, canned_server
from tests.harness.clock import wait_until
from tests.harness.daemon import running, wait_told

pytestmark = pytest.mark.slow
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


class CountedAnswers(dict[str, Canned]):
    """No answer of its own; `asked` is for which paths one was wanted."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.asked.add(key)
        return default


STARTED, ENDED = ("started", "store.deleted"), ("ended", "store.deleted")


async def move(source: Path, target: Path) -> None:
    await asyncio.to_thread(source.rename, target)


async def test_waiting_daemon_tells_start_and_end_once(lab: Any, told: Any) -> None:
    database, away = lab.folder / "lab.db", lab.folder / "away.db"
    await move(database, away)
    async with running(lab) as daemon:
        await wait_until(lambda: told() == [STARTED], "the start is told")
        await move(away, database)
        await wait_until(daemon.is_ready)
        await wait_until(lambda: told() == [STARTED, ENDED], "the end is told")


async def test_end_of_an_outage_of_a_former_run_is_told(lab: Any, told: Any) -> None:
    """The process that told the start is killed, another one waits without telling it again, and a third one tells the end."""
    database, away = lab.folder / "lab.db", lab.folder / "away.db"
    async with running(lab) as first:
        await wait_until(first.is_ready)
        await move(database, away)
        await wait_until(lambda: told() == [STARTED], "the start is told")
        await wait_until(lambda: kept_as_told(lab.folder), "it is kept for the next process")
        first.process.kill()
    async with running(lab, "second") as second:
        await wait_told(second, ConditionId.STORE_DELETED)
    await move(away, database)
    async with running(lab, "third"):
        await wait_until(lambda: told() == [STARTED, ENDED], "the end is told once")
        await wait_until(lambda: not kept_as_told(lab.folder), "nothing is left to tell")


def kept_as_told(folder: Path) -> bool:
    (file,) = [*folder.glob("told-of-database-*.json")] or [None]
    return file is not None and any(each["told_at"] for each in json.loads(file.read_text())["told"])


async def test_waiting_daemon_calls_the_dead_mans_switch_as_failing(lab: Any) -> None:
    (lab.folder / "lab.db").unlink()
    answers = CountedAnswers()
    with canned_server(answers, Canned(200)) as port:
        address = f"http://127.0.0.1:{port}"
        lab.config.write_text(f'{lab.config.read_text()}\n[notify.ping]\nurl = "{address}/well"\nfail_url = "{address}/fail"\n')
        async with running(lab):
            await wait_until(lambda: bool(answers.asked), "a call")
    assert answers.asked == {"/fail"}
