"""Result documents as the workflow sees them: a check of their content, and a PDF where the LIS gave none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from lab_agent.lis.lab_messages import LabReport
from lab_agent.shared.errors import LabAgentError


class PrintError(LabAgentError):
    """The report cannot be printed."""


@dataclass(frozen=True, slots=True)
class DocumentDefect:
    """Why a document cannot be sent, and a hint.

    `actual_type` is the type under which an operator can release it, its own if it is only cut off, damaged or locked by a
    password; None if it can never be sent (empty, too large, purged).
    """

    text: str
    actual_type: str | None = None
    hint: str = ""


class Documents(Protocol):
    """Checks and makes result documents."""

    def find_defect(self, content: bytes, content_type: str) -> DocumentDefect | None:
        """Why a document cannot be sent (empty, too large, not what its type says, not whole); None if it can."""
        ...

    def render_pdf(self, report: LabReport, heading: str, codes: Sequence[str] = ()) -> bytes | None:
        """A PDF of the observations, the same bytes for the same report; None if none is wanted, or a character has no glyph.

        `heading` names the order without naming the patient; `codes` are the exchange's codes of the observations, in order.
        Raises `PrintError` for any other failure: the values can be delivered without it.
        """
        ...
