"""The worker's metrics for Prometheus: names and labels in one place, and no patient in any of them.

Counters and histograms are updated by hooks as things happen; gauges about the store are set just before the metrics are read, so
that they are true after a restart and for every worker on one database. `Metrics` holds its own registry: no globals.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter as Tally
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.metadata import version
from math import nan
from platform import python_version
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from lab_agent.shared import errors
from lab_agent.shared.conditions.model import OpenCondition
from lab_agent.shared.conditions.table import CONDITIONS

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
CallObserver = Callable[[str, "CallOutcome", float], None]
"""Called when a call has ended, with its operation, its `CallOutcome` and its seconds."""
_LAG_INTERVAL = 0.1
_BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class CallOutcome(StrEnum):
    """How a call to another system ended, or a poll: a word that stays, whatever the code calls its errors."""

    OK = "ok"
    NOT_SENT = "not_sent"  # the service had asked another call to wait
    UNAVAILABLE = "unavailable"
    SIGN_IN = "sign_in"  # our credentials are not accepted
    FOREIGN_LINK = "foreign_link"
    OUTCOME_UNKNOWN = "outcome_unknown"
    INVALID_RESPONSE = "invalid_response"
    NOT_READABLE = "not_readable"
    CHANGED_MEANWHILE = "changed_meanwhile"
    SEVERAL_MATCHES = "several_matches"
    SEARCH_NOT_SUPPORTED = "search_not_supported"
    REJECTED = "rejected"
    DISK_FULL = "disk_full"
    NOT_LOADED = "not_loaded"
    STORE = "store"  # our own database failed
    CANCELLED = "cancelled"
    INTERNAL_ERROR = "internal_error"

    @classmethod
    def of(cls, error: BaseException) -> CallOutcome:
        """The word for an error: that of the most precise class in the table."""
        return next((outcome for kind, outcome in _CALL_OUTCOMES if isinstance(error, kind)), cls.INTERNAL_ERROR)


_CALL_OUTCOMES: tuple[tuple[type[BaseException], CallOutcome], ...] = (
    (errors.ServicePaused, CallOutcome.NOT_SENT),
    (errors.AuthenticationRequired, CallOutcome.SIGN_IN),
    (errors.ForeignLink, CallOutcome.FOREIGN_LINK),
    (errors.ForeignOrigin, CallOutcome.FOREIGN_LINK),
    (errors.InvalidResponse, CallOutcome.INVALID_RESPONSE),
    (errors.ResourceNotReadable, CallOutcome.NOT_READABLE),
    (errors.TaskUnreadable, CallOutcome.NOT_READABLE),
    (errors.StaleVersion, CallOutcome.CHANGED_MEANWHILE),
    (errors.MultipleMatches, CallOutcome.SEVERAL_MATCHES),
    (errors.SearchNotSupported, CallOutcome.SEARCH_NOT_SUPPORTED),
    (errors.LisDiskFull, CallOutcome.DISK_FULL),
    (errors.LisNotLoaded, CallOutcome.NOT_LOADED),
    (errors.TemporaryFailure, CallOutcome.UNAVAILABLE),
    (errors.AmbiguousFailure, CallOutcome.OUTCOME_UNKNOWN),
    (errors.PermanentFailure, CallOutcome.REJECTED),
    (errors.StoreError, CallOutcome.STORE),
    (asyncio.CancelledError, CallOutcome.CANCELLED),
)
"""Subclasses before what they are kinds of."""


@contextmanager
def measure_call(operation: str, on_call: CallObserver) -> Iterator[None]:
    """Measure the call made within, and report it to `on_call`, however it ends."""
    started, outcome = time.monotonic(), CallOutcome.OK
    try:
        yield
    except BaseException as exc:
        outcome = CallOutcome.of(exc)
        raise
    finally:
        on_call(operation, outcome, time.monotonic() - started)


def ignore(operation: str, outcome: CallOutcome, seconds: float) -> None:
    """Ignore a call: a `CallObserver` where no metrics are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreGauges:
    """What waits in the store now: counts of what is not finished, by state (jobs by kind and state), and the age in seconds of
    what waits longest.

    States are the domain's `StrEnum`s. `last_poll` is in seconds since 1970, None if no poll has succeeded yet.
    """

    orders: Mapping[Any, int] = field(default_factory=dict)
    lines: Mapping[Any, int] = field(default_factory=dict)
    reports: Mapping[Any, int] = field(default_factory=dict)
    jobs: Mapping[Any, int] = field(default_factory=dict)
    refused_messages: Mapping[str, int] = field(default_factory=dict)
    """By laboratory system: those that wait for a person."""
    oldest_order: float = 0.0
    oldest_job: float = 0.0
    alerts_open: int = 0
    last_poll: float | None = None


class LoopLag:
    """How late the event loop was with its next step, at most, in the last minute.

    A timer is set ten times a second (0.05 % of a core), and what keeps the loop for longer than that shows, if not in full.
    """

    def __init__(self) -> None:
        self._late: deque[float] = deque(maxlen=int(60 / _LAG_INTERVAL))
        self._longest_untaken = 0.0

    async def watch(self) -> None:
        """Measure until cancelled."""
        while True:
            due = _uptime() + _LAG_INTERVAL
            await asyncio.sleep(_LAG_INTERVAL)
            late = _uptime() - due
            self._late.append(late)
            self._longest_untaken = max(self._longest_untaken, late)

    def longest(self) -> float:
        """Seconds; 0 before the first measurement."""
        return max(self._late, default=0.0)

    def take_longest(self) -> float:
        """Seconds, since this was called last; 0 where nothing was measured."""
        longest, self._longest_untaken = self._longest_untaken, 0.0
        return longest


def _uptime() -> float:
    """Seconds on a clock that nobody sets, and that goes on while the machine is suspended, where there is one."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class Metrics:
    """The registry and its metrics."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._orders = self._gauge("orders", "Unfinished orders by state", "state")
        self._lines = self._gauge("lines", "Unfinished order lines by state", "state")
        self._reports = self._gauge("reports", "Unfinished reports of laboratory systems by state", "state")
        self._jobs = self._gauge("jobs", "Unfinished jobs by kind and state", "kind", "state")
        self._refused = self._gauge("refused_messages", "Refused messages that wait for a person", "adapter")
        self._oldest_age = self._gauge("oldest_age_seconds", "Age of the oldest open order and the oldest waiting job", "what")
        self._alerts = self._gauge("alerts_open", "Open alerts")
        self._conditions = self._gauge(
            "condition_open", "How many alerts of a condition are open; docs/conditions.md", "condition", "severity"
        )
        self._conditions_since = self._gauge("condition_since_timestamp_seconds", "When the oldest of them began", "condition")
        self._conditions_affected = self._gauge("condition_affected", "What waits because of them", "condition", "what")
        self._store_reachable = self._gauge("store_reachable", "Whether the store answered when these numbers were read")
        self._last_poll = self._gauge("last_poll_timestamp_seconds", "When the last poll succeeded")
        self._polls = Counter("lab_agent_polls", "Polls for new orders by outcome", ["outcome"], registry=self.registry)
        self._orders_seen = Counter("lab_agent_orders_seen", "Orders seen for the first time", registry=self.registry)
        self._attempts = Counter("lab_agent_job_attempts", "Attempts of jobs", ["kind", "outcome"], registry=self.registry)
        self._exchange_calls = self._histogram("exchange_call_seconds", "Calls to the exchange service", "operation", "outcome")
        self._lis_calls = self._histogram("lis_call_seconds", "Calls to laboratory systems", "adapter", "operation", "outcome")
        self._skipped = Counter(
            "lab_agent_lis_skipped", "Messages and values left out by a rule", ["adapter"], registry=self.registry
        )
        self.loop_lag = LoopLag()
        lag = self._gauge("loop_lag_seconds", "How late the event loop was with its next step, at most, in the last minute")
        lag.set_function(self.loop_lag.longest)
        build = self._gauge("build_info", "Version of the program", "version", "python")
        build.labels(version("lab-agent"), python_version()).set(1)

    def record_poll(self, outcome: CallOutcome, *, new: int, at: float) -> None:
        """Count a poll; `at` is its time in seconds since 1970."""
        self._polls.labels(outcome).inc()
        self._orders_seen.inc(new)
        if outcome is CallOutcome.OK:
            self._last_poll.set(at)

    def record_exchange_call(self, operation: str, outcome: CallOutcome, seconds: float) -> None:
        """Count a call to the exchange service; `operation` is a method and a resource type, never an address."""
        self._exchange_calls.labels(operation, outcome).observe(seconds)

    def record_lis_call(self, adapter: str, operation: str, outcome: CallOutcome, seconds: float) -> None:
        """Count a call to a laboratory system."""
        self._lis_calls.labels(adapter, operation, outcome).observe(seconds)

    def record_skip(self, adapter: str) -> None:
        """Count a message, or the values of one report, that an adapter left out on purpose."""
        self._skipped.labels(adapter).inc()

    def record_attempt(self, kind: str, outcome: str) -> None:
        """Count an attempt of a job; `outcome` is the state that it ended in."""
        self._attempts.labels(kind, outcome).inc()

    def update_store(self, gauges: StoreGauges) -> None:
        """Set the gauges of the store; states that are empty by now disappear."""
        for gauge, numbers in ((self._orders, gauges.orders), (self._lines, gauges.lines), (self._reports, gauges.reports)):
            gauge.clear()
            for state, number in numbers.items():
                gauge.labels(state).set(number)
        self._jobs.clear()
        for (kind, state), number in gauges.jobs.items():
            self._jobs.labels(kind, state).set(number)
        self._refused.clear()
        for adapter, number in gauges.refused_messages.items():
            self._refused.labels(adapter).set(number)
        self._oldest_age.labels("order").set(gauges.oldest_order)
        self._oldest_age.labels("job").set(gauges.oldest_job)
        self._alerts.set(gauges.alerts_open)
        if gauges.last_poll is not None:
            self._last_poll.set(gauges.last_poll)
        self._store_reachable.set(1)

    def update_conditions(self, found: Iterable[OpenCondition], *, is_complete: bool = True) -> None:
        """Set the gauges of the conditions. Each of the table has a number, so that a rule knows 0 from what is missing.

        Unless `is_complete`, those that were not found are unknown: NaN.
        """
        found = tuple(found)
        numbers = Tally(each.condition.id for each in found)
        for condition in CONDITIONS.values():
            number = numbers[condition.id] or (0 if is_complete else nan)
            self._conditions.labels(condition.id.value, condition.severity.value).set(number)
        self._update_details(found)

    def _update_details(self, found: Iterable[OpenCondition]) -> None:
        since: dict[str, float] = {}
        affected: Tally[tuple[str, str]] = Tally()
        for each in found:
            name = each.condition.id.value
            since[name] = min(since.get(name, math.inf), each.since.timestamp())
            affected.update({(name, f"{counted.noun}{counted.rest}"): counted.number for counted in each.affected})
        self._conditions_since.clear()
        for name, seconds in since.items():
            self._conditions_since.labels(name).set(seconds)
        self._conditions_affected.clear()
        for labels, number in affected.items():
            self._conditions_affected.labels(*labels).set(number)

    def clear_store(self) -> None:
        """Clear the gauges of the store while it is unavailable: an old number would look like a current one."""
        self.update_store(StoreGauges(oldest_order=nan, oldest_job=nan))
        self._alerts.set(nan)
        self._store_reachable.set(0)

    def render(self) -> bytes:
        """Give all metrics in the text format of Prometheus (`CONTENT_TYPE`)."""
        return generate_latest(self.registry)

    def _gauge(self, name: str, help_text: str, *labels: str) -> Gauge:
        return Gauge(f"lab_agent_{name}", help_text, labels, registry=self.registry)

    def _histogram(self, name: str, help_text: str, *labels: str) -> Histogram:
        return Histogram(f"lab_agent_{name}", help_text, labels, buckets=_BUCKETS, registry=self.registry)
