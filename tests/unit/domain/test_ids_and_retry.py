"""Keys fit where they travel, and waits grow as the settings say."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab_agent.queue.retry import (
    Backoff,
    DeadLetter,
    RetryAt,
    VerifyFirst,
    backoff_delay,
    decide_retry,
    growing_wait,
    rest_after_hold,
)
from lab_agent.shared.errors import (
    Failure,
    LisOutcomeUnknown,
    LisRejected,
    LisUnavailable,
    OutcomeUnknown,
    ServicePaused,
    ServiceRejected,
    ServiceUnavailable,
)
from lab_agent.shared.ids import (
    OrderKey,
    is_line_key,
    is_order_key,
    line_key,
    order_key,
    refused_key,
    report_key,
    work_order_key,
    worker_name,
)

NOW = datetime(2026, 1, 2, tzinfo=UTC)
BACKOFF = Backoff(first=2, longest=60)


@given(st.text(min_size=1), st.text(min_size=1))
def test_keys_fit_hl7_fields_and_barcodes(service: str, task: str) -> None:
    for key in (order_key(service, task), line_key(service, task), report_key(service, task)):
        assert re.fullmatch(r"[A-Z0-9]{1,20}", key)


def test_same_order_always_has_same_key() -> None:
    assert order_key("https://x.example/api/", "17") == order_key("https://x.example/api", "17") == "RBUGDG4UVT7GT5Q3"
    assert order_key("https://stage.example/api/", "17") != order_key("https://x.example/api/", "17")
    assert order_key("https://x.example/apiX", "17") != order_key("https://x.example/api", "17")
    assert order_key("https://x.example/", "17")[1:] == line_key("https://x.example/", "17")[1:]


def test_keys_of_each_kind_stay_as_they_are() -> None:
    """They are stored, and the laboratory system knows them."""
    assert line_key("https://x.example/api/", "17") == "LBUGDG4UVT7GT5Q3"
    assert work_order_key(OrderKey("R1"), "lis") == "WHQEEXGTTFOKY7PO"
    assert report_key("lis", "m") == report_key("lis", "m", 0) == "P4ZSCDOPXZW4FYFB"
    assert report_key("lis", "m", 1) == "PMJ3ZMSOPCGXHDC5"
    assert refused_key("lis", "m", None) == "M5CXUYZJJL3QA22T"
    assert refused_key("lis", "m", b"raw") == refused_key("lis", "other", b"raw") == "MF6PGZHBFQPCHZST"


@pytest.mark.parametrize(
    ("text", "order", "line"),
    [
        ("RBUGDG4UVT7GT5Q3", True, False),
        ("LBUGDG4UVT7GT5Q3", False, True),
        ("WBUGDG4UVT7GT5Q3", False, False),
        ("RBUGDG4UVT7GT5Q3A", False, False),
        ("rbugdg4uvt7gt5q3", False, False),
        ("LBUGDG4UVT7GT5Q3\n", False, False),
    ],
)
def test_key_is_told_by_its_form(text: str, order: bool, line: bool) -> None:
    assert (is_order_key(text), is_line_key(text)) == (order, line)


def test_worker_name_begins_with_its_host() -> None:
    assert re.fullmatch(r"host-[0-9a-f]{8}", worker_name("host"))
    assert worker_name("host") != worker_name("host")


@pytest.mark.parametrize(
    ("failure", "decision"),
    [
        (ServiceUnavailable(), RetryAt(NOW + timedelta(seconds=1))),
        (LisUnavailable(retry_after=30), RetryAt(NOW + timedelta(seconds=30))),
        (OutcomeUnknown(), VerifyFirst(NOW + timedelta(seconds=1))),
        (LisOutcomeUnknown(), VerifyFirst(NOW + timedelta(seconds=1))),
        (ServiceRejected("x", status=418, may_pass=True), RetryAt(NOW + timedelta(seconds=1))),
        (ServiceRejected(status=400), DeadLetter()),
        (LisRejected(), DeadLetter()),
        (Failure(), DeadLetter()),
    ],
)
def test_failure_determines_retry_decision(failure: Failure, decision: object) -> None:
    assert decide_retry(failure, attempts=1, now=NOW, backoff=BACKOFF, random=0.5) == decision


def test_backoff_doubles_within_its_bounds() -> None:
    """And waits at least a tenth of the first."""
    assert [backoff_delay(attempt, BACKOFF, 1) for attempt in range(1, 8)] == [2, 4, 8, 16, 32, 60, 60]
    assert backoff_delay(10_000, Backoff(first=1e-9, longest=1e9), 1) == pytest.approx(1e-9 * 2.0**30)
    assert backoff_delay(1, BACKOFF, 0) == 0.2
    decision = decide_retry(LisUnavailable(), attempts=1, now=NOW, backoff=BACKOFF, random=0)
    assert decision == RetryAt(NOW + timedelta(seconds=0.2))


@pytest.mark.parametrize(
    ("failure", "attempts", "seconds"),
    [
        (ServiceUnavailable(retry_after=10), 1, 10 + 10),
        (ServiceUnavailable(retry_after=10), 2, 10 + 20),
        (ServiceUnavailable(retry_after=10), 4, 10 + 80),
        (ServiceUnavailable(retry_after=10), 5, 10 + 90),
        (ServiceUnavailable(retry_after=600), 1, 600 + 60),
        (ServiceUnavailable(retry_after=1e10), 40, 1e10 + 60 * 2**30),
        (ServicePaused(retry_after=10), 4, 10),
        (LisUnavailable(retry_after=10), 1, 10),
        (LisUnavailable(retry_after=0.1), 1, 1),
    ],
)
def test_pause_asked_by_one_lets_others_go_first(failure: Failure, attempts: int, seconds: float) -> None:
    decision = decide_retry(failure, attempts=attempts, now=NOW, backoff=BACKOFF, random=0.5)
    assert decision == RetryAt(NOW + timedelta(seconds=seconds))


@pytest.mark.parametrize(("random", "seconds"), [(0.1, 4), (0.75, 6)])
def test_slow_laboratory_system_is_asked_late(random: float, seconds: float) -> None:
    decision = decide_retry(LisOutcomeUnknown(), attempts=3, now=NOW, backoff=BACKOFF, random=random)
    assert decision == VerifyFirst(NOW + timedelta(seconds=seconds))


@pytest.mark.parametrize(("minutes", "seconds"), [(1, 60), (60, 900)])
def test_rest_after_hold_grows_with_its_time(minutes: int, seconds: float) -> None:
    assert rest_after_hold(100, timedelta(minutes=minutes)) == seconds


@pytest.mark.parametrize(
    ("first", "waited", "more", "seconds"),
    [
        *((5, waited, (), seconds) for waited, seconds in ((-60, 5), (0, 5), (5, 5), (6, 6), (640, 640), (3599, 3599))),
        *((5, waited, (), 3600) for waited in (3600, 3601, 86_400)),
        (7200, 86_400, (), 7200),
        (0.1, 0.8, (), 0.8),
        *((5, waited, (900,), seconds) for waited, seconds in ((400, 400), (450, 450), (451, 449), (640, 260), (899, 5))),
        *((5, waited, (900,), seconds) for waited, seconds in ((900, 900), (901, 901), (7200, 3600))),
    ],
)
def test_growing_wait_is_as_long_again(first: float, waited: float, more: tuple[int, ...], seconds: float) -> None:
    """At least its first, at most an hour, and it ends where it is decided."""
    assert growing_wait(first, timedelta(seconds=waited), *more) == seconds
