"""What follows a failure: retry at some time, verify first, or leave it to a person. Pure; the caller acts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from lab_agent.errors import AmbiguousFailure, Failure, PermanentFailure, ServiceRejected, TemporaryFailure


@dataclass(frozen=True, slots=True)
class Backoff:
    """How waits grow: `first` seconds, doubled each time up to `longest`; the wait is drawn from zero to that (full jitter)."""

    first: float = 2.0
    longest: float = 300.0


@dataclass(frozen=True, slots=True)
class RetryAt:
    """Retry it, not before `at`."""

    at: datetime


@dataclass(frozen=True, slots=True)
class VerifyFirst:
    """It may have happened: verify that, not before `at`, and decide only then."""

    at: datetime


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """It will not succeed by itself: a person decides."""


RetryDecision = RetryAt | VerifyFirst | DeadLetter


def decide_retry(failure: Failure, *, attempts: int, now: datetime, backoff: Backoff, random: float) -> RetryDecision:
    """Decide what follows `failure` after `attempts` attempts; `random` is a number from 0 to 1 that the caller drew."""
    wait = backoff_delay(attempts, backoff, random)
    if isinstance(failure, ServiceRejected) and failure.may_pass:
        return RetryAt(now + timedelta(seconds=wait))
    if isinstance(failure, PermanentFailure):
        return DeadLetter()
    if isinstance(failure, TemporaryFailure):
        return RetryAt(now + timedelta(seconds=max(wait, failure.retry_after or 0.0)))
    if isinstance(failure, AmbiguousFailure):
        return VerifyFirst(now + timedelta(seconds=wait))
    return DeadLetter()


def backoff_delay(attempts: int, backoff: Backoff, random: float) -> float:
    """Seconds to wait after `attempts` attempts: full jitter up to a doubling limit, at least a tenth of the first wait."""
    limit = min(backoff.longest, backoff.first * 2.0 ** min(attempts - 1, 30))
    return max(backoff.first / 10, limit * random)
