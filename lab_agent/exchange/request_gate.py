"""One gate for all requests of this process to a service: closed while it has asked us to wait (Retry-After), or is held."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from lab_agent.shared.clock import Clock
from lab_agent.shared.errors import Failure, ServicePaused, ServiceUnavailable

_SHORTEST_WAIT = 0.05
"""Seconds. A shorter rest is not waited for: a sleep may end a little early."""


@dataclass(frozen=True, slots=True)
class _Pause:
    since: datetime
    until: datetime
    reason: str


class RequestGate:
    """Refuses what would be sent too early. A wait that was asked of one request holds for all of them.

    While it is held (`is_held`), since the service answers nothing, only a request that asks whether it does may pass.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pause: _Pause | None = None
        self.is_held = False

    def check(self, *, asks: bool = False) -> None:
        """Raise `ServicePaused`, with the seconds that are left if they are known, while the gate is closed.

        `asks`: the request asks whether the service answers.
        """
        if self.is_held and not asks:
            raise ServicePaused("not sent, since the exchange service does not answer")
        pause, now = self._pause, self._clock.now()
        if pause is None:
            return
        rest = (pause.until - now).total_seconds()
        if rest < _SHORTEST_WAIT or now < pause.since:  # our clock was set back: the end means nothing any more
            self._pause = None
            return
        raise ServicePaused(pause.reason, retry_after=rest)

    def on_failure(self, failure: Failure) -> None:
        """Close the gate where a failure asks to wait; a later end wins."""
        if not isinstance(failure, ServiceUnavailable) or not failure.retry_after:
            return
        now = self._clock.now()
        until = now + timedelta(seconds=failure.retry_after)
        if self._pause is None or until > self._pause.until:
            self._pause = _Pause(now, until, str(failure))
