"""The repository of what the laboratory's API refused."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from lab_agent.domain.api_refusals import ApiRefusals


class ApiRefusalRepository(Protocol):
    """Counts of refused requests, by period, reason and client."""

    def add(self, refusals: Sequence[ApiRefusals], *, now: datetime) -> None:
        """Add to the counts, each to that of the period of its `first_at`, and forget those older than `KEPT`."""
        ...

    def since(self, moment: datetime) -> tuple[ApiRefusals, ...]:
        """What was refused in the periods that had not ended at `moment`, in one sum for each reason and client."""
        ...
