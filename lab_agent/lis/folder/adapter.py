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

from lab_agent.domain.ids import LineKey, OrderKey
from lab_agent.domain.lab_order import LabOrder
from lab_agent.errors import DataInvalidError, LisUnavailable
from lab_agent.lis.batch import take_each
from lab_agent.lis.folder.files import format_file_name
from lab_agent.lis.folder.order_files import OrderFolder
from lab_agent.lis.folder.result_folder import ResultFile, ResultFolder
from lab_agent.lis.folder.settings import FolderSettings
from lab_agent.ports.lis import Inbox, SubmitResult
from lab_agent.serialization import dump_order

T = TypeVar("T")
log = structlog.get_logger(__name__)
_MAX_THREADS = 4


class FolderAdapter:
    """A LIS that takes orders from one folder and puts results into another."""

    Settings: ClassVar[type[BaseModel]] = FolderSettings
    idempotent: ClassVar[bool] = True
    contract_version: ClassVar[int] = 1

    def __init__(self, settings: FolderSettings, name: str) -> None:
        self._settings = settings
        self._name = name
        self._orders = OrderFolder(settings.orders, settings.cancel_file_name, settings.file_mode, settings.encoding)
        self._results = ResultFolder(settings)
        self._collect_lock = asyncio.Lock()
        self._inbox: Inbox | None = None
        self._executor: ThreadPoolExecutor | None = None

    async def start(self, inbox: Inbox) -> None:
        """Look whether the folders are there."""
        self._inbox = inbox
        await self._run_in_thread(self._orders.open)
        await self._run_in_thread(self._results.open)

    async def stop(self) -> None:
        """End; a thread that hangs on a dead share is not waited for."""
        threads, self._executor, self._inbox = self._executor, None, None
        if threads is not None:
            threads.shutdown(wait=False, cancel_futures=True)

    async def check(self) -> None:
        """Write and remove a file in each folder, and look that results can be put away by renaming."""
        await self._run_in_thread(lambda: _check_folders(self._settings))

    async def prepare(self, order: LabOrder) -> None:
        """Write the order under a hidden name."""
        await self._run_in_thread(lambda: self._orders.prepare(order.key, dump_order(order)))

    async def submit(self, order: LabOrder) -> SubmitResult:
        """Give the order its name."""
        name = format_file_name(self._settings.file_name, _file_name_values(order))
        await self._run_in_thread(lambda: self._orders.submit(order.key, name))
        return SubmitResult()

    async def was_received(self, key: OrderKey) -> bool | None:
        """Say whether the order has its name, or had it."""
        return await self._run_in_thread(lambda: self._orders.was_received(key))

    async def cancel(self, order: OrderKey, lines: tuple[LineKey, ...], reason: str) -> None:
        """Write a cancel file."""
        await self._run_in_thread(lambda: self._orders.cancel(order, lines, reason))

    async def collect(self) -> int:
        """Take the result files that have stopped changing, oldest first."""
        if (inbox := self._inbox) is None:
            raise LisUnavailable("the adapter was not started")
        async with self._collect_lock:
            return await take_each(
                await self._run_in_thread(self._results.ready_files), lambda path: self._take_file(path, inbox), "result files"
            )

    async def _take_file(self, path: Path, inbox: Inbox) -> int:
        """Take one file: committed first, put away then (law 1)."""
        found = await self._run_in_thread(lambda: self._results.read(path))
        if found is None:
            return False
        if self._results.is_csv(found.path):
            return await self._take_csv(found, inbox)
        if await inbox.was_accepted(found.message_name):
            await self._run_in_thread(lambda: self._results.move_to_done(found, self._results.documents_not_newer(found)))
            return False
        try:
            filled = await self._run_in_thread(lambda: self._results.parse(found))
            if filled is None:
                return False
            new = await inbox.accept(found.message_name, filled.content)
        except DataInvalidError as exc:
            return await self._reject_file(found, exc, inbox)
        await self._run_in_thread(lambda: self._results.move_to_done(found, filled.files))
        return new

    async def _take_csv(self, result_file: ResultFile, inbox: Inbox) -> int:
        """Take each report of a table; the rows of bad ones go among the failed files, the table itself is done."""
        try:
            table = await self._run_in_thread(lambda: self._results.parse_csv(result_file))
        except DataInvalidError as exc:
            return await self._reject_file(result_file, exc, inbox)
        kept = [await inbox.accept(f"{result_file.message_name}#{name}", message) for name, message in table.messages.items()]
        if table.rejected_rows is not None:
            await inbox.refused(result_file.message_name, "rows of a table; the failed folder holds them, each with its reason")
            await self._run_in_thread(lambda: self._results.save_rejected_rows(result_file, table))
            log.warning("rows put among the failed files", action="result_file_failed", adapter=self._name)
        await self._run_in_thread(lambda: self._results.move_to_done(result_file))
        return sum(kept)

    async def _reject_file(self, result_file: ResultFile, error: DataInvalidError, inbox: Inbox) -> int:
        """Put a file among the failed ones; told first, so that nobody waits in the dark if we die in between."""
        await inbox.refused(result_file.message_name, str(error.problems[0]))
        await self._run_in_thread(lambda: self._results.move_to_failed(result_file, error))
        log.warning("result file put among the failed ones", action="result_file_failed", adapter=self._name)
        return 0

    async def _run_in_thread(self, work: Callable[[], T]) -> T:
        """Run `work` in a thread of our own: a dead share blocks these, and nobody else's."""
        if self._executor is None:
            self._executor = ThreadPoolExecutor(_MAX_THREADS, thread_name_prefix=f"lis-{self._name}")
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, work)
        except OSError as exc:
            why = exc.strerror or type(exc).__name__
            raise LisUnavailable(f"a folder of [lis.{self._name}] cannot be used ({why}); mount it, or mend its rights") from exc


def _file_name_values(order: LabOrder) -> dict[str, str]:
    return {
        "key": order.key,
        "requisition": order.requisition.value,
        "contract": order.contract,
        "date": order.ordered_at.date().isoformat(),
    }


def _check_folders(settings: FolderSettings) -> None:
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
