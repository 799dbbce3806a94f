"""Tells what holds, through all channels: what was told is stored before anything else is told, and one worker tells at a time.

A message is sent, then recorded: if the process dies in between, it is sent once more under the same id. What is about the store
cannot be stored, and is told from memory.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import structlog

from lab_agent.operations.notification.channel import Channel
from lab_agent.operations.notification.memory import MemoryBook, MemoryNotifier
from lab_agent.operations.notification.planning import ALERT_AFTER_FAILURES, Policy, Situation
from lab_agent.operations.notification.sending import Book, Outcome, Outgoing, Teller, repeat_whole, send_all
from lab_agent.shared.clock import Clock
from lab_agent.shared.conditions.model import AlertKey, ConditionId, OpenCondition
from lab_agent.shared.errors import LabAgentError, StoreUnreachableError
from lab_agent.store.alert_log import close_alert, open_alert
from lab_agent.store.event_records import Alert
from lab_agent.store.notification_records import ChannelRecord, Notification
from lab_agent.store.read_models import AffectedNumbers
from lab_agent.store.unit_of_work import Store, UnitOfWork

log = structlog.get_logger(__name__)

INTERVAL = 10.0
"""Seconds between two looks."""
_LEASE = "notifications"
_LEASE_MARGIN = timedelta(seconds=60)


@dataclass(slots=True)
class Notifier:
    """Looks at intervals, and tells. `policies` are by the names of the channels; `numbers` counts what is affected."""

    store: Store
    clock: Clock
    owner: str
    channels: Sequence[Channel]
    policies: Mapping[str, Policy]
    laboratory: str
    link: str | None
    observed: Callable[[], Sequence[OpenCondition]]
    numbers: Callable[[], Awaitable[AffectedNumbers | None]]
    on_look: Callable[[Exception | None], Awaitable[None]]
    """Called after each look, with what it failed for, if it did."""
    interval: float = INTERVAL
    book: MemoryBook = field(default_factory=MemoryBook)
    """What was told of the store so far, also before it could be opened."""
    _teller: Teller = field(init=False)
    _memory: MemoryNotifier = field(init=False)
    _unrecorded: list[Outcome] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self._teller = Teller(
            channels=self.channels, policies=self.policies, laboratory=self.laboratory, link=self.link, clock=self.clock
        )
        self._memory = MemoryNotifier(self._teller, self.observed, self.book)

    async def run(self) -> None:
        """Tell until cancelled. What goes wrong is reported, and the next look comes all the same."""
        await repeat_whole(self._look_guarded, self.interval)

    async def look(self) -> None:
        """Look once, and tell what is due. Raises `StoreError`; what is about the store was told before."""
        if not self.channels:
            return
        await self._memory.look()
        await self._record(self._unrecorded)
        situation, book, records = await self.store.run_read_only(lambda uow: _read(uow, None))
        if all(plan.is_empty for plan in self._teller.plan(situation, book, records).values()):
            return
        numbers = await self.numbers()
        outgoing = await self.store.transact(lambda uow: self._claim(uow, numbers))
        if outgoing:
            await self._record(await send_all(outgoing))

    async def _look_guarded(self) -> None:
        failure: Exception | None = None
        try:
            await self.look()
        except StoreUnreachableError as exc:
            failure = exc
        except LabAgentError as exc:
            failure = exc
            log.warning("notifications failed", action="notifications_failed", reason=str(exc))
        except Exception as exc:  # boundary: a bug in a channel does not end the daemon; it is logged whole
            failure = exc
            log.exception("notifications failed", action="notifications_failed")
        await self.on_look(failure)

    # --- what is in the store

    def _claim(self, uow: UnitOfWork, numbers: AffectedNumbers | None) -> list[Outgoing]:
        """Take the right to send, look again under it, and write what was noticed. Empty if another worker has it."""
        lease = timedelta(seconds=max(each.timeout for each in self.channels)) + _LEASE_MARGIN
        if not uow.leases.acquire(_LEASE, self.owner, now=self.clock.now(), lease=lease):
            return []
        situation, book, records = _read(uow, numbers)
        plans = self._teller.plan(situation, book, records)
        for plan in plans.values():
            uow.notifications.save(plan.changed)
            uow.notifications.delete(plan.dropped)
        _forget_removed_channels(uow, book, situation, frozenset(plans))
        outgoing = self._teller.to_outgoing(plans, book, records, numbers)
        if not outgoing:
            uow.leases.release(_LEASE, self.owner)
        return outgoing

    async def _record(self, outcomes: list[Outcome]) -> None:
        """Write how it went. What cannot be written is kept, and written before anything else is sent."""
        if not outcomes:
            return
        self._unrecorded = outcomes
        await self.store.transact(lambda uow: self._write(uow, outcomes))
        self._unrecorded = []

    def _write(self, uow: UnitOfWork, outcomes: Sequence[Outcome]) -> None:
        now = self.clock.now()
        for each in outcomes:
            record, saved, ended = each.settle(now)
            uow.notifications.save_channel(record)
            uow.notifications.save(saved)
            uow.notifications.delete(ended)
            _update_alert(uow, record, now)
        uow.leases.release(_LEASE, self.owner)


def _update_alert(uow: UnitOfWork, record: ChannelRecord, now: datetime) -> None:
    """Open the alert that a channel does not work, which the other ones tell; or close it."""
    key = AlertKey(ConditionId.NOTIFICATION_FAILED, record.name)
    if record.failures >= ALERT_AFTER_FAILURES:
        open_alert(uow, Alert(condition=key.condition, subject=key.subject, detail=record.reason, since=now, opened_at=now))
    elif not record.failures:
        close_alert(uow, key, now)


def _read(uow: UnitOfWork, numbers: AffectedNumbers | None) -> tuple[Situation, Book, Mapping[str, ChannelRecord]]:
    book: dict[str, dict[AlertKey, Notification]] = {}
    for each in uow.notifications.all():
        book.setdefault(each.channel, {})[each.key] = each
    records = {each.name: each for each in uow.notifications.channels()}
    return Situation.of(uow.alerts.all_open(), numbers), book, records


def _forget_removed_channels(uow: UnitOfWork, book: Book, situation: Situation, configured: frozenset[str]) -> None:
    """Delete what channels that are set no more have told of what is over."""
    for name in book.keys() - configured:
        uow.notifications.delete([each for key, each in book[name].items() if key not in situation.raw])
