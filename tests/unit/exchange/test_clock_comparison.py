"""When the service's `Date` says that a clock is wrong, and when it does not."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from lab_agent.exchange.clock_comparison import ClockComparison
from lab_agent.exchange.service import ServiceClock
from tests.harness.clock import VirtualClock

DAY = timedelta(days=1)


@dataclass
class Service:
    """Answers with a clock of its own, ahead of ours by `offset`; `steady` is time that nobody sets."""

    offset: timedelta = timedelta()
    clock: VirtualClock = field(default_factory=VirtualClock)
    steady: float = 0.0

    def __post_init__(self) -> None:
        self.clocks = ClockComparison(self.clock, lambda: self.steady)

    def answer(self, *, takes: float = 0.1, offset: timedelta | None = None, every: float = 10.0, **headers: str) -> None:
        self.pass_time(every)
        sent = self.clocks.start()
        date = format_datetime(self.clock.now() + (self.offset if offset is None else offset), usegmt=True)
        self.pass_time(takes)
        self.clocks.record(sent, {"date": date, **headers})

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.steady += seconds

    def answer_often(self, times: int = 3, **options: Any) -> None:
        for _ in range(times):
            self.answer(**options)

    @property
    def confirmed(self) -> timedelta | None:
        known = self.clocks.read()
        return known.offset if known is not None and known.is_confirmed else None


@pytest.mark.parametrize("offset", [DAY, -DAY, timedelta(minutes=3)])
def test_difference_of_several_answers_is_confirmed(offset: timedelta) -> None:
    service = Service(offset)
    service.answer()
    service.answer()
    assert service.confirmed is None
    service.answer()
    assert service.confirmed == pytest.approx(offset, abs=timedelta(seconds=1))


def test_one_odd_answer_changes_nothing() -> None:
    service = Service()
    service.answer(offset=DAY)
    assert service.confirmed is None
    service.answer_often()
    assert service.confirmed == timedelta()
    service.answer(offset=DAY)
    assert service.confirmed == timedelta()


def test_cache_without_age_is_not_taken_for_a_clock() -> None:
    """One old page is given again and again, and pages of different age disagree."""
    service = Service()
    stored = service.clock.now() - DAY
    for _ in range(5):
        service.answer(offset=stored - service.clock.now() - timedelta(seconds=10))
    assert service.confirmed is None
    for hours in (1, 5, 9):
        service.answer(offset=timedelta(hours=-hours))
    assert service.confirmed is None


def test_answers_with_age_say_nothing() -> None:
    service = Service(DAY)
    service.answer_often(5, age="0")
    assert service.clocks.read() is None


@pytest.mark.parametrize(("years", "confirmed"), [(999, True), (-999, True), (1001, False), (-1001, False)])
def test_difference_beyond_reason_is_no_matter_of_clocks(years: int, confirmed: bool) -> None:
    service = Service(365 * years * DAY)
    service.answer_often(5)
    known = service.clocks.read()
    assert known is not None
    assert (known.is_confirmed, known.offset is not None) == (True, confirmed)


def test_date_at_the_calendars_end_is_no_time() -> None:
    service = Service()
    for _ in range(5):
        service.clocks.record(service.clocks.start(), {"date": "Fri, 31 Dec 9999 23:59:59 GMT"})
    assert service.clocks.read() == ServiceClock(offset=None, is_confirmed=True)


def test_slow_answers_of_equal_clocks_agree() -> None:
    service = Service()
    service.answer_often(takes=200.0)
    assert service.confirmed == timedelta()


def test_corrected_clock_is_measured_anew() -> None:
    """Ours at once, the service's after three answers."""
    service = Service(DAY)
    service.answer_often()
    service.clock.advance(days=1)
    assert service.clocks.read() is None
    for offset in (timedelta(), DAY):
        service.offset = offset
        service.answer_often()
        assert service.confirmed == pytest.approx(offset, abs=timedelta(seconds=1))


def test_answers_without_date_leave_the_difference_unknown() -> None:
    service = Service(DAY)
    service.answer_often()
    for _ in range(3):
        service.clocks.record(service.clocks.start(), {})
    known = service.clocks.read()
    assert known is not None
    assert (known.offset, known.is_confirmed) == (None, True)
