"""The rule for versions of a report: one goes at a time, oldest first, and none takes with it what another has to say."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from lab_agent.domain.lab_messages import Document, NotPerformed, ObservationStatus, ReportStatus
from lab_agent.domain.report_records import HoldReason
from lab_agent.domain.state_machines import ReportState
from lab_agent.domain.values import Coding
from lab_agent.errors import InvalidTransitionError
from lab_agent.workflow import operator_results
from lab_sandbox.faults.plan import FaultRule
from tests.harness.documents import PDF
from tests.harness.results import NOW, ResultsBench, haemoglobin, make_report, open_bench

LATER = NOW + timedelta(hours=1)
STRANGE = haemoglobin("6.4", id="new", code=Coding(code="NEW"))
ABSENT = (NotPerformed(line="L0", reason="clotted"),)


def rejection(**more: Any) -> Any:
    return replace(make_report(not_performed=ABSENT, **more), observations=())


async def test_repeated_not_performed_completes_no_other_line(bench: ResultsBench) -> None:
    """What was not performed is said twice and completes nothing else."""
    for version in (1, 2):
        assert (await bench.receive(rejection(version=version))).state is ReportState.DELIVERED
    assert await bench.line_states() == ["cancelled", "accepted", "accepted"]
    assert await bench.clinic_reports() == [], "an empty report is never sent"
    said = await bench.receive(make_report(version=3, lines=("L1", "L2"), status=ReportStatus.PARTIAL))
    assert said.state is ReportState.DELIVERED, "nothing of the report was final"


async def test_values_for_line_reported_not_performed_are_held(bench: ResultsBench) -> None:
    await bench.receive(rejection(version=1, lines=("L0",)))
    held = await bench.receive(make_report(version=2, lines=("L0",)))
    assert held.hold_reason is HoldReason.UNEXPECTED


async def test_version_without_the_previous_values_is_held(bench: ResultsBench) -> None:
    await bench.receive(
        make_report(haemoglobin("1", status=ObservationStatus.PRELIMINARY), status=ReportStatus.PRELIMINARY, version=1)
    )
    held = await bench.receive(rejection(version=2))
    assert held.hold_reason is HoldReason.QUESTION
    await bench.release(held)
    assert await bench.line_states() == ["cancelled", "accepted", "accepted"]


async def test_late_older_rejection_cancels_nothing(bench: ResultsBench) -> None:
    await bench.receive(make_report(version=2, status=ReportStatus.PRELIMINARY))
    late = await bench.receive(rejection(version=1))
    assert late.hold_reason is HoldReason.SUPERSEDED_BY_NEWER
    await bench.release(late)
    assert (await bench.get_report("m2")).state is ReportState.SUPERSEDED
    assert await bench.line_states() == ["accepted"] * 3


async def test_version_waits_in_queue_behind_pending_one(bench: ResultsBench) -> None:
    """While one version is on its way another waits, needs no operator, and follows by itself."""
    bench.inject_faults(FaultRule(kind="status", status=503, route="POST /fhir/*"))
    await bench.receive(make_report(haemoglobin("1"), version=1))
    second = await bench.receive(make_report(haemoglobin("2"), version=2))
    assert second.state is ReportState.RECEIVED
    assert await bench.store.run(lambda uow: uow.reports.needing_operator()) == ()
    bench.inject_faults()
    await bench.run_until_idle()
    assert await bench.report_states() == [ReportState.SUPERSEDED, ReportState.DELIVERED]
    values = [each["valueQuantity"]["value"] for each in await bench.resource_versions("Observation", "RORDER.rep.hb")]
    assert values == [1, 2]


async def test_late_older_version_waits_for_pending_newer(bench: ResultsBench) -> None:
    bench.inject_faults(FaultRule(kind="status", status=503, route="POST /fhir/*"))
    await bench.receive(make_report(haemoglobin("2"), version=2))
    late = await bench.receive(make_report(haemoglobin("1"), version=1))
    assert late.state is ReportState.RECEIVED
    bench.inject_faults()
    await bench.run_until_idle()
    assert (await bench.get_report("m2")).hold_reason is HoldReason.CONFLICTING_VERSION
    assert len(await bench.resource_versions("Observation", "RORDER.rep.hb")) == 1


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    (tmp_path / "codes.csv").write_text("code,loinc\nOTHER,718-7\n")
    return tmp_path


async def fix_tables(bench: ResultsBench, tables: Path) -> None:
    (tables / "codes.csv").write_text("code,loinc\nNEW,4548-4\n")
    bench.mappings.reload()
    await operator_results.release_mapped_results(bench.store, bench.matcher, by="ann", now=bench.clock.now())
    await bench.run_until_idle()


async def test_newer_version_dropping_held_final_values_held(tables: Path) -> None:
    """A newer version is held when an older one that waits has final values that it leaves out."""
    async with open_bench({"mappings": str(tables)}) as bench:
        first = await bench.receive(make_report(haemoglobin("1"), STRANGE, version=1))
        second = await bench.receive(make_report(haemoglobin("2"), version=2))
        assert first.state is ReportState.UNMAPPED
        assert second.hold_reason is HoldReason.WAITS_FOR_VERSION
        assert first.key in (second.reason or "")
        await fix_tables(bench, tables)
        assert (await bench.get_report("m1")).state is ReportState.DELIVERED
        asked = await bench.get_report("m2")
        assert asked.hold_reason is HoldReason.QUESTION
        assert "leave out new" in (asked.reason or "")
        await bench.release(asked)
        assert (await bench.get_report("m2")).state is ReportState.DELIVERED


async def test_newer_version_supersedes_held_version_it_repeats(bench: ResultsBench) -> None:
    """A newer version supersedes a held one whose content it repeats, and the history says so."""
    odd = await bench.receive(make_report(version=1, effective=NOW + timedelta(days=9)))
    assert odd.hold_reason is HoldReason.QUESTION
    assert (await bench.receive(make_report(haemoglobin("2"), version=2))).state is ReportState.DELIVERED
    assert (await bench.get_report("m1")).state is ReportState.SUPERSEDED
    (text,) = bench.event_texts("superseded")
    assert odd.key in text


async def test_newer_version_proceeds_when_older_is_dismissed(tables: Path) -> None:
    async with open_bench({"mappings": str(tables)}) as bench:
        first = await bench.receive(make_report(haemoglobin("1"), STRANGE, version=1))
        waiting = await bench.receive(make_report(haemoglobin("2"), version=2))
        assert waiting.hold_reason is HoldReason.WAITS_FOR_VERSION
        await operator_results.dismiss_result(bench.store, first.key, by="ann", note="a slip", now=bench.clock.now())
        await bench.run_until_idle()
        assert (await bench.get_report("m2")).state is ReportState.DELIVERED


async def test_released_newer_version_keeps_larger_one_held(tables: Path) -> None:
    """A held version with more content stays held after a newer one was released."""
    async with open_bench({"mappings": str(tables)}) as bench:
        first = await bench.receive(make_report(haemoglobin("1"), STRANGE, version=1))
        await bench.release(await bench.receive(make_report(haemoglobin("2"), version=2)))
        assert (await bench.get_report("m2")).state is ReportState.DELIVERED
        held = await bench.get_report("m1")
        assert held.hold_reason is HoldReason.SUPERSEDED_BY_NEWER
        assert "without new" in (held.reason or "")
        third = await bench.receive(make_report(haemoglobin("3"), version=3))
        assert third.state is ReportState.DELIVERED, "nobody is asked twice"
        assert (await bench.get_report("m1")).hold_reason is HoldReason.SUPERSEDED_BY_NEWER
        await fix_tables(bench, tables)
        assert (await bench.receive(make_report(haemoglobin("4"), STRANGE, version=4))).state is ReportState.DELIVERED
        assert (await bench.get_report("m1")).state is ReportState.SUPERSEDED
        assert first.key in bench.event_texts("superseded")[-1]


@pytest.mark.parametrize("how", ["mapped", "dismissed"])
async def test_partial_report_waits_for_older_part(tables: Path, how: str) -> None:
    """A part of a report waits for an older part and follows without an operator."""
    async with open_bench({"mappings": str(tables), "left_out": "keep"}) as bench:
        first = await bench.receive(make_report(haemoglobin("1", id="a"), STRANGE, version=1, lines=("L0",)))
        for version, line in ((2, "L1"), (3, "L2")):
            held = await bench.receive(make_report(haemoglobin(str(version), id=line), version=version, lines=(line,)))
            assert held.hold_reason is HoldReason.WAITS_FOR_VERSION
            assert version == 3 or first.key in (held.reason or "")
        if how == "mapped":
            await fix_tables(bench, tables)
        else:
            await operator_results.dismiss_result(bench.store, first.key, by="ann", note="a test", now=bench.clock.now())
            await bench.run_until_idle()
        (found,) = await bench.clinic_reports()
        values = {str(one["valueQuantity"]["value"]) for one in found.observations}
        assert values == ({"1", "6.4", "2", "3"} if how == "mapped" else {"2", "3"})
        assert await bench.line_states() == ["completed" if how == "mapped" else "accepted", "completed", "completed"]
        assert await bench.store.run(lambda uow: uow.reports.needing_operator()) == ()


async def test_newer_parts_proceed_without_part_of_other_order() -> None:
    """A part that belongs to another order lets the newer parts proceed."""
    async with open_bench({"left_out": "keep"}) as bench:
        first = await bench.receive(make_report(haemoglobin("666"), version=1, items=("999.999",)))
        assert first.state is ReportState.UNMATCHED
        waiting = await bench.receive(make_report(haemoglobin("2", id="b"), version=2, lines=("L1",)))
        assert waiting.hold_reason is HoldReason.WAITS_FOR_VERSION
        await operator_results.dismiss_result(bench.store, first.key, by="ann", note="not ours", now=bench.clock.now())
        await bench.run_until_idle()
        (found,) = await bench.clinic_reports()
        assert [str(one["valueQuantity"]["value"]) for one in found.observations] == ["2"]


async def test_release_overrides_only_the_reason_shown(bench: ResultsBench) -> None:
    """A release answers the question that was asked and no other."""
    odd = await bench.receive(
        make_report(haemoglobin("1"), haemoglobin("6", id="b"), version=1, effective=NOW + timedelta(days=9))
    )
    assert odd.hold_reason is HoldReason.QUESTION
    await bench.release(await bench.receive(make_report(haemoglobin("2"), version=2)))
    held = await bench.get_report("m1")
    assert held.hold_reason is HoldReason.SUPERSEDED_BY_NEWER
    assert "without b" in (held.reason or "")
    await bench.release(held)
    assert (await bench.get_report("m1")).state is ReportState.SUPERSEDED


async def test_release_of_waiting_version_still_asks_questions(bench: ResultsBench) -> None:
    """Who lets a version go before an older one has not seen the questions about it."""
    await bench.receive(make_report(haemoglobin("1"), haemoglobin("6", id="b"), version=1, effective=NOW + timedelta(days=9)))
    waiting = await bench.receive(make_report(haemoglobin("2"), version=2, effective=NOW + timedelta(days=9)))
    assert waiting.hold_reason is HoldReason.WAITS_FOR_VERSION
    assert not (await bench.release(waiting)).moved
    asked = await bench.get_report("m2")
    assert asked.hold_reason is HoldReason.QUESTION
    assert (await bench.release(asked)).moved, "the answer to the question does not send it back to waiting"


async def test_unmapped_report_released_still_asks_questions(tables: Path) -> None:
    """The release of an unmapped report, once its code is mapped, answers no question that was never shown."""
    async with open_bench({"mappings": str(tables)}) as bench:
        unmapped = await bench.receive(make_report(STRANGE, effective=NOW + timedelta(days=9)))
        assert unmapped.state is ReportState.UNMAPPED
        (tables / "codes.csv").write_text("code,loinc\nNEW,4548-4\n")
        bench.mappings.reload()
        assert not (await bench.release(unmapped)).moved
        assert (await bench.get_report("m1")).hold_reason is HoldReason.QUESTION


async def test_printed_report_does_not_supersede_laboratory_document() -> None:
    """A PDF that we print does not stand for the document of an older version."""
    document = Document(content=PDF)
    async with open_bench({"print_reports": True}) as bench:
        await bench.receive(make_report(haemoglobin("1"), version=1, effective=NOW + timedelta(days=9), documents=(document,)))
        waiting = await bench.receive(make_report(haemoglobin("2"), version=2))
        assert waiting.hold_reason is HoldReason.WAITS_FOR_VERSION
        await bench.release(waiting)
        assert (await bench.get_report("m1")).hold_reason is HoldReason.SUPERSEDED_BY_NEWER


async def test_release_during_delivery_of_other_version_rejected(bench: ResultsBench) -> None:
    """A release is not lost to a version on its way: it is rejected with the reason, and nothing changes."""
    asked = await bench.receive(make_report(haemoglobin("2"), version=2, effective=NOW + timedelta(days=9)))
    bench.inject_faults(FaultRule(kind="status", status=503, route="POST /fhir/DiagnosticReport"))
    await bench.receive(make_report(haemoglobin("3"), haemoglobin("6", id="b"), version=3))
    assert (await bench.get_report("m2")).state is ReportState.MATCHED
    with pytest.raises(InvalidTransitionError, match="delivered first"):
        await bench.release(asked)
    assert await bench.get_report("m1") == asked


async def test_version_waiting_for_superseded_one_is_held(tables: Path) -> None:
    """A version that waits for one that a third supersedes is held for an operator."""
    async with open_bench({"mappings": str(tables), "left_out": "keep"}) as bench:
        await bench.receive(make_report(haemoglobin("1", id="a"), STRANGE, version=1, lines=("L0",)))
        await bench.receive(make_report(haemoglobin("2", id="b"), version=2, lines=("L1",)))
        (tables / "codes.csv").write_text("code,loinc\nNEW,4548-4\n")
        bench.mappings.reload()
        await bench.release(await bench.receive(make_report(haemoglobin("1", id="a"), STRANGE, version=3, lines=("L0",))))
        assert (await bench.get_report("m1")).state is ReportState.SUPERSEDED
        middle = await bench.get_report("m2")
        assert middle.hold_reason is HoldReason.SUPERSEDED_BY_NEWER
        assert "without b, line L1" in (middle.reason or "")


@pytest.mark.parametrize(
    "newer", [{"not_performed": (NotPerformed(line="L1", reason="lost"),)}, {"status": ReportStatus.PARTIAL}]
)
async def test_version_waits_for_content_of_older_one(tables: Path, newer: dict[str, Any]) -> None:
    """What was not performed, or the end of a line, is content too."""
    async with open_bench({"mappings": str(tables)}) as bench:
        await bench.receive(
            make_report(haemoglobin("1"), STRANGE, version=1, not_performed=ABSENT if "not_performed" in newer else ())
        )
        (tables / "codes.csv").write_text("code,loinc\nNEW,4548-4\n")
        bench.mappings.reload()
        waiting = await bench.receive(make_report(haemoglobin("1"), STRANGE, version=2, **newer))
        assert waiting.hold_reason is HoldReason.WAITS_FOR_VERSION


async def test_preliminary_version_waits_for_held_final(bench: ResultsBench) -> None:
    """A held final value is not superseded by a preliminary one."""
    await bench.receive(make_report(haemoglobin("1"), version=1, effective=NOW + timedelta(days=9)))
    open_ = haemoglobin("1", status=ObservationStatus.PRELIMINARY)
    waiting = await bench.receive(make_report(open_, version=2))
    assert waiting.hold_reason is HoldReason.WAITS_FOR_VERSION


async def test_rejection_version_does_not_end_pending_version(bench: ResultsBench) -> None:
    """A version that only rejects ends none that is on its way."""
    bench.inject_faults(FaultRule(kind="status", status=503, route="POST /fhir/DiagnosticReport", count=2))
    await bench.accept(make_report(version=1, lines=("L1",)))
    await bench.run_due_jobs()
    await bench.run_due_jobs()
    held = await bench.receive(rejection(version=2))
    assert held.hold_reason is HoldReason.QUESTION
    assert "leave out hb" in (held.reason or "")
    assert ((await bench.get_report("m1")).state, await bench.line_states()) == (
        ReportState.DELIVERED,
        ["accepted", "completed", "accepted"],
    )


async def test_incremental_report_keeps_reported_lines() -> None:
    """A laboratory that sends only what is new keeps the lines it reported before."""
    async with open_bench({"left_out": "keep"}) as bench:
        for version, item in enumerate(("001.001", "004.001", "005.001"), 1):
            given = make_report(haemoglobin(str(version), id=item), items=(item,), version=version)
            assert (await bench.receive(given)).state is ReportState.DELIVERED
            assert await bench.line_states() == ["completed"] * version + ["accepted"] * (3 - version)
        (found,) = await bench.clinic_reports()
        assert found.lines == {line.procedure_request for line in bench.placed.lines}
        assert found.resource["code"]["coding"][0]["code"] == "001.001"
        assert len(found.observations) == 3


async def test_not_performed_beside_kept_values_cancels_no_line() -> None:
    """Lines not performed, beside values that are kept, cancel no line that was reported."""
    async with open_bench({"left_out": "keep"}) as bench:
        await bench.receive(make_report(items=("001.001",), version=1, status=ReportStatus.PARTIAL))
        absent = (NotPerformed(reason="clotted"),)
        await bench.receive(make_report(haemoglobin("2", id="b"), items=("004.001",), not_performed=absent, version=2))
        assert await bench.line_states() == ["accepted", "cancelled", "accepted"]


async def test_value_only_in_older_version_is_held() -> None:
    """An older version that alone has a value is not dropped in silence."""
    async with open_bench({"left_out": "keep"}) as bench:
        await bench.receive(make_report(haemoglobin("2"), version=2))
        held = await bench.receive(make_report(haemoglobin("6.4", id="alone"), version=1))
        assert held.hold_reason is HoldReason.SUPERSEDED_BY_NEWER
        assert "without alone" in (held.reason or "")
        assert (await bench.receive(make_report(haemoglobin("3"), version=3))).state is ReportState.DELIVERED
        assert (await bench.get_report("m2")).state is ReportState.HELD
        assert (await bench.receive(make_report(haemoglobin("6.4", id="alone"), version=4))).state is ReportState.DELIVERED
        assert (await bench.get_report("m2")).state is ReportState.SUPERSEDED
        (found,) = await bench.clinic_reports()
        assert sorted(str(one["valueQuantity"]["value"]) for one in found.observations) == ["3", "6.4"]


async def test_version_dropping_a_line_is_held(bench: ResultsBench) -> None:
    await bench.receive(make_report(lines=("L0", "L1"), version=1))
    held = await bench.receive(make_report(lines=("L0",), version=2))
    assert held.hold_reason is HoldReason.QUESTION
    assert "lines: leave out L1" in (held.reason or "")
    await bench.release(held)
    (found,) = await bench.clinic_reports()
    assert found.lines == {bench.placed.lines[0].procedure_request}
