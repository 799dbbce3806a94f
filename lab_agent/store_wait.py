"""How a program begins whose database may be away: it waits until that can be opened, and says meanwhile what is wrong.

A program that ended instead would be started again and again, and say so in the log alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import structlog

from lab_agent.shared import sd_notify
from lab_agent.shared.conditions.model import OpenCondition
from lab_agent.shared.errors import StoreFault, StoreUnreachableError
from lab_agent.store.store_health import StoreOutage

log = structlog.get_logger(__name__)

_PATIENCE = 1.0
"""Seconds that the first attempt may take before it is said that the program waits."""
_PAUSE = 2.0
_NO_ANSWER = "no answer yet"


@dataclass(slots=True)
class StoreWait:
    """Tries `open_once`, which opens the database and closes it again, until it succeeds."""

    open_once: Callable[[], Awaitable[None]]
    outages: dict[StoreFault, StoreOutage] = field(default_factory=dict)
    """What was wrong meanwhile, with the beginning of each fault."""
    failed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by the first attempt that failed: until then it only takes long."""
    _current: StoreOutage | None = None
    _since: datetime = field(default_factory=lambda: datetime.now(UTC))

    async def wait(self, stop: asyncio.Event, meanwhile: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """Run `meanwhile` until the database is open to us; whether it is: False if `stop` came first.

        Raises what waiting cannot mend: `CryptoError` for an invalid key, `StoreError` for an invalid URL.
        """
        opening = asyncio.create_task(self._open_in_the_end(), name="open the database")
        stopping = asyncio.create_task(stop.wait(), name="stop")
        either: set[asyncio.Task[Any]] = {opening, stopping}
        try:
            ended, _ = await asyncio.wait(either, timeout=_PATIENCE, return_when=asyncio.FIRST_COMPLETED)
            if not ended:
                await _run_beside(either, meanwhile())
            if opening.done():
                await opening
            return opening.done() and not stop.is_set()
        finally:
            opening.cancel()
            stopping.cancel()

    def find_condition(self) -> OpenCondition:
        """What is wrong now."""
        return (self._current or StoreOutage(StoreFault.UNREACHABLE, _NO_ANSWER, self._since)).to_condition()

    async def _open_in_the_end(self) -> None:
        while True:
            try:
                await self.open_once()
            except StoreUnreachableError as exc:
                self._note(exc)
            else:
                self._log_end()
                return
            await asyncio.sleep(_PAUSE)

    def _note(self, error: StoreUnreachableError) -> None:
        fault = error.fault or StoreFault.UNREACHABLE
        known = self.outages.get(fault)
        self.failed.set()
        self._current = known or StoreOutage(fault, str(error), self._since)
        if known is None:
            self.outages[fault] = self._current
            log.error("the database is out", action="outage_started", outage=str(self._current.key), reason=str(error))
        sd_notify.notify_ready(f"waiting: {self._current.to_condition().title}")

    def _log_end(self) -> None:
        for each in self.outages.values():
            log.info("the database works again", action="outage_ended", outage=str(each.key))


async def _run_beside(others: set[asyncio.Task[Any]], work: Coroutine[Any, Any, None]) -> None:
    """Run `work` until one of the others has ended. Raises what it fails with."""
    working = asyncio.create_task(work, name="meanwhile")
    try:
        await asyncio.wait({*others, working}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        working.cancel()
        (end,) = await asyncio.gather(working, return_exceptions=True)
    if end is not None and not isinstance(end, asyncio.CancelledError):
        raise end


async def keep_watchdog() -> None:
    """Tell systemd that the process lives, however long the database takes to answer."""
    while True:
        sd_notify.notify_watchdog()
        await asyncio.sleep(1)
