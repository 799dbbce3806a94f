"""The records of jobs, of why they fail, and of what other systems said to them. Frozen; a change makes a new value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from lab_agent.queue.failure_causes import FailureCause
from lab_agent.shared.conditions.model import AlertKey
from lab_agent.shared.ids import JobId, OrderKey
from lab_agent.shared.state_machines import (
    CLAIMABLE_STATES,
    JOB_TRANSITIONS,
    JOBS_NEEDING_OPERATOR,
    OPEN_JOBS,
    JobState,
    transition,
)


class JobKind(StrEnum):
    """What a job does. `FETCH_ORDER` and `MATCH_REPORT` change nothing outside; the others do."""

    FETCH_ORDER = "fetch_order"
    SUBMIT_ORDER = "submit_order"
    CANCEL_AT_LIS = "cancel_at_lis"
    MATCH_REPORT = "match_report"
    DELIVER_REPORT = "deliver_report"
    UPDATE_LINE_TASK = "update_line_task"
    UPDATE_ORDER_TASK = "update_order_task"


AT_LABORATORY_SYSTEM = frozenset({JobKind.SUBMIT_ORDER, JobKind.CANCEL_AT_LIS})
"""Kinds of jobs that talk to the laboratory system that is their `system`. None is claimed while that is paused."""
PASSED_IN_REVIEW = frozenset({JobKind.DELIVER_REPORT})
"""Kinds of jobs that later ones of their ordering key pass while they need review (law 9): the reports of an order go on, and
the versions of the same report are held, each with its reason."""
GIVING_WAY = frozenset({JobKind.FETCH_ORDER})
"""Kinds of jobs that may give way: an order that waits for others is looked at when no new one is (law 9)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob:
    """A job to be written in the transaction that decides it.

    A second job with the same `dedup_key` is not written (law 5). Jobs with the same `ordering_key` run one after the other, in
    the order in which they were decided; but a job that goes on with what another one of them has done has the turn of that one,
    which is `in_place_of`. `target` is what the job is about (a line key, a report key, an order key), `system` the laboratory
    system that it goes to; empty for a job that goes to none.
    """

    kind: JobKind
    dedup_key: str
    ordering_key: str
    target: str
    order: OrderKey | None = None
    payload: Mapping[str, Any] = field(default_factory=dict)
    due_at: datetime
    system: str = ""
    in_place_of: JobId | None = None


KEPT_ATTEMPTS = 10
"""Attempts at a job that are kept with it, the newest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRecord:
    """One attempt at a job, ended `at`: the call that says most of it (`PUT Task`, or a call of an adapter; no ids), the HTTP
    status of its answer, and why the attempt failed. `call` is empty where it made none, `cause` None where it did not fail.
    """

    number: int
    at: datetime
    milliseconds: int
    call: str = ""
    status: int | None = None
    cause: FailureCause | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A row of the outbox.

    `started` is true from the commit just before the job may first have consequences outside; until then a lost lease needs no
    verification. `fencing_token` grows with every claim; a write with an older one is rejected (`LeaseLostError`).
    `first_due_at` is when it was due first: it stays, however often the job is tried, set aside, or retried by an operator.
    `failing_since` is the time of the first of the `failures` attempts that failed in a row, `failure_cause` why the last of them
    did. They are kept while it is tried again or waits for a person, until an attempt does not fail. One that `gives_way` is
    claimed when nothing else of its kind is due.
    """

    id: JobId
    kind: JobKind
    dedup_key: str
    ordering_key: str
    target: str
    order: OrderKey | None
    payload: Mapping[str, Any]
    state: JobState
    started: bool = False
    attempts: int = 0
    due_at: datetime
    gives_way: bool = False
    system: str = ""
    first_due_at: datetime
    created_at: datetime
    changed_at: datetime
    reason: str | None = None
    owner: str | None = None
    fencing_token: int = 0
    lease_until: datetime | None = None
    failing_since: datetime | None = None
    failure_cause: FailureCause | None = None
    failures: int = 0
    attempt_log: tuple[AttemptRecord, ...] = ()
    """The newest attempts, oldest first."""

    @property
    def is_waiting(self) -> bool:
        """Whether it waits to be claimed. One whose outcome is unknown keeps its state while a worker has it."""
        return self.state in CLAIMABLE_STATES and self.lease_until is None

    @property
    def is_failing(self) -> bool:
        """Whether its last attempt failed, and it is tried again by itself."""
        return self.failing_since is not None and self.state not in JOBS_NEEDING_OPERATOR

    def _transition_to(self, state: JobState, now: datetime, reason: str | None, due_at: datetime | None = None) -> Job:
        return replace(
            self,
            state=transition(JOB_TRANSITIONS, self.state, state),
            changed_at=now,
            reason=reason,
            due_at=due_at or self.due_at,
            owner=None,
            lease_until=None,
            failing_since=self.failing_since if state in OPEN_JOBS else None,
        )

    def failed(self, now: datetime, cause: FailureCause) -> Job:
        """Record why an attempt failed; of a job that has ended, only that."""
        since = (self.failing_since or now) if self.state in OPEN_JOBS else None
        return replace(self, failing_since=since, failure_cause=cause, failures=self.failures + 1)

    def log_attempt(self, attempt: AttemptRecord) -> Job:
        """Keep how an attempt ended."""
        return replace(self, attempt_log=(*self.attempt_log, attempt)[-KEPT_ATTEMPTS:])

    def recovered(self) -> Job:
        """Record that an attempt did not fail, whatever it decided. What waits for a person keeps the cause."""
        return self if self.state in JOBS_NEEDING_OPERATOR else replace(self, failing_since=None, failure_cause=None, failures=0)

    def _set_aside(self, state: JobState, now: datetime, reason: str, cause: FailureCause | None) -> Job:
        moved = self._transition_to(state, now, reason)
        known = cause or self.failure_cause or FailureCause.OTHER
        return replace(moved, failing_since=self.failing_since or now, failure_cause=known)

    def claim(self, owner: str, now: datetime, lease: timedelta) -> Job:
        """Claim it for `owner`: a due job becomes in flight; one of unknown outcome stays so, as its owner verifies it first."""
        state = (
            self.state if self.state is JobState.OUTCOME_UNKNOWN else transition(JOB_TRANSITIONS, self.state, JobState.IN_FLIGHT)
        )
        return replace(
            self,
            state=state,
            owner=owner,
            fencing_token=self.fencing_token + 1,
            attempts=self.attempts + 1,
            lease_until=now + lease,
            changed_at=now,
        )

    def lease_expired(self, now: datetime) -> Job:
        """Take it from an owner that sent no heartbeat for too long: what it did is unknown."""
        return replace(
            self._transition_to(
                JobState.OUTCOME_UNKNOWN, now, "its worker stopped in the middle; verifying the outcome first", now
            ),
            fencing_token=self.fencing_token + 1,
        )

    def mark_started(self, now: datetime) -> Job:
        """Mark, before it is done, that it may have consequences outside from now on."""
        return replace(self, started=True, changed_at=now)

    def complete(self, now: datetime, reason: str | None = None) -> Job:
        """End it: it has happened."""
        return self._transition_to(JobState.DONE, now, reason)

    def reschedule(self, now: datetime, at: datetime, reason: str) -> Job:
        """Let it be due again at `at`: it has not happened."""
        return self._transition_to(JobState.DUE, now, reason, at)

    def wait(self, now: datetime, seconds: float, reason: str) -> Job:
        """Let it look again later at what others have to change, and give way to others then."""
        return replace(self.reschedule(now, now + timedelta(seconds=seconds), reason), gives_way=True)

    def outcome_unknown(self, now: datetime, at: datetime, reason: str) -> Job:
        """Let it be verified at `at`: it may have happened."""
        return self._transition_to(JobState.OUTCOME_UNKNOWN, now, reason, at)

    def dead_letter(self, now: datetime, reason: str, cause: FailureCause | None = None) -> Job:
        """Set it aside for a person: it will not succeed by itself. Without a `cause` it is that of the attempt before."""
        return self._set_aside(JobState.DEAD_LETTER, now, reason, cause)

    def needs_review(self, now: datetime, reason: str, cause: FailureCause | None = None) -> Job:
        """Leave it to a person: the program cannot tell whether it has happened. `cause` as of `dead_letter`."""
        return self._set_aside(JobState.NEEDS_REVIEW, now, reason, cause)

    def mark_obsolete(self, now: datetime, reason: str) -> Job:
        """End it: it is not needed any more."""
        return self._transition_to(JobState.OBSOLETE, now, reason)

    def dismiss(self, now: datetime, reason: str) -> Job:
        """End it: a person decided that it shall not be done."""
        return self._transition_to(JobState.DISMISSED, now, reason)

    @property
    def safe_to_retry(self) -> bool:
        """Whether it needs no verification: it was never started, or changes nothing outside."""
        return not self.started or self.kind in {JobKind.FETCH_ORDER, JobKind.MATCH_REPORT}


@dataclass(frozen=True, slots=True, kw_only=True)
class FailingJobs:
    """How many jobs of one kind have been failing of one cause: the longest `since` then, the oldest of them `first`."""

    cause: FailureCause
    kind: JobKind
    count: int
    since: datetime
    first: JobId


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureGroup:
    """Open jobs of one kind whose last attempt failed of one cause, at one laboratory system (empty: at none).

    `set_aside` of the `count` wait for a person (`in_review` of these, as nobody knows what came of them), and the others are
    tried again: of those, `failing_since` is since when the longest has failed, and `failures` the most that one has failed in a
    row. `since` is when the oldest of all was first due.
    """

    cause: FailureCause
    system: str
    kind: JobKind
    count: int
    set_aside: int
    in_review: int
    since: datetime
    failing_since: datetime | None
    failures: int

    @property
    def key(self) -> AlertKey:
        """The alert of its cause."""
        return self.cause.alert_key(self.system)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceMessage:
    """What a remote system said to one attempt at a job, in its own words: they may name the patient, so they are kept like
    identification data. `answer` says what was answered, such as `POST Observation was answered with 422`.
    """

    at: datetime
    text: str
    attempt: int = 0
    answer: str = ""


LeaseToken = tuple[JobId, int]
"""One lease: the number of its job, and the fencing token of that claim. A job that is claimed again has another one."""
JobLimits = Mapping[frozenset[JobKind], int]
"""How many jobs to claim at most, for each queue: the kinds of its jobs."""


@dataclass(frozen=True, slots=True)
class PendingWork:
    """What waits for a worker: kinds with a job that can be claimed, and whether a lease has expired."""

    kinds: frozenset[JobKind]
    has_expired_lease: bool
