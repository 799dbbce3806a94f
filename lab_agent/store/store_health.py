"""What is wrong with our own database, as this process knows: the database cannot record it itself.

Units of work tell of their failures here. Where somebody watches (the worker), the outage lasts until a probe has succeeded, and
units of work fail at once meanwhile instead of waiting for their time-outs; elsewhere each one finds out for itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from lab_agent.shared.conditions.model import AlertKey, ConditionId, OpenCondition
from lab_agent.shared.conditions.table import CONDITIONS
from lab_agent.shared.errors import StoreFault, StoreUnreachableError


@dataclass(frozen=True, slots=True)
class StoreOutage:
    """A fault of the database from its first failure on. `reads_fail`: it cannot even be read."""

    fault: StoreFault
    detail: str
    since: datetime
    reads_fail: bool = False

    @property
    def key(self) -> AlertKey:
        """The alert that says so."""
        return AlertKey(fault_condition(self.fault))

    def to_condition(self) -> OpenCondition:
        """Give it as page, commands and `/readyz` tell it."""
        return OpenCondition(condition=CONDITIONS[self.key.condition], detail=self.detail, since=self.since)

    def to_error(self) -> StoreUnreachableError:
        """Make the error that a unit of work gets meanwhile."""
        return StoreUnreachableError(self.detail, self.fault)


def fault_condition(fault: StoreFault) -> ConditionId:
    """The condition that a fault is."""
    return ConditionId(f"store.{fault.value}")


class StoreHealth:
    """The outage of the database, if there is one. Used in the event loop alone, but for `lock_wait`."""

    def __init__(self) -> None:
        self.outage: StoreOutage | None = None
        self.is_watched = False
        """Whether somebody probes the database while it is out, and says when it works again (`recovered`)."""
        self.on_change: Callable[[], None] = lambda: None
        """Called when an outage has begun, has become another fault, or has ended."""
        self.lock_wait: Callable[[], float] = lambda: 0.0
        """Seconds that whoever writes has waited for a transaction to begin."""
        self.wait_fault = StoreFault.LOCKED
        """What a long wait is: on SQLite somebody else has the lock, PostgreSQL does not answer."""

    @property
    def conditions(self) -> tuple[OpenCondition, ...]:
        """What holds now."""
        return () if self.outage is None else (self.outage.to_condition(),)

    def failed(self, error: StoreUnreachableError, now: datetime, *, reading: bool = False) -> None:
        """A unit of work failed. The first error of a fault is its detail, however many follow.

        An outage that becomes another fault has begun with its first one, and stays unreadable until it could be read.
        """
        if error.fault is None:
            return
        before = self.outage
        if before is None:
            self.outage = StoreOutage(error.fault, str(error), now, reading)
            self.on_change()
        elif before.fault is not error.fault:
            self.outage = StoreOutage(error.fault, str(error), before.since, reading or before.reads_fail)
            self.on_change()
        elif reading and not before.reads_fail:
            self.outage = replace(before, reads_fail=True)

    def can_be_read(self) -> None:
        """It could be read, whatever else is wrong with it."""
        if self.outage is not None:
            self.outage = replace(self.outage, reads_fail=False)

    def recovered(self) -> None:
        """The database was found in order."""
        if self.outage is not None:
            self.outage = None
            self.on_change()

    def check(self, *, reading: bool) -> None:
        """Raise the error of an outage that is watched: whoever waits for the database would only find the same."""
        if self.outage is not None and self.is_watched and (self.outage.reads_fail or not reading):
            raise self.outage.to_error()


def to_open_condition(error: StoreUnreachableError, health: StoreHealth, now: datetime) -> OpenCondition:
    """Give the condition that an error of the store is: with its beginning, where the outage is known."""
    known = health.outage
    if known is not None and known.fault is error.fault:
        return known.to_condition()
    return StoreOutage(error.fault or StoreFault.UNREACHABLE, str(error), now).to_condition()


def name_host(condition: OpenCondition, host: str) -> OpenCondition:
    """Add which host has found it, where workers on several ones share the database, and each tells for itself."""
    return replace(condition, detail=f"on {host}: {condition.detail}") if host else condition


def explain_error(error: StoreUnreachableError) -> str:
    """What is wrong and what to do, on a line of its own each, for whoever has given a command."""
    told = CONDITIONS[fault_condition(error.fault or StoreFault.UNREACHABLE)]
    command = f" (`{told.command}`)" if told.command else ""
    return f"{told.title}. {error}\n{told.mend}{command}"
