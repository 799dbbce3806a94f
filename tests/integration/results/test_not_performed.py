"""Rejections and lines not performed, where there is a result already, or one is on its way."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from lab_agent.domain import jobs
from lab_agent.domain.ids import LineKey
from lab_agent.domain.lab_messages import LabMessage, LabRejection, NotPerformed
from lab_agent.domain.report_records import HoldReason
from lab_agent.domain.state_machines import LineState, ReportState
from lab_sandbox.faults.plan import FaultRule
from tests.harness.results import NOW, ORDER, ResultsBench, haemoglobin, make_report

LATER = NOW + timedelta(hours=1)


def absent(*lines: str) -> tuple[NotPerformed, ...]:
    return tuple(NotPerformed(line=line, reason="swapped tube") for line in lines)


def rejection(*lines: str) -> LabRejection:
    return LabRejection(order=ORDER, not_performed=absent(*lines))


def empty(*lines: str) -> Any:
    return replace(make_report(report_id="no", lines=lines, not_performed=absent(*lines)), observations=())


@pytest.mark.parametrize("message", [rejection("L0", "L1"), empty("L0", "L1")], ids=["rejection", "report"])
async def test_rejection_of_line_with_result_is_held(bench: ResultsBench, message: LabMessage) -> None:
    """A rejection of a line that has a result is held, and its history says what is true."""
    await bench.receive(make_report(lines=("L0",)))
    held = await bench.receive(message)
    assert held.hold_reason is HoldReason.LINE_HAS_RESULT
    assert await bench.line_states() == ["completed", "accepted", "accepted"]
    assert (await bench.release(held)).report.state is ReportState.DELIVERED
    assert await bench.line_states() == ["completed", "cancelled", "accepted"]
    assert bench.event_texts("result")[-1] == "the laboratory system rejected L1; L0 is completed, and stays so"
    assert len(await bench.clinic_reports()) == 1, "an empty report is never sent"


@pytest.mark.parametrize("message", [rejection("L0"), empty("L0")], ids=["rejection", "report"])
async def test_released_rejection_of_completed_lines_does_nothing(bench: ResultsBench, message: LabMessage) -> None:
    """A rejection of lines that all have results does nothing when released."""
    await bench.receive(make_report(lines=("L0",)))
    held = await bench.receive(message)
    assert held.hold_reason is HoldReason.LINE_HAS_RESULT
    await bench.release(held)
    assert await bench.line_states() == ["completed", "accepted", "accepted"]
    assert bench.event_texts("result")[-1] == "the laboratory system rejected no line that waits; L0 is completed, and stays so"
    assert len(await bench.clinic_reports()) == 1


async def test_only_not_performed_report_cancels_without_upload(bench: ResultsBench) -> None:
    """A report that only says not performed cancels its lines and uploads nothing."""
    only = replace(make_report(not_performed=absent("L1")), observations=())
    assert (await bench.receive(only)).state is ReportState.DELIVERED
    assert await bench.line_states() == ["accepted", "cancelled", "accepted"]
    assert await bench.clinic_reports() == []
    text = "the laboratory system rejected L1; nothing is said of L0, L2, which wait for a result"
    assert bench.event_texts("result") == [text]


async def test_values_beside_completed_line_rejection_held_then_released(bench: ResultsBench) -> None:
    """Values beside the rejection of a line that has a result are held, and released."""
    await bench.receive(make_report(lines=("L0",)))
    mixed = make_report(report_id="mixed", lines=("L0", "L1"), not_performed=absent("L0"))
    held = await bench.receive(mixed)
    assert held.hold_reason is HoldReason.QUESTION
    assert "not_performed: names L0" in (held.reason or "")
    await bench.release(held)
    assert await bench.line_states() == ["completed", "completed", "accepted"]
    assert bench.event_texts("delivered")[-1].endswith("; L0, said not performed, stays completed")


async def test_new_version_without_values_is_held(bench: ResultsBench) -> None:
    await bench.receive(make_report(lines=("L0",), version=1))
    gone = replace(make_report(lines=("L0",), version=2, issued=LATER, not_performed=absent("L0")), observations=())
    held = await bench.receive(gone)
    assert held.hold_reason is HoldReason.QUESTION
    assert "not_performed: names L0" in (held.reason or "")
    assert "leave out hb" in (held.reason or "")


async def test_rejection_after_pending_final_report_is_held(bench: ResultsBench) -> None:
    """A rejection that comes while a final report is on its way is held."""
    bench.inject_faults(FaultRule(kind="status", status=503, route="POST /fhir/*"))
    assert (await bench.receive(make_report(lines=("L0",)))).state is ReportState.MATCHED
    held = await bench.receive(rejection("L0"))
    assert held.hold_reason is HoldReason.LINE_HAS_RESULT
    bench.inject_faults()
    await bench.run_until_idle()
    assert (await bench.order_status()).lines[bench.placed.lines[0].procedure_request] == "completed"
    assert len(await bench.clinic_reports()) == 1


async def test_line_cancelled_while_report_pending_holds_report(bench: ResultsBench) -> None:
    bench.inject_faults(FaultRule(kind="status", status=503, route="POST /fhir/*"))
    await bench.receive(make_report(haemoglobin("1"), lines=("L0", "L1")))

    def cancel(uow: Any) -> None:
        line = uow.orders.line(LineKey("L0")).transition_to(LineState.CANCELLED, bench.clock.now(), ("lost",))
        uow.orders.save_line(line)
        uow.jobs.add(jobs.update_line_task(line, jobs.TASK_CANCELLED, bench.clock.now()))
        uow.commit()

    await bench.store.run(cancel)
    bench.inject_faults()
    bench.clock.time += timedelta(hours=1)
    await bench.run_until_idle()
    held = await bench.get_report("m1")
    assert held.hold_reason is HoldReason.LINES_ENDED
    assert await bench.line_states() == ["cancelled", "accepted", "accepted"]
    await bench.release(held)
    assert await bench.line_states() == ["cancelled", "completed", "accepted"]


async def test_two_pending_reports_do_not_retract_result(bench: ResultsBench) -> None:
    """Of two reports on their way, neither takes back the result of the other."""
    bench.inject_faults(FaultRule(kind="status", status=503, route="POST /fhir/*"))
    await bench.receive(make_report(report_id="other", lines=("L0", "L1"), not_performed=absent("L0")))
    bench.clock.time += timedelta(minutes=1)
    await bench.receive(make_report(lines=("L0",)))
    bench.inject_faults()
    bench.clock.time += timedelta(hours=1)
    await bench.run_until_idle()
    assert (await bench.get_report("m1")).state is ReportState.HELD
    assert (await bench.get_report("m2")).state is ReportState.DELIVERED
    assert await bench.line_states() == ["completed", "accepted", "accepted"]
