"""How long a test takes: the normal time, and the notices that staff announced (interface: Turnaround item).

Which fields are filled holds by construction: `Available` has no period, `Stopped` has one and no delay, `Delayed` has both.
`time` stays the normal time; the extra hours of a delay are in delayDuration, as the interface keeps them apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from math import inf
from typing import Any


@dataclass(frozen=True, slots=True)
class Turnaround:
    """The normal time in hours, and a sentence for people."""

    hours: Decimal
    caption: str = ""


@dataclass(frozen=True, slots=True)
class NoticePeriod:
    """From `start` up to, not including, `end`; both with offset."""

    start: datetime
    end: datetime

    def contains(self, now: datetime) -> bool:
        """Whether `now` lies within."""
        return self.start <= now < self.end

    def as_json(self) -> dict[str, str]:
        """Give effectivePeriod, to the second: a notice announced by a command starts at a fraction of one."""
        return {"start": self.start.isoformat(timespec="seconds"), "end": self.end.isoformat(timespec="seconds")}


@dataclass(frozen=True, slots=True)
class Available:
    """The item can be ordered as usual."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """The item is not performed in this period."""

    period: NoticePeriod


@dataclass(frozen=True, slots=True)
class Delayed:
    """The item is performed with so many hours of delay in this period."""

    period: NoticePeriod
    hours: Decimal


Availability = Available | Stopped | Delayed


@dataclass(frozen=True, slots=True)
class Notice:
    """An announcement about an item; for one contract, or for all where `contract` is None."""

    item_id: str
    status: Stopped | Delayed
    contract: str | None = None
    caption: str = ""

    def applies_to(self, contract: str, item_id: str) -> bool:
        """Whether this notice is about that item of that contract."""
        return self.item_id == item_id and self.contract in (None, contract)


@dataclass(frozen=True, slots=True)
class Eta:
    """An item's turnaround at one moment."""

    item_id: str
    turnaround: Turnaround
    status: Availability
    caption: str

    def as_json(self) -> dict[str, Any]:
        """Give the element of the eta response (interface: Turnaround item)."""
        period = None if isinstance(self.status, Available) else self.status.period
        delay = {"value": format_decimal(self.status.hours), "unit": "h"} if isinstance(self.status, Delayed) else None
        return {
            "id": self.item_id,
            "status": type(self.status).__name__.lower(),
            "time": self.turnaround.hours,
            "caption": self.caption,
            "effectivePeriod": period and period.as_json(),
            "delayDuration": delay,
        }


def compute_eta(contract: str, item_id: str, normal: Turnaround, notices: Iterable[Notice], now: datetime) -> Eta:
    """Decide an item's turnaround at `now`: a stop outweighs a delay, a longer delay a shorter one."""
    worst = most_severe_notice(contract, item_id, notices, now)
    if worst is None:
        return Eta(item_id, normal, Available(), normal.caption)
    return Eta(item_id, normal, worst.status, worst.caption or normal.caption)


def most_severe_notice(contract: str, item_id: str, notices: Iterable[Notice], now: datetime) -> Notice | None:
    """The most severe of the notices that apply at `now`; None if none does."""
    active = (each for each in notices if each.applies_to(contract, item_id) and each.status.period.contains(now))
    return max(active, key=_notice_severity, default=None)


def next_change(notices: Iterable[Notice], now: datetime) -> datetime | None:
    """The next moment at which any answer can differ from that at `now`; None if never."""
    edges = (edge for each in notices for edge in (each.status.period.start, each.status.period.end))
    return min((edge for edge in edges if edge > now), default=None)


def format_decimal(number: Decimal) -> str:
    """A decimal as text, without an exponent."""
    return format(number, "f")


def _notice_severity(notice: Notice) -> tuple[Decimal, datetime]:
    status = notice.status
    hours = Decimal(inf) if isinstance(status, Stopped) else status.hours
    return hours, status.period.end
