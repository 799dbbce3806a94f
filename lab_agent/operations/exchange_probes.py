"""Probes of the exchange service, by the answers that it gives anyway: nothing is sent."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from statistics import median

from lab_agent.exchange.service import Exchange, ServiceClock
from lab_agent.operations.hosts import LivingHosts, keep_findings
from lab_agent.operations.monitor import Finding
from lab_agent.queue.job_records import JobKind
from lab_agent.shared.clock import Clock, steady_seconds
from lab_agent.shared.conditions.model import AlertKey, ConditionId
from lab_agent.shared.errors import ServiceUnavailable
from lab_agent.shared.metrics import CallOutcome
from lab_agent.store.unit_of_work import Store, UnitOfWork

CLOCKS_DIFFER_RULE = "order.clocks-differ"
"""The rule that holds what cannot be decided meanwhile."""
_SLOW_WINDOW = 300.0
_FEWEST_CALLS = 5
_KEPT_CALLS = 500
_CLOCK_CONDITIONS = frozenset({ConditionId.CLOCK_DIFFERS})


@dataclass(slots=True)
class ClockProbe:
    """Whether our clock and the service's agree, by the `Date` of its answers.

    `host` names this machine where workers on several ones may share the database: each decides about its own clock alone, and
    about those of machines on which no worker runs any more.
    """

    exchange: Exchange
    store: Store
    clock: Clock
    tolerance: timedelta
    host: str = ""
    living: LivingHosts = field(default_factory=lambda: LivingHosts(timedelta(minutes=1)))

    @property
    def conditions(self) -> frozenset[ConditionId]:
        """The one that it decides about."""
        return _CLOCK_CONDITIONS

    async def look(self) -> Sequence[Finding]:
        """Raises `ServiceUnavailable` while too few answers have told the time.

        Once the clocks agree again, the orders that were held meanwhile are assessed at once.
        """
        known = self.exchange.service_clock()
        if known is None or not known.is_confirmed:
            raise ServiceUnavailable("too few answers of the exchange service have told the time")
        if known.offset is None or abs(known.offset) <= self.tolerance:
            await self._end()
            return await self.store.run_read_only(self._find_others)
        others, held = await self.store.run_read_only(lambda uow: (self._find_others(uow), _count_held(uow)))
        detail = (f"on {self.host} " if self.host else "") + _name_both(known, known.offset, self.clock.now())
        own = Finding(
            condition=ConditionId.CLOCK_DIFFERS, subject=self.host, detail=detail, since=known.since, count=held or None
        )
        return own, *others

    async def _end(self) -> None:
        own = AlertKey(ConditionId.CLOCK_DIFFERS, self.host)
        if own in await self.store.run_read_only(lambda uow: uow.alerts.open_of(_CLOCK_CONDITIONS)):
            await self.store.transact(self._assess_again)

    def _find_others(self, uow: UnitOfWork) -> tuple[Finding, ...]:
        """What workers on other machines have found, as long as one of them lives."""
        if not self.host:
            return ()
        return keep_findings(uow, _CLOCK_CONDITIONS, self.living, lambda found, hosts: found != self.host and found in hosts)

    def _assess_again(self, uow: UnitOfWork) -> None:
        uow.jobs.make_due(JobKind.FETCH_ORDER, now=self.clock.now())


class CallDurations:
    """How long the last calls to the service took; `record` is a `CallObserver`. `steady` gives seconds of steady time."""

    def __init__(self, steady: Callable[[], float] = steady_seconds) -> None:
        self._steady = steady
        self._calls: deque[tuple[float, float]] = deque(maxlen=_KEPT_CALLS)

    def record(self, operation: str, outcome: CallOutcome, seconds: float) -> None:
        """Take a call that has ended. One that was not sent, as the service asks to wait, says nothing of its speed."""
        del operation
        if outcome is not CallOutcome.NOT_SENT:
            self._calls.append((self._steady(), seconds))

    def last(self) -> list[float]:
        """Seconds of each call of the last minutes."""
        since = self._steady() - _SLOW_WINDOW
        return [seconds for ended, seconds in self._calls if ended >= since]


@dataclass(frozen=True, slots=True)
class SlownessProbe:
    """Whether half of the calls of the last minutes took longer than `slow_after` seconds."""

    calls: CallDurations
    slow_after: float

    @property
    def conditions(self) -> frozenset[ConditionId]:
        """The one that it decides about."""
        return frozenset({ConditionId.EXCHANGE_SLOW})

    async def look(self) -> Sequence[Finding]:
        """Raises `ServiceUnavailable` where there were too few calls to tell."""
        calls = self.calls.last()
        if len(calls) < _FEWEST_CALLS:
            raise ServiceUnavailable("too few calls to the exchange service to tell how fast it is")
        middle = median(calls)
        if middle <= self.slow_after:
            return ()
        return (Finding(condition=ConditionId.EXCHANGE_SLOW, detail=f"median {middle:.1f} s of the last {len(calls)} calls"),)


def _name_both(known: ServiceClock, offset: timedelta, now: datetime) -> str:
    ours = known.measured_at or now
    return f"ours {ours:%Y-%m-%d %H:%M:%S} UTC, the service's {ours + offset:%Y-%m-%d %H:%M:%S} UTC"


def _count_held(uow: UnitOfWork) -> int:
    held = AlertKey(ConditionId.ORDERS_HELD, CLOCKS_DIFFER_RULE)
    return next((alert.count or 0 for alert in uow.alerts.all_open() if alert.key == held), 0)
