"""The folder adapter: calls from the event loop into the threads that touch the files."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import structlog
from pydantic import BaseModel

from lab_agent.lis.batch import take_together
from lab_agent.lis.disk_errors import MountWatch, to_lis_failure
from lab_agent.lis.folder.files import format_file_name, printable_name
from lab_agent.lis.folder.order_files import OrderFolder, transcode_json
from lab_agent.lis.folder.raw_results import RawResultParser, accepted_id, part_id
from lab_agent.lis.folder.result_folder import ParsedResult, ResultFile, ResultFolder
from lab_agent.lis.folder.settings import FolderSettings
from lab_agent.lis.lab_messages import LabMessage
from lab_agent.lis.lab_order import LabOrder
from lab_agent.lis.laboratory_system import Inbox, ParsedMessage, RenderedOrder, SubmitResult
from lab_agent.lis.serialization import dump_order
from lab_agent.shared.errors import DataInvalidError, LisUnavailable, StoreUnreachableError
from lab_agent.shared.ids import LineKey, OrderKey

T = TypeVar("T")
log = structlog.get_logger(__name__)
_PROBE = ".lab_agent.tmp"
"""The file with which a folder is tried: one name, so that at most one is left behind, and not for long."""
_MAX_THREADS = 4
_GROUP_FILES = 25
"""How many result files are committed together, at most: a commit waits for the disk, and that is most of what a file costs."""
_GROUP_BYTES = 16_000_000
"""How large they and their documents are together, about; one that is larger is committed by itself."""


class FolderAdapter:
    """A LIS that reads orders from one folder and writes results to another."""

    Settings: ClassVar[type[BaseModel]] = FolderSettings
    trial_settings: ClassVar[Mapping[str, Any]] = {
        "orders": "orders",
        "results": "results",
        "csv": {"columns": {name: name for name in ("report_id", "barcode", "effective", "code", "value", "unit")}},
    }
    """Enough to read a captured file without settings; nothing is opened."""
    idempotent: ClassVar[bool] = True
    contract_version: ClassVar[int] = 1

    def __init__(self, settings: FolderSettings, name: str) -> None:
        self._settings = settings
        self._name = name
        self._orders = OrderFolder(settings.orders, settings.cancel_file_name, settings.file_mode, settings.encoding)
        self._results = ResultFolder(settings)
        self._parser = RawResultParser(settings, f"lis.{name}")
        self._mounts = MountWatch()
        self._collect_lock = asyncio.Lock()
        self._inbox: Inbox | None = None
        self._executor: ThreadPoolExecutor | None = None

    async def start(self, inbox: Inbox) -> None:
        """Check that the folders exist."""
        self._inbox = inbox
        await self._run_in_thread(self._orders.open)
        await self._run_in_thread(self._results.open)
        await self._run_in_thread(lambda: self._mounts.remember(self._settings.orders, self._settings.results))

    async def stop(self) -> None:
        """Stop, without waiting for a thread that hangs on a dead share."""
        threads, self._executor, self._inbox = self._executor, None, None
        if threads is not None:
            threads.shutdown(wait=False, cancel_futures=True)

    async def check(self) -> None:
        """Write and remove a file in each folder, and check that results can be moved by renaming."""
        await self._run_in_thread(lambda: _check_folders(self._settings))

    async def prepare(self, order: LabOrder) -> None:
        """Write the order under a hidden name."""
        await self._run_in_thread(lambda: self._orders.prepare(order.key, dump_order(order)))

    async def submit(self, order: LabOrder) -> SubmitResult:
        """Rename the order's file to its final name."""
        name = format_file_name(self._settings.file_name, _file_name_values(order))
        await self._run_in_thread(lambda: self._orders.submit(order.key, name))
        return SubmitResult()

    async def was_received(self, key: OrderKey) -> bool | None:
        """Whether the order's file was renamed to its final name."""
        return await self._run_in_thread(lambda: self._orders.was_received(key))

    async def cancel(self, order: OrderKey, lines: tuple[LineKey, ...], reason: str) -> None:
        """Write a cancel file."""
        await self._run_in_thread(lambda: self._orders.cancel(order, lines, reason))

    async def collect(self) -> int:
        """Process the result files that have stopped changing, oldest first."""
        if (inbox := self._inbox) is None:
            raise LisUnavailable("the adapter was not started")
        async with self._collect_lock:
            try:
                ready = await self._run_in_thread(self._results.ready_files)
                return await take_together(
                    ready,
                    lambda paths: self._take_first(paths, inbox),
                    lambda path: self._take_file(path, inbox),
                    "result files",
                    size=_GROUP_FILES,
                    alone=self._results.is_csv,
                )
            finally:
                await self._tell_findings(inbox)

    async def _tell_findings(self, inbox: Inbox) -> None:
        """Tell the operators what is not read, or was read too early: once each."""
        for name, finding in await self._run_in_thread(self._results.findings):
            await inbox.reject(f"{printable_name(name)}:{finding.name.lower()}", finding.value)
            await self._run_in_thread(functools.partial(self._results.mark_told, name, finding))
            log.warning(
                "entry of the results folder not read", action="result_entry_unread", adapter=self._name, finding=finding.name
            )

    async def parse_message(self, raw: bytes, name: str) -> ParsedMessage:
        """Read a file as `collect` would; `name` is its name, or the id that it was rejected under."""
        return await asyncio.to_thread(self._parser.parse, raw, name)

    async def render_order(self, order: LabOrder) -> tuple[RenderedOrder, ...]:
        """Write the order's file, without the folder."""
        name = format_file_name(self._settings.file_name, _file_name_values(order))
        return (RenderedOrder(name, await asyncio.to_thread(lambda: transcode_json(dump_order(order), self._settings.encoding))),)

    async def _take_first(self, paths: Sequence[Path], inbox: Inbox) -> tuple[int, int]:
        """Process the first of these files together: first commit them all, then move them (law 1)."""
        files = await self._run_in_thread(lambda: self._results.read_first(paths, _GROUP_BYTES))
        stored = await inbox.find_accepted([accepted_id(file.message_id) for file in files if file is not None])
        unread = [file for file in files if file is not None and accepted_id(file.message_id) not in stored]
        outcomes = await self._run_in_thread(lambda: self._results.parse_first(unread, _GROUP_BYTES))
        if len(outcomes) < len(unread):  # what follows comes with the next group
            files = files[: files.index(unread[len(outcomes)])]
        parsed = [(file, outcome) for file, outcome in zip(unread, outcomes, strict=False) if isinstance(outcome, ParsedResult)]
        new = await inbox.accept_all({accepted_id(file.message_id): outcome.content for file, outcome in parsed})
        for file, outcome in zip(unread, outcomes, strict=False):
            if isinstance(outcome, DataInvalidError):
                await self._reject_file(file, outcome, inbox)
        await self._run_in_thread(lambda: self._move_accepted(files, stored, parsed))
        return len(files), len(new)

    def _move_accepted(
        self, files: Sequence[ResultFile | None], stored: Collection[str], parsed: Sequence[tuple[ResultFile, ParsedResult]]
    ) -> None:
        """Move what was stored before, and what is stored now."""
        for file in files:
            if file is not None and accepted_id(file.message_id) in stored:
                self._results.move_to_done(file, self._results.documents_not_newer(file))
        for file, result in parsed:
            self._results.move_to_done(file, result.files)

    async def _take_file(self, path: Path, inbox: Inbox) -> int:
        """Process one file: first commit it, then move it (law 1)."""
        result_file = await self._run_in_thread(lambda: self._results.read(path))
        if result_file is None:
            return False
        if self._results.is_csv(result_file.path):
            return await self._take_csv(result_file, inbox)
        message = accepted_id(result_file.message_id)
        if await inbox.was_accepted(message):
            await self._run_in_thread(
                lambda: self._results.move_to_done(result_file, self._results.documents_not_newer(result_file))
            )
            return False
        try:
            parsed = await self._run_in_thread(lambda: self._results.parse(result_file))
            if parsed is None:
                return False
            new = await inbox.accept(message, parsed.content)
        except DataInvalidError as exc:
            return await self._reject_file(result_file, exc, inbox)
        await self._run_in_thread(lambda: self._results.move_to_done(result_file, parsed.files))
        return new

    async def _take_csv(self, result_file: ResultFile, inbox: Inbox) -> int:
        """Store each report of a CSV file; the rows of invalid ones go to `failed`, the file itself to `done`."""
        try:
            csv_results = await self._run_in_thread(lambda: self._results.parse_csv(result_file))
        except DataInvalidError as exc:
            return await self._reject_file(result_file, exc, inbox)
        if csv_results is None:
            return 0
        messages = [(part_id(result_file.message_id, each), each.message) for each in csv_results.reports if each.message]
        new = await _accept_reports(messages, inbox)
        if csv_results.problems:
            reason = "rows of a CSV file; they are in the failed folder, with the reasons"
            await inbox.reject(result_file.message_id, reason, raw=result_file.data)
            await self._run_in_thread(lambda: self._results.save_rejected_rows(result_file, csv_results))
            log.warning("rows of a CSV file rejected", action="result_file_failed", adapter=self._name)
        await self._run_in_thread(lambda: self._results.move_to_done(result_file))
        return new

    async def _reject_file(self, result_file: ResultFile, error: DataInvalidError, inbox: Inbox) -> int:
        """Move a file to `failed`. The operators are alerted first, in case of a crash in between."""
        await inbox.reject(result_file.message_id, str(error.problems[0]), raw=result_file.data)
        await self._run_in_thread(lambda: self._results.move_to_failed(result_file, error))
        log.warning("result file rejected", action="result_file_failed", adapter=self._name)
        return 0

    async def _run_in_thread(self, work: Callable[[], T]) -> T:
        """Run `work` in a thread of our own: a dead share blocks only these threads."""
        if self._executor is None:
            self._executor = ThreadPoolExecutor(_MAX_THREADS, thread_name_prefix=f"lis-{self._name}")
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, self._run_if_mounted, work)
        except OSError as exc:
            raise to_lis_failure(exc, f"a folder of [lis.{self._name}]") from exc

    def _run_if_mounted(self, work: Callable[[], T]) -> T:
        self._mounts.check()
        return work()


async def _accept_reports(reports: Sequence[tuple[str, LabMessage]], inbox: Inbox) -> int:
    """Store the reports of one file in groups, and those of a group that fails one by one: a bad one stops no other (law 9).

    Raises `LisUnavailable` or `StoreError` if one is not stored: the file stays, and what is stored is known the next time.
    """

    async def accept_first(group: Sequence[tuple[str, LabMessage]]) -> tuple[int, int]:
        return len(group), len(await inbox.accept_all(dict(group)))

    async def accept(report: tuple[str, LabMessage]) -> int:
        return await inbox.accept(*report)

    unavailable = (LisUnavailable, StoreUnreachableError)  # nothing is wrong with the reports
    return await take_together(reports, accept_first, accept, "reports of a CSV file", size=_GROUP_FILES, stop_on=unavailable)


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
            raise LisUnavailable(f"the folder {name} does not exist: create or mount it")
        try:
            probe = folder / _PROBE
            probe.touch()  # it may be there: another worker tries the folder too, or one was killed in between
            probe.unlink(missing_ok=True)
        except OSError as exc:
            raise to_lis_failure(exc, f"the folder {name}") from exc
        if name in {"done", "failed"} and folder.stat().st_dev != settings.results.stat().st_dev:
            raise LisUnavailable(f"the folder {name} is on another file system than results: move it to the same one")
