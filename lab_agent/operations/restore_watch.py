"""Notices that the database was restored from a backup, and holds what must not be done then.

The database has a number that grows while the agent runs; the mark outside of it follows. A database that is behind the mark, or
another one than the mark's, was put there: nothing is told to anybody until its open orders were compared with the service, and
nothing to a laboratory system until an operator has released it (`workflow/restored_store.py`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field

import structlog

from lab_agent.orders.restored_store import advance_number, load_restoration, note_reconciled, note_restoration, read_number
from lab_agent.orders.task_reconciliation import Comparison
from lab_agent.queue.job_records import JobKind
from lab_agent.shared.clock import Clock
from lab_agent.shared.errors import StoreError, StoreUnreachableError
from lab_agent.store.restoration import MarkedNumber, Restoration, RestoreSign, find_sign
from lab_agent.store.store_mark import FileMark
from lab_agent.store.unit_of_work import Store, UnitOfWork

log = structlog.get_logger(__name__)

MARK_INTERVAL = 60.0
"""Seconds between two numbers: what was done since the last one may be missing from a backup without its being noticed here."""
_LIS_KINDS = frozenset({JobKind.SUBMIT_ORDER, JobKind.CANCEL_AT_LIS})
_OUTBOUND_KINDS = _LIS_KINDS | {JobKind.DELIVER_REPORT, JobKind.UPDATE_LINE_TASK, JobKind.UPDATE_ORDER_TASK}


def find_held_kinds(restored: Restoration | None) -> frozenset[JobKind]:
    """The kinds of jobs that must not be done now."""
    if restored is None or not restored.is_open:
        return frozenset()
    return _OUTBOUND_KINDS if restored.reconciled_at is None else _LIS_KINDS


@dataclass(slots=True)
class RestoreWatch:
    """Looks at intervals, and once before anything is claimed. `hold` takes the kinds of jobs that must not be done."""

    store: Store
    clock: Clock
    mark: FileMark | None
    hold: Callable[[Collection[JobKind]], None]
    reconcile: Callable[[], Awaitable[Comparison]]
    _marked_at: float | None = field(default=None, init=False)
    _noted_mark: MarkedNumber | None = field(default=None, init=False)
    """The mark that has shown a restore: one that cannot be replaced shows no other one."""
    _held: frozenset[JobKind] = field(default=frozenset(), init=False)

    async def begin(self) -> None:
        """Look before anything is claimed. Where the database is out, all that leaves the machine is held until the next look."""
        self._hold(_OUTBOUND_KINDS)
        with suppress(StoreUnreachableError):
            self._apply(await self._advance())

    async def look(self) -> None:
        """Compare the database with its mark, advance both from time to time, and hold or release.

        Raises `StoreUnreachableError`, and what the exchange port raises where open orders cannot be compared with the service.
        """
        is_due = self._marked_at is None or time.monotonic() - self._marked_at >= MARK_INTERVAL
        restored = await (self._advance() if is_due else self.store.run_read_only(load_restoration))
        if restored is not None and restored.is_open and (restored.reconciled_at is None or (is_due and restored.not_compared)):
            self._apply(restored)
            await self._reconcile()
            restored = await self.store.run_read_only(load_restoration)
        self._apply(restored)

    def _apply(self, restored: Restoration | None) -> None:
        if (held := find_held_kinds(restored)) != self._held:
            log.info("held kinds of jobs changed", action="jobs_held", items=sorted(each.value for each in held))
            self._hold(held)

    def _hold(self, kinds: frozenset[JobKind]) -> None:
        self._held = kinds
        self.hold(kinds)

    async def _advance(self) -> Restoration | None:
        mark = await self._read_mark()

        def advance(uow: UnitOfWork) -> tuple[MarkedNumber, Restoration | None, RestoreSign | None]:
            now, stored = self.clock.now(), read_number(uow)
            sign = None if mark == self._noted_mark else find_sign(mark, stored)
            if sign is not None:
                note_restoration(uow, sign, now)
            reached = mark.number if mark is not None and mark.instance == stored.instance else 0
            advanced = advance_number(uow, now, reached)
            restored = load_restoration(uow)
            return advanced, restored, sign

        advanced, restored, sign = await self.store.transact(advance)
        if sign is not None:
            self._noted_mark = mark
        await self._write_mark(advanced)
        self._marked_at = time.monotonic()
        return restored

    async def _reconcile(self) -> None:
        found = await self.reconcile()

        def note(uow: UnitOfWork) -> None:
            note_reconciled(uow, self.clock.now(), found.missed)

        await self.store.transact(note)

    async def _read_mark(self) -> MarkedNumber | None:
        if self.mark is None:
            return None
        try:
            return await asyncio.to_thread(self.mark.read)
        except StoreUnreachableError:
            raise
        except StoreError as exc:
            log.error("the mark of the database cannot be read", action="store_mark_failed", reason=str(exc))  # noqa: TRY400 - a fault of the file needs no traceback
            return None

    async def _write_mark(self, number: MarkedNumber) -> None:
        if self.mark is None:
            return
        try:
            await asyncio.to_thread(self.mark.write, number)
        except StoreError as exc:
            log.error("the mark of the database cannot be written", action="store_mark_failed", reason=str(exc))  # noqa: TRY400 - a fault of the file needs no traceback
