"""The whole error tree: ours, the exchange service's and the laboratory system's.

Two questions decide what happens after a failure, and the tree answers both: *whose* is it (configuration, store, exchange
service, LIS, the order itself), and *what may be done about it* (`TemporaryFailure`: retry later; `AmbiguousFailure`: verify
before retrying, since it may have happened; `PermanentFailure`: a person decides). The docstring of a class is its message where
none is given. Messages never carry names, birth dates, tokens, query strings or payloads.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches


class LabAgentError(Exception):
    """Something went wrong in the lab agent."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or type(self).__doc__)


# --- ours -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong: where, what, and a hint how to correct it."""

    where: str
    what: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.where}: {self.what}" + (f" — {self.hint}" if self.hint else "")


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """Give the hint which of the known names a misspelt one was probably meant to be; empty if none is close."""
    close = get_close_matches(given[:50], sorted(known), n=1, cutoff=0.7)
    return f"did you mean {close[0]!r}?" if close else ""


class ProblemsError(LabAgentError):
    """Several things are wrong; all of them are listed."""

    def __init__(self, problems: tuple[Problem, ...], title: str | None = None) -> None:
        self.problems = problems
        lines = "".join(f"\n  {problem}" for problem in problems)
        super().__init__(f"{title or type(self).__doc__}{lines}")


class SettingsError(ProblemsError):
    """The settings are invalid:"""


class CatalogueError(ProblemsError):
    """The catalogue is invalid:"""


class BasketError(ProblemsError):
    """The basket is invalid:"""


class UnknownContractError(BasketError):
    """Unknown contract:"""


class DataInvalidError(ProblemsError):
    """The data is invalid:"""


class InvalidTransitionError(LabAgentError):
    """The state table has no such transition; nothing was changed."""


class InputError(LabAgentError):
    """The input cannot be used; nothing was changed."""


class CryptoError(LabAgentError):
    """Stored data cannot be decrypted with the configured keys."""


class StoreError(LabAgentError):
    """The database operation failed."""


class SchemaMismatchError(StoreError):
    """The database schema does not match this program; run `lab-agent db upgrade`, or install the newer program."""


class StoreUnreachableError(StoreError):
    """The database is unavailable."""


class LeaseLostError(StoreError):
    """Another worker holds the lease by now; the late write was rejected."""


class AlreadyExistsError(StoreError):
    """The database holds this already; nothing was written."""


# --- what may be done about a failure of another system -----------------------------------------------------------------


class Failure(LabAgentError):
    """Another system could not do what was asked."""


class TemporaryFailure(Failure):
    """It may work later; `retry_after` is the wait in seconds that the other system asked for, if it did."""

    def __init__(self, message: str | None = None, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class AmbiguousFailure(Failure):
    """It may have happened or not: verify before retrying."""


class PermanentFailure(Failure):
    """Retrying will not help; a person decides."""


# --- the exchange service's ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OutcomeIssue:
    """One issue of an OperationOutcome (interface: Errors)."""

    severity: str
    code: str
    diagnostics: str


class ServiceUnavailable(TemporaryFailure):
    """The exchange service is unavailable, or asks to retry later."""


class OutcomeUnknown(AmbiguousFailure):
    """The request was sent to the exchange service, and no response came back."""


class InvalidResponse(AmbiguousFailure):
    """The response of the exchange service is not the JSON that the interface specifies."""


class ServiceRejected(PermanentFailure):
    """The exchange service rejected the request."""

    def __init__(self, message: str | None = None, *, status: int, issues: tuple[OutcomeIssue, ...] = ()) -> None:
        super().__init__(message)
        self.status = status
        self.issues = issues


class ResourceNotReadable(ServiceRejected):
    """The resource does not exist, or we may not read it (401 with a fresh token, 403, 404, 410)."""


class StaleVersion(ServiceRejected):
    """The resource was changed by somebody else since it was read (409 or 412 to If-Match)."""


class MultipleMatches(ServiceRejected):
    """Several resources match If-None-Exist (412); an operator decides which is the right one."""


class SearchNotSupported(ServiceRejected):
    """The service does not support this search (400, 404, 405 or 501)."""


class ForeignOrigin(PermanentFailure):
    """The address has another origin than the service; no token is sent there."""


class AuthenticationRequired(TemporaryFailure):
    """The service does not accept our credentials; run `lab-agent login`, or correct [exchange.oauth]."""


# --- the laboratory system's --------------------------------------------------------------------------------------------


class LisUnavailable(TemporaryFailure):
    """The laboratory system is unavailable."""


class LisOutcomeUnknown(AmbiguousFailure):
    """It is unknown whether the laboratory system received it."""


class LisRejected(PermanentFailure):
    """The laboratory system rejected it."""
