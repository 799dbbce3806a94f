"""Why a job keeps failing, as a code: failing jobs are counted by it, and sentences are made from it elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from lab_agent.shared.conditions.model import AlertKey, ConditionId
from lab_agent.shared.errors import (
    AuthenticationRequired,
    Failure,
    ForeignLink,
    ForeignOrigin,
    InvalidResponse,
    LisDiskFull,
    LisNotLoaded,
    LisOutcomeUnknown,
    LisRejected,
    LisUnavailable,
    MultipleMatches,
    NewerOnService,
    OutcomeIssue,
    OutcomeUnknown,
    ResourceNotReadable,
    SearchNotSupported,
    ServiceRejected,
    ServiceUnavailable,
    TaskUnreadable,
)
from lab_agent.shared.text import shorten

_MAX_ISSUES = 10
_MAX_TEXT = 2048


class FailureCause(StrEnum):
    """What the last attempt at a job failed of. Each is a condition (`lab_agent.shared.conditions.jobs`)."""

    SIGN_IN = "sign_in"
    SERVICE_UNAVAILABLE = "service_unavailable"  # it cannot be reached, or answers neither reads nor writes
    SERVICE_ASKS_TO_WAIT = "service_asks_to_wait"  # Retry-After
    OUTCOME_UNKNOWN = "outcome_unknown"  # a write was sent, and 5xx or nothing came back
    INVALID_RESPONSE = "invalid_response"  # what came back is not the JSON of the interface
    READ_REJECTED = "read_rejected"  # a read or search was rejected
    TASK_UNREADABLE = "task_unreadable"  # a Task cannot be read right before the handover of its order
    FOREIGN_LINK = "foreign_link"  # a redirect or `next` link leads to another origin
    WRITE_REJECTED = "write_rejected"  # 4xx to a write
    NO_RIGHT = "no_right"  # 403, or 401 with a fresh token, to one resource
    SEVERAL_MATCHES = "several_matches"  # 412 to If-None-Exist
    NEWER_ON_SERVICE = "newer_on_service"  # the service has a later version of what is to be uploaded
    LIS_UNAVAILABLE = "lis_unavailable"
    LIS_DISK_FULL = "lis_disk_full"
    LIS_OUTCOME_UNKNOWN = "lis_outcome_unknown"
    LIS_REJECTED = "lis_rejected"
    LIS_NOT_LOADED = "lis_not_loaded"
    INTERNAL_ERROR = "internal_error"
    OTHER = "other"

    @property
    def condition(self) -> ConditionId:
        """What it is in the table of conditions."""
        return ConditionId(f"jobs.{self.value}")

    def alert_key(self, system: str) -> AlertKey:
        """The alert of what fails of it: one for each laboratory system where it is about that, else one for all."""
        return AlertKey(self.condition, system if self.is_about_system else "")

    @property
    def is_about_system(self) -> bool:
        """Whether it is about the laboratory system that the job goes to, so that each has an alert of its own."""
        return self in _OF_SYSTEM


_OF_SYSTEM = frozenset(
    {
        FailureCause.LIS_UNAVAILABLE,
        FailureCause.LIS_DISK_FULL,
        FailureCause.LIS_OUTCOME_UNKNOWN,
        FailureCause.LIS_REJECTED,
        FailureCause.LIS_NOT_LOADED,
    }
)
_NO_RIGHT = frozenset({401, 403})
_CAUSES: tuple[tuple[type[Failure], FailureCause], ...] = (  # of a type and its base, the type comes first
    (AuthenticationRequired, FailureCause.SIGN_IN),
    (ForeignLink, FailureCause.FOREIGN_LINK),
    (ForeignOrigin, FailureCause.FOREIGN_LINK),
    (TaskUnreadable, FailureCause.TASK_UNREADABLE),
    (ServiceUnavailable, FailureCause.SERVICE_UNAVAILABLE),
    (OutcomeUnknown, FailureCause.OUTCOME_UNKNOWN),
    (InvalidResponse, FailureCause.INVALID_RESPONSE),
    (ResourceNotReadable, FailureCause.READ_REJECTED),
    (SearchNotSupported, FailureCause.READ_REJECTED),
    (MultipleMatches, FailureCause.SEVERAL_MATCHES),
    (ServiceRejected, FailureCause.WRITE_REJECTED),
    (NewerOnService, FailureCause.NEWER_ON_SERVICE),
    (LisDiskFull, FailureCause.LIS_DISK_FULL),
    (LisNotLoaded, FailureCause.LIS_NOT_LOADED),
    (LisUnavailable, FailureCause.LIS_UNAVAILABLE),
    (LisRejected, FailureCause.LIS_REJECTED),
    (LisOutcomeUnknown, FailureCause.LIS_OUTCOME_UNKNOWN),
)


def find_cause(failure: Failure) -> FailureCause:
    """Give the cause that a failure stands for."""
    if isinstance(failure, ServiceUnavailable) and failure.retry_after:
        return FailureCause.SERVICE_ASKS_TO_WAIT
    if isinstance(failure, ServiceRejected) and (failure.may_pass or failure.status in _NO_RIGHT):
        return FailureCause.NO_RIGHT if failure.status in _NO_RIGHT else FailureCause.READ_REJECTED
    return next((cause for kind, cause in _CAUSES if isinstance(failure, kind)), FailureCause.OTHER)


def format_issues(issues: Sequence[OutcomeIssue]) -> str:
    """What a remote system said, one line for each issue; empty if it said nothing. May name a patient: for the vault alone."""
    said = [each for each in issues if each.diagnostics.strip()]
    return "\n".join(_format_issue(each) for each in said[:_MAX_ISSUES])


def _format_issue(issue: OutcomeIssue) -> str:
    text = " ".join(issue.diagnostics.split())
    return f"{shorten(issue.severity)} {shorten(issue.code)}".strip() + f": {shorten(text, _MAX_TEXT)}"
