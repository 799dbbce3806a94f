"""Runs jobs: claims what is due in the outbox, lets the handlers work, and decides what follows a failure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta

import structlog

from lab_agent.domain.failure_causes import find_cause, format_issues
from lab_agent.domain.records import Job, JobKind
from lab_agent.domain.retry import Backoff, DeadLetter, RetryAt, RetryDecision, VerifyFirst, decide_retry
from lab_agent.domain.state_machines import JobState
from lab_agent.errors import Failure, LabAgentError, LeaseLostError, StoreUnreachableError
from lab_agent.ports.clock import Clock
from lab_agent.ports.job_handler import AnyJobHandler
from lab_agent.ports.repositories import Store, UnitOfWork
from lab_agent.worker.job_lease import JobLease
from lab_agent.worker.outages import OutageTracker

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class JobRunner:
    """Runs jobs for one worker (`owner`). `random` draws the jitter of retries, from 0 to 1."""

    store: Store
    clock: Clock
    handlers: Mapping[JobKind, AnyJobHandler]
    outages: OutageTracker
    owner: str
    lease: timedelta
    backoff: Backoff
    random: Callable[[], float]
    on_attempt: Callable[[str, str], None]
    """Called after every attempt with the kind of job and the state in which it ended."""

    async def claim(self, kinds: Collection[JobKind], limit: int) -> tuple[Job, ...]:
        """Claim up to `limit` jobs that are due."""

        def take(uow: UnitOfWork) -> tuple[Job, ...]:
            taken = uow.jobs.claim(kinds, owner=self.owner, now=self.clock.now(), lease=self.lease, limit=limit)
            uow.commit()
            return taken

        return await self.store.run(take)

    async def run(self, job: Job) -> None:
        """Run one claimed job to its end, whatever happens: nothing is raised but cancellation."""
        lease = JobLease(job, self.store, self.clock, self.lease)
        try:
            async with lease.keep_alive():
                ended = await self._run_to_end(lease)
            self.on_attempt(ended.kind.value, ended.state.value)
            if ended.failing_since is None:
                await self.outages.end_part(ended.kind, was_failing=job.failing_since is not None)
        except LeaseLostError:
            log.warning("late result dropped", action="lease_lost", job=job.id, kind=job.kind.value)
        except StoreUnreachableError as exc:
            await self.outages.record_failure(exc)  # the lease expires, and the outcome is verified then

    async def _run_to_end(self, lease: JobLease) -> Job:
        must_verify = lease.job.state is JobState.OUTCOME_UNKNOWN and not lease.job.safe_to_retry
        handler = self.handlers[lease.job.kind]
        try:
            loaded = await self.store.run(lambda uow: handler.load(uow, lease.job))
            result = await (handler.verify(lease, loaded) if must_verify else handler.perform(lease, loaded))
            return await lease.complete(handler, result, verified=must_verify)
        except (LeaseLostError, StoreUnreachableError):
            raise
        except Failure as failure:
            return await self._end_failed(lease, failure, verifying=must_verify)
        except Exception as exc:  # the one boundary: a bad job is set aside with its reason, and the good ones go on (law 9)
            log.exception("job failed", action="job_failed", job=lease.job.id, kind=lease.job.kind.value)
            return await lease.end(self._after_error(exc, lease.job))

    async def _end_failed(self, lease: JobLease, failure: Failure, *, verifying: bool) -> Job:
        job, now = lease.job, self.clock.now()
        decision = decide_retry(failure, attempts=job.attempts, now=now, backoff=self.backoff, random=self.random())
        ended = self._after_failure(failure, job, decision, verifying=verifying).failed(now, find_cause(failure))
        ended = await lease.end(ended, service_message=format_issues(failure.issues))
        await self.outages.record_failure(failure, job.kind.value, repeated=job.failing_since is not None)
        self._log_failure(failure, job, decision)
        return ended

    def _after_failure(self, failure: Failure, job: Job, decision: RetryDecision, *, verifying: bool) -> Job:
        now, reason = self.clock.now(), str(failure)
        match decision:
            case VerifyFirst(at) if not (verifying or job.started):
                return job.reschedule(now, at, reason)  # it was a read: there is nothing to verify
            case RetryAt(at) if not verifying:
                # Nothing of this attempt had consequences outside, so the next one starts afresh.
                return replace(job.reschedule(now, at, reason), started=False)
            case RetryAt(at) | VerifyFirst(at):
                return job.outcome_unknown(now, at, reason)
            case DeadLetter():
                return job.dead_letter(now, reason)

    def _after_error(self, error: Exception, job: Job) -> Job:
        now = self.clock.now()
        text = str(error) if isinstance(error, LabAgentError) else f"internal error {type(error).__name__}"
        reason = f"{text}; the log of {now:%Y-%m-%d %H:%M:%S} UTC says more"
        return job.dead_letter(now, reason) if job.safe_to_retry else job.needs_review(now, reason)

    def _log_failure(self, failure: Failure, job: Job, decision: RetryDecision) -> None:
        """One line when a job first fails, and one when it becomes a dead letter; an outage has its own line."""
        if isinstance(decision, DeadLetter):
            write_line = log.error
        elif job.attempts == 1 and not self.outages.is_known(failure, job.kind.value):
            write_line = log.warning
        else:
            write_line = log.debug
        write_line(
            "job failed",
            action="job_dead_letter" if isinstance(decision, DeadLetter) else "job_retries",
            job=job.id,
            kind=job.kind.value,
            order=job.order,
            reason=str(failure),
        )
