"""A worker's hold on one effect, kept alive while it works (law 8)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta

import structlog

from lab_agent.domain.journal import Effect
from lab_agent.errors import LeaseLostError, StoreUnreachableError
from lab_agent.ports.clock import Clock
from lab_agent.ports.store import Store, UnitOfWork

log = structlog.get_logger(__name__)


class StoreClaim:
    """The claim that handlers see: every write goes through the fence."""

    def __init__(self, effect: Effect, store: Store, clock: Clock, lease: timedelta) -> None:
        self._effect = effect
        self._store = store
        self._clock = clock
        self._lease = lease

    @property
    def effect(self) -> Effect:
        """The effect as it stands."""
        return self._effect

    async def begin(self, also: Callable[[UnitOfWork], None] | None = None) -> None:
        """Commit that the effect may be felt outside from now on, with a full lease ahead. Raises `LeaseLostError`."""
        now = self._clock.now()
        begun = replace(self._effect.beginning(now), lease_until=now + self._lease)

        def write(uow: UnitOfWork) -> None:
            uow.effects.save(begun)
            if also is not None:
                also(uow)
            uow.commit()

        await self._store.run(write)
        self._effect = begun

    async def write(self, work: Callable[[UnitOfWork], None]) -> None:
        """Commit an intermediate fact, if the claim is still ours. Raises `LeaseLostError`."""

        def fenced(uow: UnitOfWork) -> None:
            uow.effects.prolong(self._effect, now=self._clock.now(), lease=self._lease)
            work(uow)
            uow.commit()

        await self._store.run(fenced)

    async def conclude(self, conclusion: Callable[[UnitOfWork, Effect], Effect]) -> Effect:
        """Commit what follows and the effect's own end, in one unit of work. Raises `LeaseLostError`, and nothing is written."""

        def write(uow: UnitOfWork) -> Effect:
            ended = conclusion(uow, self._effect)
            uow.effects.save(ended)
            uow.commit()
            return ended

        return await self._store.run(write)

    @asynccontextmanager
    async def kept_alive(self) -> AsyncIterator[None]:
        """Prolong the lease every third of it; when it was lost all the same, the work in the block is cancelled."""
        owner = asyncio.current_task()
        beat = asyncio.create_task(self._beat(owner), name=f"heartbeat of effect {self._effect.id}")
        try:
            yield
        finally:
            beat.cancel()
            await asyncio.gather(beat, return_exceptions=True)

    async def _beat(self, owner: asyncio.Task[object] | None) -> None:
        while True:
            await asyncio.sleep(self._lease.total_seconds() / 3)
            try:
                await self.write(lambda _: None)
            except StoreUnreachableError:
                continue  # the lease lapses by itself if the store stays away
            except LeaseLostError:
                log.warning("claim lost", action="claim_lost", effect=self._effect.id, kind=self._effect.kind.value)
                if owner is not None:
                    owner.cancel("claim lost")
                return
