"""How what is to be told goes out through all channels, whether what was told is kept in the store or in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import structlog

from lab_agent.operations.notification.channel import Channel, NotificationNotSent
from lab_agent.operations.notification.message import Change, Item, Message
from lab_agent.operations.notification.planning import (
    Plan,
    Policy,
    Situation,
    after_failure,
    after_success,
    make_message,
    make_plan,
)
from lab_agent.operations.report import to_open_condition
from lab_agent.shared.clock import Clock
from lab_agent.shared.conditions.model import AlertKey
from lab_agent.store.event_records import Alert
from lab_agent.store.notification_records import ChannelRecord, Notification
from lab_agent.store.read_models import AffectedNumbers

log = structlog.get_logger(__name__)

_DRAIN_SECONDS = 5.0
"""Seconds that a message which is being sent gets to arrive when the program stops."""
Book = Mapping[str, Mapping[AlertKey, Notification]]
"""What each channel has told, by its name."""


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

    def settle(self, now: datetime) -> tuple[ChannelRecord, tuple[Notification, ...], tuple[Notification, ...]]:
        """Give what to keep: the channel, what was told, and what is told for good."""
        sent = self.outgoing
        if self.failure is not None:
            return after_failure(sent.record, str(self.failure), self.failure.retry_after, now), (), ()
        return after_success(sent.record, sent.message, sent.known, self.problem, now)


@dataclass(frozen=True, slots=True, kw_only=True)
class Teller:
    """The channels, and how they tell. `policies` are by the names of the channels."""

    channels: Sequence[Channel]
    policies: Mapping[str, Policy]
    laboratory: str
    link: str | None
    clock: Clock

    def plan(self, situation: Situation, book: Book, records: Mapping[str, ChannelRecord]) -> dict[str, Plan]:
        """Compare what holds with what each channel has told."""
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

    def to_outgoing(
        self, plans: Mapping[str, Plan], book: Book, records: Mapping[str, ChannelRecord], numbers: AffectedNumbers | None
    ) -> list[Outgoing]:
        """Make the messages of the plans that tell something."""
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


async def repeat_whole(look: Callable[[], Coroutine[Any, Any, None]], interval: float) -> None:
    """Look every `interval` seconds until cancelled. What is being sent then may arrive, so its end is waited for a while."""
    while True:
        work = asyncio.create_task(look(), name="notifications")
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            await asyncio.wait({work}, timeout=_DRAIN_SECONDS)
            raise
        await asyncio.sleep(interval)


async def send_all(outgoing: Sequence[Outgoing]) -> list[Outcome]:
    """Send through all channels at once; how it went with each."""
    return list(await asyncio.gather(*(_send_one(each) for each in outgoing)))


async def _send_one(outgoing: Outgoing) -> Outcome:
    name, items = outgoing.channel.name, len(outgoing.message.items)
    try:
        problem = await outgoing.channel.send(outgoing.message)
    except NotificationNotSent as exc:
        attempt = outgoing.record.failures + 1
        log.warning("notification not sent", action="notification_failed", endpoint=name, attempt=attempt, reason=str(exc))
        return Outcome(outgoing, failure=exc)
    except Exception:  # boundary: what one channel stumbles over counts as its failure, and the others are not told again
        log.exception("notification not sent", action="notification_failed", endpoint=name)
        return Outcome(outgoing, failure=NotificationNotSent("a fault of this program; the log has the details"))
    log.info("notification sent", action="notification_sent", endpoint=name, count=items, reason=problem or None)
    return Outcome(outgoing, problem=problem)


def _with_numbers(item: Item, numbers: AffectedNumbers | None) -> Item:
    """What has ended, with what still waits of it now."""
    if item.change is not Change.ENDED:
        return item
    of = item.condition
    alert = Alert(condition=of.condition.id, subject=of.subject, since=of.since, opened_at=of.since)
    return replace(item, condition=to_open_condition(alert, numbers))
