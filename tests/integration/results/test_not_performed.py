"""Rejections, lines not performed, and lines that the partner withdrew, where there is a result already, or one is on its way."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from lab_agent.domain import jobs
from lab_agent.domain.ids import LineKey
from lab_agent.domain.lab_messages import LabMessage, LabRejection, LabReport, NotPerformed, ObservationStatus, ReportStatus
from lab_agent.domain.report_records import HoldReason
from lab_agent.domain.state_machines import LineState, OrderState, ReportState
from tests.harness.results import AWAY, NOW, ORDER, ResultsBench, haemoglobin, make_report

DELIVERED, MATCHED = ReportState.DELIVERED, ReportState.MATCHED


def absent(*lines: str) -> tuple[NotPerformed, ...]:
    return tuple(NotPerformed(line=line, reason="swapped tube") for line in lines)


def rejection(*lines: str) -> LabRejection:
    return LabRejection(order=ORDER, not_performed=absent(*lines))


def empty(*lines: str) -> Any:
    return replace(make_report(report_id="no", lines=lines, not_performed=absent(*lines)), observations=())


async def end_outage(bench: ResultsBench) -> None:
    bench.inject_faults()
    bench.clock.time += timedelta(hours=1)
    await bench.run_until_idle()


@pytest.mark.parametrize(
    ("message", "ends"),
    [
        (rejection("L0", "L1"), "cancelled"),
        (empty("L0", "L1"), "cancelled"),
        (rejection("L0"), "accepted"),
        (empty("L0"), "accepted"),
    ],
    ids=["rejection", "report", "rejection of all", "report on all"],
)
async def test_rejection_of_line_with_result_is_held(bench: ResultsBench, message: LabMessage, ends: str) -> None:
    """Once released it ends the lines that have no result, and its history says which has one."""
    await bench.receive(make_report(lines=("L0",)))
    held = await bench.receive(message)
    assert held.hold_reason is HoldReason.LINE_HAS_RESULT
    assert await bench.line_states() == ["completed", "accepted", "accepted"]
    assert (await bench.release(held)).report.state is DELIVERED
    assert await bench.line_states() == ["completed", ends, "accepted"]
    assert bench.event_texts("result")[-1].endswith("L0 is completed, and stays so")
    assert len(await bench.clinic_reports()) == 1, "an empty report is never sent"


async def test_only_not_performed_report_cancels_without_upload(bench: ResultsBench) -> None:
    assert (await bench.receive(replace(make_report(not_performed=absent("L1")), observations=()))).state is DELIVERED
    assert await bench.line_states() == ["accepted", "cancelled", "accepted"]
    assert await bench.clinic_reports() == []
    (text,) = bench.event_texts("result")
    assert "L0, L2" in text


async def test_values_beside_completed_line_rejection_held_then_released(bench: ResultsBench) -> None:
    await bench.receive(make_report(lines=("L0",)))
    held = await bench.receive(make_report(report_id="mixed", lines=("L0", "L1"), not_performed=absent("L0")))
    assert (held.hold_reason, "not_performed: names L0" in (held.reason or "")) == (HoldReason.QUESTION, True)
    await bench.release(held)
    assert await bench.line_states() == ["completed", "completed", "accepted"]
    assert "L0" in bench.event_texts("delivered")[-1]


async def test_rejection_after_pending_final_report_is_held(bench: ResultsBench) -> None:
    bench.inject_faults(AWAY)
    assert (await bench.receive(make_report(lines=("L0",)))).state is MATCHED
    assert (await bench.receive(rejection("L0"))).hold_reason is HoldReason.LINE_HAS_RESULT
    await end_outage(bench)
    assert (await bench.order_status()).lines[bench.placed.lines[0].procedure_request] == "completed"
    assert len(await bench.clinic_reports()) == 1


@pytest.mark.parametrize("how", ["cancelled", "line withdrawn", "order withdrawn"])
async def test_line_ended_while_report_pending_holds_report(bench: ResultsBench, how: str) -> None:
    bench.inject_faults(AWAY)
    lines = ("L0",) if how == "line withdrawn" else ("L0", "L1")
    await bench.receive(make_report(haemoglobin("1"), lines=lines))

    def cancel(uow: Any) -> None:
        line = uow.orders.line(LineKey("L0")).transition_to(LineState.CANCELLED, bench.clock.now(), ("lost",))
        uow.orders.save_line(line)
        uow.jobs.add(jobs.update_line_task(line, jobs.TASK_CANCELLED, bench.clock.now()))
        uow.commit()

    if how == "cancelled":
        await bench.store.run(cancel)
    else:
        await bench.withdraw(*([LineKey("L0")] if how == "line withdrawn" else []))
    await end_outage(bench)
    held = await bench.get_report("m1")
    assert held.hold_reason is HoldReason.LINES_ENDED
    assert await bench.clinic_reports() == []
    await bench.release(held)
    assert (await bench.get_report("m1")).state is DELIVERED
    states = {"cancelled": ["cancelled", "completed"], "line withdrawn": ["withdrawn", "accepted"]}
    assert (await bench.line_states())[:2] == states.get(how, ["withdrawn"] * 2)


async def test_two_pending_reports_do_not_retract_result(bench: ResultsBench) -> None:
    """Of two reports on their way, neither takes back the result of the other."""
    bench.inject_faults(AWAY)
    await bench.receive(make_report(report_id="other", lines=("L0", "L1"), not_performed=absent("L0")))
    bench.clock.time += timedelta(minutes=1)
    await bench.receive(make_report(lines=("L0",)))
    await end_outage(bench)
    assert await bench.report_states() == [ReportState.HELD, DELIVERED]
    assert await bench.line_states() == ["completed", "accepted", "accepted"]


# --- withdrawn by the partner: an operator may release results, and no Task moves


@pytest.mark.parametrize(
    "late",
    [make_report(), make_report(lines=("L0",)), make_report(order=None, barcode="1000000017"), make_report(order="RNOBODY")],
    ids=["order", "line", "barcode", "matched by hand"],
)
async def test_first_report_for_withdrawn_order_held_then_released(bench: ResultsBench, late: LabReport) -> None:
    await bench.withdraw()
    assert (await bench.get_order()).state is OrderState.CLOSED
    before = await bench.order_status()
    held = await bench.receive(late)
    if held.state is ReportState.UNMATCHED:
        held = (await bench.match(held, "L0")).report
    assert held.hold_reason is HoldReason.UNEXPECTED
    assert await bench.clinic_reports() == []
    await bench.release(held)
    assert (await bench.get_report("m1")).state is DELIVERED
    assert len(await bench.clinic_reports()) == 1
    assert await bench.line_states() == ["withdrawn"] * 3
    assert (await bench.order_status(), await bench.jobs()) == (before, ())


async def test_new_version_after_withdrawal_moves_no_task(bench: ResultsBench) -> None:
    early = haemoglobin("5", status=ObservationStatus.PRELIMINARY)
    first = await bench.receive(make_report(early, status=ReportStatus.PRELIMINARY, lines=("L0",), version=1))
    assert first.state is DELIVERED
    await bench.withdraw()
    before = await bench.order_status()
    newer = await bench.receive(make_report(haemoglobin("15"), lines=("L0",), version=2))
    assert (newer.state, await bench.values()) == (DELIVERED, ["5", "15"])
    assert (await bench.order_status(), await bench.line_states()) == (before, ["withdrawn"] * 3)


@pytest.mark.parametrize("names", [{"lines": ("L0", "L1")}, {}], ids=["lines", "all"])
async def test_withdrawn_line_does_not_delay_others(bench: ResultsBench, names: dict[str, Any]) -> None:
    await bench.withdraw(LineKey("L1"))
    assert (await bench.receive(make_report(**names))).state is DELIVERED
    (found,) = await bench.clinic_reports()
    requests = [line.procedure_request for line in bench.placed.lines]
    assert [request in found.lines for request in requests] == [True, False, not names]
    assert (await bench.line_states())[:2] == ["completed", "withdrawn"]
    assert ("L1 was withdrawn" in bench.event_texts("result")[0]) is bool(names)
    assert (await bench.receive(rejection("L1"))).state is DELIVERED
    assert (await bench.line_states())[:2] == ["completed", "withdrawn"], "its rejection does nothing"


async def test_second_version_of_undelivered_report_is_held(bench: ResultsBench) -> None:
    """After a withdrawal a second version is held as a first one, because the first was never delivered."""
    bench.inject_faults(AWAY)
    await bench.receive(make_report(version=1))
    await bench.withdraw()
    bench.clock.time += timedelta(hours=1)
    newer = await bench.receive(make_report(haemoglobin("2"), version=2, issued=NOW + timedelta(hours=1)))
    assert newer.hold_reason is HoldReason.UNEXPECTED
    await end_outage(bench)
    assert (await bench.get_report("m1")).hold_reason is HoldReason.LINES_ENDED
    assert await bench.clinic_reports() == []
