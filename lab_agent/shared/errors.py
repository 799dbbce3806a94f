"""The whole error tree: ours, the exchange service's and the laboratory system's.

Two questions decide what happens after a failure, and the tree answers both: *whose* is it (configuration, store, exchange
service, LIS, the order itself), and *what may be done about it* (`TemporaryFailure`: retry later; `AmbiguousFailure`: verify
before retrying, since it may have happened; `PermanentFailure`: a person decides). The docstring of a class is its message where
none is given. Messages never carry names, birth dates, tokens, query strings or payloads.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from enum import StrEnum


class LabAgentError(Exception):
    """Something went wrong in the lab agent."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or type(self).__doc__)


# --- ours -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cell:
    """Where something is in a table: the name of its file or sheet, the rows from `row` to `last_row`, and the column, if one."""

    source: str
    row: int
    column: str | None
    last_row: int

    def __str__(self) -> str:
        rows = f"row {self.row}" if self.row == self.last_row else f"rows {self.row}–{self.last_row}"
        return f"{self.source} {rows}" + (f", column {self.column}" if self.column else "")


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong: where, what, and a hint how to correct it."""

    where: str
    what: str
    hint: str = ""
    cell: Cell | None = field(default=None, compare=False, repr=False, kw_only=True)
    """Where it is in a table, if it is there."""

    def __str__(self) -> str:
        return f"{self.where}: {self.what}" + (f" — {self.hint}" if self.hint else "")

    @classmethod
    def in_cell(cls, cell: Cell, what: str, hint: str) -> Problem:
        """Make the problem of a cell, or of a whole row."""
        return cls(str(cell), what, hint, cell=cell)


def fold_rows(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Make one problem of equal ones in consecutive rows of a table; it stands where the first of them stood."""
    folded: list[Problem] = []
    latest: dict[tuple[str, str | None, str, str], int] = {}
    for problem in problems:
        if problem.cell is None:
            folded.append(problem)
            continue
        key = (problem.cell.source, problem.cell.column, problem.what, problem.hint)
        before = folded[latest[key]].cell if key in latest else None
        if before is not None and problem.cell.row == before.last_row + 1:
            folded[latest[key]] = Problem.in_cell(replace(before, last_row=problem.cell.row), problem.what, problem.hint)
        else:
            latest[key] = len(folded)
            folded.append(problem)
    return tuple(folded)


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """Give the hint which of the known names a misspelt one was probably meant to be; empty if none is close."""
    close = get_close_matches(given[:50], sorted(map(str, known)), n=1, cutoff=0.7)
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


class StoreFault(StrEnum):
    """What is wrong with the database itself; each is the condition `store.<value>`."""

    UNREACHABLE = "unreachable"
    LOCKED = "locked"
    DISK_FULL = "disk_full"
    READ_ONLY = "read_only"
    DELETED = "deleted"  # or replaced
    LOG_DELETED = "log_deleted"  # the write-ahead log, or replaced
    DAMAGED = "damaged"
    OTHER_KEY = "other_key"
    OTHER_SCHEMA = "other_schema"
    SECOND_AGENT = "second_agent"


class StoreError(LabAgentError):
    """The database operation failed."""


class StoreUnreachableError(StoreError):
    """The database is unavailable.

    `fault` says why. Nothing was written, and whoever asked is not to blame: what was to be done is done once it works again.
    """

    default_fault: StoreFault | None = StoreFault.UNREACHABLE

    def __init__(self, message: str | None = None, fault: StoreFault | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").partition("\n")[0])
        self.fault = fault or self.default_fault


class StoreConflictError(StoreUnreachableError):
    """Two transactions were in each other's way; nothing was written, and the database is in order."""

    default_fault = None


class SchemaMismatchError(StoreUnreachableError):
    """The database schema does not match this program; run `lab-agent db upgrade`, or install the newer program."""

    default_fault = StoreFault.OTHER_SCHEMA


class EmptyDatabaseError(SchemaMismatchError):
    """The database is empty; run `lab-agent db upgrade`."""


class SchemaInUseError(StoreError):
    """The database cannot be upgraded while programs work on it that the new schema does not serve."""


class WrongKeyError(StoreUnreachableError, CryptoError):
    """The database was written with another encryption key; put the former key back into `store.encryption_keys`."""

    default_fault = StoreFault.OTHER_KEY


class LeaseLostError(StoreError):
    """Another worker holds the lease by now; the late write was rejected."""


class AlreadyExistsError(StoreError):
    """The database holds this already; nothing was written."""


class LastAdminError(StoreError):
    """The change would leave nobody who may manage users on the status page."""


# --- what may be done about a failure of another system -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OutcomeIssue:
    """One issue of an OperationOutcome (interface: Errors)."""

    severity: str
    code: str
    diagnostics: str


class Failure(LabAgentError):
    """Another system could not do what was asked; `issues` are its own words, which may name a patient: never logged."""

    def __init__(self, message: str | None = None, *, issues: tuple[OutcomeIssue, ...] = ()) -> None:
        super().__init__(message)
        self.issues = issues


class TemporaryFailure(Failure):
    """It may work later; `retry_after` is the wait in seconds that the other system asked for, if it did."""

    def __init__(
        self, message: str | None = None, *, retry_after: float | None = None, issues: tuple[OutcomeIssue, ...] = ()
    ) -> None:
        super().__init__(message, issues=issues)
        self.retry_after = retry_after


class AmbiguousFailure(Failure):
    """It may have happened or not: verify before retrying."""


class PermanentFailure(Failure):
    """Retrying will not help; a person decides."""


# --- the exchange service's ---------------------------------------------------------------------------------------------


class ServiceUnavailable(TemporaryFailure):
    """The exchange service is unavailable, or asks to retry later."""


class ServicePaused(ServiceUnavailable):
    """The request was not sent, since the exchange service has asked another one to wait (Retry-After), or answers nothing."""


class AnswerTooLarge(ServiceUnavailable):
    """The answer to a read or a search is larger than is read; the service itself answers. `exchange.page_size` divides it."""


class OutcomeUnknown(AmbiguousFailure):
    """The request was sent to the exchange service, and no response came back."""


class InvalidResponse(AmbiguousFailure):
    """The response of the exchange service is not the JSON that the interface specifies.

    For a write: it may have happened. For a read or a search: this one resource cannot be read; the service itself answers.
    """


class ForeignLink(TemporaryFailure):
    """A redirect or a `next` link of the service leads to another origin, which gets no token; a maintenance page may pass."""


_HINTS = frozenset({"warning", "information"})


class ServiceRejected(PermanentFailure):
    """The exchange service rejected the request.

    `may_pass`: it was a search, or a read whose status says nothing about the resource (400, 405, 418 …), as of a proxy: it does
    no harm to ask again, and the answer may change without us, so it is retried instead of becoming a dead letter.
    """

    def __init__(
        self, message: str | None = None, *, status: int, issues: tuple[OutcomeIssue, ...] = (), may_pass: bool = False
    ) -> None:
        super().__init__(message, issues=issues)
        self.status = status
        self.may_pass = may_pass

    @property
    def is_doubtful(self) -> bool:
        """Whether the service names no error, only hints: what it says to have rejected may have been done."""
        return bool(self.issues) and all(issue.severity in _HINTS for issue in self.issues)


class ResourceNotReadable(ServiceRejected):
    """The resource cannot be read: it does not exist, we may not (401 with a fresh token, 403, 404, 410), or another 4xx."""


class StaleVersion(ServiceRejected):
    """The resource was changed by somebody else since it was read (409 or 412 to If-Match)."""


class MultipleMatches(ServiceRejected):
    """Several resources match If-None-Exist (412); an operator decides which is the right one."""


class SearchNotSupported(ServiceRejected):
    """The service does not support this search (400, 404, 405 or 501)."""


class ForeignOrigin(PermanentFailure):
    """The address has another origin than the service; no token is sent there."""


class InvalidAddress(ForeignOrigin):
    """The address is not one of http or https, or could be read in two ways; nothing is sent to it."""


class NewerOnService(PermanentFailure):
    """The service has a resource of ours that was issued later than what was to be written, and that we do not know."""


class HeaderNotSendable(PermanentFailure):
    """A header of the request holds what no header can (control characters, other than ASCII); nothing was sent."""


class TaskUnreadable(TemporaryFailure):
    """A Task of an order cannot be read before its handover; a right or a copy may come back."""


class AuthenticationRequired(TemporaryFailure):
    """The service does not accept our credentials; correct [exchange.oauth]; `lab-agent check` says how to sign in."""

    generation = 0
    """Of the tokens that it rejected; 0 where there are none."""


class SignInFailed(AuthenticationRequired):
    """The sign-in failed for no fault of the credentials, such as a token that cannot be sent; another one may succeed."""


# --- the laboratory system's --------------------------------------------------------------------------------------------


class LisUnavailable(TemporaryFailure):
    """The laboratory system is unavailable."""


class LisDiskFull(LisUnavailable):
    """The disk on which the laboratory system takes orders is full."""


class LisNotLoaded(LisUnavailable):
    """The adapter of the laboratory system is not loaded; see [lis]."""


class LisOutcomeUnknown(AmbiguousFailure):
    """It is unknown whether the laboratory system received it."""


class LisRejected(PermanentFailure):
    """The laboratory system rejected it."""
