"""The outbox, in memory."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from lab_agent import exact_json
from lab_agent.domain.ids import JobId, OrderKey
from lab_agent.domain.journal import Job, JobKind, NewJob
from lab_agent.domain.lifecycle import BLOCKING_STATES, JOBS_NEEDING_OPERATOR, OPEN_JOBS, JobState
from lab_agent.errors import LeaseLostError
from lab_agent.store.memory_shelf import MemoryData
from lab_agent.store.states import CLAIMABLE_STATES


class MemoryJobRepository:
    """The outbox."""

    def __init__(self, data: MemoryData) -> None:
        self._data = data

    def add(self, job: NewJob) -> bool:
        """Write an effect. False if one of the same `once` is there already (nothing is written)."""
        payload = exact_json.loads(exact_json.dumps(job.payload))
        if job.dedup_key in self._data.dedup_keys:
            return False
        born = min(job.due_at, datetime.now(UTC))
        self._data.dedup_keys.add(job.dedup_key)
        self._data.last_job_id += 1
        number = JobId(self._data.last_job_id)
        self._data.jobs[number] = Job(
            id=number,
            kind=job.kind,
            dedup_key=job.dedup_key,
            ordering_key=job.ordering_key,
            target=job.target,
            order=job.order,
            payload=payload,
            state=JobState.DUE,
            due_at=job.due_at,
            created_at=born,
            changed_at=born,
        )
        return True

    def claim(self, kinds: Collection[JobKind], *, owner: str, now: datetime, lease: timedelta, limit: int) -> tuple[Job, ...]:
        """Take up to `limit` effects that are due, the first open one of each lane, longest due first."""
        self._expire_leases(now)
        found = [job for job in self._data.jobs.values() if job.kind in kinds and self._is_claimable(job, now)]
        found.sort(key=lambda job: (job.due_at, job.id))
        claimed = tuple(job.claim(owner, now, lease) for job in found[: max(limit, 0)])
        self._data.jobs.update({job.id: job for job in claimed})
        return claimed

    def renew_lease(self, job: Job, *, now: datetime, lease: timedelta) -> None:
        """Heartbeat of the owner. Raises `LeaseLostError` if the fence has moved on."""
        there = self._data.jobs.get(job.id)
        if there is None or there.fencing_token != job.fencing_token or there.lease_until is None:
            raise LeaseLostError()
        self._data.jobs[job.id] = replace(there, lease_until=now + lease)

    def save(self, job: Job) -> None:
        """Write a changed effect where its fence is still ours. Raises `LeaseLostError` otherwise."""
        there = self._data.jobs.get(job.id)
        if there is None or there.fencing_token != job.fencing_token:
            raise LeaseLostError()
        self._data.jobs[job.id] = replace(job, payload=exact_json.loads(exact_json.dumps(job.payload)))

    def get(self, job: JobId) -> Job | None:
        """One effect."""
        return self._data.jobs.get(job)

    def list_for_order(self, order: OrderKey, *, open_only: bool = True) -> tuple[Job, ...]:
        """The effects of an order, oldest first."""
        ours = (job for job in self._data.jobs.values() if job.order == order)
        return tuple(job for job in ours if not open_only or job.state in OPEN_JOBS)

    def needing_operator(self) -> tuple[Job, ...]:
        """Effects that wait for a person (parked, or to be reviewed), oldest first."""
        return tuple(job for job in self._data.jobs.values() if job.state in JOBS_NEEDING_OPERATOR)

    def make_due(self, kind: JobKind, *, now: datetime) -> int:
        """Make waiting effects of a kind (due, or to be looked at, in the future) due now; their number."""
        jobs = self._data.jobs.values()
        waiting = [each for each in jobs if each.kind is kind and each.state in CLAIMABLE_STATES and each.due_at > now]
        self._data.jobs.update({job.id: replace(job, due_at=now) for job in waiting})
        return len(waiting)

    def _expire_leases(self, now: datetime) -> None:
        for job in tuple(self._data.jobs.values()):
            if job.state is JobState.IN_FLIGHT and not _is_leased(job, now):
                self._data.jobs[job.id] = job.lease_expired(now)

    def _is_claimable(self, job: Job, now: datetime) -> bool:
        if job.state not in CLAIMABLE_STATES or job.due_at > now or _is_leased(job, now):
            return False
        lane = (each for each in self._data.jobs.values() if each.ordering_key == job.ordering_key and each.id != job.id)
        return not any(each.state in BLOCKING_STATES and (each.id < job.id or _is_leased(each, now)) for each in lane)


def _is_leased(job: Job, now: datetime) -> bool:
    return job.lease_until is not None and job.lease_until > now
