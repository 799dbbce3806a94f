"""What a version says is lost in no other: not where it waits for a person, not where a laboratory sends only what is new."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from lab_agent.domain.journal import ReportRecord
from lab_agent.domain.lifecycle import ReportState
from lab_agent.domain.results import NotPerformed, ObservationStatus, ReportStatus
from lab_agent.domain.values import Coding
from lab_agent.steps import result_desk as desk
from lab_agent.steps.desk import retry_effect
from lab_sandbox.faults.rule import FaultRule
from tests.results.bench import NOW, Bench, hb, open_bench, report

LATER = NOW + timedelta(hours=1)
STRANGE = hb("6.4", id="new", code=Coding(code="NEW"))
ABSENT = (NotPerformed(line="L0", reason="clotted"),)


async def release(bench: Bench, held: ReportRecord) -> None:
    await desk.release_result(bench.store, bench.matcher, held.key, by="ann", note="asked", now=bench.clock.now())
    await bench.work()


def refused(**more: Any) -> Any:
    return replace(report(not_performed=ABSENT, **more), observations=())


async def test_what_was_not_performed_is_said_twice_and_completes_nothing_else(bench: Bench) -> None:
    for version in (1, 2):
        assert (await bench.send(refused(version=version))).state is ReportState.DELIVERED
    assert await bench.line_states() == ["cancelled", "accepted", "accepted"]
    assert await bench.seen() == [], "an empty report is never sent"
    said = await bench.send(report(version=3, lines=("L1", "L2"), status=ReportStatus.PARTIAL))
    assert said.state is ReportState.DELIVERED, "nothing of the report was final"


async def test_values_of_a_line_that_was_said_not_performed_are_asked_about(bench: Bench) -> None:
    await bench.send(refused(version=1, lines=("L0",)))
    held = await bench.send(report(version=2, lines=("L0",)))
    assert (held.state, "has ended as cancelled" in (held.reason or "")) == (ReportState.HELD, True)


async def test_a_report_that_had_values_and_has_none_is_asked_about(bench: Bench) -> None:
    await bench.send(report(hb("1", status=ObservationStatus.PRELIMINARY), status=ReportStatus.PRELIMINARY, version=1))
    held = await bench.send(refused(version=2))
    assert (held.state, "this one has none" in (held.reason or "")) == (ReportState.HELD, True)
    await release(bench, held)
    assert await bench.line_states() == ["cancelled", "accepted", "accepted"]


async def test_an_older_refusal_that_comes_late_cancels_nothing(bench: Bench) -> None:
    bench.faults(FaultRule(kind="status", status=503, route="POST /fhir/*"))
    await bench.send(report(version=2, status=ReportStatus.PRELIMINARY))
    assert (await bench.send(refused(version=1))).state is ReportState.SUPERSEDED
    assert await bench.line_states() == ["accepted"] * 3


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    (tmp_path / "codes.csv").write_text("code,loinc\nOTHER,718-7\n")
    return tmp_path


async def mended(bench: Bench, tables: Path) -> None:
    (tables / "codes.csv").write_text("code,loinc\nNEW,4548-4\n")
    bench.mappings.reload()
    await desk.release_mapped(bench.store, bench.matcher, by="ann", now=bench.clock.now())
    await bench.work()


async def test_a_newer_version_asks_about_final_values_that_wait_in_an_older_one(tables: Path) -> None:
    async with open_bench({"mappings": str(tables)}) as bench:
        first = await bench.send(report(hb("1"), STRANGE, version=1))
        second = await bench.send(report(hb("2"), version=2))
        assert (first.state, second.state) == (ReportState.UNMAPPED, ReportState.HELD)
        assert "leave out new, final in a version before" in (second.reason or "")
        await mended(bench, tables)
        assert (await bench.kept("m1")).state is ReportState.DELIVERED
        assert (await bench.kept("m2")).state is ReportState.HELD
        await release(bench, second)
        assert (await bench.kept("m2")).state is ReportState.DELIVERED


async def test_a_newer_version_overtakes_one_that_waits_and_that_it_repeats_and_says_so(bench: Bench) -> None:
    odd = await bench.send(report(version=1, effective=NOW + timedelta(days=9)))
    assert odd.state is ReportState.HELD
    assert (await bench.send(report(hb("2"), version=2))).state is ReportState.DELIVERED
    assert (await bench.kept("m1")).state is ReportState.SUPERSEDED
    (told,) = bench.told("superseded")
    assert told == f"result {odd.key}, which waited for a person, is superseded: a newer version was delivered"


async def test_a_laboratory_that_sends_only_what_is_new_keeps_what_waits(tables: Path) -> None:
    async with open_bench({"mappings": str(tables), "left_out": "keep"}) as bench:
        for version, values in ((1, (hb("1"), STRANGE)), (2, (hb("2"),))):
            assert (await bench.send(report(*values, version=version))).state is ReportState.UNMAPPED
        await mended(bench, tables)
        (found,) = await bench.seen()
        assert [str(one["valueQuantity"]["value"]) for one in found.observations] == ["2", "6.4"]
        assert await bench.effects() == ()


async def test_a_laboratory_that_sends_only_what_is_new_keeps_the_lines() -> None:
    async with open_bench({"left_out": "keep"}) as bench:
        for version, item in enumerate(("001.001", "004.001", "005.001"), 1):
            given = report(hb(str(version), id=item), items=(item,), version=version)
            assert (await bench.send(given)).state is ReportState.DELIVERED
            assert await bench.line_states() == ["completed"] * version + ["accepted"] * (3 - version)
        (found,) = await bench.seen()
        assert found.lines == {line.procedure_request for line in bench.placed.lines}
        assert found.resource["code"]["coding"][0]["code"] == "001.001"
        assert len(found.observations) == 3


async def test_what_is_not_performed_beside_what_is_kept_cancels_no_line_that_was_reported() -> None:
    async with open_bench({"left_out": "keep"}) as bench:
        await bench.send(report(items=("001.001",), version=1, status=ReportStatus.PARTIAL))
        absent = (NotPerformed(reason="clotted"),)
        await bench.send(report(hb("2", id="b"), items=("004.001",), not_performed=absent, version=2))
        assert await bench.line_states() == ["accepted", "cancelled", "accepted"]


async def test_an_older_version_that_alone_has_a_value_is_not_left_aside_in_silence() -> None:
    async with open_bench({"left_out": "keep"}) as bench:
        await bench.send(report(hb("2"), version=2))
        held = await bench.send(report(hb("6.4", id="alone"), version=1))
        assert (held.state, "alone came in this one alone" in (held.reason or "")) == (ReportState.HELD, True)
        assert "no release can send it" in (held.reason or "")
        assert (await bench.send(report(hb("3"), version=3))).state is ReportState.DELIVERED
        (found,) = await bench.seen()
        assert [str(one["valueQuantity"]["value"]) for one in found.observations] == ["3", "6.4"]


async def test_a_line_that_a_version_leaves_out_is_asked_about(bench: Bench) -> None:
    await bench.send(report(lines=("L0", "L1"), version=1))
    held = await bench.send(report(lines=("L0",), version=2))
    assert (held.state, "lines: leave out L1" in (held.reason or "")) == (ReportState.HELD, True)
    await release(bench, held)
    (found,) = await bench.seen()
    assert found.lines == {bench.placed.lines[0].procedure_request}


async def test_a_change_of_unknown_outcome_is_never_taken_for_undone(bench: Bench) -> None:
    """The reply to a change is lost, and looking for it is refused: whoever comes next looks at what is there."""
    await bench.send(report(hb("13.2"), version=1))
    bench.faults(
        FaultRule(kind="lost_reply", route="PUT /fhir/Observation/*", count=1),
        FaultRule(kind="status", status=403, route="GET /fhir/Observation/*", count=1, skip=1),
    )
    parked = await bench.send(report(hb("14.0"), version=2))
    assert (parked.state, [each.state.value for each in await bench.effects()]) == (ReportState.MATCHED, ["parked"])
    bench.faults()
    assert (await bench.send(report(hb("13.2"), version=3))).state is ReportState.DELIVERED
    values = [str(each["valueQuantity"]["value"]) for each in await bench.versions("Observation", "RORDER.rep.hb")]
    assert values == ["13.2", "14.0", "13.2"]


async def test_a_change_of_unknown_outcome_that_a_person_retries_is_not_made_twice(bench: Bench) -> None:
    await bench.send(report(hb("13.2"), version=1))
    bench.faults(
        FaultRule(kind="lost_reply", route="PUT /fhir/Observation/*", count=1),
        FaultRule(kind="status", status=403, route="GET /fhir/Observation/*", count=1, skip=1),
    )
    await bench.send(report(hb("14.0"), version=2))
    bench.faults()
    (parked,) = await bench.effects()
    await retry_effect(bench.store, parked.id, by="ann", now=bench.clock.now())
    await bench.work()
    assert (await bench.kept("m2")).state is ReportState.DELIVERED
    values = [str(each["valueQuantity"]["value"]) for each in await bench.versions("Observation", "RORDER.rep.hb")]
    assert values == ["13.2", "14.0"]
