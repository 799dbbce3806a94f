"""The rule for versions of a report: one goes at a time, oldest first, and none takes with it what another has to say."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from lab_agent.domain.lab_messages import Document, LabReport, NotPerformed, ObservationStatus, ReportStatus
from lab_agent.domain.report_records import HoldReason, ReportRecord
from lab_agent.domain.state_machines import ReportState
from lab_agent.domain.values import Coding
from lab_agent.errors import InvalidTransitionError
from lab_agent.serialization import load_stored_message
from lab_agent.status.formatting import load_result
from tests.harness.documents import PDF
from tests.harness.results import AWAY, NOW, ResultsBench, haemoglobin, make_report, open_bench, refused

LATER = NOW + timedelta(hours=1)
STRANGE = haemoglobin("6.4", id="new", code=Coding(code="NEW"))
ODD: dict[str, Any] = {"effective": NOW + timedelta(days=9)}
"""What an operator is asked about."""
ABSENT = (NotPerformed(line="L0", reason="clotted"),)
OPEN = {"status": ObservationStatus.PRELIMINARY}
EARLY, PART = {"status": ReportStatus.PRELIMINARY}, {"status": ReportStatus.PARTIAL}
DELIVERED, SUPERSEDED, HELD = ReportState.DELIVERED, ReportState.SUPERSEDED, ReportState.HELD
QUESTION, CONFLICT = HoldReason.QUESTION, HoldReason.CONFLICTING_VERSION
WAITS, NEWER = HoldReason.WAITS_FOR_VERSION, HoldReason.SUPERSEDED_BY_NEWER


def rejection(**more: Any) -> LabReport:
    return replace(make_report(**{"not_performed": ABSENT, **more}), observations=())


def hb(value: str = "1", name: str = "hb", **more: Any) -> Any:
    return haemoglobin(value, id=name, **more)


def came_to(report: ReportRecord) -> Any:
    return report.hold_reason or report.state


ONE, TWO = {"version": 1}, {"version": 2}
FINAL = make_report(hb(), **ONE)
BACK = make_report(hb("2", **OPEN), hb("6", "other", **OPEN), **EARLY, **TWO)
SECOND: dict[str, tuple[LabReport, LabReport, Any, str]] = {
    "values of a line not performed": (
        rejection(lines=("L0",), **ONE), make_report(lines=("L0",), **TWO), HoldReason.UNEXPECTED, ""),
    "a rejection of values": (make_report(lines=("L0",), **ONE), rejection(lines=("L0",), **TWO), QUESTION, "leave out hb"),
    "a rejection of early values": (make_report(hb(**OPEN), **EARLY, **ONE), rejection(**TWO), QUESTION, ""),
    "a late rejection": (make_report(**EARLY, **TWO), rejection(**ONE), NEWER, ""),
    "a late repetition": (make_report(**TWO), make_report(**ONE), SUPERSEDED, ""),
    "a late value": (make_report(hb("2"), **TWO), make_report(hb(), **ONE), CONFLICT, ""),
    "fewer lines": (make_report(lines=("L0", "L1"), **ONE), make_report(lines=("L0",), **TWO), QUESTION, "lines: leave out L1"),
    "fewer early values": (make_report(hb(), hb("7", "gram", **OPEN), **EARLY, **ONE), make_report(hb(), **TWO), DELIVERED, ""),
    "early behind a question": (make_report(hb(), **ONE, **ODD), make_report(hb(**OPEN), **TWO), WAITS, ""),
    "repeats a question": (make_report(hb(), **ONE, **ODD), make_report(hb("2"), **TWO), DELIVERED, ""),
    "final values early": (make_report(hb(), hb("6", "other"), **ONE), BACK, QUESTION, "take hb, other from final back"),
    "final report early": (make_report(hb(), hb("6", "other"), **ONE), BACK, QUESTION, "status: goes from final back"),
    "final value early": (make_report(hb(), **PART, **ONE), make_report(hb("2", **OPEN), **PART, **TWO), QUESTION, "take hb"),
    **{f"final report {status.value}": (FINAL, make_report(status=status, **TWO), QUESTION, "")
       for status in (ReportStatus.PARTIAL, ReportStatus.PRELIMINARY, ReportStatus.REGISTERED)},
}  # fmt: skip


@pytest.mark.parametrize("case", SECOND)
async def test_second_version_comes_to(bench: ResultsBench, case: str) -> None:
    first, second, expected, named = SECOND[case]
    await bench.receive(first)
    got = await bench.receive(second)
    assert came_to(got) is expected
    assert named in (got.reason or "")
    if expected is DELIVERED and first.effective != NOW:
        assert (await bench.get_report("m1")).state is SUPERSEDED
        assert len(bench.event_texts("superseded")) == 1


async def test_missing_final_value_is_asked_about_once(bench: ResultsBench) -> None:
    await bench.receive(make_report(hb("13.2"), hb("7", "other"), version=1))
    held = await bench.receive(make_report(hb("13.4"), version=2))
    assert (held.hold_reason, "leave out other" in (held.reason or "")) == (QUESTION, True)
    assert len((await bench.clinic_reports())[0].observations) == 2, "the clinic still reads what was there"
    await bench.release(held)
    (found,) = await bench.clinic_reports()
    assert len(found.observations) == 1
    assert (await bench.receive(make_report(hb("13.5"), version=3))).state is DELIVERED
    early = await bench.receive(make_report(hb("50", **OPEN), **EARLY, version=4))
    assert (await bench.release(early)).moved
    assert await bench.statuses() == ["final", "amended", "amended", "amended"], "what was final is never preliminary again"
    assert (await bench.receive(make_report(hb("50"), hb("1", "new"), version=5))).state is DELIVERED


async def test_value_final_two_versions_ago_is_not_dropped(bench: ResultsBench) -> None:
    await bench.receive(make_report(hb("5.0"), hb("6.0", "other"), version=1))
    await bench.release(await bench.receive(BACK))
    less = await bench.receive(make_report(hb("50.0"), version=3))
    assert (less.hold_reason, "leave out other" in (less.reason or "")) == (QUESTION, True)


async def test_repeated_not_performed_completes_no_other_line(bench: ResultsBench) -> None:
    for version in (1, 2):
        assert (await bench.receive(rejection(version=version))).state is DELIVERED
    assert await bench.line_states() == ["cancelled", "accepted", "accepted"]
    assert await bench.clinic_reports() == [], "an empty report is never sent"
    said = await bench.receive(make_report(version=3, lines=("L1", "L2"), **PART))
    assert said.state is DELIVERED, "nothing of the report was final"


async def test_released_late_rejection_cancels_nothing(bench: ResultsBench) -> None:
    await bench.receive(make_report(version=2, **EARLY))
    await bench.release(await bench.receive(rejection(version=1)))
    assert (await bench.get_report("m2")).state is SUPERSEDED
    assert await bench.line_states() == ["accepted"] * 3


async def test_late_older_version_waits_for_pending_newer(bench: ResultsBench) -> None:
    bench.inject_faults(AWAY)
    await bench.receive(make_report(hb("2"), version=2))
    assert (await bench.receive(make_report(hb("1"), version=1))).state is ReportState.RECEIVED
    bench.inject_faults()
    await bench.run_until_idle()
    assert (await bench.get_report("m2")).hold_reason is CONFLICT
    assert await bench.values() == ["2"]


async def test_rejection_version_does_not_end_pending_version(bench: ResultsBench) -> None:
    bench.inject_faults(refused(2, status=503))
    await bench.accept(make_report(version=1, lines=("L1",)))
    await bench.run_due_jobs()
    await bench.run_due_jobs()
    assert (await bench.receive(rejection(version=2))).hold_reason is QUESTION
    assert (await bench.get_report("m1")).state is DELIVERED
    assert await bench.line_states() == ["accepted", "completed", "accepted"]


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    (tmp_path / "codes.csv").write_text("code,loinc\nOTHER,718-7\n")
    return tmp_path


def mend(tables: Path) -> None:
    (tables / "codes.csv").write_text("code,loinc\nNEW,4548-4\n")


async def test_newer_version_dropping_held_final_values_held(tables: Path) -> None:
    async with open_bench({"mappings": str(tables)}) as bench:
        first = await bench.receive(make_report(hb("1"), STRANGE, version=1))
        second = await bench.receive(make_report(hb("2"), version=2))
        assert (first.state, second.hold_reason) == (ReportState.UNMAPPED, WAITS)
        assert first.key in (second.reason or "")
        mend(tables)
        await bench.reload_tables()
        assert (await bench.get_report("m1")).state is DELIVERED
        asked = await bench.get_report("m2")
        assert (asked.hold_reason, "leave out new" in (asked.reason or "")) == (QUESTION, True)
        await bench.release(asked)
        assert (await bench.get_report("m2")).state is DELIVERED


async def test_released_newer_version_keeps_larger_one_held(tables: Path) -> None:
    """A held version with more content stays held after a newer one was released, until a third one says all of it."""
    async with open_bench({"mappings": str(tables)}) as bench:
        first = await bench.receive(make_report(hb("1"), STRANGE, version=1))
        await bench.release(await bench.receive(make_report(hb("2"), version=2)))
        assert (await bench.get_report("m2")).state is DELIVERED
        held = await bench.get_report("m1")
        assert (held.hold_reason, "without new" in (held.reason or "")) == (NEWER, True)
        assert (await bench.receive(make_report(hb("3"), version=3))).state is DELIVERED, "nobody is asked twice"
        assert (await bench.get_report("m1")).hold_reason is NEWER
        mend(tables)
        await bench.reload_tables()
        assert (await bench.receive(make_report(hb("4"), STRANGE, version=4))).state is DELIVERED
        assert (await bench.get_report("m1")).state is SUPERSEDED
        assert first.key in bench.event_texts("superseded")[-1]


@pytest.mark.parametrize("how", ["mapped", "dismissed", "not ours"])
async def test_partial_report_waits_for_older_part(tables: Path, how: str) -> None:
    """A part of a report waits for an older part, and follows without an operator."""
    async with open_bench({"mappings": str(tables), "left_out": "keep"}) as bench:
        of = {"items": ("999.999",)} if how == "not ours" else {"lines": ("L0",)}
        first = await bench.receive(make_report(hb("1", "a"), STRANGE, version=1, **of))
        for version, line in ((2, "L1"), (3, "L2")):
            held = await bench.receive(make_report(hb(str(version), line), version=version, lines=(line,)))
            assert held.hold_reason is WAITS
        if how == "mapped":
            mend(tables)
            await bench.reload_tables()
        else:
            await bench.dismiss(first)
        (found,) = await bench.clinic_reports()
        values = {str(one["valueQuantity"]["value"]) for one in found.observations}
        assert values == ({"1", "6.4", "2", "3"} if how == "mapped" else {"2", "3"})
        assert await bench.line_states() == ["completed" if how == "mapped" else "accepted", "completed", "completed"]
        assert await bench.store.run(lambda uow: uow.reports.needing_operator()) == ()


async def test_release_answers_only_the_question_shown(bench: ResultsBench) -> None:
    """Neither who lets a version go before an older one, nor who answered an earlier question, has seen the next one."""
    odd = await bench.receive(make_report(hb("1"), hb("6", "b"), version=1, **ODD))
    waiting = await bench.receive(make_report(hb("2"), version=2, **ODD))
    assert (odd.hold_reason, waiting.hold_reason) == (QUESTION, WAITS)
    assert not (await bench.release(waiting)).moved
    asked = await bench.get_report("m2")
    assert asked.hold_reason is QUESTION
    assert (await bench.release(asked)).moved, "the answer to the question does not send it back to waiting"
    held = await bench.get_report("m1")
    assert (held.hold_reason, "without b" in (held.reason or "")) == (NEWER, True)
    await bench.release(held)
    assert (await bench.get_report("m1")).state is SUPERSEDED


async def test_unmapped_report_released_still_asks_questions(tables: Path) -> None:
    async with open_bench({"mappings": str(tables)}) as bench:
        unmapped = await bench.receive(make_report(STRANGE, **ODD))
        assert unmapped.state is ReportState.UNMAPPED
        mend(tables)
        bench.mappings.reload()
        assert not (await bench.release(unmapped)).moved
        assert (await bench.get_report("m1")).hold_reason is QUESTION


async def test_printed_report_does_not_supersede_laboratory_document() -> None:
    """A PDF that we print does not stand for the document of an older version."""
    async with open_bench({"print_reports": True}) as bench:
        await bench.receive(make_report(hb("1"), version=1, **ODD, documents=(Document(content=PDF),)))
        waiting = await bench.receive(make_report(hb("2"), version=2))
        assert waiting.hold_reason is WAITS
        await bench.release(waiting)
        assert (await bench.get_report("m1")).hold_reason is NEWER


async def test_release_during_delivery_of_other_version_rejected(bench: ResultsBench) -> None:
    """A release is not lost to a version on its way: it is rejected, and nothing changes."""
    asked = await bench.receive(make_report(hb("2"), version=2, **ODD))
    bench.inject_faults(refused(None, status=503))
    await bench.receive(make_report(hb("3"), hb("6", "b"), version=3))
    assert (await bench.get_report("m2")).state is ReportState.MATCHED
    with pytest.raises(InvalidTransitionError):
        await bench.release(asked)
    assert await bench.get_report("m1") == asked


async def test_version_waiting_for_superseded_one_is_held(tables: Path) -> None:
    """A version that waits for one that a third supersedes is held for an operator."""
    async with open_bench({"mappings": str(tables), "left_out": "keep"}) as bench:
        await bench.receive(make_report(hb("1", "a"), STRANGE, version=1, lines=("L0",)))
        await bench.receive(make_report(hb("2", "b"), version=2, lines=("L1",)))
        mend(tables)
        bench.mappings.reload()
        await bench.release(await bench.receive(make_report(hb("1", "a"), STRANGE, version=3, lines=("L0",))))
        assert (await bench.get_report("m1")).state is SUPERSEDED
        middle = await bench.get_report("m2")
        assert (middle.hold_reason, "without b, line L1" in (middle.reason or "")) == (NEWER, True)


@pytest.mark.parametrize("newer", [{"not_performed": (NotPerformed(line="L1", reason="lost"),)}, PART])
async def test_version_waits_for_content_of_older_one(tables: Path, newer: dict[str, Any]) -> None:
    """What was not performed, or the end of a line, is content too."""
    async with open_bench({"mappings": str(tables)}) as bench:
        absent = ABSENT if "not_performed" in newer else ()
        await bench.receive(make_report(hb("1"), STRANGE, version=1, not_performed=absent))
        mend(tables)
        bench.mappings.reload()
        assert (await bench.receive(make_report(hb("1"), STRANGE, version=2, **newer))).hold_reason is WAITS


# --- a laboratory that sends only what is new (`results.left_out = "keep"`): what a version keeps is not what it says


@pytest.fixture
async def keeping() -> Any:
    async with open_bench({"left_out": "keep"}) as opened:
        yield opened


async def receive_values(bench: ResultsBench, version: int, **values: str) -> None:
    await bench.receive(make_report(*(hb(value, name) for name, value in values.items()), version=version, lines=("L0",)))


async def test_incremental_report_keeps_lines_and_values(keeping: ResultsBench) -> None:
    for version, item in enumerate(("001.001", "004.001", "005.001"), 1):
        given = make_report(hb(str(version), None), hb("7", item), items=(item,), version=version)
        assert (await keeping.receive(given)).state is DELIVERED
        assert await keeping.line_states() == ["completed"] * version + ["accepted"] * (3 - version)
    (found,) = await keeping.clinic_reports()
    assert found.lines == {line.procedure_request for line in keeping.placed.lines}
    assert found.resource["code"]["coding"][0]["code"] == "001.001"
    assert [str(one["valueQuantity"]["value"]) for one in found.observations] == ["3", "7", "7", "7"]
    assert await keeping.statuses(".001_2E001") == ["final"], "what stayed is not written again"
    delivered = await keeping.get_report("m2")
    sent, whole = load_stored_message(delivered.body), load_stored_message(delivered.outgoing_body or b"")
    assert isinstance(sent, LabReport)
    assert isinstance(whole, LabReport)
    assert ([one.id for one in sent.observations], len(whole.observations)) == ([None, "004.001"], 3)
    assert load_result(delivered).kept == ("001.001",), "people see both"


async def test_unnamed_values_are_kept_by_code_and_position(keeping: ResultsBench) -> None:
    await keeping.receive(make_report(hb("1.0", None), hb("2.0", None), hb("7", "other"), **PART, version=1))
    assert (await keeping.receive(make_report(hb("1.5", None), hb("9", "new"), version=2))).state is DELIVERED
    (found,) = await keeping.clinic_reports()
    assert [str(one["valueQuantity"]["value"]) for one in found.observations] == ["1.5", "9", "2.0", "7"]
    assert await keeping.statuses(".code.http_3A_2F_2Floinc_2Eorg.718-7.2") == ["final"]


async def test_not_performed_beside_kept_values_cancels_no_line(keeping: ResultsBench) -> None:
    """Lines not performed, beside values that are kept, cancel no line that was reported."""
    await keeping.receive(make_report(items=("001.001",), version=1, **PART))
    absent = (NotPerformed(reason="clotted"),)
    await keeping.receive(make_report(hb("2", "b"), items=("004.001",), not_performed=absent, version=2))
    assert await keeping.line_states() == ["accepted", "cancelled", "accepted"]


async def test_value_only_in_older_version_is_held(keeping: ResultsBench) -> None:
    """An older version that alone has a value is not dropped in silence."""
    await keeping.receive(make_report(hb("2"), version=2))
    held = await keeping.receive(make_report(hb("6.4", "alone"), version=1))
    assert (held.hold_reason, "without alone" in (held.reason or "")) == (NEWER, True)
    assert (await keeping.receive(make_report(hb("3"), version=3))).state is DELIVERED
    assert (await keeping.get_report("m2")).state is HELD
    assert (await keeping.receive(make_report(hb("6.4", "alone"), version=4))).state is DELIVERED
    assert (await keeping.get_report("m2")).state is SUPERSEDED
    (found,) = await keeping.clinic_reports()
    assert sorted(str(one["valueQuantity"]["value"]) for one in found.observations) == ["3", "6.4"]


@pytest.mark.parametrize(("late", "expected"), [("5.0", NEWER), ("4.0", SUPERSEDED)])
async def test_late_correction_of_kept_value_is_asked_about(keeping: ResultsBench, late: str, expected: Any) -> None:
    """The newest version repeats the old value without saying it: that supersedes no correction in silence."""
    await receive_values(keeping, 1, k="4.0", na="140")
    await receive_values(keeping, 3, na="141")
    await receive_values(keeping, 2, k=late)
    assert came_to(await keeping.get_report("m3")) is expected
    await receive_values(keeping, 4, k="5.0")
    assert (await keeping.get_report("m3")).state is SUPERSEDED
    assert await keeping.values("k") == ["4.0", "5.0"]


async def test_rematched_version_keeps_the_correction_delivered_meanwhile(keeping: ResultsBench) -> None:
    """A version whose delivery failed had kept an old value; matched again, it does not send that after the correction."""
    await receive_values(keeping, 1, k="4.0", na="140")
    keeping.inject_faults(refused(route="PUT /fhir/*"))
    await receive_values(keeping, 3, na="141")
    keeping.inject_faults()
    await receive_values(keeping, 2, k="5.0")
    assert await keeping.report_states() == [SUPERSEDED, DELIVERED, SUPERSEDED]
    assert (await keeping.values("k"), (await keeping.values("na"))[-1]) == (["4.0", "5.0"], "141")


async def test_late_end_of_kept_line_is_asked_about(keeping: ResultsBench) -> None:
    """A line that the newest version keeps, and does not complete, is not completed by superseding who did."""
    await keeping.receive(make_report(hb("1", "a"), version=1, lines=("L0",), **PART))
    await keeping.receive(make_report(hb("3", "c"), version=3, lines=("L1",)))
    late = await keeping.receive(make_report(hb("1", "a"), version=2, lines=("L0",)))
    assert (late.hold_reason, "L0" in (late.reason or "")) == (NEWER, True)
