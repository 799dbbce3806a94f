"""The numbers: their names, and that what is gone disappears."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime

from lab_agent.shared.conditions.model import AffectedCount, ConditionId, OpenCondition
from lab_agent.shared.conditions.table import CONDITIONS
from lab_agent.shared.errors import Failure, LabAgentError, ServicePaused, StoreError
from lab_agent.shared.metrics import CallOutcome, Metrics, StoreGauges
from lab_agent.shared.state_machines import OrderState


def assert_shown(metrics: Metrics, *lines: str, not_shown: tuple[str, ...] = ()) -> None:
    text = metrics.render().decode()
    assert [line for line in lines if f"lab_agent_{line}\n" not in text] == []
    assert [part for part in not_shown if part in text] == []


def test_gauges_show_states_and_drop_stale_ones() -> None:
    metrics = Metrics()
    jobs = {("submit_order", "due"): 4}
    metrics.update_store(
        StoreGauges(orders={"seen": 2}, jobs=jobs, refused_messages={"his": 7}, oldest_order=61.0, alerts_open=1)
    )
    assert_shown(
        metrics,
        'orders{state="seen"} 2.0',
        'jobs{kind="submit_order",state="due"} 4.0',
        'refused_messages{adapter="his"} 7.0',
        'oldest_age_seconds{what="order"} 61.0',
        "alerts_open 1.0",
    )
    metrics.update_store(StoreGauges(orders={OrderState.CLOSED: 2}, lines={"accepted": 3}, reports={"held": 1}, last_poll=5.0))
    now = ('orders{state="closed"} 2.0', 'lines{state="accepted"} 3.0', 'reports{state="held"} 1.0')
    assert_shown(metrics, *now, "last_poll_timestamp_seconds 5.0", not_shown=('state="seen"',))


def test_polls_calls_and_attempts_are_counted() -> None:
    metrics, other = Metrics(), Metrics()
    metrics.record_poll(CallOutcome.OK, new=3, at=1000.0)
    metrics.record_poll(CallOutcome.of(ServicePaused()), new=0, at=2000.0)
    metrics.record_exchange_call("GET Task", CallOutcome.OK, 0.2)
    metrics.record_lis_call("folder", "submit", CallOutcome.OK, 0.1)
    metrics.record_attempt("deliver_report", "done")
    metrics.record_skip("hl7v2")
    assert_shown(
        metrics,
        'polls_total{outcome="ok"} 1.0',
        'polls_total{outcome="not_sent"} 1.0',
        "orders_seen_total 3.0",
        "last_poll_timestamp_seconds 1000.0",
        'exchange_call_seconds_count{operation="GET Task",outcome="ok"} 1.0',
        'lis_call_seconds_count{adapter="folder",operation="submit",outcome="ok"} 1.0',
        'lis_skipped_total{adapter="hl7v2"} 1.0',
        'job_attempts_total{kind="deliver_report",outcome="done"} 1.0',
    )
    assert "lab_agent_build_info{" in metrics.render().decode()
    assert_shown(other, "orders_seen_total 0.0")  # registries are independent


def subclasses(kind: type) -> Iterator[type]:
    for each in kind.__subclasses__():
        yield each
        yield from subclasses(each)


def test_every_failure_has_a_word_of_its_own_and_faults_one() -> None:
    failures = [kind for kind in subclasses(Failure) if kind.__module__ == "lab_agent.shared.errors"]
    words = {kind: CallOutcome.of(kind.__new__(kind)) for kind in failures}
    assert len(words) > 15
    assert CallOutcome.INTERNAL_ERROR not in words.values()
    others = (StoreError(), asyncio.CancelledError(), KeyError(), LabAgentError())
    faults = [CallOutcome.INTERNAL_ERROR] * 2
    assert [CallOutcome.of(each) for each in others] == [CallOutcome.STORE, CallOutcome.CANCELLED, *faults]


def unavailable(subject: str, second: int, number: int) -> OpenCondition:
    return OpenCondition(
        condition=CONDITIONS[ConditionId.LIS_UNAVAILABLE],
        subject=subject,
        since=datetime.fromtimestamp(second, UTC),
        affected=(AffectedCount(number=number, noun="order", rest=" to hand over"),),
    )


def test_conditions_have_number_beginning_and_what_they_affect() -> None:
    metrics, critical = Metrics(), 'condition="lis.unavailable",severity="critical"'
    metrics.update_conditions([unavailable("folder", 200, 3), unavailable("micro", 100, 4)])
    assert_shown(
        metrics,
        f"condition_open{{{critical}}} 2.0",
        'condition_since_timestamp_seconds{condition="lis.unavailable"} 100.0',
        'condition_affected{condition="lis.unavailable",what="order to hand over"} 7.0',
        'condition_open{condition="store.locked",severity="critical"} 0.0',
    )
    assert metrics.render().decode().count("lab_agent_condition_open{") == len(ConditionId)
    metrics.update_conditions([unavailable("folder", 200, 3)], is_complete=False)
    assert_shown(
        metrics, f"condition_open{{{critical}}} 1.0", 'condition_open{condition="exchange.poll",severity="critical"} NaN'
    )
    metrics.update_conditions([])
    gone = ("condition_since_timestamp_seconds{", "condition_affected{")
    assert_shown(metrics, f"condition_open{{{critical}}} 0.0", not_shown=gone)


async def test_loop_lag_shows_what_kept_loop() -> None:
    metrics = Metrics()
    assert_shown(metrics, "loop_lag_seconds 0.0")
    watching = asyncio.create_task(metrics.loop_lag.watch())
    await asyncio.sleep(0)
    until = time.monotonic() + 0.3
    while time.monotonic() < until:  # what must never be done on a loop
        pass
    for _ in range(4):  # the timer is due: a few steps of the loop, and it has been noticed
        await asyncio.sleep(0)
    assert metrics.loop_lag.longest() > 0.1
    watching.cancel()
    with suppress(asyncio.CancelledError):
        await watching
