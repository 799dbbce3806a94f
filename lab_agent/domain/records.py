"""The records of orders, lines, reports, jobs and what belongs to them. Frozen; a change makes a new value.

Workflow and store exchange these records; how the store keeps them in rows is its own business. Nothing here identifies a
patient: identification data is kept apart, encrypted (law 7).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from lab_agent.conditions.ids import ConditionId
from lab_agent.conditions.model import AlertKey
from lab_agent.domain.failure_causes import FailureCause
from lab_agent.domain.ids import JobId, LineKey, OrderKey, RefusedKey, ReportKey, ResourceId
from lab_agent.domain.order_holds import OrderHold
from lab_agent.domain.state_machines import (
    ENDED_LINES,
    JOB_TRANSITIONS,
    JOBS_NEEDING_OPERATOR,
    LINE_TRANSITIONS,
    OPEN_JOBS,
    ORDER_TRANSITIONS,
    REPORT_TRANSITIONS,
    JobState,
    LineState,
    OrderState,
    ReportState,
    transition,
)
from lab_agent.domain.values import Identifier


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderRecord:
    """An order.

    `seen_lines` are the line Task ids with their statuses, as the last part-of answer had them (an order is assessed after two
    equal ones). `received` is the order as fetched, without identification data; `lab_order` the part of `LabOrder` that
    identifies nobody; both are JSON. `released_findings` are digests of the findings whose hold an operator has overridden.
    `reason` says why it is in its state. `sent_statuses` are the
    statuses that we ever *sent* for the order-level Task, as with lines. `ended_as` is the status with which the order-level
    Task ended, whoever set it; None while it is open, or was left alone. A closed order is checked once more at `recheck_at`.
    `reopened` counts how often the order was taken up again after a decision. `unreadable_since` is the time since when it
    could not be read whole, although the service answers; None once it could.

    While it is held, `held_since` is since when, whatever has held it meanwhile, and `hold_cause` the code of what holds it now:
    the id of a rule, or a `HoldCause`. `task_unreadable_since` is the time since when the Task of a decided order cannot be read.
    """

    key: OrderKey
    task_id: ResourceId
    state: OrderState = OrderState.SEEN
    seen_at: datetime
    changed_at: datetime
    contract: str | None = None
    requisition: Identifier | None = None
    counterparty: str | None = None
    patient_reference: str | None = None
    released_findings: tuple[str, ...] = ()
    expected_at: datetime | None = None
    reason: str | None = None
    seen_lines: tuple[str, ...] | None = None
    received: bytes | None = None
    lab_order: bytes | None = None
    sent_statuses: tuple[str, ...] = ()
    ended_as: str | None = None
    recheck_at: datetime | None = None
    reopened: int = 0
    unreadable_since: datetime | None = None
    held_since: datetime | None = None
    hold_cause: str | None = None
    task_unreadable_since: datetime | None = None

    def transition_to(self, state: OrderState, now: datetime, reason: str | None = None) -> OrderRecord:
        """Move to `state`. Raises `InvalidTransitionError`, and `ValueError` for the held one, which needs a cause: `hold`."""
        if state is OrderState.HELD:
            raise ValueError("an order is held by `hold`, with a cause")
        moved = replace(self, state=transition(ORDER_TRANSITIONS, self.state, state), changed_at=now, reason=reason)
        unreadable_since = None if state is OrderState.CLOSED else self.task_unreadable_since
        return replace(moved, held_since=None, hold_cause=None, task_unreadable_since=unreadable_since)

    def hold(self, now: datetime, hold: OrderHold) -> OrderRecord:
        """Hold it, or hold it still. Raises `InvalidTransitionError`."""
        state = transition(ORDER_TRANSITIONS, self.state, OrderState.HELD)
        since = self.held_since or now
        return replace(self, state=state, changed_at=now, reason=hold.text, held_since=since, hold_cause=hold.cause)


@dataclass(frozen=True, slots=True, kw_only=True)
class LineRecord:
    """An order line: one ProcedureRequest and its Task.

    `adapter` names the laboratory system that it is routed to, once it was accepted: a route that changes later moves no line.
    `outputs` are the sentences that its Task has (or will have) in `output[].valueString`; `sent_statuses` every status that we
    ever *sent* for its Task, answered or not: those are ours, any other is somebody else's. `ended_as` is the status with which
    its Task ended, whoever set it: one that is requested after that was put back. `reopened` counts how often that happened.
    `task_unreadable_since` is the time since when its Task cannot be read; None once it can, or the line has ended.
    """

    key: LineKey
    order: OrderKey
    task_id: ResourceId
    procedure_request_id: ResourceId | None = None
    item: str | None = None
    state: LineState = LineState.REQUESTED
    changed_at: datetime
    adapter: str | None = None
    accession: str | None = None
    outputs: tuple[str, ...] = ()
    sent_statuses: tuple[str, ...] = ()
    ended_as: str | None = None
    reopened: int = 0
    task_unreadable_since: datetime | None = None

    def reopen(self, state: LineState, now: datetime) -> LineRecord:
        """Take up a line that had ended, as `state`; what we sent for its Task is not ours any more."""
        moved = self.transition_to(state, now, ())
        return replace(moved, sent_statuses=(), ended_as=None, reopened=self.reopened + 1)

    def transition_to(self, state: LineState, now: datetime, outputs: tuple[str, ...] | None = None) -> LineRecord:
        """Move to `state`. Raises `InvalidTransitionError`."""
        return replace(
            self,
            state=transition(LINE_TRANSITIONS, self.state, state),
            changed_at=now,
            outputs=self.outputs if outputs is None else outputs,
            task_unreadable_since=None if state in ENDED_LINES else self.task_unreadable_since,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelUse:
    """A barcode that an order uses: for which patient, in which line. A result that names only the barcode is matched by it."""

    barcode: str
    order: OrderKey
    line: LineKey
    specimen_id: str
    patient_reference: str


class JobKind(StrEnum):
    """What a job does. `FETCH_ORDER` and `MATCH_REPORT` change nothing outside; the others do."""

    FETCH_ORDER = "fetch_order"
    SUBMIT_ORDER = "submit_order"
    CANCEL_AT_LIS = "cancel_at_lis"
    MATCH_REPORT = "match_report"
    DELIVER_REPORT = "deliver_report"
    UPDATE_LINE_TASK = "update_line_task"
    UPDATE_ORDER_TASK = "update_order_task"


PASSED_IN_REVIEW = frozenset({JobKind.DELIVER_REPORT})
"""Kinds of jobs that later ones of their ordering key pass while they need review (law 9): the reports of an order go on, and
the versions of the same report are held, each with its reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob:
    """A job to be written in the transaction that decides it.

    A second job with the same `dedup_key` is not written (law 5). Jobs with the same `ordering_key` run one after the other, in
    the order in which they were decided. `target` is what the job is about (a line key, a report key, an order key), `system` the
    laboratory system that it goes to; empty for a job that goes to none.
    """

    kind: JobKind
    dedup_key: str
    ordering_key: str
    target: str
    order: OrderKey | None = None
    payload: Mapping[str, Any] = field(default_factory=dict)
    due_at: datetime
    system: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A row of the outbox.

    `started` is true from the commit just before the job may first have consequences outside; until then a lost lease needs no
    verification. `fencing_token` grows with every claim; a write with an older one is rejected (`LeaseLostError`).
    `first_due_at` is when it was due first: it stays, however often the job is tried, set aside, or retried by an operator.
    `failing_since` is the time of the first of the `failures` attempts that failed in a row, `failure_cause` why the last of them
    did. They are kept while it is tried again or waits for a person, until an attempt does not fail.
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
class WaitingGroup:
    """How many orders, lines or results wait for one cause: the alert that says so, the oldest `since` when, and which that is.

    `order` is that of the oldest, if it has one, `reason` why it waits, where that is kept; neither identifies a patient.
    """

    key: AlertKey
    count: int
    since: datetime
    order: OrderKey | None = None
    reason: str | None = None


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
        """The alert of its cause: one for each laboratory system where it is about that, else one for all."""
        return AlertKey(self.cause.condition, self.system if self.cause.is_about_system else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceMessage:
    """What a remote system said to one attempt at a job, in its own words: they may name the patient, so they are kept like
    identification data. `answer` says what was answered, such as `POST Observation was answered with 422`.
    """

    at: datetime
    text: str
    attempt: int = 0
    answer: str = ""


class HoldReason(StrEnum):
    """Why a report is held, by which code decides; `workflow.hold_reasons` makes the sentences."""

    UNEXPECTED = "unexpected"  # the first message of a report whose order or lines have ended
    QUESTION = "question"  # it is implausible, or leaves out or takes back what was final
    DOCUMENT_MISMATCH = "document_mismatch"  # a document is not of the type that it claims
    LINE_HAS_RESULT = "line_has_result"  # it rejects a line that has a result
    LINES_ENDED = "lines_ended"  # its lines ended while it was on its way
    DEFECT = "defect"  # it has no legal form: no release can send it
    WAITS_FOR_VERSION = "waits_for_version"  # another version of the report goes first; it follows by itself
    PATIENT_MISMATCH = "patient_mismatch"  # it names another patient than its order
    SUPERSEDED_BY_NEWER = "superseded_by_newer"  # what it says is missing in a newer version that was delivered


_RESULT_CONDITIONS = {
    ReportState.UNMATCHED: ConditionId.RESULTS_UNMATCHED,
    ReportState.UNMAPPED: ConditionId.RESULTS_UNMAPPED,
    ReportState.HELD: ConditionId.RESULTS_HELD,
}


def result_alert_key(state: ReportState, hold_reason: HoldReason | None) -> AlertKey:
    """The alert of all results that wait in this state, of held ones for this reason. Raises `KeyError` if it needs no one."""
    return AlertKey(_RESULT_CONDITIONS[state], hold_reason.value if hold_reason else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportRecord:
    """One message of a LIS: one version of a report, or a rejection.

    `source` is the adapter and `message` its own stable name for the message; `body` the `LabMessage` as JSON, its documents
    moved to the vault, where their `file` names them. `outgoing_body` is that message as it goes out, where that differs: with
    what it keeps of the version before it (`results.left_out`). `sequence` is the order of arrival. `hold_reason` is set exactly
    while the state is held; `reason` is its sentence, for people. `patient_confirmed_for` is the order for whose patient an
    operator released it although it names another one. `matched_adapter` is set where an operator matched it to what another
    laboratory system was asked for; its `report_id` is one of `source` all the same.
    """

    key: ReportKey
    source: str
    message: str
    sequence: int = 0
    report_id: str | None = None
    version: int | None = None
    issued: datetime | None = None
    state: ReportState = ReportState.RECEIVED
    order: OrderKey | None = None
    patient_confirmed_for: OrderKey | None = None
    matched_adapter: str | None = None
    lines: tuple[LineKey, ...] = ()
    hold_reason: HoldReason | None = None
    reason: str | None = None
    received_at: datetime
    changed_at: datetime
    body: bytes
    outgoing_body: bytes | None = None

    @property
    def adapter(self) -> str:
        """The laboratory system of whose part of an order it speaks."""
        return self.matched_adapter or self.source

    def transition_to(
        self, state: ReportState, now: datetime, reason: str | None = None, hold_reason: HoldReason | None = None
    ) -> ReportRecord:
        """Move to `state`. Raises `InvalidTransitionError`, and `ValueError` for a held report without a hold reason."""
        if (state is ReportState.HELD) is (hold_reason is None):
            raise ValueError(f"a {state.value} report with hold reason {hold_reason}")
        after = transition(REPORT_TRANSITIONS, self.state, state)
        return replace(self, state=after, changed_at=now, reason=reason, hold_reason=hold_reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadRecord:
    """A resource that we created on the service: found by our `identifier`, updated by its `resource_id` and `version`."""

    identifier: str
    resource_type: str
    resource_id: ResourceId
    version: str
    digest: str
    order: OrderKey
    report: ReportKey


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedDocument:
    """A document that our own API serves under an unguessable `address`, until `expires_at` if there is an end."""

    address: str
    document: str
    content_type: str
    order: OrderKey
    kept_at: datetime
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """That a condition of the table (`lab_agent.conditions`) holds, from its start to its end.

    `subject` says which one where there may be several, and `detail` what was found this time; neither identifies a patient.
    `since` is when it began: where something waits, when that was first due. `count` is how many orders, jobs or results it is
    about, where that was counted.
    """

    condition: ConditionId
    subject: str = ""
    detail: str = ""
    since: datetime
    opened_at: datetime
    closed_at: datetime | None = None
    count: int | None = None

    @property
    def key(self) -> AlertKey:
        """Its name: at most one of a key is open."""
        return AlertKey(self.condition, self.subject)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One line of an order's timeline, of a report's history, of both, or of a refused message's history alone."""

    order: OrderKey | None
    report: ReportKey | None = None
    refused_message: RefusedKey | None = None
    at: datetime
    action: str
    text: str
    by: str | None = None
