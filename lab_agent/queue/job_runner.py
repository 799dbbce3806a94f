"""Runs jobs: lets the handlers work, decides what follows a failure, and claims what comes next as a job ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Protocol

import structlog

from lab_agent.queue.claiming import ClaimedJob, ClaimError, JobClaimer, LoadError
from lab_agent.queue.failure_causes import FailureCause, find_cause, format_issues
from lab_agent.queue.heartbeat import Heartbeat
from lab_agent.queue.job_handler import AnyJobHandler
from lab_agent.queue.job_lease import JobLease
from lab_agent.queue.job_queues import Offer
from lab_agent.queue.job_records import AttemptRecord, Job, JobKind, ServiceMessage
from lab_agent.queue.outages import OutageTracker
from lab_agent.queue.retry import Backoff, DeadLetter, RetryAt, RetryDecision, VerifyFirst, decide_retry
from lab_agent.shared.call_trace import CallTrace, trace_calls
from lab_agent.shared.clock import Clock
from lab_agent.shared.errors import Failure, LabAgentError, LeaseLostError, StoreUnreachableError
from lab_agent.shared.ids import JobId
from lab_agent.shared.state_machines import OPEN_JOBS, JobState
from lab_agent.store.unit_of_work import Store, UnitOfWork

log = structlog.get_logger(__name__)

_UNWRITTEN = "jobs"
_UNWRITTEN_FOR = timedelta(hours=1)
"""How long a job is told of whose end could not be written: another worker may have done it since."""


class Slot(Protocol):
    """The slot that a running job has in its queue."""

    def offer(self) -> AbstractContextManager[Offer]:
        """Offer this slot, and those that are free, to the unit of work that ends the job."""
        ...


class _NoSlot(Slot):
    def offer(self) -> AbstractContextManager[Offer]:
        return nullcontext(Offer())


_NO_SLOT = _NoSlot()


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One run of a claimed job."""

    claimed: ClaimedJob
    lease: JobLease
    slot: Slot
    began: datetime
    calls: CallTrace

    @property
    def verifies(self) -> bool:
        """Whether the outcome of the attempt before has to be settled first (law 3)."""
        return self.claimed.job.state is JobState.OUTCOME_UNKNOWN and not self.claimed.job.safe_to_retry


@dataclass(frozen=True, slots=True)
class _Ending:
    """How an attempt has ended: the job as it was written, and what was decided about a failure of another system."""

    job: Job
    failure: Failure | None = None
    decision: RetryDecision | None = None


@dataclass(slots=True)
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
    on_failure: Callable[[], None] = lambda: None
    """Called after every attempt that failed."""
    claimer: JobClaimer = field(init=False)
    heartbeat: Heartbeat = field(init=False)
    """Keeps the leases of what is running, while it runs itself."""
    _unwritten: dict[JobId, datetime] = field(default_factory=dict, init=False)
    """Jobs whose end could not be written, by when."""

    def __post_init__(self) -> None:
        self.claimer = JobClaimer(self.store, self.clock, self.handlers, self.owner, self.lease)
        self.heartbeat = Heartbeat(self.store, self.clock, self.lease)

    async def run(self, claimed: ClaimedJob, slot: Slot = _NO_SLOT) -> None:
        """Run one claimed job to its end, whatever happens: nothing is raised but cancellation.

        The unit of work that ends it also claims other jobs, and reads what they need, for the slots that `slot` offers; where
        that fails, the job ends without it. An end that the store refuses is a failure of the job, which ends as one that needs
        an operator. If that cannot be written either, or the store is unreachable, the job is left to its lease: when that has
        expired it is claimed again, and the outcome verified.
        """
        job = claimed.job
        try:
            with trace_calls() as calls:
                attempt = _Attempt(claimed, JobLease(job, self.store, self.clock, self.lease), slot, self.clock.now(), calls)
                with self.heartbeat.keep(attempt.lease):  # no longer: a job that has ended has no lease that could be lost
                    ending = await self._run_to_end(attempt)
            await self._tell_outages(attempt, ending)
            self.on_attempt(ending.job.kind.value, ending.job.state.value)
            if ending.job.failing_since is not None and ending.job.state in OPEN_JOBS:
                self.on_failure()
            await self._note_written(job.id)
        except LeaseLostError:
            log.warning("late result dropped", action="lease_lost", job=job.id, kind=job.kind.value)
        except StoreUnreachableError as exc:
            await self.outages.record_failure(exc)  # the lease expires, and the outcome is verified then
        except Exception as error:  # of what is written about a job: it comes again with its lease, and the others go on
            log.exception("job not written", action="job_not_written", job=job.id, kind=job.kind.value)
            await self._note_unwritten(job, error)

    async def _note_unwritten(self, job: Job, error: Exception) -> None:
        self._unwritten[job.id] = self.clock.now()
        await self.outages.record_fault(_UNWRITTEN, error, rest=f", of job {job.id} ({job.kind.value})")

    async def _note_written(self, job: JobId) -> None:
        self._unwritten.pop(job, None)
        if all(self.clock.now() - at > _UNWRITTEN_FOR for at in self._unwritten.values()):
            self._unwritten.clear()
            await self.outages.end_fault(_UNWRITTEN)

    async def _run_to_end(self, attempt: _Attempt) -> _Ending:
        lease, handler = attempt.lease, self.handlers[attempt.claimed.job.kind]
        try:
            loaded = await self._load(attempt)
            result = await (handler.verify(lease, loaded) if attempt.verifies else handler.perform(lease, loaded))
            return _Ending(await self._end(attempt, lambda uow: self._complete(uow, attempt, result)))
        except (LeaseLostError, StoreUnreachableError):
            raise
        except Failure as failure:
            return await self._end_failed(attempt, failure)
        except Exception as exc:  # the one boundary: a bad job is set aside with its reason, and the good ones go on (law 9)
            log.exception("job failed", action="job_failed", job=lease.job.id, kind=lease.job.kind.value)
            ended = self._after_error(exc, lease.job)
            return _Ending(await self._end(attempt, lambda _: self._log(attempt, ended, FailureCause.INTERNAL_ERROR)))

    async def _load(self, attempt: _Attempt) -> Any:
        claimed = attempt.claimed
        if claimed.failure is not None:
            raise claimed.failure
        if claimed.is_loaded:
            return claimed.loaded
        handler = self.handlers[claimed.job.kind]
        return await self.store.transact(lambda uow: handler.load(uow, claimed.job))

    def _complete(self, uow: UnitOfWork, attempt: _Attempt, result: Any) -> Job:
        """Write what follows from a result, and give the job as it ends.

        If an attempt was verified and has to be done again, it failed, and the job goes on failing.
        """
        ended = self.handlers[attempt.claimed.job.kind].complete(uow, attempt.lease.job, result)
        return self._log(attempt, ended if attempt.verifies and ended.state is JobState.DUE else ended.recovered())

    def _log(self, attempt: _Attempt, ended: Job, cause: FailureCause | None = None) -> Job:
        """Keep with the job how the attempt ended: in the row that is written anyway."""
        now, call = self.clock.now(), attempt.calls.telling(is_failed=cause is not None)
        lasted = max(now - attempt.began, timedelta(0))
        return ended.log_attempt(
            AttemptRecord(
                number=attempt.claimed.job.attempts,
                at=now,
                milliseconds=lasted // timedelta(milliseconds=1),
                call=call.what if call else "",
                status=call.status if call else None,
                cause=cause,
            )
        )

    async def _end(self, attempt: _Attempt, end: Callable[[UnitOfWork], Job]) -> Job:
        """Commit the end of a job together with the claim of what comes next. Raises `LeaseLostError`."""
        try:
            return await self._end_and_claim(attempt, end)
        except ClaimError as exc:  # nothing was written; the dispatcher claims by itself, and finds out what is wrong
            log.debug("job ends without a claim", action="claim_left", job=attempt.lease.job.id, error=repr(exc.__cause__))
            ended, _ = await attempt.lease.end(end, lambda _: None)
            return ended

    async def _end_and_claim(self, attempt: _Attempt, end: Callable[[UnitOfWork], Job]) -> Job:
        with attempt.slot.offer() as offer:
            try:
                ended, offer.claimed = await attempt.lease.end(end, lambda uow: self._claim_next(uow, offer, load=True))
            except LoadError:
                ended, offer.claimed = await attempt.lease.end(end, lambda uow: self._claim_next(uow, offer, load=False))
        return ended

    def _claim_next(self, uow: UnitOfWork, offer: Offer, *, load: bool) -> tuple[ClaimedJob, ...]:
        limits = offer.limits_for(uow.jobs.made_due)
        try:
            return self.claimer.claim_in(uow, limits, load=load) if limits else ()
        except (LoadError, StoreUnreachableError):
            raise
        except Exception as error:  # of other jobs, or of what this one wrote, which shows when it ends without them (law 9)
            raise ClaimError from error

    async def _end_failed(self, attempt: _Attempt, failure: Failure) -> _Ending:
        job, now = attempt.lease.job, self.clock.now()
        decision = decide_retry(failure, attempts=job.attempts, now=now, backoff=self.backoff, random=self.random())
        cause = find_cause(failure)
        failed = self._after_failure(failure, job, decision, verifying=attempt.verifies).failed(now, cause)
        ended = self._log(attempt, failed, cause)
        text = format_issues(failure.issues)
        said = ServiceMessage(at=now, text=text, attempt=job.attempts, answer=str(failure)) if text else None

        def end(uow: UnitOfWork) -> Job:
            if said and ended.order is not None:
                uow.vault.save_service_message(ended.id, ended.order, said)
            return ended

        return _Ending(await self._end(attempt, end), failure, decision)

    async def _tell_outages(self, attempt: _Attempt, ending: _Ending) -> None:
        """Tell of a failure, or end the outage of its kind of job. It may take as long as a request to the service."""
        before, was_failing = attempt.lease.job, attempt.claimed.job.failing_since is not None
        if ending.failure is not None and ending.decision is not None:
            await self.outages.record_failure(ending.failure, before.kind.value, repeated=was_failing)
            self._log_failure(ending.failure, before, ending.decision)
        if not ending.job.is_failing:
            await self.outages.end_part(ending.job.kind, was_failing=was_failing)

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
        set_aside = job.dead_letter(now, reason) if job.safe_to_retry else job.needs_review(now, reason)
        return set_aside.failed(now, FailureCause.INTERNAL_ERROR)

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
