"""The side tasks of `lab-api`: what they live through, and that one that fails stops the program."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from lab_agent.catalogue.load import read
from lab_agent.catalogues.keeping import put_in_force
from lab_agent.domain.offer import CatalogueVersion
from lab_agent.errors import CatalogueError, StoreUnreachableError
from lab_agent.settings.api import ApiSettings
from lab_agent.store.memory import MemoryStore
from lab_agent.worker.worker import SideTaskDied
from lab_api import upkeep as upkeep_module
from lab_api.app import create_app
from lab_api.looking import look_again
from lab_api.server import Server
from lab_api.upkeep import Upkeep


class Trouble(MemoryStore):
    """A store that fails as it is told."""

    error: Exception | None = None

    async def run(self, work: Any) -> Any:
        if self.error:
            raise self.error
        return await super().run(work)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep_module, "LOOK_EVERY", 0.01)


async def start(store: Trouble, folder: Path, clock: Any) -> tuple[Server, Upkeep, asyncio.Task[None]]:
    upkeep = Upkeep(store, folder, clock)
    shelf = await upkeep.open()
    settings = ApiSettings()
    server = Server(create_app(settings, shelf), shelf, upkeep, settings)
    sock = socket.create_server(("127.0.0.1", 0))
    running = asyncio.create_task(server.run_until_stopped(sock))
    async with asyncio.timeout(20):
        while not server.started:  # noqa: ASYNC110 - a condition with a deadline
            await asyncio.sleep(0.01)
    return server, upkeep, running


async def test_a_side_task_that_fails_stops_the_program(folder: Path, clock: Any) -> None:
    store = Trouble()
    _, _, running = await start(store, folder, clock)
    store.error = KeyError("a fault of ours")
    async with asyncio.timeout(20):
        with pytest.raises(SideTaskDied, match="upkeep ended by itself") as caught:
            await running
    assert isinstance(caught.value.__cause__, KeyError)


async def test_a_store_that_is_away_is_lived_through(folder: Path, clock: Any) -> None:
    store = Trouble()
    server, _, running = await start(store, folder, clock)
    store.error = StoreUnreachableError("away")
    await asyncio.sleep(0.1)
    store.error = None
    prices = folder / "contract_items.csv"
    prices.write_text(prices.read_text().replace("480.00", "512.30"))
    await put_in_force(store, read(folder), origin="x", by=None, now=clock.now)
    newest = await store.run(lambda uow: uow.catalogues.newest())
    assert newest is not None
    async with asyncio.timeout(20):
        while server._shelf.served.catalogue.version != newest.version:  # noqa: ASYNC110 - a condition with a deadline
            await asyncio.sleep(0.01)
    assert not running.done()
    server.should_exit = True
    await running


@pytest.mark.parametrize("content", [b"", b"no zlib", b"x\x9c\x03\x00\x00\x00\x00\x01", b"x\x9c\x8b\x8e\x05\x00\x01\x15\x00\xb9"])
async def test_a_version_that_cannot_be_read_leaves_the_old_one(folder: Path, clock: Any, content: bytes) -> None:
    store = Trouble()
    upkeep = Upkeep(store, folder, clock)
    shelf = await upkeep.open()
    before = shelf.served.catalogue.version

    def damage(uow: Any) -> None:
        uow.catalogues.add(CatalogueVersion(version="damaged", since=clock.now, content=content, origin="x"))
        uow.book.note("offer.stamp", "another")
        uow.commit()

    await store.run(damage)
    assert await upkeep.refresh() is True
    assert shelf.served.catalogue.version == before
    with pytest.raises(CatalogueError, match="cannot be read"):
        await Upkeep(store, None, clock).open()


async def test_a_store_that_goes_and_comes_is_said_once_each() -> None:
    answers = iter([None, StoreUnreachableError("a"), StoreUnreachableError("b"), None, None, KeyError("ours")])

    async def look() -> None:
        if (error := next(answers)) is not None:
            raise error

    with capture_logs() as lines, pytest.raises(KeyError):
        await look_again(look, 0, "the offer")
    assert [(each["action"], each["log_level"]) for each in lines] == [("store.away", "warning"), ("store.back", "info")]
