"""What a check says."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from lab_agent.errors import LabAgentError, ProblemsError


class CheckStatus(StrEnum):
    """How a check ended. `todo` is a step that is still to be taken, `skipped` was not tried."""

    OK = "ok"
    TODO = "to do"
    WRONG = "WRONG"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One thing that was tried."""

    name: str
    status: CheckStatus
    detail: str = ""
    hint: str = ""


def failed_checks(name: str, error: LabAgentError) -> list[CheckResult]:
    """The lines about an error: one for each of its problems."""
    if isinstance(error, ProblemsError):
        return [CheckResult(name, CheckStatus.WRONG, f"{each.where}: {each.what}", each.hint) for each in error.problems]
    return [CheckResult(name, CheckStatus.WRONG, str(error))]


def join_sorted(words: Iterable[str]) -> str:
    """Words in a row."""
    return ", ".join(sorted(words))
