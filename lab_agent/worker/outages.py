"""Outages of a neighbour: one line and one alert at the start, one line at the end, however many effects wait behind it.

A service that does not answer at all is one outage. Where it answers, and only one kind of work fails, that kind has an outage
of its own, which only a success of that kind ends: a good poll says nothing about an upload.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from lab_agent.domain.journal import Alert
from lab_agent.errors import LabAgentError, LisUnavailable, ServiceUnavailable, SignInNeeded, StoreUnreachableError
from lab_agent.ports.clock import Clock
from lab_agent.ports.store import Store, UnitOfWork

log = structlog.get_logger(__name__)

EXCHANGE = "exchange.away"
SIGN_IN = "exchange.sign_in"
POLL = "exchange.poll"
STORE = "store.away"
LIS = "lis."


def part_of_exchange(part: str) -> str:
    """Name of the outage of one kind of work at the service."""
    return f"exchange.{part}.away"


class Outages:
    """Which neighbours are away, as far as this process knows; the alerts are kept in the store for everybody to see.

    `answers` asks the service one harmless question.
    """

    def __init__(self, store: Store, clock: Clock, answers: Callable[[], Awaitable[bool]]) -> None:
        self._store = store
        self._clock = clock
        self._answers = answers
        self._asking = asyncio.Lock()
        self._away: set[str] = set()
        self._fine: set[str] = set()
        self._unwritten: dict[str, Alert] = {}

    @property
    def store_is_away(self) -> bool:
        """Whether our own store could not be written when it was tried last: nothing in the store can tell of that."""
        return STORE in self._away

    def explains(self, failure: LabAgentError, part: str = "") -> bool:
        """Whether a failure (of that kind of work) belongs to an outage that was told already."""
        match failure:
            case StoreUnreachableError():
                return self.store_is_away
            case LisUnavailable():
                return any(key.startswith(LIS) for key in self._away)
            case SignInNeeded():
                return SIGN_IN in self._away
            case ServiceUnavailable():
                return not self._away.isdisjoint({EXCHANGE, part_of_exchange(part)})
        return False

    async def notice(self, failure: LabAgentError, part: str = "") -> None:
        """Begin an outage, if the failure is that of a neighbour who is away; `part` is the kind of work that failed."""
        match failure:
            case StoreUnreachableError():
                self._begins(STORE, str(failure))  # cannot be kept in the store: the log alone tells
            case SignInNeeded():
                await self.begin(SIGN_IN, str(failure))
            case ServiceUnavailable() if not part:
                await self.begin(EXCHANGE, str(failure))
            case ServiceUnavailable():
                await self._notice_part(part, str(failure))

    async def begin(self, key: str, text: str) -> None:
        """Begin an outage and open its alert; told once. An alert that could not be written is written at the next call."""
        if self._begins(key, text):
            self._unwritten[key] = Alert(key=key, text=text, opened_at=self._clock.now())
        if alert := self._unwritten.get(key):
            await self._write(lambda uow: uow.book.open_alert(alert))
            self._unwritten.pop(key, None)

    async def end(self, *keys: str) -> bool:
        """End outages and close their alerts; told once. Whether this process knew of any."""
        ended = [key for key in keys if self._ends(key)]
        stale = [key for key in keys if key in ended or key not in self._fine]
        if stale:  # an alert that an earlier process left open is closed once
            await self._write(lambda uow: [uow.book.close_alert(key, now=self._clock.now()) for key in stale])
            self._fine.update(stale)
        return bool(ended)

    def store_back(self) -> None:
        """End an outage of our own store: something was written."""
        self._ends(STORE)

    async def _notice_part(self, part: str, text: str) -> None:
        async with self._asking:
            if self._away.isdisjoint({EXCHANGE, part_of_exchange(part)}):
                await self.begin(part_of_exchange(part) if await self._answers() else EXCHANGE, text)

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
        self._unwritten.pop(key, None)
        log.info("outage ends", action="outage_ends", outage=key)
        return True

    async def _write(self, change: Callable[[UnitOfWork], object]) -> None:
        def write(uow: UnitOfWork) -> None:
            change(uow)
            uow.commit()

        await self._store.run(write)
        self.store_back()
