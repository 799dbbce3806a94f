"""Why a job keeps failing, as a code: failing jobs are counted by it, and sentences are made from it elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from lab_agent.conditions.ids import ConditionId
from lab_agent.domain.text import shorten
from lab_agent.errors import (
    AuthenticationRequired,
    Failure,
    ForeignLink,
    InvalidResponse,
    LisOutcomeUnknown,
    LisUnavailable,
    OutcomeIssue,
    OutcomeUnknown,
    ServiceRejected,
    ServiceUnavailable,
)

_MAX_ISSUES = 10
_MAX_TEXT = 1000


class FailureCause(StrEnum):
    """What the last attempt at a job failed of. Each is a condition (`lab_agent.conditions.jobs`)."""

    SIGN_IN = "sign_in"
    SERVICE_UNAVAILABLE = "service_unavailable"  # it cannot be reached, or answers neither reads nor writes
    SERVICE_ASKS_TO_WAIT = "service_asks_to_wait"  # Retry-After
    OUTCOME_UNKNOWN = "outcome_unknown"  # a write was sent, and 5xx or nothing came back
    INVALID_RESPONSE = "invalid_response"  # what came back is not the JSON of the interface
    READ_REJECTED = "read_rejected"  # a read or search was rejected in a way that may pass
    FOREIGN_LINK = "foreign_link"  # a redirect or `next` link leads to another origin
    WRITE_REJECTED = "write_rejected"  # 4xx to a write
    NO_RIGHT = "no_right"  # 403, or 401 with a fresh token, to one resource
    SEVERAL_MATCHES = "several_matches"  # 412 to If-None-Exist
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


_CAUSES: tuple[tuple[type[Failure], FailureCause], ...] = (
    (AuthenticationRequired, FailureCause.SIGN_IN),
    (ForeignLink, FailureCause.FOREIGN_LINK),
    (ServiceUnavailable, FailureCause.SERVICE_UNAVAILABLE),
    (OutcomeUnknown, FailureCause.OUTCOME_UNKNOWN),
    (InvalidResponse, FailureCause.INVALID_RESPONSE),
    (ServiceRejected, FailureCause.READ_REJECTED),
    (LisUnavailable, FailureCause.LIS_UNAVAILABLE),
    (LisOutcomeUnknown, FailureCause.LIS_OUTCOME_UNKNOWN),
)


def find_cause(failure: Failure) -> FailureCause:
    """Give the cause that a failure stands for."""
    if isinstance(failure, ServiceUnavailable) and failure.retry_after:
        return FailureCause.SERVICE_ASKS_TO_WAIT
    return next((cause for kind, cause in _CAUSES if isinstance(failure, kind)), FailureCause.OTHER)


def format_issues(issues: Sequence[OutcomeIssue]) -> str:
    """What a remote system said, one line for each issue; empty if it said nothing. May name a patient: for the vault alone."""
    said = [each for each in issues if each.diagnostics.strip()]
    return "\n".join(_format_issue(each) for each in said[:_MAX_ISSUES])


def _format_issue(issue: OutcomeIssue) -> str:
    text = " ".join(issue.diagnostics.split())
    return f"{shorten(issue.severity)} {shorten(issue.code)}".strip() + f": {shorten(text, _MAX_TEXT)}"
