"""Results for what the partner withdrew, made through the real withdrawal: a person may send them, and no Task moves."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from lab_agent.domain.ids import LineKey
from lab_agent.domain.lifecycle import OrderState, ReportState
from lab_agent.domain.results import LabRejection, LabReport, NotPerformed, ObservationStatus, ReportStatus
from lab_agent.steps import result_desk as desk
from lab_sandbox.faults.rule import FaultRule
from tests.results.bench import NOW, ORDER, ResultsBench, haemoglobin, make_report

LATER = NOW + timedelta(hours=1)


@pytest.mark.parametrize(
    "late",
    [make_report(), make_report(lines=("L0",)), make_report(items=("001.001",)), make_report(order=None, barcode="1000000017")],
    ids=["order", "line", "item", "barcode"],
)
async def test_the_first_report_for_a_withdrawn_order_is_held_and_released(bench: ResultsBench, late: LabReport) -> None:
    await bench.withdraw()
    assert (await bench.get_order()).state is OrderState.CLOSED
    before = await bench.order_status()
    held = await bench.receive(late)
    assert held.state is ReportState.HELD
    assert "the order is withdrawn, and this is the first" in (held.reason or "")
    assert await bench.clinic_reports() == []
    await bench.release(held)
    assert (await bench.get_report("m1")).state is ReportState.DELIVERED
    assert len(await bench.clinic_reports()) == 1
    assert await bench.line_states() == ["withdrawn"] * 3
    assert await bench.order_status() == before
    assert await bench.jobs() == ()


async def test_a_result_for_nobody_is_matched_to_a_withdrawn_order_and_released(bench: ResultsBench) -> None:
    await bench.withdraw()
    lost = await bench.receive(make_report(order="RNOBODY"))
    who: dict[str, Any] = {"by": "ann", "note": "read", "now": bench.clock.now()}
    matched = await desk.match_result(bench.store, bench.matcher, lost.key, ORDER, lines=(bench.line_key(0),), **who)
    assert matched.report.state is ReportState.HELD
    await bench.release(lost)
    assert (await bench.get_report("m1")).state is ReportState.DELIVERED


async def test_a_new_version_after_the_withdrawal_is_delivered_and_moves_no_task(bench: ResultsBench) -> None:
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
async def test_a_withdrawn_line_does_not_keep_back_the_others(bench: ResultsBench, names: dict[str, Any]) -> None:
    await bench.withdraw(LineKey("L1"))
    assert (await bench.receive(make_report(**names))).state is ReportState.DELIVERED
    (found,) = await bench.clinic_reports()
    assert bench.placed.lines[0].procedure_request in found.lines
    assert bench.placed.lines[1].procedure_request not in found.lines
    assert (await bench.line_states())[:2] == ["completed", "withdrawn"]
    assert ("L1 was withdrawn" in bench.event_texts("result")[0]) is bool(names)


async def test_a_second_version_on_its_way_is_no_first_one_that_went(bench: ResultsBench) -> None:
    bench.inject_faults(FaultRule(kind="status", status=503, route="POST /fhir/*"))
    await bench.receive(make_report(version=1))
    await bench.withdraw()
    bench.clock.time += timedelta(hours=1)
    newer = await bench.receive(make_report(haemoglobin("2"), version=2, issued=LATER))
    assert newer.state is ReportState.HELD
    bench.inject_faults()
    bench.clock.time += timedelta(hours=1)
    await bench.run_until_idle()
    assert (await bench.get_report("m1")).state is ReportState.HELD
    assert await bench.clinic_reports() == []


async def test_a_refusal_of_what_was_withdrawn_has_nothing_to_do(bench: ResultsBench) -> None:
    await bench.withdraw(LineKey("L0"))
    refused = await bench.receive(LabRejection(order=ORDER, not_performed=(NotPerformed(line="L0", reason="cancelled"),)))
    assert refused.state is ReportState.DELIVERED
    assert bench.event_texts("result") == ["the laboratory system refused what does not wait; L0 is withdrawn, and stays so"]


@pytest.mark.parametrize("withdrawn", [(), (LineKey("L0"),)], ids=["order", "line"])
async def test_what_is_withdrawn_while_its_report_waits_is_asked_about(
    bench: ResultsBench, withdrawn: tuple[LineKey, ...]
) -> None:
    bench.inject_faults(FaultRule(kind="status", status=503, route="POST /fhir/*"))
    assert (await bench.receive(make_report(lines=("L0",)))).state is ReportState.MATCHED
    await bench.withdraw(*withdrawn)
    bench.inject_faults()
    bench.clock.time += timedelta(hours=1)
    await bench.run_until_idle()
    held = await bench.get_report("m1")
    assert held.state is ReportState.HELD
    assert "L0 was withdrawn or cancelled while this report waited" in (held.reason or "")
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
async def test_the_desk_narrows_items_to_the_lines_that_a_person_names(
    bench: ResultsBench, items: tuple[str, ...], lines: tuple[str, ...], completed: list[str]
) -> None:
    lost = await bench.receive(make_report(order="RNOBODY", items=items))
    who: dict[str, Any] = {"by": "ann", "note": "read", "now": bench.clock.now()}
    await desk.match_result(bench.store, bench.matcher, lost.key, ORDER, lines=tuple(map(LineKey, lines)), **who)
    await bench.run_until_idle()
    assert await bench.line_states() == completed
    (found,) = await bench.clinic_reports()
    assert found.lines == {bench.placed.lines[0].procedure_request}


async def test_the_desk_narrows_what_a_report_says_it_completes(bench: ResultsBench) -> None:
    lost = await bench.receive(make_report(order="RNOBODY", items=("001.001", "004.001"), completes=("001.001", "004.001")))
    who: dict[str, Any] = {"by": "ann", "note": "read", "now": bench.clock.now()}
    await desk.match_result(bench.store, bench.matcher, lost.key, ORDER, lines=(bench.line_key(0),), **who)
    await bench.run_until_idle()
    assert await bench.line_states() == ["completed", "accepted", "accepted"]
