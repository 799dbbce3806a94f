"""Tells what holds, through all channels: what was told is stored before anything else is told, and one worker tells at a time.

A message is sent, then recorded: if the process dies in between, it is sent once more under the same id. What is about the store
cannot be stored, and is told from memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import structlog

from lab_agent.conditions.ids import ConditionId
from lab_agent.conditions.model import AlertKey, OpenCondition
from lab_agent.domain.notifications import ChannelRecord, Notification
from lab_agent.domain.records import Alert
from lab_agent.errors import LabAgentError, StoreUnreachableError
from lab_agent.monitoring.report import to_open_condition
from lab_agent.notification.channel import Channel, NotificationNotSent
from lab_agent.notification.message import Change, Item, Message
from lab_agent.notification.planning import (
    ALERT_AFTER_FAILURES,
    Plan,
    Policy,
    Situation,
    after_failure,
    after_success,
    make_message,
    make_plan,
)
from lab_agent.ports.clock import Clock
from lab_agent.ports.queries import AffectedNumbers
from lab_agent.ports.repositories import Store, UnitOfWork

log = structlog.get_logger(__name__)

INTERVAL = 10.0
"""Seconds between two looks."""
_LEASE_MARGIN = timedelta(seconds=60)
_DRAIN_SECONDS = 5.0
"""Seconds that a message which is being sent gets to arrive when the program stops."""
Book = Mapping[str, Mapping[AlertKey, Notification]]


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message on its way through a channel, with what the channel knew when it was made."""

    channel: Channel
    record: ChannelRecord
    known: Mapping[AlertKey, Notification]
    message: Message


@dataclass(frozen=True, slots=True)
class Outcome:
    """How it went: sent, unless `failure`; `problem` is what went wrong although it was sent."""

    outgoing: Outgoing
    failure: NotificationNotSent | None = None
    problem: str = ""


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
    on_store_failure: Callable[[LabAgentError], Awaitable[None]]
    interval: float = INTERVAL
    _told_from_memory: dict[str, dict[AlertKey, Notification]] = field(default_factory=dict, init=False)
    _memory_records: dict[str, ChannelRecord] = field(default_factory=dict, init=False)
    _unrecorded: list[Outcome] = field(default_factory=list, init=False)

    async def run(self) -> None:
        """Tell until cancelled. What goes wrong is reported, and the next look comes all the same."""
        while True:
            work = asyncio.create_task(self._look_guarded(), name="notifications: look")
            try:
                await asyncio.shield(work)
            except asyncio.CancelledError:
                await asyncio.wait({work}, timeout=_DRAIN_SECONDS)
                raise
            await asyncio.sleep(self.interval)

    async def look(self) -> None:
        """Look once, and tell what is due. Raises `StoreError`; what is about the store was told before."""
        if not self.channels:
            return
        await self._tell_from_memory()
        await self._record(self._unrecorded)
        situation, book, records = await self.store.run_read_only(lambda uow: _read(uow, None))
        if all(plan.is_empty for plan in self._plan(situation, book, records).values()):
            return
        numbers = await self.numbers()
        outgoing = await self.store.run(lambda uow: self._claim(uow, numbers))
        if outgoing:
            await self._record(await self._send(outgoing))

    async def _look_guarded(self) -> None:
        try:
            await self.look()
        except StoreUnreachableError as exc:
            await self.on_store_failure(exc)
        except LabAgentError as exc:
            log.warning("notifications failed", action="notifications_failed", reason=str(exc))
        except Exception:  # boundary: a bug in a channel does not end the daemon; it is logged whole
            log.exception("notifications failed", action="notifications_failed")

    # --- what is in the store

    def _plan(self, situation: Situation, book: Book, records: Mapping[str, ChannelRecord]) -> dict[str, Plan]:
        now = self.clock.now()
        return {
            each.name: make_plan(
                records.get(each.name, ChannelRecord(name=each.name)),
                book.get(each.name, {}),
                situation,
                self.policies[each.name],
                now,
            )
            for each in self.channels
        }

    def _claim(self, uow: UnitOfWork, numbers: AffectedNumbers | None) -> list[Outgoing]:
        """Take the right to send, look again under it, and write what was noticed. Empty if another worker has it."""
        lease = timedelta(seconds=max(each.timeout for each in self.channels)) + _LEASE_MARGIN
        if not uow.notifications.acquire_lease(self.owner, now=self.clock.now(), lease=lease):
            return []
        situation, book, records = _read(uow, numbers)
        plans = self._plan(situation, book, records)
        for plan in plans.values():
            uow.notifications.save(plan.changed)
            uow.notifications.delete(plan.dropped)
        _forget_removed_channels(uow, book, situation, frozenset(plans))
        outgoing = self._to_outgoing(plans, book, records, numbers)
        if not outgoing:
            uow.notifications.release_lease(self.owner)
        uow.commit()
        return outgoing

    def _to_outgoing(
        self, plans: Mapping[str, Plan], book: Book, records: Mapping[str, ChannelRecord], numbers: AffectedNumbers | None
    ) -> list[Outgoing]:
        found = []
        for channel in self.channels:
            plan = plans[channel.name]
            if plan.items:
                known = {**book.get(channel.name, {}), **{each.key: each for each in plan.changed}}
                items = [_with_numbers(each, numbers) for each in plan.items]
                record = records.get(channel.name, ChannelRecord(name=channel.name))
                message = make_message(record, items, known, laboratory=self.laboratory, link=self.link, now=self.clock.now())
                found.append(Outgoing(channel, record, known, message))
        return found

    async def _record(self, outcomes: list[Outcome]) -> None:
        """Write how it went. What cannot be written is kept, and written before anything else is sent."""
        if not outcomes:
            return
        self._unrecorded = outcomes
        await self.store.run(lambda uow: self._write(uow, outcomes))
        self._unrecorded = []

    def _write(self, uow: UnitOfWork, outcomes: Sequence[Outcome]) -> None:
        now = self.clock.now()
        for each in outcomes:
            record, saved, ended = _settle(each, now)
            uow.notifications.save_channel(record)
            uow.notifications.save(saved)
            uow.notifications.delete(ended)
            _update_alert(uow, record, now)
        uow.notifications.release_lease(self.owner)
        uow.commit()

    # --- what cannot be in the store

    async def _tell_from_memory(self) -> None:
        """Tell what was observed and cannot be recorded: at its start and at its end, once for this process."""
        observed = tuple(self.observed())
        if not observed and not any(self._told_from_memory.values()):
            return
        plans = self._plan(Situation.of((), None, observed), self._told_from_memory, self._memory_records)
        for name, plan in plans.items():
            known = self._told_from_memory.setdefault(name, {})
            known |= {each.key: each for each in plan.changed}
            for each in plan.dropped:
                known.pop(each.key, None)
        outgoing = self._to_outgoing(plans, self._told_from_memory, self._memory_records, None)
        for outcome in await self._send(outgoing):
            self._remember(outcome)

    def _remember(self, outcome: Outcome) -> None:
        record, saved, ended = _settle(outcome, self.clock.now())
        self._memory_records[record.name] = record
        known = self._told_from_memory[record.name]
        known |= {each.key: each for each in saved}
        for each in ended:
            known.pop(each.key, None)

    # --- sending

    async def _send(self, outgoing: Sequence[Outgoing]) -> list[Outcome]:
        return list(await asyncio.gather(*(_send_one(each) for each in outgoing)))


async def _send_one(outgoing: Outgoing) -> Outcome:
    name, items = outgoing.channel.name, len(outgoing.message.items)
    try:
        problem = await outgoing.channel.send(outgoing.message)
    except NotificationNotSent as exc:
        attempt = outgoing.record.failures + 1
        log.warning("notification not sent", action="notification_failed", endpoint=name, attempt=attempt, reason=str(exc))
        return Outcome(outgoing, failure=exc)
    except Exception as exc:  # boundary: what one channel stumbles over counts as its failure, and the others are not told again
        log.exception("notification not sent", action="notification_failed", endpoint=name)
        return Outcome(outgoing, failure=NotificationNotSent(f"internal error {type(exc).__name__}; see the log"))
    log.info("notification sent", action="notification_sent", endpoint=name, count=items, reason=problem or None)
    return Outcome(outgoing, problem=problem)


def _settle(outcome: Outcome, now: datetime) -> tuple[ChannelRecord, tuple[Notification, ...], tuple[Notification, ...]]:
    sent = outcome.outgoing
    if outcome.failure is not None:
        return after_failure(sent.record, str(outcome.failure), outcome.failure.retry_after, now), (), ()
    return after_success(sent.record, sent.message, sent.known, outcome.problem, now)


def _update_alert(uow: UnitOfWork, record: ChannelRecord, now: datetime) -> None:
    """Open the alert that a channel does not work, which the other ones tell; or close it."""
    key = AlertKey(ConditionId.NOTIFICATION_FAILED, record.name)
    if record.failures >= ALERT_AFTER_FAILURES:
        alert = Alert(condition=key.condition, subject=key.subject, detail=record.reason, since=now, opened_at=now)
        if uow.alerts.open(alert):
            log.warning("condition found", action="condition_found", alert=str(key), reason=record.reason)
    elif not record.failures and uow.alerts.close(key, now=now):
        log.info("condition ended", action="condition_ended", alert=str(key))


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


def _with_numbers(item: Item, numbers: AffectedNumbers | None) -> Item:
    """What has ended, with what still waits of it now."""
    if item.change is not Change.ENDED:
        return item
    of = item.condition
    alert = Alert(condition=of.condition.id, subject=of.subject, since=of.since, opened_at=of.since)
    return replace(item, condition=to_open_condition(alert, numbers))
