"""Rejections, lines not performed, and lines that the partner withdrew, where there is a result already, or one is on its way."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from lab_agent.lis.lab_messages import LabMessage, LabRejection, LabReport, NotPerformed, ObservationStatus, ReportStatus
from lab_agent.queue import jobs
from lab_agent.results.records import HoldReason
from lab_agent.shared.ids import LineKey
from lab_agent.shared.state_machines import LineState, OrderState, ReportState
from tests.harness.results import AWAY, ORDER, ResultsBench, haemoglobin, make_report
from tests.integration.results.histories import (
    Step,
    act,
    faults,
    get,
    lines,
    now,
    play,
    reads,
    release,
    states,
    values,
    withdraw,
    works,
)
from tests.integration.workflow.conftest import parametrize_first

DELIVERED, MATCHED, HELD = ReportState.DELIVERED, ReportState.MATCHED, ReportState.HELD
HAS_RESULT, QUESTION = HoldReason.LINE_HAS_RESULT, HoldReason.QUESTION
ENDED, UNEXPECTED = HoldReason.LINES_ENDED, HoldReason.UNEXPECTED
L0, L01 = {"lines": ("L0",)}, {"lines": ("L0", "L1")}
GONE = ["withdrawn"] * 3


def absent(*lines: str) -> tuple[NotPerformed, ...]:
    return tuple(NotPerformed(line=line, reason="swapped tube") for line in lines)


def rejection(*lines: str) -> LabRejection:
    return LabRejection(order=ORDER, not_performed=absent(*lines))


def empty(*lines: str) -> Any:
    return replace(make_report(report_id="no", lines=lines, not_performed=absent(*lines)), observations=())


async def cancel_first_line(bench: ResultsBench) -> None:
    def cancel(uow: Any) -> None:
        line = uow.orders.line(LineKey("L0")).transition_to(LineState.CANCELLED, bench.clock.now(), ("lost",))
        uow.orders.save_line(line)
        uow.jobs.add(jobs.update_line_task(line, jobs.TASK_CANCELLED, bench.clock.now()))

    await bench.store.transact(cancel)


async def wait_a_minute(bench: ResultsBench) -> None:
    bench.clock.time += timedelta(minutes=1)


VALUE = haemoglobin("1")
EARLY = make_report(haemoglobin("1", status=ObservationStatus.PRELIMINARY), status=ReportStatus.PRELIMINARY, version=1, **L0)
HISTORIES: dict[str, tuple[Step, ...]] = {
    "a report that only says not performed uploads nothing": (get(empty("L1")), lines("accepted", "cancelled"), reads()),
    "values beside the rejection of a completed line": (
        get(make_report(**L0)),
        get(make_report(report_id="mixed", **L01, not_performed=absent("L0")), QUESTION, "not_performed: names L0"), release(2),
        lines("completed", "completed")),
    "a rejection after a final report that is on its way": (
        faults(AWAY), get(make_report(VALUE, **L0), MATCHED), get(rejection("L0"), HAS_RESULT), works(), reads("1"),
        lines("completed")),
    # of two reports on their way, neither takes back the result of the other
    "a rejection before a final report, both on their way": (
        faults(AWAY), get(make_report(report_id="other", **L01, not_performed=absent("L0")), MATCHED), act(wait_a_minute),
        get(make_report(**L0), MATCHED), works(), states(HELD, DELIVERED), lines("completed")),
    "a line cancelled while its report is on its way": (
        faults(AWAY), get(make_report(VALUE, **L01), MATCHED), act(cancel_first_line), works(), now(1, ENDED), reads(),
        release(1),
        reads("1"), lines("cancelled", "completed")),
    "a line withdrawn while its report is on its way": (
        faults(AWAY), get(make_report(VALUE, **L0), MATCHED), withdraw("L0"), works(), now(1, ENDED), reads(), release(1),
        reads("1"), lines("withdrawn")),
    "an order withdrawn while its report is on its way": (
        faults(AWAY), get(make_report(VALUE, **L0), MATCHED), withdraw(), works(), now(1, ENDED), reads(), release(1), reads("1"),
        lines(*GONE)),
    # the first one was never delivered, so that the second one is held as a first one
    "a second version after a withdrawal, the first on its way": (
        faults(AWAY), get(make_report(version=1), MATCHED), withdraw(), act(wait_a_minute),
        get(make_report(haemoglobin("2"), version=2), UNEXPECTED), works(), now(1, ENDED), reads()),
    "a new version after a withdrawal": (
        get(EARLY), withdraw(), get(make_report(haemoglobin("15"), version=2, **L0)), values("1", "15"), lines(*GONE)),
    "a rejection of a line that was withdrawn": (withdraw("L0"), get(rejection("L0")), lines("withdrawn")),
}  # fmt: skip


@parametrize_first("case", HISTORIES, quick=4)
async def test_line_that_has_ended_stays_so(case: str) -> None:
    await play(HISTORIES[case])


@pytest.mark.slow
@pytest.mark.parametrize("message", [rejection("L0", "L1"), empty("L0", "L1"), rejection("L0")], ids=["two", "report", "one"])
async def test_rejection_of_line_with_result_is_held(bench: ResultsBench, message: LabMessage) -> None:
    """Once released it ends the lines that have no result, and its history says which has one."""
    await bench.receive(make_report(**L0))
    held = await bench.receive(message)
    assert held.hold_reason is HAS_RESULT
    assert await bench.line_states() == ["completed", "accepted", "accepted"]
    assert (await bench.release(held)).report.state is DELIVERED
    ends = "accepted" if message == rejection("L0") else "cancelled"
    assert await bench.line_states() == ["completed", ends, "accepted"]
    assert bench.event_texts("result")[-1].endswith("L0 is completed, and stays so")
    assert len(await bench.clinic_reports()) == 1, "an empty report is never sent"


@parametrize_first("late", [make_report(), make_report(order=None, barcode="1000000017"), make_report(order="RNOBODY")])
async def test_first_report_for_withdrawn_order_held_then_released(bench: ResultsBench, late: LabReport) -> None:
    """An operator may release it, and no Task moves."""
    await bench.withdraw()
    assert (await bench.get_order()).state is OrderState.CLOSED
    before = await bench.order_status()
    held = await bench.receive(late)
    if held.state is ReportState.UNMATCHED:
        held = (await bench.match(held, "L0")).report
    assert held.hold_reason is UNEXPECTED
    assert await bench.clinic_reports() == []
    await bench.release(held)
    assert (await bench.get_report("m1")).state is DELIVERED
    assert len(await bench.clinic_reports()) == 1
    assert await bench.line_states() == GONE
    assert (await bench.order_status(), await bench.jobs()) == (before, ())
