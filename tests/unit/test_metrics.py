"""The numbers: their names, and that what is gone disappears."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime

from lab_agent.conditions.ids import ConditionId
from lab_agent.conditions.model import AffectedCount, OpenCondition
from lab_agent.conditions.table import CONDITIONS
from lab_agent.domain.state_machines import OrderState
from lab_agent.errors import Failure, LabAgentError, ServicePaused, StoreError
from lab_agent.metrics import CallOutcome, Metrics, StoreGauges


def text(metrics: Metrics) -> str:
    return metrics.render().decode()


def test_gauges_show_states_and_drop_stale_ones():
    metrics = Metrics()
    metrics.update_store(
        StoreGauges(
            orders={"seen": 2}, jobs={("submit_order", "due"): 4}, refused_messages={"his": 7}, oldest_order=61.0, alerts_open=1
        )
    )
    assert 'lab_agent_orders{state="seen"} 2.0' in text(metrics)
    assert 'lab_agent_jobs{kind="submit_order",state="due"} 4.0' in text(metrics)
    assert 'lab_agent_refused_messages{adapter="his"} 7.0' in text(metrics)
    assert 'lab_agent_oldest_age_seconds{what="order"} 61.0' in text(metrics)
    assert "lab_agent_alerts_open 1.0" in text(metrics)
    metrics.update_store(StoreGauges(orders={OrderState.CLOSED: 2}, lines={"accepted": 3}, reports={"held": 1}, last_poll=5.0))
    assert 'lab_agent_orders{state="closed"} 2.0' in text(metrics)
    assert 'lab_agent_lines{state="accepted"} 3.0' in text(metrics)
    assert "lab_agent_last_poll_timestamp_seconds 5.0" in text(metrics)
    assert 'state="seen"' not in text(metrics)
    assert 'lab_agent_reports{state="held"} 1.0' in text(metrics)


def test_polls_calls_and_attempts_are_counted():
    metrics = Metrics()
    metrics.record_poll(CallOutcome.OK, new=3, at=1000.0)
    metrics.record_poll(CallOutcome.of(ServicePaused()), new=0, at=2000.0)
    metrics.record_exchange_call("GET Task", CallOutcome.OK, 0.2)
    metrics.record_lis_call("folder", "submit", CallOutcome.OK, 0.1)
    metrics.record_attempt("deliver_report", "done")
    metrics.record_skip("hl7v2")
    shown = text(metrics)
    assert 'lab_agent_polls_total{outcome="ok"} 1.0' in shown
    assert 'lab_agent_polls_total{outcome="not_sent"} 1.0' in shown
    assert "lab_agent_orders_seen_total 3.0" in shown
    assert "lab_agent_last_poll_timestamp_seconds 1000.0" in shown
    assert 'lab_agent_exchange_call_seconds_count{operation="GET Task",outcome="ok"} 1.0' in shown
    assert 'lab_agent_lis_call_seconds_count{adapter="folder",operation="submit",outcome="ok"} 1.0' in shown
    assert 'lab_agent_lis_skipped_total{adapter="hl7v2"} 1.0' in shown
    assert 'lab_agent_job_attempts_total{kind="deliver_report",outcome="done"} 1.0' in shown
    assert "lab_agent_build_info{" in shown


def subclasses(kind: type) -> Iterator[type]:
    for each in kind.__subclasses__():
        yield each
        yield from subclasses(each)


def test_every_failure_has_a_word():
    """No outcome is the name of a class, and none of our own failures counts as a fault of the program."""
    failures = [kind for kind in subclasses(Failure) if kind.__module__ == "lab_agent.errors"]
    words = {kind: CallOutcome.of(kind.__new__(kind)) for kind in failures}
    assert len(words) > 15
    assert CallOutcome.INTERNAL_ERROR not in words.values()
    assert all(word.value == word.value.lower() for word in words.values())


def test_outcome_of_other_errors():
    assert CallOutcome.of(StoreError()) is CallOutcome.STORE
    assert CallOutcome.of(asyncio.CancelledError()) is CallOutcome.CANCELLED
    assert CallOutcome.of(KeyError()) is CallOutcome.INTERNAL_ERROR
    assert CallOutcome.of(LabAgentError()) is CallOutcome.INTERNAL_ERROR


def test_registries_are_independent():
    first, second = Metrics(), Metrics()
    first.record_poll(CallOutcome.OK, new=1, at=1.0)
    assert "lab_agent_orders_seen_total 0.0" in text(second)


def unavailable(subject: str, second: int, number: int) -> OpenCondition:
    return OpenCondition(
        condition=CONDITIONS[ConditionId.LIS_UNAVAILABLE],
        subject=subject,
        since=datetime.fromtimestamp(second, UTC),
        affected=(AffectedCount(number=number, noun="order", rest=" to hand over"),),
    )


def test_conditions_have_number_beginning_and_what_they_affect():
    metrics = Metrics()
    metrics.update_conditions([unavailable("folder", 200, 3), unavailable("micro", 100, 4)])
    shown = text(metrics)
    assert 'lab_agent_condition_open{condition="lis.unavailable",severity="critical"} 2.0' in shown
    assert 'lab_agent_condition_since_timestamp_seconds{condition="lis.unavailable"} 100.0' in shown
    assert 'lab_agent_condition_affected{condition="lis.unavailable",what="order to hand over"} 7.0' in shown
    assert 'lab_agent_condition_open{condition="store.locked",severity="critical"} 0.0' in shown
    assert shown.count("lab_agent_condition_open{") == len(ConditionId)


def test_condition_that_ended_leaves_zero_and_no_details():
    metrics = Metrics()
    metrics.update_conditions([unavailable("folder", 200, 3)])
    metrics.update_conditions([])
    shown = text(metrics)
    assert 'lab_agent_condition_open{condition="lis.unavailable",severity="critical"} 0.0' in shown
    assert "lab_agent_condition_since_timestamp_seconds{" not in shown
    assert "lab_agent_condition_affected{" not in shown


def test_conditions_not_known_are_nan():
    metrics = Metrics()
    metrics.update_conditions([unavailable("folder", 200, 3)], is_complete=False)
    shown = text(metrics)
    assert 'lab_agent_condition_open{condition="lis.unavailable",severity="critical"} 1.0' in shown
    assert 'lab_agent_condition_open{condition="exchange.poll",severity="critical"} NaN' in shown


async def test_loop_lag_shows_what_kept_loop() -> None:
    metrics = Metrics()
    assert "lab_agent_loop_lag_seconds 0.0" in text(metrics)
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
