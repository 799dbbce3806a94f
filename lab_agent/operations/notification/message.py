"""What a notification says, before a channel gives it its form. Frozen; nothing in it identifies a patient."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from lab_agent.shared.conditions.model import OpenCondition, Severity
from lab_agent.shared.text import shorten

_TITLE_LENGTH = 160
_RANKS = {severity: rank for rank, severity in enumerate(Severity)}


class Change(StrEnum):
    """What a notification says of a condition."""

    STARTED = "started"
    ENDED = "ended"
    OPEN = "open"  # told before, and still so: a reminder


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One condition in a notification. `affected_before` is what was counted when it was last told, for one that has ended."""

    change: Change
    condition: OpenCondition
    ended_at: datetime | None = None
    affected_before: str = ""

    @property
    def affected(self) -> str:
        """What waits because of it now, in words; empty where nothing was counted."""
        return ", ".join(map(str, self.condition.affected))


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One notification.

    `id` names it: repeated after a lost answer, it has the same. `references` are the ids of the messages that told the start of
    what it is about. `link` is the address of the status page, None where none is known. Without items it is a test.
    """

    id: str
    laboratory: str
    at: datetime
    items: tuple[Item, ...] = ()
    references: tuple[str, ...] = ()
    link: str | None = None

    @property
    def severity(self) -> Severity:
        """The worst of what has not ended; a notice where all has."""
        left = [each.condition.condition.severity for each in self.items if each.change is not Change.ENDED]
        return min(left, key=_RANKS.__getitem__, default=Severity.NOTICE)

    @property
    def title(self) -> str:
        """The subject, on one line: the worst of it, and how much more there is."""
        return f"[lab-agent {shorten(self.laboratory)}] {self._headline()}"

    def _headline(self) -> str:
        if not self.items:
            return "test: notifications arrive"
        started, still, ended = (self._of(change) for change in (Change.STARTED, Change.OPEN, Change.ENDED))
        if started:
            return _with_more(started[0].condition.condition.severity.value, started)
        return _with_more("still open", still) if still else _with_more("ended", ended)

    def _of(self, change: Change) -> list[Item]:
        return [each for each in self.items if each.change is change]


def sort_items(items: Sequence[Item]) -> tuple[Item, ...]:
    """What has started first, the worst first; of a reminder and of what has ended, the oldest first."""
    order = {change: place for place, change in enumerate((Change.STARTED, Change.OPEN, Change.ENDED))}

    def rank(item: Item) -> tuple[int, int, datetime, str]:
        severity = _RANKS[item.condition.condition.severity] if item.change is Change.STARTED else 0
        return order[item.change], severity, item.condition.since, str(item.condition.key)

    return tuple(sorted(items, key=rank))


def _with_more(what: str, items: Sequence[Item]) -> str:
    more = len(items) - 1
    return f"{what}: {shorten(items[0].condition.title, _TITLE_LENGTH)}" + (f", and {more} more" if more else "")
