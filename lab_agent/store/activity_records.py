"""How much was done in each hour, and how long it took: what the charts of the status page show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

HOUR = timedelta(hours=1)


class Measure(StrEnum):
    """What is counted, and what its times are."""

    ORDERS_SEEN = "orders_seen"  # without times
    ORDERS_HANDED_OVER = "orders_handed_over"  # from the first sight of the order to its handover
    RESULTS_RECEIVED = "results_received"  # without times
    RESULTS_DELIVERED = "results_delivered"  # from the arrival of the result to its delivery
    FAILURES = "failures"  # attempts that failed; without times
    EXCHANGE_CALLS = "exchange_calls"  # from the request to the service's answer


@dataclass(frozen=True, slots=True, kw_only=True)
class HourlyActivity:
    """What was done of one kind in the hour that began at `hour` (UTC); times in seconds, None where none were taken."""

    hour: datetime
    measure: Measure
    count: int
    median: float | None = None
    percentile_95: float | None = None


def summarize(hour: datetime, measure: Measure, count: int, seconds: Sequence[float] = ()) -> HourlyActivity:
    """Make the record of an hour of its times."""
    in_order = sorted(seconds)
    return HourlyActivity(hour=hour, measure=measure, count=count, median=_at(in_order, 0.5), percentile_95=_at(in_order, 0.95))


def _at(in_order: Sequence[float], share: float) -> float | None:
    """The time that this share of all do not exceed."""
    return round(in_order[min(len(in_order) - 1, int(len(in_order) * share))], 3) if in_order else None


def hour_of(moment: datetime) -> datetime:
    """The beginning of its hour."""
    return moment.replace(minute=0, second=0, microsecond=0)
