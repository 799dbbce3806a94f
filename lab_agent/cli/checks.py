"""What a check says."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from lab_agent.errors import LabAgentError, ProblemsError


class Verdict(StrEnum):
    """How a check ended. `todo` is a step that is still to be taken, `skipped` was not tried."""

    OK = "ok"
    TODO = "to do"
    WRONG = "WRONG"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that was tried."""

    what: str
    verdict: Verdict
    detail: str = ""
    mend: str = ""


def wrong(what: str, error: LabAgentError) -> list[Line]:
    """The lines about an error: one for each of its problems."""
    if isinstance(error, ProblemsError):
        return [Line(what, Verdict.WRONG, f"{each.where}: {each.what}", each.mend) for each in error.problems]
    return [Line(what, Verdict.WRONG, str(error))]


def listed(words: Iterable[str]) -> str:
    """Words in a row."""
    return ", ".join(sorted(words))
