"""Outages of remote systems: one log line and one alert at the start, one line at the end, however many jobs fail meanwhile.

A service that does not answer at all is one outage. Where it answers, and only one kind of job fails, that kind has an outage
of its own, which ends when none of its jobs fails any more: a successful poll proves nothing about uploads, and an order that is
fetched proves nothing about another that is not. What fails is read from the store, as another worker may have done it since.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

import structlog

from lab_agent.queue.job_records import JobKind
from lab_agent.queue.service_hold import ServiceHold
from lab_agent.queue.store_watch import SAME_OUTAGE
from lab_agent.shared.clock import Clock
from lab_agent.shared.conditions.model import AlertKey, ConditionId
from lab_agent.shared.errors import (
    AmbiguousFailure,
    AuthenticationRequired,
    ForeignLink,
    InvalidResponse,
    LabAgentError,
    LisUnavailable,
    OutcomeUnknown,
    ServicePaused,
    ServiceRejected,
    ServiceUnavailable,
    StoreUnreachableError,
)
from lab_agent.store.event_records import Alert
from lab_agent.store.unit_of_work import Store, UnitOfWork

log = structlog.get_logger(__name__)
T = TypeVar("T")

EXCHANGE_OUTAGE = AlertKey(ConditionId.EXCHANGE_UNAVAILABLE)
SIGN_IN_OUTAGE = AlertKey(ConditionId.EXCHANGE_SIGN_IN)
POLL_OUTAGE = AlertKey(ConditionId.EXCHANGE_POLL)
CUT_OFF_OUTAGE = AlertKey(ConditionId.EXCHANGE_POLL_CUT_OFF)
PAUSE_OUTAGE = AlertKey(ConditionId.EXCHANGE_ASKS_TO_WAIT)
LINKS_OUTAGE = AlertKey(ConditionId.EXCHANGE_FOREIGN_LINKS)
EXCHANGE_OUTAGES = frozenset({EXCHANGE_OUTAGE, SIGN_IN_OUTAGE, POLL_OUTAGE, CUT_OFF_OUTAGE, PAUSE_OUTAGE, LINKS_OUTAGE})


def exchange_part_outage(part: str) -> AlertKey:
    """The outage of one kind of job at the exchange service."""
    return AlertKey(ConditionId.EXCHANGE_PART_UNAVAILABLE, part)


def lis_outage(adapter: str) -> AlertKey:
    """The outage of one laboratory system."""
    return AlertKey(ConditionId.LIS_UNAVAILABLE, adapter)


_WORK = frozenset({"poll", "look", "restore", "collect"})
"""The parts without which no work comes in, or none goes on."""


def fault_of(part: str) -> AlertKey:
    """That a part of the agent, such as a scheduled task, fails with an error that nobody expects."""
    return AlertKey(ConditionId.AGENT_CANNOT_WORK if part in _WORK else ConditionId.AGENT_PART_FAILS, part)


def _is_exchange_outage(key: AlertKey) -> bool:
    return key in EXCHANGE_OUTAGES or key.condition is ConditionId.EXCHANGE_PART_UNAVAILABLE


def _is_exchange_failure(failure: LabAgentError) -> bool:
    """Whether a failure of a call to the exchange service is one that is tried again."""
    if isinstance(failure, ServiceRejected):
        return failure.may_pass
    return isinstance(failure, ServiceUnavailable | OutcomeUnknown | InvalidResponse | ForeignLink)


def _make_alert(key: AlertKey, detail: str, now: datetime) -> Alert:
    return Alert(condition=key.condition, subject=key.subject, detail=detail, since=now, opened_at=now)


def _open_again(uow: UnitOfWork, alert: Alert) -> bool:
    """Open an alert; the one of an outage that ended a moment ago, or that an earlier process left open, goes on: not new."""
    uow.alerts.reopen(alert.key, closed_after=alert.opened_at - SAME_OUTAGE)
    return uow.alerts.open(alert)


class OutageTracker:
    """Which remote systems are unavailable, as far as this process knows; the alerts are in the store for everybody to see.

    `probe` sends the exchange service one harmless request; whether it answered.
    """

    def __init__(
        self, store: Store, clock: Clock, probe: Callable[[], Awaitable[bool]], *, hold: ServiceHold | None = None
    ) -> None:
        """`hold` holds back what is sent to the exchange service while that answers nothing; without one, nothing is."""
        self._store = store
        self._clock = clock
        self._probe = probe
        self.hold = hold
        self._probe_lock = asyncio.Lock()
        self._active: set[AlertKey] = set()
        self._known_ended: set[AlertKey] = set()
        self._ended_at: dict[AlertKey, datetime] = {}
        self._texts: dict[AlertKey, str] = {}
        self._unsaved_alerts: dict[AlertKey, Alert] = {}

    @property
    def is_store_down(self) -> bool:
        """Whether our own database was out when it was last tried: then there is no use in any work."""
        return self._store.health.outage is not None

    async def end_part(self, kind: JobKind, *, was_failing: bool = False) -> None:
        """End the outage of one kind of job, unless one that began or joined it has not succeeded yet.

        `was_failing`: the job that has ended had failed before; another worker, which may be gone, may have told so.
        """
        key = exchange_part_outage(kind.value)
        if was_failing:
            self._known_ended.discard(key)
        if key in self._known_ended:
            return
        if not await self._store.transact(lambda uow: uow.jobs.failing(since=self._clock.now(), kind=kind)):
            await self.end(key)

    async def end_settled_parts(self) -> None:
        """End the outages of kinds of jobs of which none fails any more: an operator or another worker has settled it.

        The others tell how many jobs fail now, and since when.
        """
        for kind in JobKind:
            await self.end_part(kind)
        for kind in JobKind:
            if (key := exchange_part_outage(kind.value)) in self._active:
                await self._count_failing(kind, key)

    def is_known(self, failure: LabAgentError, part: str = "") -> bool:
        """Whether a failure (of the kind of job `part`) belongs to an outage that is reported already."""
        match failure:
            case StoreUnreachableError():
                return self.is_store_down
            case LisUnavailable():
                return any(key.condition is ConditionId.LIS_UNAVAILABLE for key in self._active)
            case AuthenticationRequired():
                return SIGN_IN_OUTAGE in self._active
            case ServicePaused():  # it was told by whoever was asked to wait
                return True
            case _ if _is_exchange_failure(failure):
                return not self._active.isdisjoint({EXCHANGE_OUTAGE, PAUSE_OUTAGE, exchange_part_outage(part)})
        return False

    async def record_failure(self, failure: LabAgentError, part: str = "", *, repeated: bool = True) -> None:
        """Begin an outage, if the failure means that a remote system is unavailable; `part` is the kind of job that failed.

        A write that was not answered begins one only when the attempt before had failed, too (`repeated`): a single lost reply is
        settled by verifying, and says nothing about the service.
        """
        match failure:
            case StoreUnreachableError():
                self._store.health.failed(failure, self._clock.now())  # whoever watches the database tells it
            case AuthenticationRequired():
                await self.begin(SIGN_IN_OUTAGE, str(failure))
            case ServicePaused():
                if not part and not any(_is_exchange_outage(key) for key in self._active):
                    await self.begin(PAUSE_OUTAGE, str(failure))
            case AmbiguousFailure() if not repeated:
                return
            case ServiceUnavailable(retry_after=wait) if not part and wait:
                await self.begin(PAUSE_OUTAGE, str(failure), renew=True)
            case ServiceUnavailable() if not part:
                await self.begin(EXCHANGE_OUTAGE, str(failure))
                await self._consider_hold()
            case ForeignLink() if not part:
                await self.begin(LINKS_OUTAGE, str(failure))
            case _ if part and _is_exchange_failure(failure):
                await self._record_partial_failure(part, failure)

    async def record_fault(self, part: str, error: Exception, *, rest: str = "") -> None:
        """Tell that a part fails with an error that nobody expects; one that is none of ours by its kind alone.

        Where it cannot be told, as the database is unavailable too, that is recorded.
        """
        kind = str(error) if isinstance(error, LabAgentError) else type(error).__name__
        try:
            await self.begin(fault_of(part), kind + rest, renew=True)
        except LabAgentError as second:
            await self.record_failure(second)

    async def end_fault(self, part: str) -> None:
        """Tell that a part works. Where that cannot be told, as the database is unavailable, that is recorded."""
        try:
            await self.end(fault_of(part))
        except LabAgentError as second:
            await self.record_failure(second)

    async def begin(self, key: AlertKey, text: str, *, renew: bool = False) -> None:
        """Begin an outage and open its alert, once. An alert that could not be written is written at the next call.

        With `renew`, a new text replaces that of the open alert: it says until when the service asks to wait.
        """
        is_new = self._mark_started(key)
        if is_new or (renew and self._texts.get(key) != text):
            self._texts[key] = text
            self._unsaved_alerts[key] = _make_alert(key, text, self._clock.now())
        goes_on = False
        try:
            if alert := self._unsaved_alerts.get(key):
                goes_on = not await self._write(lambda uow: _open_again(uow, alert))
                self._unsaved_alerts.pop(key, None)
        finally:
            if is_new:
                self._log_start(key, text, goes_on=goes_on)

    async def end(self, *keys: AlertKey) -> bool:
        """End outages and close their alerts, once. Whether this process knew of any."""
        ended = [key for key in keys if self._mark_ended(key)]
        stale = [key for key in keys if key in ended or key not in self._known_ended]
        if stale:  # an alert that an earlier process left open is closed once
            await self._write(lambda uow: self._close(uow, stale, told=frozenset(ended)))
            self._known_ended.update(stale)
        return bool(ended)

    def _close(self, uow: UnitOfWork, keys: Sequence[AlertKey], *, told: frozenset[AlertKey]) -> None:
        """Close alerts, with a line for each that was open and whose end is not `told` already."""
        for key in keys:
            if uow.alerts.close(key, now=self._clock.now()) and key not in told:
                log.info("outage ended", action="outage_ended", outage=str(key))

    async def _count_failing(self, kind: JobKind, key: AlertKey) -> None:
        now, text = self._clock.now(), self._texts[key]

        def renew(uow: UnitOfWork) -> None:
            if failing := uow.jobs.failing(since=now, kind=kind):
                count, since = sum(each.count for each in failing), min(each.since for each in failing)
                uow.alerts.open(replace(_make_alert(key, text, now), since=since, count=count))

        await self._write(renew)

    async def _record_partial_failure(self, part: str, failure: LabAgentError) -> None:
        renew = isinstance(failure, ServiceUnavailable) and bool(failure.retry_after)
        async with self._probe_lock:
            active = sorted(self._active & {EXCHANGE_OUTAGE, PAUSE_OUTAGE, exchange_part_outage(part)})
            key = active[0] if active else exchange_part_outage(part) if await self._probe() else EXCHANGE_OUTAGE
            await self.begin(key, str(failure), renew=renew)
        if key == EXCHANGE_OUTAGE:
            await self._consider_hold()

    async def _consider_hold(self) -> None:
        if self.hold is not None:
            await self.hold.consider()

    def _mark_started(self, key: AlertKey) -> bool:
        if key in self._active:
            return False
        self._active.add(key)
        self._known_ended.discard(key)
        return True

    def _log_start(self, key: AlertKey, text: str, *, goes_on: bool) -> None:
        """Log an outage once. One that an earlier process, or another worker, has told goes on: a restart is no new one."""
        ended = self._ended_at.get(key)
        if ended is not None and self._clock.now() - ended < SAME_OUTAGE:
            log.debug("outage goes on", action="outage_resumed", outage=str(key), reason=text)
        elif goes_on:
            log.info("outage goes on", action="outage_resumed", outage=str(key), reason=text)
        else:
            log.error("outage started", action="outage_started", outage=str(key), reason=text)

    def _mark_ended(self, key: AlertKey) -> bool:
        if key not in self._active:
            return False
        self._active.discard(key)
        self._ended_at[key] = self._clock.now()
        self._unsaved_alerts.pop(key, None)
        if key == EXCHANGE_OUTAGE and self.hold is not None:
            self.hold.release()
        log.info("outage ended", action="outage_ended", outage=str(key))
        return True

    async def _write(self, change: Callable[[UnitOfWork], T]) -> T:
        def write(uow: UnitOfWork) -> T:
            return change(uow)

        return await self._store.transact(write)
