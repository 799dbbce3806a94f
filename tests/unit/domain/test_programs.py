"""What is kept of running programs, paused laboratory systems, restored databases, and of counts by the hour."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest

from lab_agent.queue.pauses import PAUSE_KEY_PREFIX, AdapterPause, pause_key
from lab_agent.store.activity_records import HOUR, HourlyActivity, Measure, hour_of, summarize
from lab_agent.store.api_refusals import KEPT, PERIOD, PROBE_USER_AGENT, period_start
from lab_agent.store.program_records import ProgramKind, RunningProgram, SchemaVersions
from lab_agent.store.restoration import MarkedNumber, Restoration, RestoreSign, find_sign

NOW = datetime(2026, 1, 2, tzinfo=UTC)
PROGRAM = RunningProgram(name="n", kind=ProgramKind.API, host="h", pid=17, schema="0042", beat_at=NOW, stale_after=30.0)
STORED = {
    "name": "n",
    "kind": "api",
    "host": "h",
    "pid": 17,
    "schema": "0042",
    "beat_at": "2026-01-02T00:00:00+00:00",
    "stale_after": 30.0,
}


@pytest.mark.parametrize(("seconds", "lives"), [(0, True), (30, True), (31, False), (-30, True), (-31, False)])
def test_program_lives_while_its_sign_is_fresh(seconds: float, lives: bool) -> None:
    assert PROGRAM.lives(NOW + timedelta(seconds=seconds)) is lives


def test_stored_program_reads_back_without_what_is_new() -> None:
    assert json.loads(PROGRAM.to_json()) == STORED
    assert RunningProgram.from_json(json.dumps(STORED | {"colour": "red"})) == PROGRAM


def test_schema_is_newer_than_the_program() -> None:
    assert [SchemaVersions(each, "0042").is_newer for each in ("0041", "0042", "0043")] == [False, False, True]
    assert str(PROGRAM) == "lab-api on h (process 17, schema 0042)"


def test_stored_pause_reads_back() -> None:
    pause = AdapterPause(system="lis", since=NOW, by="Ölga")
    assert pause.to_json() == '{"since": "2026-01-02T00:00:00+00:00", "by": "Ölga"}'
    assert AdapterPause.from_json("lis", pause.to_json()) == pause
    assert pause_key("lis") == "lis.paused/lis"
    assert PAUSE_KEY_PREFIX == "lis.paused/"


NOTICED = Restoration(sign=RestoreSign.OLDER_THAN_MARK, noticed_at=NOW, known_until=NOW - timedelta(hours=6))
RELEASED = NOTICED.reconciled(NOW, 0).released(NOW + timedelta(hours=1), "anna")


@pytest.mark.parametrize("restoration", [NOTICED, RELEASED, Restoration(sign=RestoreSign.COMMAND, noticed_at=NOW)])
def test_stored_restoration_reads_back(restoration: Restoration) -> None:
    assert Restoration.from_json(restoration.to_json()) == restoration


def test_restoration_of_an_older_program_reads_back() -> None:
    older = json.dumps(json.loads(RELEASED.to_json()) | {"tells_withdrawals": False})
    assert Restoration.from_json(older) == RELEASED


def test_what_was_decided_before_the_release_is_concerned() -> None:
    assert NOTICED.concerns(NOW + timedelta(days=1))
    assert RELEASED.concerns(NOW)
    assert RELEASED.concerns(NOW + timedelta(hours=1))
    assert (NOTICED.is_open, RELEASED.is_open) == (True, False)
    assert not RELEASED.concerns(NOW + timedelta(hours=2))


@pytest.mark.parametrize(
    ("mark", "sign"),
    [
        (None, None),
        (MarkedNumber("one", 4), None),
        (MarkedNumber("one", 5), None),
        (MarkedNumber("one", 6), RestoreSign.OLDER_THAN_MARK),
        (MarkedNumber("two", 1), RestoreSign.OTHER_DATABASE),
    ],
)
def test_mark_says_whether_it_was_restored(mark: MarkedNumber | None, sign: RestoreSign | None) -> None:
    assert find_sign(mark, MarkedNumber("one", 5)) is sign


def test_first_comparison_is_kept_with_the_last_number() -> None:
    once = NOTICED.reconciled(NOW, 3)
    again = once.reconciled(NOW + timedelta(hours=1), 0)
    assert (once.reconciled_at, once.not_compared, again.reconciled_at, again.not_compared) == (NOW, 3, NOW, 0)
    assert (RELEASED.released_at, RELEASED.released_by) == (NOW + timedelta(hours=1), "anna")


MOMENT = datetime(2026, 1, 2, 3, 44, 55, 123, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "median", "percentile"),
    [
        ((), None, None),
        ((3.0, 1.0, 2.0), 2.0, 3.0),
        (tuple(float(each) for each in range(100, 0, -1)), 51.0, 96.0),
        ((1.00061, 1.0), 1.001, 1.001),
    ],
)
def test_times_of_an_hour_are_summarized(seconds: tuple[float, ...], median: float | None, percentile: float | None) -> None:
    assert summarize(MOMENT, Measure.FAILURES, 7, seconds) == HourlyActivity(
        hour=MOMENT, measure=Measure.FAILURES, count=7, median=median, percentile_95=percentile
    )


def test_counts_are_by_the_hour_and_by_five_minutes() -> None:
    assert (hour_of(MOMENT), HOUR) == (datetime(2026, 1, 2, 3, tzinfo=UTC), timedelta(hours=1))
    forty = datetime(2026, 1, 2, 3, 40, tzinfo=UTC)
    half_past = timezone(timedelta(hours=5, minutes=30))
    assert period_start(MOMENT) == period_start(forty) == period_start(MOMENT.astimezone(half_past)) == forty
    assert (timedelta(minutes=5), timedelta(days=2), "lab-agent-probe") == (PERIOD, KEPT, PROBE_USER_AGENT)
