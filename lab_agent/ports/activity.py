"""The repository of what was done in each hour."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from lab_agent.domain.activity import HourlyActivity, Measure


class ActivityRepository(Protocol):
    """Hours, kept for the charts."""

    def save(self, hours: Sequence[HourlyActivity]) -> None:
        """Write them, each over what was known of its hour and measure."""
        ...

    def get(self, hour: datetime, measure: Measure) -> HourlyActivity | None:
        """What is known of an hour."""
        ...

    def purge(self, *, before: datetime) -> int:
        """Remove older hours; their number."""
        ...
