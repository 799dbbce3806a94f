"""The folder adapter: hops between the event loop and the threads in which files are touched."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar, TypeVar

import structlog
from pydantic import BaseModel

from lab_agent.codec import dump_order
from lab_agent.domain.ids import LineKey, OrderKey
from lab_agent.domain.order import LabOrder
from lab_agent.errors import DataInvalidError, LisUnavailable
from lab_agent.lis.folder.drop import DropFolder, Found
from lab_agent.lis.folder.names import file_name
from lab_agent.lis.folder.orders import OrderFolder
from lab_agent.lis.folder.settings import FolderSettings
from lab_agent.lis.one_by_one import take_each
from lab_agent.ports.lis import Inbox, Receipt

T = TypeVar("T")
log = structlog.get_logger(__name__)
_THREADS = 4


class FolderAdapter:
    """A LIS that takes orders from one folder and puts results into another."""

    Settings: ClassVar[type[BaseModel]] = FolderSettings
    idempotent: ClassVar[bool] = True
    contract_version: ClassVar[int] = 1

    def __init__(self, settings: FolderSettings, name: str) -> None:
        self._settings = settings
        self._name = name
        self._orders = OrderFolder(settings.orders, settings.cancel_file, settings.file_mode, settings.encoding)
        self._drop = DropFolder(settings)
        self._collecting = asyncio.Lock()
        self._inbox: Inbox | None = None
        self._threads: ThreadPoolExecutor | None = None

    async def start(self, inbox: Inbox) -> None:
        """Look whether the folders are there."""
        self._inbox = inbox
        await self._hop(self._orders.open)
        await self._hop(self._drop.open)

    async def stop(self) -> None:
        """End; a thread that hangs on a dead share is not waited for."""
        threads, self._threads, self._inbox = self._threads, None, None
        if threads is not None:
            threads.shutdown(wait=False, cancel_futures=True)

    async def check(self) -> None:
        """Write and remove a file in each folder, and look that results can be put away by renaming."""
        await self._hop(lambda: _check(self._settings))

    async def prepare(self, order: LabOrder) -> None:
        """Write the order under a hidden name."""
        await self._hop(lambda: self._orders.prepare(order.key, dump_order(order)))

    async def submit(self, order: LabOrder) -> Receipt:
        """Give the order its name."""
        name = file_name(self._settings.file_name, _words(order))
        await self._hop(lambda: self._orders.submit(order.key, name))
        return Receipt()

    async def was_received(self, key: OrderKey) -> bool | None:
        """Say whether the order has its name, or had it."""
        return await self._hop(lambda: self._orders.was_received(key))

    async def cancel(self, order: OrderKey, lines: tuple[LineKey, ...], reason: str) -> None:
        """Write a cancel file."""
        await self._hop(lambda: self._orders.cancel(order, lines, reason))

    async def collect(self) -> int:
        """Take the result files that have stopped changing, oldest first."""
        if (inbox := self._inbox) is None:
            raise LisUnavailable("the adapter was not started")
        async with self._collecting:
            return await take_each(await self._hop(self._drop.ready), lambda path: self._take(path, inbox), "result files")

    async def _take(self, path: Path, inbox: Inbox) -> int:
        """Take one file: committed first, put away then (law 1)."""
        found = await self._hop(lambda: self._drop.read(path))
        if found is None:
            return False
        if self._drop.is_table(found.path):
            return await self._take_table(found, inbox)
        if await inbox.was_accepted(found.message):
            await self._hop(lambda: self._drop.done(found, self._drop.old_documents(found)))
            return False
        try:
            filled = await self._hop(lambda: self._drop.understand(found))
            if filled is None:
                return False
            new = await inbox.accept(found.message, filled.content)
        except DataInvalidError as exc:
            return await self._fail(found, exc, inbox)
        await self._hop(lambda: self._drop.done(found, filled.files))
        return new

    async def _take_table(self, found: Found, inbox: Inbox) -> int:
        """Take each report of a table; the rows of bad ones go among the failed files, the table itself is done."""
        try:
            table = await self._hop(lambda: self._drop.table(found))
        except DataInvalidError as exc:
            return await self._fail(found, exc, inbox)
        kept = [await inbox.accept(f"{found.message}#{name}", message) for name, message in table.messages.items()]
        if table.rejected is not None:
            await inbox.refused(found.message, "rows of a table; the failed folder holds them, each with its reason")
            await self._hop(lambda: self._drop.rejected(found, table))
            log.warning("rows put among the failed files", action="result_file_failed", adapter=self._name)
        await self._hop(lambda: self._drop.done(found))
        return sum(kept)

    async def _fail(self, found: Found, error: DataInvalidError, inbox: Inbox) -> int:
        """Put a file among the failed ones; told first, so that nobody waits in the dark if we die in between."""
        await inbox.refused(found.message, str(error.problems[0]))
        await self._hop(lambda: self._drop.failed(found, error))
        log.warning("result file put among the failed ones", action="result_file_failed", adapter=self._name)
        return 0

    async def _hop(self, work: Callable[[], T]) -> T:
        """Run `work` in a thread of our own: a dead share blocks these, and nobody else's."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix=f"lis-{self._name}")
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except OSError as exc:
            why = exc.strerror or type(exc).__name__
            raise LisUnavailable(f"a folder of [lis.{self._name}] cannot be used ({why}); mount it, or mend its rights") from exc


def _words(order: LabOrder) -> dict[str, str]:
    return {
        "key": order.key,
        "requisition": order.requisition.value,
        "contract": order.contract,
        "date": order.ordered_at.date().isoformat(),
    }


def _check(settings: FolderSettings) -> None:
    folders = {
        "orders": settings.orders,
        "results": settings.results,
        "done": settings.done_folder,
        "failed": settings.failed_folder,
    }
    for name, folder in folders.items():
        if name in {"done", "failed"}:
            folder.mkdir(parents=True, exist_ok=True)
        if not folder.is_dir():
            raise LisUnavailable(f"the folder {name} is not there: create it, or mount it")
        try:
            probe = folder / f".{secrets.token_hex(8)}.tmp"
            probe.touch(exist_ok=False)
            probe.unlink()
        except OSError as exc:
            raise LisUnavailable(f"the folder {name} cannot be written to: {exc.strerror or type(exc).__name__}") from exc
        if name in {"done", "failed"} and folder.stat().st_dev != settings.results.stat().st_dev:
            raise LisUnavailable(f"the folder {name} is on another file system than results: put it on the same one")
