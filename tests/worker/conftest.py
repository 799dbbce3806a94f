"""Engines over a store in memory and on SQLite, with handlers that a test writes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import pytest

from lab_agent.crypto import Cipher, new_key
from lab_agent.domain.ids import EffectId
from lab_agent.domain.journal import Effect, EffectKind, NewEffect
from lab_agent.domain.retry import Backoff
from lab_agent.ports.store import Store, UnitOfWork
from lab_agent.steps.handler import Claim, Conclusion
from lab_agent.store.memory import MemoryStore
from lab_agent.store.migrate import upgrade
from lab_agent.store.unit_of_work import SqlStore
from lab_agent.worker.engine import Engine
from lab_agent.worker.outages import Outages
from tests.doubles import service_is_silent
from tests.simulation.seams import VirtualClock

LEASE = timedelta(seconds=60)


@dataclass
class Told:
    """A handler whose deeds a test writes; it keeps what it was asked."""

    deed: Callable[[Claim], Awaitable[Conclusion]] | None = None
    asked: list[str] = field(default_factory=list)

    kinds: ClassVar[frozenset[EffectKind]] = frozenset(EffectKind)

    async def do(self, claim: Claim) -> Conclusion:
        return await self._asked("do", claim)

    async def look(self, claim: Claim) -> Conclusion:
        return await self._asked("look", claim)

    async def _asked(self, how: str, claim: Claim) -> Conclusion:
        self.asked.append(f"{how} {claim.effect.once}")
        if self.deed is not None:
            return await self.deed(claim)
        return lambda _, effect: effect.done(effect.changed_at)


@dataclass
class Bench:
    """A store, a clock, one handler for everything, and an engine."""

    store: Store
    clock: VirtualClock = field(default_factory=VirtualClock)
    handler: Told = field(default_factory=Told)
    tried: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.outages = Outages(self.store, self.clock, service_is_silent)
        self.engine = self.another("one")

    def another(self, owner: str) -> Engine:
        return Engine(
            store=self.store,
            clock=self.clock,
            handlers=dict.fromkeys(EffectKind, self.handler),
            outages=self.outages,
            owner=owner,
            lease=LEASE,
            backoff=Backoff(2, 300),
            luck=lambda: 1.0,
            tried=lambda kind, state: self.tried.append((kind, state)),
        )

    async def add(self, once: str = "e", *, kind: EffectKind = EffectKind.LINE_TASK, lane: str | None = None) -> None:
        effect = NewEffect(kind=kind, once=once, lane=lane or once, subject="x", due_at=self.clock.now())
        await self.write(lambda uow: uow.effects.add(effect))

    async def write(self, work: Callable[[UnitOfWork], Any]) -> Any:
        def committed(uow: UnitOfWork) -> Any:
            result = work(uow)
            uow.commit()
            return result

        return await self.store.run(committed)

    async def turn(self, engine: Engine | None = None) -> int:
        """Claim what is due and work on it side by side."""
        engine = engine or self.engine
        effects = await engine.claim(list(EffectKind), 50)
        await asyncio.gather(*(engine.work(effect) for effect in effects))
        return len(effects)

    async def effect(self, number: int = 1) -> Effect:
        found = await self.store.run(lambda uow: uow.effects.get(EffectId(number)))
        assert found is not None
        return found


@pytest.fixture(params=["memory", "sqlite"])
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    if request.param == "memory":
        yield Bench(MemoryStore())
        return
    upgrade(f"sqlite:///{tmp_path / 'lab.db'}")
    store = SqlStore(f"sqlite:///{tmp_path / 'lab.db'}", Cipher(new_key()))
    yield Bench(store)
    await store.close()
