"""Results for what the partner withdrew, made through the real withdrawal: a person may send them, and no Task moves."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from lab_agent.domain.ids import LineKey
from lab_agent.domain.lifecycle import OrderState, ReportState
from lab_agent.domain.results import LabRefusal, LabReport, NotPerformed, ObservationStatus, ReportStatus
from lab_agent.steps import result_desk as desk
from lab_sandbox.faults.rule import FaultRule
from tests.results.bench import NOW, ORDER, Bench, hb, report

LATER = NOW + timedelta(hours=1)


@pytest.mark.parametrize(
    "late",
    [report(), report(lines=("L0",)), report(items=("001.001",)), report(order=None, barcode="1000000017")],
    ids=["order", "line", "item", "barcode"],
)
async def test_the_first_report_for_a_withdrawn_order_is_held_and_released(bench: Bench, late: LabReport) -> None:
    await bench.withdraw()
    assert (await bench.order()).state is OrderState.CLOSED
    before = await bench.tasks()
    held = await bench.send(late)
    assert held.state is ReportState.HELD
    assert "the order is withdrawn, and this is the first" in (held.reason or "")
    assert await bench.seen() == []
    await bench.release(held)
    assert (await bench.kept("m1")).state is ReportState.DELIVERED
    assert len(await bench.seen()) == 1
    assert await bench.line_states() == ["withdrawn"] * 3
    assert await bench.tasks() == before
    assert await bench.effects() == ()


async def test_a_result_for_nobody_is_matched_to_a_withdrawn_order_and_released(bench: Bench) -> None:
    await bench.withdraw()
    lost = await bench.send(report(order="RNOBODY"))
    who: dict[str, Any] = {"by": "ann", "note": "read", "now": bench.clock.now()}
    matched = await desk.match_result(bench.store, bench.matcher, lost.key, ORDER, lines=(bench.line(0),), **who)
    assert matched.report.state is ReportState.HELD
    await bench.release(lost)
    assert (await bench.kept("m1")).state is ReportState.DELIVERED


async def test_a_new_version_after_the_withdrawal_is_delivered_and_moves_no_task(bench: Bench) -> None:
    early = report(hb("5", status=ObservationStatus.PRELIMINARY), status=ReportStatus.PRELIMINARY, lines=("L0",), version=1)
    assert (await bench.send(early)).state is ReportState.DELIVERED
    await bench.withdraw()
    before = await bench.tasks()
    newer = await bench.send(report(hb("15"), lines=("L0",), version=2, issued=LATER))
    assert newer.state is ReportState.DELIVERED
    assert (await bench.versions("Observation", "RORDER.rep.hb"))[-1]["valueQuantity"]["value"] == 15
    assert await bench.tasks() == before
    assert await bench.line_states() == ["withdrawn"] * 3


@pytest.mark.parametrize("names", [{"lines": ("L0", "L1")}, {"items": ("001.001", "004.001")}, {}], ids=["lines", "items", "all"])
async def test_a_withdrawn_line_does_not_keep_back_the_others(bench: Bench, names: dict[str, Any]) -> None:
    await bench.withdraw(LineKey("L1"))
    assert (await bench.send(report(**names))).state is ReportState.DELIVERED
    (found,) = await bench.seen()
    assert bench.placed.lines[0].procedure_request in found.lines
    assert bench.placed.lines[1].procedure_request not in found.lines
    assert (await bench.line_states())[:2] == ["completed", "withdrawn"]
    assert ("L1 was withdrawn" in bench.told("result")[0]) is bool(names)


async def test_a_second_version_on_its_way_is_no_first_one_that_went(bench: Bench) -> None:
    bench.faults(FaultRule(kind="status", status=503, route="POST /fhir/*"))
    await bench.send(report(version=1))
    await bench.withdraw()
    bench.clock.time += timedelta(hours=1)
    newer = await bench.send(report(hb("2"), version=2, issued=LATER))
    assert newer.state is ReportState.HELD
    bench.faults()
    bench.clock.time += timedelta(hours=1)
    await bench.work()
    assert (await bench.kept("m1")).state is ReportState.HELD
    assert await bench.seen() == []


async def test_a_refusal_of_what_was_withdrawn_has_nothing_to_do(bench: Bench) -> None:
    await bench.withdraw(LineKey("L0"))
    refused = await bench.send(LabRefusal(order=ORDER, not_performed=(NotPerformed(line="L0", reason="cancelled"),)))
    assert refused.state is ReportState.DELIVERED
    assert bench.told("result") == ["the laboratory system refused what does not wait; L0 is withdrawn, and stays so"]


@pytest.mark.parametrize("withdrawn", [(), (LineKey("L0"),)], ids=["order", "line"])
async def test_what_is_withdrawn_while_its_report_waits_is_asked_about(bench: Bench, withdrawn: tuple[LineKey, ...]) -> None:
    bench.faults(FaultRule(kind="status", status=503, route="POST /fhir/*"))
    assert (await bench.send(report(lines=("L0",)))).state is ReportState.MATCHED
    await bench.withdraw(*withdrawn)
    bench.faults()
    bench.clock.time += timedelta(hours=1)
    await bench.work()
    held = await bench.kept("m1")
    assert held.state is ReportState.HELD
    assert "L0 was withdrawn or cancelled while this report waited" in (held.reason or "")
    assert await bench.seen() == []
    await bench.release(held)
    assert (await bench.kept("m1")).state is ReportState.DELIVERED


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
    bench: Bench, items: tuple[str, ...], lines: tuple[str, ...], completed: list[str]
) -> None:
    lost = await bench.send(report(order="RNOBODY", items=items))
    who: dict[str, Any] = {"by": "ann", "note": "read", "now": bench.clock.now()}
    await desk.match_result(bench.store, bench.matcher, lost.key, ORDER, lines=tuple(map(LineKey, lines)), **who)
    await bench.work()
    assert await bench.line_states() == completed
    (found,) = await bench.seen()
    assert found.lines == {bench.placed.lines[0].procedure_request}


async def test_the_desk_narrows_what_a_report_says_it_completes(bench: Bench) -> None:
    lost = await bench.send(report(order="RNOBODY", items=("001.001", "004.001"), completes=("001.001", "004.001")))
    who: dict[str, Any] = {"by": "ann", "note": "read", "now": bench.clock.now()}
    await desk.match_result(bench.store, bench.matcher, lost.key, ORDER, lines=(bench.line(0),), **who)
    await bench.work()
    assert await bench.line_states() == ["completed", "accepted", "accepted"]
