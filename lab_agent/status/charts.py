"""Charts as SVG, drawn by the server: bars of counts and lines of times. The table behind each says the same in numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median

from lab_agent.store.activity_records import HourlyActivity, Measure, hour_of

WIDTH, HEIGHT = 520, 120
_LEFT, _BOTTOM, _TOP = 36, 18, 6
_GRID_LINES = 2
_STEPS = (1, 2, 5)


@dataclass(frozen=True, slots=True)
class Span:
    """What a chart shows: `buckets` of `hours` hours each, the last of them the present one."""

    name: str
    buckets: int
    hours: int


DAY, WEEK = Span("24h", 24, 1), Span("7d", 28, 6)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """The sum of some hours. Of several hours, `median` is the median of theirs, `percentile_95` the highest of theirs."""

    start: datetime
    count: int
    median: float | None
    percentile_95: float | None


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar of the chart, in its units; `title` is read out where it is pointed at."""

    x: float
    y: float
    width: float
    height: float
    title: str


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a chart: the points of its parts, as SVG writes them. A gap is where nothing was measured."""

    parts: tuple[str, ...]
    is_second: bool = False


@dataclass(frozen=True, slots=True)
class Mark:
    """A number at an axis."""

    at: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A chart: bars or lines, the marks of its axes, and the rows of its table."""

    key: str
    bars: tuple[Bar, ...] = ()
    lines: tuple[Line, ...] = ()
    rows: tuple[Bucket, ...]
    y_marks: tuple[Mark, ...]
    x_marks: tuple[Mark, ...]
    is_empty: bool

    @property
    def total(self) -> int:
        """How many there were."""
        return sum(row.count for row in self.rows)


def first_hour(now: datetime, span: Span) -> datetime:
    """The beginning of the first bucket."""
    return hour_of(now) - timedelta(hours=span.hours * span.buckets - 1)


def collect(hours: Sequence[HourlyActivity], measure: Measure, now: datetime, span: Span) -> tuple[Bucket, ...]:
    """Put the hours of a measure into the buckets of a span; a bucket of which nothing is known has nothing in it."""
    start, width = first_hour(now, span), timedelta(hours=span.hours)
    inside: list[list[HourlyActivity]] = [[] for _ in range(span.buckets)]
    for each in hours:
        if each.measure is measure and 0 <= (place := (each.hour - start) // width) < span.buckets:
            inside[place].append(each)
    return tuple(_to_bucket(start + place * width, found) for place, found in enumerate(inside))


def _to_bucket(start: datetime, hours: Sequence[HourlyActivity]) -> Bucket:
    if not hours:
        return Bucket(start=start, count=0, median=None, percentile_95=None)
    medians = [each.median for each in hours if each.median is not None]
    return Bucket(
        start=start,
        count=sum(each.count for each in hours),
        median=median(medians) if medians else None,
        percentile_95=max((each.percentile_95 for each in hours if each.percentile_95 is not None), default=None),
    )


def draw_counts(key: str, rows: Sequence[Bucket], span: Span) -> Chart:
    """Bars of how many there were."""
    top = max(2.0, _round_up(max((row.count for row in rows), default=0)))
    top += top % _GRID_LINES  # so that each mark is a whole number
    width = (WIDTH - _LEFT) / len(rows)
    bars = tuple(
        Bar(
            round(_LEFT + place * width + 1, 1),
            round(_y(row.count, top), 1),
            round(width - 2, 1),
            round(HEIGHT - _BOTTOM - _y(row.count, top), 1),
            f"{_time(row.start, span)}: {row.count}",
        )
        for place, row in enumerate(rows)
        if row.count
    )
    return Chart(
        key=key, bars=bars, rows=tuple(rows), y_marks=_y_marks(top, str), x_marks=_x_marks(rows, span), is_empty=not bars
    )


def draw_times(key: str, rows: Sequence[Bucket], span: Span) -> Chart:
    """Lines of the median and the 95th percentile."""
    top = _round_up(max((row.percentile_95 or 0.0 for row in rows), default=0.0))
    width = (WIDTH - _LEFT) / len(rows)

    def line(values: Sequence[float | None], *, is_second: bool) -> Line:
        parts: list[list[str]] = [[]]
        for place, value in enumerate(values):
            if value is None:
                parts.append([])
            else:
                parts[-1].append(f"{_LEFT + (place + 0.5) * width:.1f},{_y(value, top):.1f}")
        return Line(tuple(" ".join(part if len(part) > 1 else part * 2) for part in parts if part), is_second)

    lines = (
        line([row.percentile_95 for row in rows], is_second=True),
        line([row.median for row in rows], is_second=False),
    )
    is_empty = not any(each.parts for each in lines)
    return Chart(
        key=key,
        lines=lines,
        rows=tuple(rows),
        y_marks=_y_marks(top, format_seconds),
        x_marks=_x_marks(rows, span),
        is_empty=is_empty,
    )


def format_seconds(seconds: float | None) -> str:
    """A time as an axis and a table have it: `80 ms`, `4.2 s`, `12 min`, `3 h`."""
    if seconds is None:
        return ""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _y(value: float, top: float) -> float:
    return _TOP + (HEIGHT - _TOP - _BOTTOM) * (1 - value / top)


def _round_up(value: float) -> float:
    """The next number that begins with 1, 2 or 5."""
    unit = 1.0 if value >= 1 else 0.001
    while True:
        for step in _STEPS:
            if value <= step * unit:
                return step * unit
        unit *= 10


def _y_marks(top: float, write: object) -> tuple[Mark, ...]:
    values = [top * place / _GRID_LINES for place in range(_GRID_LINES + 1)]
    texts = [format_seconds(value) if write is format_seconds else f"{value:g}" for value in values]
    return tuple(Mark(round(_y(value, top), 1), text if value else "0") for value, text in zip(values, texts, strict=True))


def _x_marks(rows: Sequence[Bucket], span: Span) -> tuple[Mark, ...]:
    width = (WIDTH - _LEFT) / len(rows)
    every = 6 if span is DAY else 4
    marks = [(place, row.start.astimezone()) for place, row in enumerate(rows) if place % every == every // 2]
    form = "%H:%M" if span is DAY else "%d.%m."
    return tuple(Mark(round(_LEFT + place * width, 1), at.strftime(form)) for place, at in marks)


def _time(at: datetime, span: Span) -> str:
    return at.astimezone().strftime("%H:%M" if span is DAY else "%Y-%m-%d %H:%M")
