"""Compares the service's clock with ours, by the `Date` of its answers (RFC 9110, 6.6.1).

A `Date` is in whole seconds and some moment of a call, so each answer gives a span in which the difference lies. One answer may
be wrong: a cache that does not say so gives an old `Date`, one of several servers may have a clock of its own. So a difference is
confirmed only by several answers of different seconds that agree.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from lab_agent.exchange.service import ServiceClock
from lab_agent.shared.clock import CORRECTION, Clock, Moment, drift_allowed, steady_seconds
from lab_agent.shared.http_dates import parse_http_date

_KEPT = 5
_NEEDED = 3
_AGREEMENT = timedelta(seconds=2)
_SECOND = timedelta(seconds=1)
_NO_MATTER_OF_CLOCKS = timedelta(days=365_000)
"""A difference by which no time can be moved (`is_calculable`): what is further off is no time of a clock."""


@dataclass(frozen=True, slots=True)
class _Sample:
    """One answer: the service's clock is ahead of ours by `low` to `high`."""

    date: datetime
    at: datetime
    low: timedelta
    high: timedelta

    @property
    def offset(self) -> timedelta:
        """The difference of this span that is nearest to none."""
        return max(self.low, min(timedelta(), self.high))

    def allows(self, offset: timedelta) -> bool:
        return self.low - _AGREEMENT <= offset <= self.high + _AGREEMENT


class ClockComparison:
    """The clocks as the last answers compare them. `steady` gives seconds that no correction of a clock changes."""

    def __init__(self, clock: Clock, steady: Callable[[], float] = steady_seconds) -> None:
        self._clock = clock
        self._steady = steady
        self._samples: deque[_Sample] = deque(maxlen=_KEPT)
        self._last: Moment | None = None
        self._undated = 0

    def start(self) -> Moment:
        """Give the moment before a request is sent."""
        return Moment(self._clock.now(), self._steady())

    def record(self, sent: Moment, headers: Mapping[str, str]) -> None:
        """Take the `Date` of an answer to a request that was sent then; a cache (`Age`) is not asked for the time."""
        received = self._forget_before_correction()
        if abs(received.zero - sent.zero) > CORRECTION or "age" in headers:
            return
        date = parse_http_date(headers.get("date"))
        if date is None or abs(date - received.at) > _NO_MATTER_OF_CLOCKS:
            self._undated += 1
            if self._undated >= _NEEDED:
                self._samples.clear()
        elif all(date != each.date for each in self._samples):
            self._undated = 0
            self._samples.append(_Sample(date, received.at, date - received.at, date + _SECOND - sent.at))
        self._last = received

    def read(self) -> ServiceClock | None:
        """Give what is known now; None as long as no answer has said anything about it."""
        self._forget_before_correction()
        if not self._samples:
            return ServiceClock(offset=None, is_confirmed=True) if self._undated >= _NEEDED else None
        offset = sorted(each.offset for each in self._samples)[len(self._samples) // 2]
        agreeing = [each for each in self._samples if each.allows(offset)]
        return ServiceClock(
            offset=offset,
            is_confirmed=len(agreeing) >= _NEEDED,
            since=agreeing[0].at,
            measured_at=agreeing[-1].at,
        )

    def _forget_before_correction(self) -> Moment:
        """Give this moment. What was measured before our clock was set says nothing any more."""
        now = self.start()
        if self._last is not None and abs(now.zero - self._last.zero) > drift_allowed(now, self._last):
            self._samples.clear()
            self._last = None
        return now
