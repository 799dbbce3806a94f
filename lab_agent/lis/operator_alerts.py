"""Alerts about peers that no call fails of: open while the trouble recurs, closed once it has not for a while."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from lab_agent.lis.laboratory_system import Inbox

QUIET_SECONDS = 900.0
_REPEAT_SECONDS = 60.0


class Trouble(StrEnum):
    """What an alert is about; the value is part of its key."""

    CONNECTIONS = "connections"  # a peer opens connections and does not close them
    UNFINISHED_INPUT = "unfinished_input"  # messages that do not end fill the memory
    TURNED_AWAY = "turned_away"  # posted messages are not signed correctly, do not end, or find no room
    UNNAMED_LINES = "unnamed_lines"  # answers name fewer lines than were sent


_ENDS_BY_ITSELF = frozenset(Trouble) - {Trouble.UNNAMED_LINES}
"""What is over once it has not happened for a while; lines that nobody named are not."""


class OperatorAlerts:
    """The alerts of one running adapter; `now` gives seconds. Those that an earlier process left open are closed, too."""

    def __init__(self, inbox: Inbox, now: Callable[[], float]) -> None:
        self._inbox = inbox
        self._now = now
        self._last_seen: dict[Trouble, float] = dict.fromkeys(Trouble, now())
        self._last_written: dict[Trouble, float] = {}

    async def report(self, trouble: Trouble, text: str) -> None:
        """Open the alert, or write its new text if the last one is a minute old."""
        now = self._now()
        self._last_seen[trouble] = now
        if now - self._last_written.get(trouble, -_REPEAT_SECONDS) >= _REPEAT_SECONDS:
            self._last_written[trouble] = now
            await self._inbox.alert(trouble.value, text)

    async def close_quiet(self) -> None:
        """Close the alerts about what has not happened again."""
        for trouble, seen in list(self._last_seen.items()):
            if trouble in _ENDS_BY_ITSELF and self._now() - seen >= QUIET_SECONDS:
                await self.close(trouble)

    async def close(self, trouble: Trouble) -> None:
        """Close an alert, if it may be open."""
        if trouble in self._last_seen:
            await self._inbox.alert(trouble.value, None)
            del self._last_seen[trouble]
            self._last_written.pop(trouble, None)
