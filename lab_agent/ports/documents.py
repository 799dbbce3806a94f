"""Result documents, as the steps see them: are they what they say, and can one be made where the LIS gave none."""

from __future__ import annotations

from typing import Protocol

from lab_agent.domain.results import LabReport


class Documents(Protocol):
    """The room of documents."""

    def wrong(self, content: bytes, content_type: str) -> str | None:
        """What keeps a document from being sent (empty, too large, not what its type says); None for nothing."""
        ...

    def printed(self, report: LabReport, heading: str) -> bytes | None:
        """A PDF of the observations, the same bytes for the same report; None where none is wanted, or none can be made.

        `heading` names the order without naming the patient.
        """
        ...
