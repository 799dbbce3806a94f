"""What a channel tells, and when. Pure: `now` is an argument.

What holds is compared with what the channel has told (`Notification`), so that what comes and goes, a restart, or hours in which
nothing could be sent lead to one message about the difference.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from lab_agent.operations.notification.message import Change, Item, Message, sort_items
from lab_agent.operations.report import list_conditions, to_open_condition
from lab_agent.shared.conditions.model import AlertKey, ConditionId, OpenCondition, Severity
from lab_agent.shared.conditions.table import CONDITIONS
from lab_agent.store.event_records import Alert
from lab_agent.store.notification_records import ChannelRecord, Notification
from lab_agent.store.read_models import AffectedNumbers

RATE_PERIOD = timedelta(hours=1)
ALERT_AFTER_FAILURES = 3
_FIRST_RETRY, _LONGEST_RETRY = 30.0, 900.0
"""Seconds between attempts of a channel that fails; the wait doubles."""
_RANKS = {severity: rank for rank, severity in enumerate(Severity)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """When a channel tells what, as `[notify]` says; `severity` is the least that is told."""

    severity: Severity
    first_after: timedelta
    ended_after: timedelta
    remind_every: timedelta
    at_most: int


@dataclass(frozen=True, slots=True)
class Situation:
    """What holds: `raw` by key, and in `told` those that no other one covers, in the order of their importance."""

    raw: Mapping[AlertKey, OpenCondition]
    told: tuple[OpenCondition, ...]
    opened_at: Mapping[AlertKey, datetime] = field(default_factory=dict)

    @classmethod
    def of(cls, alerts: Iterable[Alert], numbers: AffectedNumbers | None, observed: Iterable[OpenCondition] = ()) -> Situation:
        """Of open alerts, and of what was observed and is in no store."""
        alerts, observed = tuple(alerts), tuple(observed)
        raw = {each.key: to_open_condition(each, numbers) for each in alerts} | {each.key: each for each in observed}
        return cls(raw, list_conditions(alerts, numbers, observed), {each.key: each.opened_at for each in alerts})


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be written now, and told now; `items` is empty where nothing is told."""

    changed: tuple[Notification, ...] = ()
    dropped: tuple[Notification, ...] = ()
    items: tuple[Item, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write or to tell."""
        return not (self.changed or self.dropped or self.items)


def make_plan(
    channel: ChannelRecord, known: Mapping[AlertKey, Notification], situation: Situation, policy: Policy, now: datetime
) -> Plan:
    """Compare what holds with what the channel has told. `known` are the channel's own notifications."""
    tellable = {each.key: each for each in situation.told if _is_told(each, channel.name, policy)}
    book = dict(known)
    for key, condition in tellable.items():
        if key not in book:
            book[key] = _notice(channel.name, condition, situation.opened_at.get(key, now), now)
    for key, each in book.items():
        if (key in situation.raw) == (each.ended_at is not None):
            book[key] = replace(each, ended_at=None if key in situation.raw else now)
    changed = tuple(each for key, each in book.items() if known.get(key) != each)
    dropped = tuple(each for each in book.values() if _is_over_untold(each, policy, now))
    gone = {each.key for each in dropped}
    rest = {key: each for key, each in book.items() if key not in gone}
    may_try = channel.retry_at is None or channel.retry_at <= now
    items = _choose_items(channel, rest, tellable, policy, now) if may_try else ()
    return Plan(
        tuple(each for each in changed if each.key not in gone), tuple(each for each in dropped if each.key in known), items
    )


def make_message(
    channel: ChannelRecord,
    items: Iterable[Item],
    known: Mapping[AlertKey, Notification],
    *,
    laboratory: str,
    link: str | None,
    now: datetime,
) -> Message:
    """Make the message of a plan: its id follows from what it says, so that one that is sent again has the same."""
    ordered = sort_items(tuple(items))
    told = [(each.change, known[each.condition.key]) for each in ordered]
    said = [f"{change.value} {of.key} {of.noticed_at.isoformat()} {of.ended_at}" for change, of in told]
    digest = hashlib.sha256("\n".join((channel.name, str(channel.reminded_at), *said)).encode("utf-8", "replace")).hexdigest()
    return Message(
        id=digest[:32],
        laboratory=laboratory,
        at=now,
        items=ordered,
        references=tuple(dict.fromkeys(of.message_id for _, of in told if of.message_id)),
        link=link,
    )


def after_success(
    channel: ChannelRecord, message: Message, known: Mapping[AlertKey, Notification], problem: str, now: datetime
) -> tuple[ChannelRecord, tuple[Notification, ...], tuple[Notification, ...]]:
    """Give what to write once a message was sent: the channel, what was told, and what is told for good."""
    saved, ended = [], []
    for item in message.items:
        before = known.get(item.condition.key)
        if before is None:
            continue
        if item.change is Change.ENDED:
            ended.append(before)
        elif item.change is Change.STARTED:
            saved.append(replace(before, told_at=now, affected=item.affected, message_id=message.id))
        else:
            saved.append(replace(before, affected=item.affected))
    reminds = any(item.change is Change.OPEN for item in message.items)
    record = replace(
        channel,
        failures=channel.failures + 1 if problem else 0,
        reason=problem,
        retry_at=None,
        reminded_at=now if reminds else channel.reminded_at,
        sent_at=(*_recent(channel, now), now.isoformat()),
    )
    return record, tuple(saved), tuple(ended)


def after_failure(channel: ChannelRecord, reason: str, retry_after: float | None, now: datetime) -> ChannelRecord:
    """Give the channel after an attempt that failed: the next one is later each time."""
    wait = min(_FIRST_RETRY * 2 ** min(channel.failures, 10), _LONGEST_RETRY)
    retry_at = now + timedelta(seconds=max(wait, retry_after or 0.0))
    return replace(channel, failures=channel.failures + 1, reason=reason, retry_at=retry_at)


def _is_told(condition: OpenCondition, channel: str, policy: Policy) -> bool:
    if condition.key == AlertKey(ConditionId.NOTIFICATION_FAILED, channel):
        return False  # it is for the other channels
    return _RANKS[condition.condition.severity] <= _RANKS[policy.severity]


def _notice(channel: str, condition: OpenCondition, opened_at: datetime, now: datetime) -> Notification:
    """Begin with an alert. One that was opened again counts from its first opening, or it would never be old enough."""
    key = condition.key
    noticed_at = min(opened_at, now)
    return Notification(
        channel=channel, condition=key.condition, subject=key.subject, since=condition.since, noticed_at=noticed_at
    )


def _is_over_untold(each: Notification, policy: Policy, now: datetime) -> bool:
    """Whether it was over before it would have been told, and has been for long enough."""
    if each.told_at is not None or each.ended_at is None:
        return False
    return each.ended_at - each.noticed_at < policy.first_after and now - each.ended_at >= policy.ended_after


def _recent(channel: ChannelRecord, now: datetime) -> tuple[str, ...]:
    """What was sent within the last hour; a time that lies ahead was told by another clock, and does not count."""
    return tuple(each for each in channel.sent_at if timedelta() <= now - datetime.fromisoformat(each) < RATE_PERIOD)


def _choose_items(
    channel: ChannelRecord,
    book: Mapping[AlertKey, Notification],
    tellable: Mapping[AlertKey, OpenCondition],
    policy: Policy,
    now: datetime,
) -> tuple[Item, ...]:
    """What is told now, all in one message. Once `at_most` were sent within an hour, only what is critical lets one go."""
    starts = [each for key, each in book.items() if each.told_at is None and each.ended_at is None and key in tellable]
    ends = [each for each in book.values() if each.ended_at is not None and now - each.ended_at >= policy.ended_after]
    is_full = len(_recent(channel, now)) >= policy.at_most
    due = (*(each for each in starts if now - each.noticed_at >= policy.first_after), *ends)
    lets_go = any(not is_full or CONDITIONS[each.condition].severity is Severity.CRITICAL for each in due)
    still = [each for key, each in book.items() if each.told_at is not None and each.ended_at is None and key in tellable]
    reminds = _is_reminder_due(channel, still, policy, now)
    if not (lets_go or (reminds and not is_full)):
        return ()
    return (
        *(Item(change=Change.STARTED, condition=tellable[each.key]) for each in starts),
        *(Item(change=Change.OPEN, condition=tellable[each.key]) for each in still if reminds),
        *(_ended_item(each) for each in ends),
    )


def _is_reminder_due(channel: ChannelRecord, still: Iterable[Notification], policy: Policy, now: datetime) -> bool:
    first_told = min((each.told_at for each in still if each.told_at is not None), default=None)
    if first_told is None:
        return False
    last = first_told if channel.reminded_at is None else max(first_told, channel.reminded_at)
    return now - last >= policy.remind_every


def _ended_item(each: Notification) -> Item:
    alert = Alert(condition=each.condition, subject=each.subject, since=each.since, opened_at=each.noticed_at)
    condition = to_open_condition(alert)
    return Item(change=Change.ENDED, condition=condition, ended_at=each.ended_at, affected_before=each.affected)
