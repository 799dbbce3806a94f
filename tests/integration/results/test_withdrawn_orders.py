"""Results for what the partner withdrew: an operator may release them, and no Task moves."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from lab_agent.domain.ids import LineKey
from lab_agent.domain.lab_messages import LabRejection, LabReport, NotPerformed, ObservationStatus, ReportStatus
from lab_agent.domain.report_records import HoldReason
from lab_agent.domain.state_machines import OrderState, ReportState
from lab_agent.workflow import operator_results
from lab_sandbox.faults.plan import FaultRule
from tests.harness.results import NOW, ORDER, ResultsBench, haemoglobin, make_report

LATER = NOW + timedelta(hours=1)


@pytest.mark.parametrize(
    "late",
    [make_report(), make_report(lines=("L0",)), make_report(items=("001.001",)), make_report(order=None, barcode="1000000017")],
    ids=["order", "line", "item", "barcode"],
)
async def test_first_report_for_withdrawn_order_held_then_released(bench: ResultsBench, late: LabReport) -> None:
    await bench.withdraw()
    assert (await bench.get_order()).state is OrderState.CLOSED
    before = await bench.order_status()
    held = await bench.receive(late)
    assert held.hold_reason is HoldReason.UNEXPECTED
    assert "the order is withdrawn" in (held.reason or "")
    assert await bench.clinic_reports() == []
    await bench.release(held)
    assert (await bench.get_report("m1")).state is ReportState.DELIVERED
    assert len(await bench.clinic_reports()) == 1
    assert await bench.line_states() == ["withdrawn"] * 3
    assert await bench.order_status() == before
    assert await bench.jobs() == ()


async def test_unmatched_report_matched_to_withdrawn_order_is_released(bench: ResultsBench) -> None:
    await bench.withdraw()
    lost = await bench.receive(make_report(order="RNOBODY"))
    who: dict[str, Any] = {"by": "ann", "note": "read", "now": bench.clock.now()}
    matched = await operator_results.match_result(bench.store, bench.matcher, lost.key, ORDER, lines=(bench.line_key(0),), **who)
    assert matched.report.hold_reason is HoldReason.UNEXPECTED
    await bench.release(lost)
    assert (await bench.get_report("m1")).state is ReportState.DELIVERED


async def test_new_version_after_withdrawal_moves_no_task(bench: ResultsBench) -> None:
    """A new version after the withdrawal is delivered and moves no Task."""
    early = make_report(
        haemoglobin("5", status=ObservationStatus.PRELIMINARY), status=ReportStatus.PRELIMINARY, lines=("L0",), version=1
    )
    assert (await bench.receive(early)).state is ReportState.DELIVERED
    await bench.withdraw()
    before = await bench.order_status()
    newer = await bench.receive(make_report(haemoglobin("15"), lines=("L0",), version=2, issued=LATER))
    assert newer.state is ReportState.DELIVERED
    assert (await bench.resource_versions("Observation", "RORDER.rep.hb"))[-1]["valueQuantity"]["value"] == 15
    assert await bench.order_status() == before
    assert await bench.line_states() == ["withdrawn"] * 3


@pytest.mark.parametrize("names", [{"lines": ("L0", "L1")}, {"items": ("001.001", "004.001")}, {}], ids=["lines", "items", "all"])
async def test_withdrawn_line_does_not_delay_others(bench: ResultsBench, names: dict[str, Any]) -> None:
    await bench.withdraw(LineKey("L1"))
    assert (await bench.receive(make_report(**names))).state is ReportState.DELIVERED
    (found,) = await bench.clinic_reports()
    assert bench.placed.lines[0].procedure_request in found.lines
    assert bench.placed.lines[1].procedure_request not in found.lines
    assert (await bench.line_states())[:2] == ["completed", "withdrawn"]
    assert ("L1 was withdrawn" in bench.event_texts("result")[0]) is bool(names)


async def test_second_version_of_undelivered_report_is_held(bench: ResultsBench) -> None:
    """After a withdrawal a second version is held as a first one, because the first was never delivered."""
    bench.inject_faults(FaultRule(kind="status", status=503, route="POST /fhir/*"))
    await bench.receive(make_report(version=1))
    await bench.withdraw()
    bench.clock.time += timedelta(hours=1)
    newer = await bench.receive(make_report(haemoglobin("2"), version=2, issued=LATER))
    assert newer.hold_reason is HoldReason.UNEXPECTED
    bench.inject_faults()
    bench.clock.time += timedelta(hours=1)
    await bench.run_until_idle()
    assert (await bench.get_report("m1")).hold_reason is HoldReason.LINES_ENDED
    assert await bench.clinic_reports() == []


async def test_rejection_of_withdrawn_line_does_nothing(bench: ResultsBench) -> None:
    await bench.withdraw(LineKey("L0"))
    refused = await bench.receive(LabRejection(order=ORDER, not_performed=(NotPerformed(line="L0", reason="cancelled"),)))
    assert refused.state is ReportState.DELIVERED
    assert bench.event_texts("result") == ["the laboratory system rejected no line that waits; L0 is withdrawn, and stays so"]


@pytest.mark.parametrize("withdrawn", [(), (LineKey("L0"),)], ids=["order", "line"])
async def test_line_withdrawn_while_report_pending_holds_report(bench: ResultsBench, withdrawn: tuple[LineKey, ...]) -> None:
    bench.inject_faults(FaultRule(kind="status", status=503, route="POST /fhir/*"))
    assert (await bench.receive(make_report(lines=("L0",)))).state is ReportState.MATCHED
    await bench.withdraw(*withdrawn)
    bench.inject_faults()
    bench.clock.time += timedelta(hours=1)
    await bench.run_until_idle()
    held = await bench.get_report("m1")
    assert held.hold_reason is HoldReason.LINES_ENDED
    assert await bench.clinic_reports() == []
    await bench.release(held)
    assert (await bench.get_report("m1")).state is ReportState.DELIVERED


@pytest.mark.parametrize(
    ("items", "lines", "completed"),
    [
        (("001.001", "004.001"), ("L0",), ["completed", "accepted", "accepted"]),
        (("001.001", "002.001"), ("L0",), ["completed", "accepted", "accepted"]),
        (("004.001", "002.001"), ("L0",), ["completed", "accepted", "accepted"]),
        (("L1", "L0"), ("L0",), ["completed", "accepted", "accepted"]),
    ],
)
async def test_matching_narrows_items_to_chosen_lines(
    bench: ResultsBench, items: tuple[str, ...], lines: tuple[str, ...], completed: list[str]
) -> None:
    lost = await bench.receive(make_report(order="RNOBODY", items=items))
    who: dict[str, Any] = {"by": "ann", "note": "read", "now": bench.clock.now()}
    await operator_results.match_result(bench.store, bench.matcher, lost.key, ORDER, lines=tuple(map(LineKey, lines)), **who)
    await bench.run_until_idle()
    assert await bench.line_states() == completed
    (found,) = await bench.clinic_reports()
    assert found.lines == {bench.placed.lines[0].procedure_request}


async def test_matching_narrows_completed_codes_to_chosen_lines(bench: ResultsBench) -> None:
    lost = await bench.receive(make_report(order="RNOBODY", items=("001.001", "004.001"), completes=("001.001", "004.001")))
    who: dict[str, Any] = {"by": "ann", "note": "read", "now": bench.clock.now()}
    await operator_results.match_result(bench.store, bench.matcher, lost.key, ORDER, lines=(bench.line_key(0),), **who)
    await bench.run_until_idle()
    assert await bench.line_states() == ["completed", "accepted", "accepted"]
