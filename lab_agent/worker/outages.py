"""Outages of remote systems: one log line and one alert at the start, one line at the end, however many jobs fail meanwhile.

A service that does not answer at all is one outage. Where it answers, and only one kind of job fails, that kind has an outage
of its own, which only a success of that kind ends: a successful poll proves nothing about uploads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from lab_agent.domain.records import Alert
from lab_agent.errors import AuthenticationRequired, LabAgentError, LisUnavailable, ServiceUnavailable, StoreUnreachableError
from lab_agent.ports.clock import Clock
from lab_agent.ports.repositories import Store, UnitOfWork

log = structlog.get_logger(__name__)

EXCHANGE_OUTAGE = "exchange.unavailable"
SIGN_IN_OUTAGE = "exchange.sign_in"
POLL_OUTAGE = "exchange.poll"
STORE_OUTAGE = "store.unavailable"
LIS_OUTAGE_PREFIX = "lis."


def exchange_part_outage(part: str) -> str:
    """Name of the outage of one kind of job at the exchange service."""
    return f"exchange.{part}.unavailable"


class OutageTracker:
    """Which remote systems are unavailable, as far as this process knows; the alerts are in the store for everybody to see.

    `probe` sends the exchange service one harmless request; whether it answered.
    """

    def __init__(self, store: Store, clock: Clock, probe: Callable[[], Awaitable[bool]]) -> None:
        self._store = store
        self._clock = clock
        self._probe = probe
        self._probe_lock = asyncio.Lock()
        self._active: set[str] = set()
        self._known_ended: set[str] = set()
        self._unsaved_alerts: dict[str, Alert] = {}

    @property
    def is_store_down(self) -> bool:
        """Whether our own database could not be written when it was last tried: nothing in it can say so."""
        return STORE_OUTAGE in self._active

    def is_known(self, failure: LabAgentError, part: str = "") -> bool:
        """Whether a failure (of the kind of job `part`) belongs to an outage that is reported already."""
        match failure:
            case StoreUnreachableError():
                return self.is_store_down
            case LisUnavailable():
                return any(key.startswith(LIS_OUTAGE_PREFIX) for key in self._active)
            case AuthenticationRequired():
                return SIGN_IN_OUTAGE in self._active
            case ServiceUnavailable():
                return not self._active.isdisjoint({EXCHANGE_OUTAGE, exchange_part_outage(part)})
        return False

    async def record_failure(self, failure: LabAgentError, part: str = "") -> None:
        """Begin an outage, if the failure means that a remote system is unavailable; `part` is the kind of job that failed."""
        match failure:
            case StoreUnreachableError():
                self._mark_started(STORE_OUTAGE, str(failure))  # it cannot be stored: only the log says so
            case AuthenticationRequired():
                await self.begin(SIGN_IN_OUTAGE, str(failure))
            case ServiceUnavailable() if not part:
                await self.begin(EXCHANGE_OUTAGE, str(failure))
            case ServiceUnavailable():
                await self._record_partial_failure(part, str(failure))

    async def begin(self, key: str, text: str) -> None:
        """Begin an outage and open its alert, once. An alert that could not be written is written at the next call."""
        if self._mark_started(key, text):
            self._unsaved_alerts[key] = Alert(key=key, text=text, opened_at=self._clock.now())
        if alert := self._unsaved_alerts.get(key):
            await self._write(lambda uow: uow.alerts.open(alert))
            self._unsaved_alerts.pop(key, None)

    async def end(self, *keys: str) -> bool:
        """End outages and close their alerts, once. Whether this process knew of any."""
        ended = [key for key in keys if self._mark_ended(key)]
        stale = [key for key in keys if key in ended or key not in self._known_ended]
        if stale:  # an alert that an earlier process left open is closed once
            await self._write(lambda uow: [uow.alerts.close(key, now=self._clock.now()) for key in stale])
            self._known_ended.update(stale)
        return bool(ended)

    def store_recovered(self) -> None:
        """End an outage of our own database: something was written."""
        self._mark_ended(STORE_OUTAGE)

    async def _record_partial_failure(self, part: str, text: str) -> None:
        async with self._probe_lock:
            if self._active.isdisjoint({EXCHANGE_OUTAGE, exchange_part_outage(part)}):
                await self.begin(exchange_part_outage(part) if await self._probe() else EXCHANGE_OUTAGE, text)

    def _mark_started(self, key: str, text: str) -> bool:
        if key in self._active:
            return False
        self._active.add(key)
        self._known_ended.discard(key)
        log.error("outage started", action="outage_started", outage=key, reason=text)
        return True

    def _mark_ended(self, key: str) -> bool:
        if key not in self._active:
            return False
        self._active.discard(key)
        self._unsaved_alerts.pop(key, None)
        log.info("outage ended", action="outage_ended", outage=key)
        return True

    async def _write(self, change: Callable[[UnitOfWork], object]) -> None:
        def write(uow: UnitOfWork) -> None:
            change(uow)
            uow.commit()

        await self._store.run(write)
        self.store_recovered()
