"""A notification as plain text, bounded however much it is about: many of one kind are one entry."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from lab_agent.operations.notification.message import Change, Item, Message
from lab_agent.shared.conditions.model import ConditionId
from lab_agent.shared.systemd_units import typed
from lab_agent.shared.text import escape_unprintable, format_age, shorten

_MAX_ENTRIES = 20
_SINGLE = 3
"""So many alerts of one condition are told one by one."""
_MAX_NAMED = 5
_MAX_FIELD = 1000
_TEST = "This is a test. Notifications of lab-agent arrive here."


@dataclass(frozen=True, slots=True)
class Entry:
    """What is said of one condition, or of many alerts of one condition: a heading, and fields of name and text."""

    heading: str
    fields: tuple[tuple[str, str], ...]


def to_entries(message: Message) -> tuple[Entry, ...]:
    """Give what a message says, entry by entry; what is more than a person reads is counted."""
    groups: dict[tuple[Change, ConditionId], list[Item]] = {}
    for item in message.items:
        groups.setdefault((item.change, item.condition.condition.id), []).append(item)
    entries = [entry for items in groups.values() for entry in _group_entries(message, items)]
    shown, more = entries[:_MAX_ENTRIES], len(entries) - _MAX_ENTRIES
    return (*shown, *([Entry(f"And {more} more.", ())] if more > 0 else ()))


def to_text(message: Message) -> str:
    """Give the whole text: entries, then where to look."""
    if not message.items:
        return _TEST
    blocks = ["\n".join((each.heading, *(f"  {name}: {text}" for name, text in each.fields))) for each in to_entries(message)]
    where = f"Status page: {message.link}\n" if message.link else ""
    return "\n\n".join((*blocks, f"{where}At the command line: {typed('lab-agent status')}"))


def _group_entries(message: Message, items: Sequence[Item]) -> Iterator[Entry]:
    if len(items) <= _SINGLE:
        yield from (Entry(_heading(item), tuple(_fields(message, item))) for item in items)
        return
    oldest = min(items, key=lambda each: each.condition.since)
    heading = f"{_heading(oldest)}, and {len(items) - 1} more of this kind"
    named = [each.condition.subject for each in items if each.condition.subject][:_MAX_NAMED]
    which = [("Such as", ", ".join(map(shorten, named)))] if named else []
    yield Entry(heading, (*which, *_fields(message, oldest)))


def _heading(item: Item) -> str:
    title = _clean(item.condition.title)
    if item.change is Change.ENDED:
        return f"ENDED: {title}"
    severity = item.condition.condition.severity.value.upper()
    return f"{severity}, still open: {title}" if item.change is Change.OPEN else f"{severity}: {title}"


def _fields(message: Message, item: Item) -> Iterator[tuple[str, str]]:
    since = item.condition.since
    if item.change is Change.ENDED:
        ended = item.ended_at or message.at
        yield "Lasted", f"{_duration(since, ended)}, from {_time(since)} to {_time(ended)}"
        if item.affected_before or item.affected:
            yield "Affected", f"{item.affected_before or 'not counted'} when it was told; now {item.affected or 'none'}"
        return
    yield "Since", f"{_time(since)} ({_duration(since, message.at)})"
    yield "Cause", _clean(item.condition.cause)
    affects = _clean(item.condition.condition.affects)
    yield "Affects", f"{affects}: {item.affected}" if item.affected else affects
    yield "To do", _clean(item.condition.mend)
    if item.condition.command:
        yield "Command", _clean(item.condition.command)
    if message.link and item.condition.page:
        yield "Page", _clean(f"{message.link}{item.condition.page}")


def _clean(text: str) -> str:
    """On one line, without what could steer or reorder what is shown, and bounded."""
    return shorten(escape_unprintable(text.replace("\n", " ").replace("\t", " ")), _MAX_FIELD)


def _time(at: datetime) -> str:
    return at.astimezone().isoformat(" ", "minutes")


def _duration(since: datetime, until: datetime) -> str:
    return format_age(min(since, until), until)
