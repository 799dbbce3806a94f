"""Orders of which nobody knew whether the laboratory system has them: its answer may come late, and settles them then (law 3).

An operator is asked about such an order when the laboratory system cannot say. It may answer all the same, before the operator
does: an acknowledgement after its time-out, a row that is marked as read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import partial

import structlog

from lab_agent.lis.laboratory_system import AdapterSource
from lab_agent.orders.pause_actions import load_pauses
from lab_agent.queue import jobs
from lab_agent.queue.job_records import Job, JobKind
from lab_agent.shared.clock import Clock
from lab_agent.shared.errors import Failure
from lab_agent.shared.ids import JobId, OrderKey
from lab_agent.shared.state_machines import JobState
from lab_agent.store.unit_of_work import Store, UnitOfWork

log = structlog.get_logger(__name__)

_MAX_VERIFICATIONS = 3
_PORTION = 100


@dataclass(frozen=True, slots=True)
class _Waiting:
    """Handovers that wait for an operator, and the laboratory systems of them that are paused: those are not asked."""

    jobs: tuple[Job, ...]
    paused: Collection[str]


@dataclass(frozen=True, slots=True)
class UnconfirmedOrders:
    """Asks again about handovers that wait for an operator, and lets those be verified that were answered.

    One that waits again all the same, whatever the reason, is left to the operator after a few times.
    """

    store: Store
    clock: Clock
    adapters: AdapterSource
    _verifications: Counter[JobId] = field(default_factory=Counter)

    async def run(self) -> int:
        """Ask once about each; returns how many the laboratory system has answered. Their handover is then verified as usual."""
        settled, last = 0, None
        while (found := await self.store.run_read_only(partial(_load_waiting, after=last))).jobs:
            settled += await self._settle(found)
            last = found.jobs[-1]
        return settled

    async def _settle(self, waiting: _Waiting) -> int:
        asked = [job for job in waiting.jobs if jobs.adapter_of(job) not in waiting.paused]
        undecided = [job for job in asked if self._verifications[job.id] < _MAX_VERIFICATIONS]
        settled = [job for job in undecided if await self._is_answered(job)]
        for job in settled:
            self._verifications[job.id] += 1
            await self.store.transact(partial(self._verify_again, job=job))
        return len(settled)

    async def _is_answered(self, job: Job) -> bool:
        key = OrderKey(job.target)
        try:
            return await self.adapters.get(jobs.adapter_of(job)).was_received(key) is not None
        except Failure as failure:  # it is asked again at the next run; whether it is available is told elsewhere
            log.debug("no answer", action="order_unconfirmed", order=key, error=failure)
            return False

    def _verify_again(self, uow: UnitOfWork, job: Job) -> None:
        current, now = uow.jobs.get(job.id), self.clock.now()
        if current is not None and current.state is JobState.NEEDS_REVIEW:  # else an operator was faster
            uow.jobs.save(current.outcome_unknown(now, now, "the laboratory system has answered; verifying the outcome"))


def _load_waiting(uow: UnitOfWork, after: Job | None) -> _Waiting:
    found = uow.jobs.needing_operator(kind=JobKind.SUBMIT_ORDER, state=JobState.NEEDS_REVIEW, after=after, limit=_PORTION)
    return _Waiting(found, load_pauses(uow, map(jobs.adapter_of, found)).keys())
