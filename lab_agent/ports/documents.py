"""Result documents, as the steps see them: are they what they say, and can one be made where the LIS gave none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from lab_agent.domain.lab_messages import LabReport
from lab_agent.errors import LabAgentError


class PrintError(LabAgentError):
    """The report cannot be printed."""


@dataclass(frozen=True, slots=True)
class DocumentDefect:
    """What keeps a document from being sent, and how to mend that.

    `shown` is the true type under which it may go when a person says so; None where it can never go (empty, too large, gone).
    """

    text: str
    actual_type: str | None = None
    hint: str = ""


class Documents(Protocol):
    """The room of documents."""

    def find_defect(self, content: bytes, content_type: str) -> DocumentDefect | None:
        """What keeps a document from being sent (empty, too large, not what its type says); None for nothing."""
        ...

    def render_pdf(self, report: LabReport, heading: str, codes: Sequence[str] = ()) -> bytes | None:
        """A PDF of the observations, the same bytes for the same report; None where none is wanted, or none can be made.

        `heading` names the order without naming the patient; `codes` are the exchange's codes of the observations, in order.
        Raises `PrintFault` for whatever else goes wrong in printing: the values can go without it.
        """
        ...
