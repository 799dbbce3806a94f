"""The outcome of one check of `lab-agent check`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from lab_agent.shared.errors import LabAgentError, ProblemsError


class CheckStatus(StrEnum):
    """How a check ended. `TODO` is a step still to be taken, `SKIPPED` was not tried."""

    OK = "ok"
    TODO = "to do"
    WRONG = "WRONG"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One line of the result."""

    name: str
    status: CheckStatus
    detail: str = ""
    hint: str = ""


def failed_checks(name: str, error: LabAgentError) -> list[CheckResult]:
    """One line for each problem of an error."""
    if isinstance(error, ProblemsError):
        return [CheckResult(name, CheckStatus.WRONG, f"{each.where}: {each.what}", each.hint) for each in error.problems]
    return [CheckResult(name, CheckStatus.WRONG, str(error))]


def join_sorted(words: Iterable[str]) -> str:
    """The words, sorted and separated by commas."""
    return ", ".join(sorted(words))
