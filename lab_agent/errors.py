"""The whole error tree: ours, the service's and the laboratory system's.

Two questions decide what happens after a failure, and the tree answers both: *whose* is it (configuration, store, exchange,
LIS, the order itself), and *what may be done about it* (`TemporaryFailure`: again later; `AmbiguousFailure`: look before
doing it again, since the effect may have happened; `PermanentFailure`: a person decides). The docstring of a class is its
sentence where none is given. Messages never carry names, birth dates, tokens, query strings or payloads.
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
    """One thing that is wrong: where it is, what is wrong, and how to mend it."""

    where: str
    what: str
    hint: str = ""

    def __str__(self) -> str:
        """Give the problem as one line."""
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
    """The settings are not valid:"""


class CatalogueError(ProblemsError):
    """The catalogue is not valid:"""


class BasketError(ProblemsError):
    """The basket cannot be answered:"""


class UnknownContractError(BasketError):
    """The contract is not known here:"""


class DataInvalidError(ProblemsError):
    """The data does not have the shape that it must have:"""


class InvalidTransitionError(LabAgentError):
    """The state table knows no such move; nothing was changed."""


class InputError(LabAgentError):
    """What was typed cannot be used; nothing was changed."""


class CryptoError(LabAgentError):
    """What is stored encrypted cannot be read with the keys that are set."""


class StoreError(LabAgentError):
    """The store could not do what was asked."""


class SchemaMismatchError(StoreError):
    """The database has another schema than this program; run `lab-agent db upgrade`, or install the newer program."""


class StoreUnreachableError(StoreError):
    """The database cannot be reached."""


class LeaseLostError(StoreError):
    """Another worker holds the claim by now; the late write was refused."""


class AlreadyExistsError(StoreError):
    """The store holds this already; nothing was written."""


# --- what may be done about a failure of a neighbour --------------------------------------------------------------------


class Failure(LabAgentError):
    """A neighbour could not do what was asked."""


class TemporaryFailure(Failure):
    """It may work later; `retry_after` is the wait in seconds that the neighbour asked for, if it did."""

    def __init__(self, message: str | None = None, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class AmbiguousFailure(Failure):
    """It may have happened or not: look before doing it again."""


class PermanentFailure(Failure):
    """It will not work however often it is tried; a person decides."""


# --- the exchange service's ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OutcomeIssue:
    """One issue of an OperationOutcome (interface: Errors)."""

    severity: str
    code: str
    diagnostics: str


class ServiceUnavailable(TemporaryFailure):
    """The exchange service cannot be reached, or asks to come back later."""


class OutcomeUnknown(AmbiguousFailure):
    """The request was sent to the exchange service, and no answer came back."""


class InvalidResponse(AmbiguousFailure):
    """The exchange service answered with something that is not the JSON which the interface promises."""


class ServiceRefusal(PermanentFailure):
    """The exchange service refused the request."""

    def __init__(self, message: str | None = None, *, status: int, issues: tuple[OutcomeIssue, ...] = ()) -> None:
        super().__init__(message)
        self.status = status
        self.issues = issues


class ResourceNotReadable(ServiceRefusal):
    """The resource does not exist, or we have no right to read it (401 after a fresh token, 403, 404, 410)."""


class StaleVersion(ServiceRefusal):
    """The resource was changed by somebody else since it was read (409 or 412 to If-Match)."""


class MultipleMatches(ServiceRefusal):
    """Several resources match If-None-Exist (412); an operator decides which is the right one."""


class SearchNotSupported(ServiceRefusal):
    """The service does not offer this search (400, 404, 405 or 501)."""


class ForeignOrigin(PermanentFailure):
    """An address leads to another origin than the service's; no token is sent there."""


class AuthenticationRequired(TemporaryFailure):
    """The service does not accept our credentials any more; run `lab-agent login`, or mend [exchange.oauth]."""


# --- the laboratory system's --------------------------------------------------------------------------------------------


class LisUnavailable(TemporaryFailure):
    """The laboratory system cannot take it now."""


class LisOutcomeUnknown(AmbiguousFailure):
    """It is not known whether the laboratory system took it."""


class LisRefusal(PermanentFailure):
    """The laboratory system refused it."""
