"""Outages of a neighbour: one line and one alert at the start, one line at the end, however many effects wait behind it."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from lab_agent.domain.journal import Alert
from lab_agent.errors import LabAgentError, LisUnavailable, ServiceUnavailable, SignInNeeded, StoreUnreachableError
from lab_agent.ports.clock import Clock
from lab_agent.ports.store import Store, UnitOfWork

log = structlog.get_logger(__name__)

EXCHANGE = "exchange.away"
SIGN_IN = "exchange.sign_in"
STORE = "store.away"
LIS = "lis."


class Outages:
    """Which neighbours are away, as far as this process knows; the alerts are kept in the store for everybody to see."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._away: set[str] = set()
        self._fine: set[str] = set()

    def explains(self, failure: LabAgentError) -> bool:
        """Whether a failure belongs to an outage that was told already."""
        if isinstance(failure, LisUnavailable):
            return any(key.startswith(LIS) for key in self._away)
        return _key(failure) in self._away

    async def notice(self, failure: LabAgentError) -> None:
        """Begin an outage, if the failure is that of a neighbour who is away."""
        if isinstance(failure, StoreUnreachableError):
            self._begins(STORE, str(failure))  # cannot be kept in the store: the log alone tells
        elif key := _key(failure):
            await self.begin(key, str(failure))

    async def begin(self, key: str, text: str) -> None:
        """Begin an outage and open its alert; told once."""
        if not self._begins(key, text):
            return
        alert = Alert(key=key, text=text, opened_at=self._clock.now())
        await self._write(lambda uow: uow.book.open_alert(alert))

    async def end(self, *keys: str) -> bool:
        """End outages and close their alerts; told once. Whether this process knew of any."""
        ended = [key for key in keys if self._ends(key)]
        stale = [key for key in keys if key in ended or key not in self._fine]
        if stale:  # an alert that an earlier process left open is closed once
            await self._write(lambda uow: [uow.book.close_alert(key, now=self._clock.now()) for key in stale])
            self._fine.update(stale)
        return bool(ended)

    def store_back(self) -> None:
        """End an outage of our own store."""
        self._ends(STORE)

    def _begins(self, key: str, text: str) -> bool:
        if key in self._away:
            return False
        self._away.add(key)
        self._fine.discard(key)
        log.error("outage begins", action="outage_begins", outage=key, reason=text)
        return True

    def _ends(self, key: str) -> bool:
        if key not in self._away:
            return False
        self._away.discard(key)
        log.info("outage ends", action="outage_ends", outage=key)
        return True

    async def _write(self, change: Callable[[UnitOfWork], object]) -> None:
        def write(uow: UnitOfWork) -> None:
            change(uow)
            uow.commit()

        await self._store.run(write)


def _key(failure: LabAgentError) -> str | None:
    match failure:
        case SignInNeeded():
            return SIGN_IN
        case ServiceUnavailable():
            return EXCHANGE
        case _:
            return None
