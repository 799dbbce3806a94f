"""Messages that an adapter refused: recorded before the laboratory system hears of it, and purged on time.

What may name a patient (the bytes, and the id that the adapter gave them, such as a file's name) is in the vault alone. The same
message counts up. What a peer sends beyond the limits of a day is only counted, so that garbage does not fill the disk.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime, timedelta

import structlog

from lab_agent.results.refused_records import RefusedContent, RefusedMessage, RefusedState, is_noise
from lab_agent.shared.conditions.model import AlertKey, ConditionId
from lab_agent.shared.ids import RefusedKey, refused_key
from lab_agent.store.alert_log import close_alert
from lab_agent.store.event_records import Alert, Event
from lab_agent.store.read_models import Page
from lab_agent.store.unit_of_work import UnitOfWork

log = structlog.get_logger(__name__)

MAX_NEW_A_DAY = 500
"""Messages of one adapter of which more than the count is kept, within a day."""
MAX_BYTES_A_DAY = 100_000_000
"""Bytes of refused messages of one adapter that are kept, within a day."""
NOISE_SHARE = 5
"""Noise has this part of both limits: what a laboratory system says is kept, whatever else a peer sends before it."""
_DAY = timedelta(days=1)
_MAX_REASON_LENGTH = 500
_PURGE_BATCH = 100


def rejected_messages_alert_key(source: str) -> AlertKey:
    """The alert about refused messages of an adapter; open while one of them waits."""
    return AlertKey(ConditionId.LIS_REFUSED_MESSAGES, source)


def list_refused_messages(
    uow: UnitOfWork, *, source: str | None, states: Collection[RefusedState], offset: int, limit: int
) -> Page[RefusedMessage]:
    """A page of the refused messages in `states`, of one or all adapters: newest first; those that wait alone, longest first."""
    found, total = uow.refused_messages.list(source=source, states=states, offset=offset, limit=limit)
    return Page(items=found, total=total, offset=offset, has_more=offset + len(found) < total)


def record_refusal(uow: UnitOfWork, source: str, content: RefusedContent, reason: str, now: datetime) -> RefusedMessage:
    """Record that an adapter refused a message (again). The caller commits.

    What was dismissed stays dismissed: an operator has decided about this very message. What was replayed waits again.
    """
    key = refused_key(source, content.message_id, content.raw)
    known = uow.refused_messages.get(key)
    recorded = _count_up(known, reason, now) if known else _new_message(uow, key, source, content, reason, now)
    share = NOISE_SHARE if is_noise(content.raw) else 1
    if recorded.key == key and not recorded.is_kept and _fits(uow, recorded, MAX_BYTES_A_DAY // share, now):
        uow.refused_messages.save_content(key, content, at=now)
        recorded = replace(recorded, is_kept=True)
    uow.refused_messages.save(recorded)
    refresh_alert(uow, source, now)
    return recorded


def _count_up(known: RefusedMessage, reason: str, now: datetime) -> RefusedMessage:
    again = RefusedState.DISMISSED if known.state is RefusedState.DISMISSED else RefusedState.WAITING
    return replace(known, state=again, reason=one_line(reason), count=known.count + 1, last_seen_at=now, changed_at=now)


def _fits(uow: UnitOfWork, message: RefusedMessage, limit: int, now: datetime) -> bool:
    """Whether the content of a message is within what is kept of its adapter in a day."""
    _, kept_bytes = uow.refused_messages.added_since(message.source, now - _DAY)
    return kept_bytes + (message.size or 0) <= limit


def _new_message(
    uow: UnitOfWork, key: RefusedKey, source: str, content: RefusedContent, reason: str, now: datetime
) -> RefusedMessage:
    number, _ = uow.refused_messages.added_since(source, now - _DAY)
    if number >= MAX_NEW_A_DAY // (NOISE_SHARE if is_noise(content.raw) else 1):
        return _count_only(uow, source, reason, now)
    size = None if content.raw is None else len(content.raw)
    return _make_message(key, source, reason, now, size)


def _make_message(key: RefusedKey, source: str, reason: str, now: datetime, size: int | None = None) -> RefusedMessage:
    return RefusedMessage(
        key=key,
        source=source,
        reason=one_line(reason),
        size=size,
        is_kept=False,
        first_seen_at=now,
        last_seen_at=now,
        changed_at=now,
    )


def _count_only(uow: UnitOfWork, source: str, reason: str, now: datetime) -> RefusedMessage:
    """The one record, for each adapter and day, of the messages beyond the limit."""
    key = _count_only_key(source, now)
    text = f"more different messages in a day than are kept; these are only counted. The last: {one_line(reason)}"
    known = uow.refused_messages.get(key)
    return _count_up(known, text, now) if known else _make_message(key, source, text, now)


def _count_only_key(source: str, now: datetime) -> RefusedKey:
    return refused_key(source, f"beyond the limit of {now:%Y-%m-%d}", None)


def refresh_alert(uow: UnitOfWork, source: str, now: datetime) -> None:
    """Open the alert about an adapter's refused messages while any waits, and close it then."""
    waiting = uow.refused_messages.waiting_counts().get(source, 0)
    key = rejected_messages_alert_key(source)
    if not waiting:
        close_alert(uow, key, now)
        return
    (newest, *_), _ = uow.refused_messages.list(source=source, states=(RefusedState.WAITING,), limit=1)
    text = f"the last: {newest.reason}"
    beyond = uow.refused_messages.get(_count_only_key(source, now))
    if beyond is not None and beyond.state is RefusedState.WAITING:
        text += f"; {beyond.count} more of today are only counted"
    alert = Alert(condition=key.condition, subject=key.subject, detail=text, since=now, opened_at=now, count=waiting)
    if uow.alerts.open(alert):
        log.warning("condition found", action="condition_found", alert=str(key), count=waiting)


def one_line(reason: str) -> str:
    """The first line of a reason, at a bearable length."""
    return reason.partition("\n")[0][:_MAX_REASON_LENGTH]


def purge_contents(uow: UnitOfWork, days: int, now: datetime) -> int:
    """Delete the contents of messages that were refused last `days` ago, some at a time; each is an event. The caller commits."""
    old = uow.refused_messages.kept_before(now - timedelta(days=days), limit=_PURGE_BATCH)
    for message in old:
        uow.refused_messages.purge_content(message.key)
        uow.refused_messages.save(replace(message, is_kept=False))
        text = f"the raw message was deleted, {days} days after it came last"
        uow.events.add(Event(order=None, refused_message=message.key, at=now, action="refused_purged", text=text))
    return len(old)
