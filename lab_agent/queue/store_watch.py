"""Watches our own database: one log line when it is out, one when it works again, and then the alert that says that it was.

While it is out, the worker claims nothing and polls nothing: nothing could be kept. Only the watch tries it, ever less often.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import structlog

from lab_agent.shared.clock import Clock
from lab_agent.shared.errors import StoreFault, StoreUnreachableError
from lab_agent.store.event_records import Alert
from lab_agent.store.store_health import StoreOutage
from lab_agent.store.unit_of_work import Store, UnitOfWork

log = structlog.get_logger(__name__)

SAME_OUTAGE = timedelta(minutes=5)
"""An outage that begins again so soon after its end is the same one: no new alert, and no new line that wakes people."""
_PATIENCE = {StoreFault.LOCKED: 3.0, StoreFault.UNREACHABLE: 4.0}
"""Seconds that a transaction may take to begin before that counts as an outage, by the fault that it is."""
_INTERVAL, _VERIFY_INTERVAL, _DAMAGE_INTERVAL = 1.0, 10.0, 60.0
"""Seconds between two looks; between two that read whether it is still the same database; between two that read a damaged one
whole."""
_LONGEST_PAUSE = 5.0
_WAITS = {
    StoreFault.LOCKED: "The database is unavailable: it is locked by another program; what is to be written waits.",
    StoreFault.UNREACHABLE: "The database is unavailable: it has not answered for 4 seconds; what is to be written waits.",
}


@dataclass(slots=True)
class StoreWatch:
    """Watches `store`. `on_recovery` is called when it works again."""

    store: Store
    clock: Clock
    on_recovery: Callable[[], Awaitable[None]]
    interval: float = _INTERVAL
    _outages: dict[StoreFault, StoreOutage] = field(default_factory=dict, init=False)
    """What this outage has been, with the beginning of each fault."""
    _ended: dict[StoreFault, tuple[datetime, datetime]] = field(default_factory=dict, init=False)
    """Beginning and end of the newest outage of each fault."""

    def __post_init__(self) -> None:
        self.store.health.on_change = self._note_change

    async def run(self) -> None:
        """Look after the database until cancelled."""
        self.store.health.is_watched = True
        try:
            while True:
                await self._watch()
        finally:
            self.store.health.is_watched = False

    async def look(self) -> None:
        """Try a database that is out; it is in order again if it can be read and written."""
        if self.store.health.outage is None:
            return
        try:
            await self.store.probe()
        except StoreUnreachableError as exc:
            self.store.health.failed(exc, self.clock.now())
        else:
            await self._recover()

    async def _watch(self) -> None:
        """Watch a database that works until it is out, then one that is out until it works."""
        verified_at = self.clock.now()
        while self.store.health.outage is None:
            await asyncio.sleep(self.interval)
            self._note_lock_wait()
            if abs(self.clock.now() - verified_at) >= timedelta(seconds=_VERIFY_INTERVAL):  # also after it was set back
                verified_at = self.clock.now()
                await self._verify()
        pause = self.interval
        while (outage := self.store.health.outage) is not None:
            await asyncio.sleep(_DAMAGE_INTERVAL if outage.fault is StoreFault.DAMAGED else pause)
            pause = min(pause * 1.5, _LONGEST_PAUSE)
            await self.look()

    def _note_lock_wait(self) -> None:
        wait, fault = self.store.health.lock_wait(), self.store.health.wait_fault
        if wait >= _PATIENCE[fault]:
            since = self.clock.now() - timedelta(seconds=wait)
            # A server that does not answer answers no reader either; a lock lets readers pass.
            self.store.health.failed(StoreUnreachableError(_WAITS[fault], fault), since, reading=fault is StoreFault.UNREACHABLE)

    async def _verify(self) -> None:
        try:
            await self.store.verify()
        except StoreUnreachableError as exc:
            self.store.health.failed(exc, self.clock.now(), reading=True)

    def _note_change(self) -> None:
        """Log the beginning of an outage, and of each other fault that it becomes, once."""
        outage = self.store.health.outage
        if outage is None or outage.fault in self._outages:
            return
        since, until = self._ended.get(outage.fault, (outage.since, None))
        goes_on = until is not None and outage.since - until < SAME_OUTAGE
        self._outages[outage.fault] = StoreOutage(outage.fault, outage.detail, since if goes_on else outage.since)
        write = log.debug if goes_on else log.error
        action = "outage_resumed" if goes_on else "outage_started"
        write("the database is out", action=action, outage=str(outage.key), reason=outage.detail)

    async def _recover(self) -> None:
        ended, now = tuple(self._outages.values()), self.clock.now()
        self._outages.clear()
        self.store.health.recovered()
        for each in ended:
            self._ended[each.fault] = each.since, now
            log.info("the database works again", action="outage_ended", outage=str(each.key))
        try:
            await self.store.transact(lambda uow: record_outages(uow, ended, now))
        except StoreUnreachableError:  # it is out again: told by its own line
            self._outages |= {each.fault: each for each in ended if each.fault not in self._outages}
        else:
            await self.on_recovery()


def record_outages(uow: UnitOfWork, outages: Iterable[StoreOutage], until: datetime) -> None:
    """Write outages that have ended as closed alerts."""
    for each in outages:
        uow.alerts.reopen(each.key, closed_after=each.since - SAME_OUTAGE)
        uow.alerts.open(
            Alert(condition=each.key.condition, detail=each.detail, since=each.since, opened_at=each.since),
        )
        uow.alerts.close(each.key, now=until)
