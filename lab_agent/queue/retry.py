"""What follows a failure: retry at some time, verify first, or leave it to a person. Pure; the caller acts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from lab_agent.shared.errors import (
    AmbiguousFailure,
    Failure,
    LisOutcomeUnknown,
    PermanentFailure,
    ServicePaused,
    ServiceRejected,
    ServiceUnavailable,
    TemporaryFailure,
)

LONGEST_WAIT = 3600.0
"""Seconds between two looks at what waits for others, at most."""
_LONGEST_FIRST_REST = 60.0
_REST_SHARE = 9.0


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
        return RetryAt(now + timedelta(seconds=max(wait, (failure.retry_after or 0.0) + _rest_after_pause(failure, attempts))))
    if isinstance(failure, LisOutcomeUnknown):  # it may have the order and be slow: it is not sent again in a moment
        return VerifyFirst(now + timedelta(seconds=max(wait, backoff_delay(attempts, backoff, 0.5))))
    if isinstance(failure, AmbiguousFailure):
        return VerifyFirst(now + timedelta(seconds=wait))
    return DeadLetter()


def _rest_after_pause(failure: TemporaryFailure, attempts: int) -> float:
    """Seconds by which others go first once the service may be asked again (law 9).

    The request that the service answered with Retry-After closed the gate for all of them. If it does so whenever it is sent, it
    may not take more than a tenth of the time, in the end.
    """
    if not isinstance(failure, ServiceUnavailable) or isinstance(failure, ServicePaused) or not failure.retry_after:
        return 0.0
    first = min(failure.retry_after, _LONGEST_FIRST_REST)
    return min(_REST_SHARE * failure.retry_after, first * 2.0 ** min(attempts - 1, 30))


def rest_after_hold(retry_after: float, held: timedelta) -> float:
    """Seconds by which others go first after the Retry-After of an order that has been unreadable for the time `held`."""
    return min(_REST_SHARE * retry_after, held.total_seconds())


def growing_wait(first: float, waited: timedelta, decided_after: float = 0.0) -> float:
    """Seconds until the next look at what has waited for others so long: as long again, at least `first`, at most an hour.

    What is decided once it has waited for `decided_after` seconds is looked at by then.
    """
    seconds = waited.total_seconds()
    wait, left = max(first, min(seconds, LONGEST_WAIT)), decided_after - seconds
    return max(first, min(left, wait)) if left > 0 else wait


def backoff_delay(attempts: int, backoff: Backoff, random: float) -> float:
    """Seconds to wait after `attempts` attempts: full jitter up to a doubling limit, at least a tenth of the first wait."""
    limit = min(backoff.longest, backoff.first * 2.0 ** min(attempts - 1, 30))
    return max(backoff.first / 10, limit * random)
