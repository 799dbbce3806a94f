"""What follows from heartbeats, which of several conditions are told, and the first sentence that a page says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lab_agent.operations.agent import AgentLimits, AgentState, find_lost_machines, find_overdue_poll
from lab_agent.operations.report import list_conditions
from lab_agent.operations.verdict import Verdict, give_verdict
from lab_agent.queue.workers import WorkerRecord
from lab_agent.shared.conditions.model import AffectedCount, ConditionId, OpenCondition, Severity
from lab_agent.shared.conditions.table import CONDITIONS
from lab_agent.store.event_records import Alert

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
DAY, MINUTE = timedelta(days=1), timedelta(minutes=1)
LIMITS = AgentLimits(heartbeat_interval=10.0, poll_longest=120.0)


def worker(name: str = "host-1", *, age: float = 5.0, **fields: Any) -> WorkerRecord:
    start: dict[str, Any] = {"host": "host", "pid": 7, "version": "1", "mode": "normal", "started_at": NOW - DAY}
    return WorkerRecord(name=name, beat_at=NOW - timedelta(seconds=age), **{**start, **fields})


def two(name: str = "b", **fields: Any) -> WorkerRecord:
    return worker(name, host="two", **fields)


@pytest.mark.parametrize(
    ("found", "last_poll", "since"),
    [
        (worker(), NOW - 9 * MINUTE, None),
        (worker(), NOW - 11 * MINUTE, NOW - 11 * MINUTE),
        (worker(), None, NOW - DAY),
        (worker(started_at=NOW - MINUTE), NOW - 2 * DAY, None),
        *((each, NOW - 11 * MINUTE, None) for each in (worker(age=61), worker(age=-3600), worker(age=1, stopped_at=NOW))),
    ],
    ids=["in time", "late", "never", "just started", "nobody lives", "beat of another time", "stopped"],
)
def test_poll_is_overdue_while_somebody_could(found: WorkerRecord, last_poll: datetime | None, since: datetime | None) -> None:
    told = list(find_overdue_poll(AgentState(workers=(found,), last_poll=last_poll), LIMITS, NOW))
    assert [(each.condition, each.since) for each in told] == ([(ConditionId.AGENT_POLL_OVERDUE, since)] if since else [])


@pytest.mark.parametrize(
    ("workers", "is_lost"),
    [
        ((worker(), two(age=61)), True),
        ((worker(), two(age=61), two("c", age=7200)), True),
        ((worker(), two(age=59)), False),
        ((worker(), two(age=61, stopped_at=NOW)), False),
        ((worker(), two(age=5), two("c", age=61)), False),
        ((worker(), two(age=90_000)), False),
        ((worker(), worker("b", age=61)), False),
        ((worker(age=90), two(age=61)), False),
    ],
    ids=["lost", "once for each", "lives", "stopped", "started again", "long ago", "same machine", "nobody lives"],
)
def test_machine_that_is_lost_is_told_by_the_others(workers: Any, is_lost: bool) -> None:
    told = list(find_lost_machines(workers, LIMITS, NOW))
    assert [(each.condition, each.subject) for each in told] == [(ConditionId.AGENT_LOST_MACHINE, "two")] * is_lost


SILENT, DOWN = ConditionId.LIS_SILENT, ConditionId.LIS_UNAVAILABLE
PART, UNCONFIRMED = ConditionId.EXCHANGE_PART_UNAVAILABLE, ConditionId.JOBS_OUTCOME_UNKNOWN


@pytest.mark.parametrize(
    ("found", "left_out"),
    [
        ([(SILENT, "one"), (DOWN, "one")], {(SILENT, "one")}),
        ([(SILENT, "one"), (SILENT, "two"), (DOWN, "two")], {(SILENT, "two")}),
        ([(ConditionId.JOBS_LIS_UNAVAILABLE, "one"), (DOWN, "two")], set()),
        ([(PART, "deliver_report"), (UNCONFIRMED, "")], {(PART, "deliver_report")}),
        ([(PART, "deliver_report"), (ConditionId.JOBS_WRITE_REJECTED, "")], set()),
    ],
)
def test_what_another_says_about_the_same_subject_is_left_out(
    found: list[tuple[ConditionId, str]], left_out: set[tuple[ConditionId, str]]
) -> None:
    alerts = [Alert(condition=condition, subject=subject, detail="", since=NOW, opened_at=NOW) for condition, subject in found]
    assert {each.key for each in list_conditions(alerts, None)} == set(found) - left_out


def opened(condition: ConditionId, *affected: AffectedCount, minutes: float = 12, subject: str = "") -> OpenCondition:
    return OpenCondition(condition=CONDITIONS[condition], subject=subject, since=NOW - minutes * MINUTE, affected=affected)


ORDERS = AffectedCount(number=3, noun="order", rest=" to fetch")
RESULTS = AffectedCount(number=4, noun="result", rest=" to deliver")
OUTAGE = opened(ConditionId.EXCHANGE_UNAVAILABLE, ORDERS, RESULTS)
OUTAGE_TEXT = "The exchange service does not answer, for 12 min; 3 orders to fetch and 4 results to deliver wait."
HELD, NOTICE = opened(ConditionId.RESULTS_HELD), opened(ConditionId.LIS_NEEDS_RESTART, subject="hl7")
ONE_HELD = opened(ConditionId.RESULTS_HELD, AffectedCount(number=1, noun="result"), subject="whatever")
LOW = opened(ConditionId.DISK_LOW, subject="/srv", minutes=-5)
LOW_TEXT = "The disk of /srv is nearly full, for 0 s; once it is full, nothing can be written there."


@pytest.mark.parametrize(
    ("conditions", "waiting", "text", "severity"),
    [
        ((), 0, "Works: nothing waits for a person.", None),
        ((NOTICE,), 0, "Works: nothing waits for a person.", None),
        ((), 1, "Works, and 1 thing waits for a person.", Severity.WARNING),
        ((), 7, "Works, and 7 things wait for a person.", Severity.WARNING),
        ((OUTAGE, HELD, opened(ConditionId.BACKUP_OLD), NOTICE), 7, f"{OUTAGE_TEXT} And 2 more.", Severity.CRITICAL),
        ((ONE_HELD,), 0, "Results are held: whatever, for 12 min; 1 result waits.", Severity.WARNING),
        ((LOW,), 0, LOW_TEXT, Severity.WARNING),
    ],
    ids=["works", "notice", "one waits", "some wait", "several", "one", "clock was set back"],
)
def test_verdict_is_made_of_the_worst_condition(
    conditions: tuple[OpenCondition, ...], waiting: int, text: str, severity: Severity | None
) -> None:
    assert give_verdict(conditions, NOW, waiting) == Verdict(text, severity)


def test_verdict_is_one_line_whatever_a_subject_holds() -> None:
    text = give_verdict([opened(ConditionId.LIS_UNAVAILABLE, subject="x\n\u202e" + "y" * 5000)], NOW).text
    assert text.isprintable()
    assert len(text) < 400
