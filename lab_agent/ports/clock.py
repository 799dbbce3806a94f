"""The time of day."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """Gives the current time; tests have one that they set."""

    def now(self) -> datetime:
        """The current time, aware and in UTC."""
        ...
