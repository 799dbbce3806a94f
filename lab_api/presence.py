"""Says in the store that this process lives and for which schema it was made, so that no upgrade takes that from it."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable

from lab_agent.operations.presence import ProgramBeat
from lab_agent.shared.clock import Clock
from lab_agent.shared.errors import StoreError
from lab_agent.shared.logs import get_logger
from lab_agent.store.program_records import ProgramKind
from lab_agent.store.unit_of_work import Store, UnitOfWork

_log = get_logger(__name__)
_END_SECONDS = 2.0
"""How long the end may take to be written; a database that is out then forgets the process by its last sign of life."""


class ApiPresence:
    """Writes it every `interval` seconds until cancelled, and then that it has ended. A write that fails is left out."""

    def __init__(self, store: Store, clock: Clock, schema: str, interval: float) -> None:
        self._store = store
        self._interval = interval
        self._beat = ProgramBeat(clock, f"api-{uuid.uuid4().hex}", ProgramKind.API, schema, interval)

    async def run(self) -> None:
        """Write until cancelled."""
        try:
            await self._write(self._beat.purge)
            while True:
                await self._write(self._beat.save)
                await asyncio.sleep(self._interval)
        finally:
            await self._write_end()

    async def _write_end(self) -> None:
        try:
            async with asyncio.timeout(_END_SECONDS):
                await self._write(self._beat.remove)
        except TimeoutError:
            _log.debug("end of this process not written", action="api.presence_failed", reason="the database does not answer")

    async def _write(self, work: Callable[[UnitOfWork], None]) -> None:
        def write(uow: UnitOfWork) -> None:
            work(uow)

        try:
            await self._store.transact(write)
        except StoreError as exc:
            _log.debug("presence not written", action="api.presence_failed", reason=str(exc))
