"""How often the service is asked for new orders: often while they come, seldom while they do not."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PollInterval:
    """Waits in seconds: `shortest` after a find or a failure, half as long again after each empty answer, up to `longest`."""

    shortest: float
    longest: float

    def next_wait(self, wait: float, found: int) -> float:
        """The wait that follows upon a poll that found `found` new orders after having waited `wait`."""
        return self.shortest if found else min(max(wait, self.shortest) * 1.5, max(self.longest, self.shortest))
