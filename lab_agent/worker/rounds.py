"""The rounds of a worker: poll, collect, reconcile, housekeeping, each with what its success or failure says of a neighbour."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from lab_agent.domain.journal import EffectKind
from lab_agent.errors import Failure, TemporaryFailure
from lab_agent.metrics import Metrics
from lab_agent.ports.clock import Clock
from lab_agent.ports.store import Store, UnitOfWork
from lab_agent.steps.poll import Poll
from lab_agent.worker.outages import EXCHANGE, LIS, POLL, SIGN_IN, Outages
from lab_agent.worker.polling import PollPace

_WAITING_FOR_THE_SERVICE = (EffectKind.LOOK, EffectKind.DELIVER, EffectKind.LINE_TASK, EffectKind.ORDER_TASK)
_WAITING_FOR_THE_LIS = (EffectKind.HANDOVER, EffectKind.LIS_CANCEL)


@dataclass(slots=True)
class PollRound:
    """Polls, keeps its pace, and ends the outage of a service that answers again. `again_in` sets the next run."""

    poll: Poll
    outages: Outages
    store: Store
    clock: Clock
    metrics: Metrics
    pace: PollPace
    again_in: Callable[[float], None]
    nudge: Callable[[], None]
    _wait: float = field(default=0.0, init=False)

    async def run(self) -> None:
        """Poll once, tell what went wrong, and set the next run."""
        try:
            found = await self.poll.run()
        except Failure as failure:
            self.metrics.polled(type(failure).__name__, new=0, at=self.clock.now().timestamp())
            self._wait = await self._after(failure)
        else:
            self.metrics.polled("ok", new=found, at=self.clock.now().timestamp())
            self.outages.store_back()
            if await self.outages.end(EXCHANGE, SIGN_IN, POLL):
                await wake(self.store, self.clock, _WAITING_FOR_THE_SERVICE)
            self._wait = self.pace.after(self._wait, found)
            self.nudge()
        self.again_in(self._wait)

    async def _after(self, failure: Failure) -> float:
        """Tell the failure; the wait in seconds: short while the service is away, growing while it refuses the poll itself."""
        if isinstance(failure, TemporaryFailure):
            await self.outages.notice(failure)
            return max(self.pace.shortest, failure.retry_after or 0.0)
        await self.outages.begin(POLL, f"new orders cannot be fetched: {failure}")
        return self.pace.after(self._wait, 0)


@dataclass(frozen=True, slots=True)
class LisWatch:
    """Begins and ends the outages of laboratory systems, as collection hears of them."""

    outages: Outages
    store: Store
    clock: Clock
    nudge: Callable[[], None]

    async def told(self, name: str, failure: Failure | None) -> None:
        """Hear that the laboratory system `name` failed, or worked (None)."""
        key = f"{LIS}{name}.away"
        if failure is not None:
            await self.outages.begin(key, f"laboratory system {name}: {failure}")
        elif await self.outages.end(key):
            await wake(self.store, self.clock, _WAITING_FOR_THE_LIS)
            self.nudge()


async def wake(store: Store, clock: Clock, kinds: tuple[EffectKind, ...]) -> None:
    """Let effects that wait for a neighbour be due now, since it has shown a sign of life."""

    def write(uow: UnitOfWork) -> None:
        for kind in kinds:
            uow.effects.wake(kind, now=clock.now())
        uow.commit()

    await store.run(write)
