"""Keys fit where they travel, and waits grow as the settings say."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab_agent.domain.ids import line_key, order_key, report_key, worker_name
from lab_agent.domain.retry import Backoff, DeadLetter, RetryAt, VerifyFirst, backoff_delay, decide_retry
from lab_agent.errors import (
    Failure,
    LisOutcomeUnknown,
    LisRejected,
    LisUnavailable,
    OutcomeUnknown,
    ServiceRejected,
    ServiceUnavailable,
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
    assert order_key("https://x.example/", "17")[1:] == line_key("https://x.example/", "17")[1:]


def test_worker_names_differ_between_starts() -> None:
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


@given(st.integers(min_value=1, max_value=10_000), st.floats(min_value=0, max_value=1))
def test_backoff_is_bounded_and_positive(attempts: int, luck: float) -> None:
    assert 0.2 <= backoff_delay(attempts, BACKOFF, luck) <= 60


def test_backoff_doubles() -> None:
    assert [backoff_delay(attempt, BACKOFF, 1) for attempt in range(1, 8)] == [2, 4, 8, 16, 32, 60, 60]
