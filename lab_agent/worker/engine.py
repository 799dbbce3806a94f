"""The engine: takes due effects from the outbox, lets their handlers work, and decides what follows upon a failure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta

import structlog

from lab_agent.domain.journal import Effect, EffectKind
from lab_agent.domain.lifecycle import EffectState
from lab_agent.domain.retry import Again, Backoff, LookFirst, Park, decide
from lab_agent.errors import Failure, LabAgentError, LeaseLostError, StoreUnreachableError
from lab_agent.ports.clock import Clock
from lab_agent.ports.store import Store, UnitOfWork
from lab_agent.steps.handler import Conclusion, Handler
from lab_agent.worker.claim import StoreClaim
from lab_agent.worker.outages import Outages, part_of_exchange

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Engine:
    """Works on effects for one worker (`owner`). `luck` draws the jitter, from 0 to 1."""

    store: Store
    clock: Clock
    handlers: Mapping[EffectKind, Handler]
    outages: Outages
    owner: str
    lease: timedelta
    backoff: Backoff
    luck: Callable[[], float]
    tried: Callable[[str, str], None]
    """Hears of every try: the kind of effect and the state in which it ended."""

    async def claim(self, kinds: Collection[EffectKind], limit: int) -> tuple[Effect, ...]:
        """Claim up to `limit` effects that are due."""

        def take(uow: UnitOfWork) -> tuple[Effect, ...]:
            taken = uow.effects.claim(kinds, owner=self.owner, now=self.clock.now(), lease=self.lease, limit=limit)
            uow.commit()
            return taken

        return await self.store.run(take)

    async def work(self, effect: Effect) -> None:
        """Do one claimed effect to its end, whatever happens: nothing is raised but cancellation."""
        claim = StoreClaim(effect, self.store, self.clock, self.lease)
        try:
            async with claim.kept_alive():
                ended = await self._to_its_end(claim)
            self.tried(ended.kind.value, ended.state.value)
            if ended.state is EffectState.DONE:
                await self.outages.end(part_of_exchange(ended.kind.value))
        except LeaseLostError:
            log.warning("late result dropped", action="claim_lost", effect=effect.id, kind=effect.kind.value)
        except StoreUnreachableError as exc:
            await self.outages.notice(exc)  # the lease lapses, and the effect is looked at again

    async def _to_its_end(self, claim: StoreClaim) -> Effect:
        must_look = claim.effect.state is EffectState.UNKNOWN and not claim.effect.needs_no_look
        try:
            return await claim.conclude(await self._handle(claim, must_look=must_look))
        except (LeaseLostError, StoreUnreachableError):
            raise
        except Failure as failure:
            await self.outages.notice(failure, claim.effect.kind.value)
            return await claim.conclude(self._after(failure, claim.effect, looking=must_look))
        except Exception as exc:  # the one boundary: a bad one is parked with its reason, and the good ones go on (law 9)
            log.exception("effect failed", action="effect_failed", effect=claim.effect.id, kind=claim.effect.kind.value)
            return await claim.conclude(self._parked(exc, claim.effect))

    async def _handle(self, claim: StoreClaim, *, must_look: bool) -> Conclusion:
        handler = self.handlers[claim.effect.kind]
        return await (handler.look(claim) if must_look else handler.do(claim))

    def _after(self, failure: Failure, effect: Effect, *, looking: bool) -> Conclusion:
        now = self.clock.now()
        decision = decide(failure, attempts=effect.attempts, now=now, backoff=self.backoff, luck=self.luck())
        self._tell(failure, effect, decision)
        reason = str(failure)
        match decision:
            case Again(at) if not looking:
                # Nothing of this try was felt outside, so the next one starts afresh.
                return lambda _, e: replace(e.again(now, at, reason), begun=False)
            case Again(at) | LookFirst(at):
                return lambda _, e: e.unknown(now, at, reason)
            case Park():
                return lambda _, e: e.parked(now, reason)

    def _parked(self, error: Exception, effect: Effect) -> Conclusion:
        now = self.clock.now()
        told = str(error) if isinstance(error, LabAgentError) else f"internal error {type(error).__name__}"
        reason = f"{told}; the log of {now:%Y-%m-%d %H:%M:%S} UTC says more"
        if effect.needs_no_look:
            return lambda _, e: e.parked(now, reason)
        return lambda _, e: e.for_review(now, reason)

    def _tell(self, failure: Failure, effect: Effect, decision: Again | LookFirst | Park) -> None:
        """One line when an effect first fails, and one when it is parked; an outage has its own line."""
        if isinstance(decision, Park):
            tell = log.error
        elif effect.attempts == 1 and not self.outages.explains(failure, effect.kind.value):
            tell = log.warning
        else:
            tell = log.debug
        tell(
            "effect failed",
            action="effect_parked" if isinstance(decision, Park) else "effect_waits",
            effect=effect.id,
            kind=effect.kind.value,
            order=effect.order,
            reason=str(failure),
        )
