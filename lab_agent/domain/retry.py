"""What follows upon a failure: again at a time, a look first, or a person. Pure; the caller acts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from lab_agent.errors import AmbiguousFailure, Failure, PermanentFailure, TemporaryFailure


@dataclass(frozen=True, slots=True)
class Backoff:
    """How waits grow: `first` seconds, doubled each time up to `longest` seconds, then drawn from zero to that (full jitter)."""

    first: float = 2.0
    longest: float = 300.0


@dataclass(frozen=True, slots=True)
class Again:
    """Do it again, not before `at`."""

    at: datetime


@dataclass(frozen=True, slots=True)
class LookFirst:
    """It may have happened: look, not before `at`, and only then decide."""

    at: datetime


@dataclass(frozen=True, slots=True)
class Park:
    """It will not work by itself: a person decides."""


Decision = Again | LookFirst | Park


def decide(failure: Failure, *, attempts: int, now: datetime, backoff: Backoff, luck: float) -> Decision:
    """Say what follows upon `failure` after `attempts` tries; `luck` is a number from 0 to 1 that the caller drew."""
    if isinstance(failure, PermanentFailure):
        return Park()
    wait = jittered(attempts, backoff, luck)
    if isinstance(failure, TemporaryFailure):
        return Again(now + timedelta(seconds=max(wait, failure.retry_after or 0.0)))
    if isinstance(failure, AmbiguousFailure):
        return LookFirst(now + timedelta(seconds=wait))
    return Park()


def jittered(attempts: int, backoff: Backoff, luck: float) -> float:
    """Seconds to wait after `attempts` tries: full jitter over a doubling ceiling, never less than a tenth of the first wait."""
    ceiling = min(backoff.longest, backoff.first * 2.0 ** min(attempts - 1, 30))
    return max(backoff.first / 10, ceiling * luck)
