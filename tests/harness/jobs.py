"""Short ways to claim and run jobs in a test, without a dispatcher."""

from __future__ import annotations

from collections.abc import Collection

from lab_agent.queue.claiming import ClaimedJob
from lab_agent.queue.job_records import JobKind
from lab_agent.queue.job_runner import JobRunner


async def claim_jobs(runner: JobRunner, kinds: Collection[JobKind], limit: int) -> tuple[ClaimedJob, ...]:
    """Claim up to `limit` due jobs of these kinds, also those of workers whose lease has expired."""
    if (await runner.claimer.find_pending(())).has_expired_lease:
        await runner.claimer.expire_leases()
    return await runner.claimer.claim({frozenset(kinds): limit})
