"""What a version says is lost in no other: not where it waits for a person, not where a laboratory sends only what is new."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from lab_agent.domain.lifecycle import ReportState
from lab_agent.domain.results import NotPerformed, ObservationStatus, ReportStatus
from lab_agent.domain.values import Coding
from lab_agent.steps import result_desk as desk
from lab_agent.steps.desk import retry_job
from lab_agent.steps.inbox import StoreInbox
from lab_sandbox.faults.rule import FaultRule
from tests.results.bench import NOW, ResultsBench, haemoglobin, make_report, open_bench

LATER = NOW + timedelta(hours=1)
STRANGE = haemoglobin("6.4", id="new", code=Coding(code="NEW"))
ABSENT = (NotPerformed(line="L0", reason="clotted"),)


def refused(**more: Any) -> Any:
    return replace(make_report(not_performed=ABSENT, **more), observations=())


async def test_what_was_not_performed_is_said_twice_and_completes_nothing_else(bench: ResultsBench) -> None:
    for version in (1, 2):
        assert (await bench.receive(refused(version=version))).state is ReportState.DELIVERED
    assert await bench.line_states() == ["cancelled", "accepted", "accepted"]
    assert await bench.clinic_reports() == [], "an empty report is never sent"
    said = await bench.receive(make_report(version=3, lines=("L1", "L2"), status=ReportStatus.PARTIAL))
    assert said.state is ReportState.DELIVERED, "nothing of the report was final"


async def test_values_of_a_line_that_was_said_not_performed_are_asked_about(bench: ResultsBench) -> None:
    await bench.receive(refused(version=1, lines=("L0",)))
    held = await bench.receive(make_report(version=2, lines=("L0",)))
    assert (held.state, "has ended as cancelled" in (held.reason or "")) == (ReportState.HELD, True)


async def test_a_report_that_had_values_and_has_none_is_asked_about(bench: ResultsBench) -> None:
    await bench.receive(
        make_report(haemoglobin("1", status=ObservationStatus.PRELIMINARY), status=ReportStatus.PRELIMINARY, version=1)
    )
    held = await bench.receive(refused(version=2))
    assert (held.state, "this one has none" in (held.reason or "")) == (ReportState.HELD, True)
    await bench.release(held)
    assert await bench.line_states() == ["cancelled", "accepted", "accepted"]


async def test_an_older_refusal_that_comes_late_cancels_nothing(bench: ResultsBench) -> None:
    bench.inject_faults(FaultRule(kind="status", status=503, route="POST /fhir/*"))
    await bench.receive(make_report(version=2, status=ReportStatus.PRELIMINARY))
    late = await bench.receive(refused(version=1))
    assert (late.state, "without what was not performed" in (late.reason or "")) == (ReportState.HELD, True)
    await bench.release(late)
    assert (await bench.get_report("m2")).state is ReportState.SUPERSEDED
    assert await bench.line_states() == ["accepted"] * 3


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    (tmp_path / "codes.csv").write_text("code,loinc\nOTHER,718-7\n")
    return tmp_path


async def mended(bench: ResultsBench, tables: Path) -> None:
    (tables / "codes.csv").write_text("code,loinc\nNEW,4548-4\n")
    bench.mappings.reload()
    await desk.release_mapped_results(bench.store, bench.matcher, by="ann", now=bench.clock.now())
    await bench.run_until_idle()


async def test_a_newer_version_asks_about_final_values_that_wait_in_an_older_one(tables: Path) -> None:
    async with open_bench({"mappings": str(tables)}) as bench:
        first = await bench.receive(make_report(haemoglobin("1"), STRANGE, version=1))
        second = await bench.receive(make_report(haemoglobin("2"), version=2))
        assert (first.state, second.state) == (ReportState.UNMAPPED, ReportState.HELD)
        assert f"report: leaves out new of the version before it, {first.key}" in (second.reason or "")
        await mended(bench, tables)
        assert (await bench.get_report("m1")).state is ReportState.DELIVERED
        assert (await bench.get_report("m2")).state is ReportState.HELD
        await bench.release(second)
        assert (await bench.get_report("m2")).state is ReportState.DELIVERED


async def test_a_newer_version_overtakes_one_that_waits_and_that_it_repeats_and_says_so(bench: ResultsBench) -> None:
    odd = await bench.receive(make_report(version=1, effective=NOW + timedelta(days=9)))
    assert odd.state is ReportState.HELD
    assert (await bench.receive(make_report(haemoglobin("2"), version=2))).state is ReportState.DELIVERED
    assert (await bench.get_report("m1")).state is ReportState.SUPERSEDED
    (told,) = bench.event_texts("superseded")
    assert told == f"result {odd.key}, which waited for a person, is superseded: a newer version was delivered"


async def test_a_newer_version_follows_by_itself_when_the_older_one_is_dismissed(tables: Path) -> None:
    async with open_bench({"mappings": str(tables)}) as bench:
        first = await bench.receive(make_report(haemoglobin("1"), STRANGE, version=1))
        assert (await bench.receive(make_report(haemoglobin("2"), version=2))).state is ReportState.HELD
        await desk.dismiss_result(bench.store, first.key, by="ann", note="a slip", now=bench.clock.now())
        await bench.run_until_idle()
        assert (await bench.get_report("m2")).state is ReportState.DELIVERED


async def test_a_newer_version_that_was_released_leaves_one_with_more_to_say_at_the_desk(tables: Path) -> None:
    async with open_bench({"mappings": str(tables)}) as bench:
        first = await bench.receive(make_report(haemoglobin("1"), STRANGE, version=1))
        await bench.release(await bench.receive(make_report(haemoglobin("2"), version=2)))
        assert ((await bench.get_report("m2")).state, (await bench.get_report("m1")).state) == (
            ReportState.DELIVERED,
            ReportState.UNMAPPED,
        )
        assert (await bench.receive(make_report(haemoglobin("3"), version=3))).state is ReportState.DELIVERED, (
            "nobody is asked twice"
        )
        await mended(bench, tables)
        held = await bench.get_report("m1")
        assert (held.state, "without new" in (held.reason or "")) == (ReportState.HELD, True)
        assert (await bench.receive(make_report(haemoglobin("4"), STRANGE, version=4))).state is ReportState.DELIVERED
        assert (await bench.get_report("m1")).state is ReportState.SUPERSEDED
        assert first.key in bench.event_texts("superseded")[-1]


@pytest.mark.parametrize("how", ["mended", "dismissed"])
async def test_a_part_of_a_report_waits_for_an_older_part_and_follows_by_itself(tables: Path, how: str) -> None:
    async with open_bench({"mappings": str(tables), "left_out": "keep"}) as bench:
        first = await bench.receive(make_report(haemoglobin("1", id="a"), STRANGE, version=1, lines=("L0",)))
        for version, line in ((2, "L1"), (3, "L2")):
            held = await bench.receive(make_report(haemoglobin(str(version), id=line), version=version, lines=(line,)))
            assert (held.state, f"waits for result {first.key if version == 2 else ''}" in (held.reason or "")) == (
                ReportState.HELD,
                True,
            )
            assert "follows by itself" in desk.what_to_do(held.state, held.reason)
        if how == "mended":
            await mended(bench, tables)
        else:
            await desk.dismiss_result(bench.store, first.key, by="ann", note="a test", now=bench.clock.now())
            await bench.run_until_idle()
        (found,) = await bench.clinic_reports()
        values = {str(one["valueQuantity"]["value"]) for one in found.observations}
        assert values == ({"1", "6.4", "2", "3"} if how == "mended" else {"2", "3"})
        assert await bench.line_states() == ["completed" if how == "mended" else "accepted", "completed", "completed"]
        assert await bench.store.run(lambda uow: uow.reports.needing_operator()) == ()


async def test_a_part_that_is_of_another_order_lets_the_newer_parts_go() -> None:
    async with open_bench({"left_out": "keep"}) as bench:
        first = await bench.receive(make_report(haemoglobin("666"), version=1, items=("999.999",)))
        assert first.state is ReportState.UNMATCHED
        assert (await bench.receive(make_report(haemoglobin("2", id="b"), version=2, lines=("L1",)))).state is ReportState.HELD
        await desk.dismiss_result(bench.store, first.key, by="ann", note="not ours", now=bench.clock.now())
        await bench.run_until_idle()
        (found,) = await bench.clinic_reports()
        assert [str(one["valueQuantity"]["value"]) for one in found.observations] == ["2"]


async def test_a_part_that_was_parked_is_sent_with_the_next_and_completes_what_it_would_have() -> None:
    async with open_bench({"left_out": "keep"}) as bench:
        bench.inject_faults(FaultRule(kind="status", status=422, route="POST /fhir/DiagnosticReport", count=1))
        absent = (NotPerformed(line="L2", reason="clotted"),)
        first = await bench.receive(make_report(haemoglobin("1", id="a"), version=1, lines=("L0",), not_performed=absent))
        assert first.state is ReportState.MATCHED
        await bench.receive(make_report(haemoglobin("2", id="b"), version=2, lines=("L1",)))
        assert (await bench.get_report("m1")).state is ReportState.SUPERSEDED
        assert await bench.line_states() == ["completed", "completed", "cancelled"]
        assert (await bench.order_status()).order == "completed"


async def test_a_parked_version_with_more_to_say_stays_until_somebody_decides(bench: ResultsBench) -> None:
    bench.inject_faults(FaultRule(kind="status", status=422, route="POST /fhir/DiagnosticReport", count=1))
    await bench.receive(make_report(version=1, lines=("L0",)))
    assert (await bench.receive(make_report(version=2, lines=("L1",)))).state is ReportState.DELIVERED
    (parked,) = await bench.jobs()
    assert await bench.line_states() == ["resulted", "completed", "accepted"]
    await retry_job(bench.store, parked.id, by="ann", now=bench.clock.now())
    await bench.run_until_idle()
    held = await bench.get_report("m1")
    assert (held.state, "without line L0" in (held.reason or "")) == (ReportState.HELD, True)
    assert await bench.line_states() == ["accepted", "completed", "accepted"]


async def test_an_older_version_goes_while_a_newer_one_is_parked(bench: ResultsBench) -> None:
    bench.inject_faults(FaultRule(kind="status", status=422, route="POST /fhir/DiagnosticReport", count=1))
    parked = await bench.receive(make_report(haemoglobin("2"), version=2))
    assert (await bench.receive(make_report(haemoglobin("1"), version=1))).state is ReportState.DELIVERED
    await desk.dismiss_result(bench.store, parked.key, by="ann", note="wrong", now=bench.clock.now())
    assert len(await bench.clinic_reports()) == 1


@pytest.mark.parametrize("left_out", ["hold", "keep"])
async def test_a_parked_version_that_is_retried_takes_nothing_from_an_older_one_that_went_meanwhile(left_out: str) -> None:
    async with open_bench({"left_out": left_out}) as bench:
        bench.inject_faults(FaultRule(kind="status", status=422, route="POST /fhir/DiagnosticReport", count=1))
        await bench.receive(make_report(haemoglobin("2", id="b"), version=2, lines=("L1",)))
        (parked,) = await bench.jobs()
        assert (
            await bench.receive(make_report(haemoglobin("1", id="a"), version=1, lines=("L0",)))
        ).state is ReportState.DELIVERED
        await retry_job(bench.store, parked.id, by="ann", now=bench.clock.now())
        await bench.run_until_idle()
        (found,) = await bench.clinic_reports()
        newer = await bench.get_report("m1")
        if left_out == "hold":
            assert (newer.state, "leave out a, final" in (newer.reason or "")) == (ReportState.HELD, True)
            assert len(found.observations) == 1
        else:
            assert (newer.state, len(found.observations)) == (ReportState.DELIVERED, 2)
            assert await bench.line_states() == ["completed", "completed", "accepted"]


async def test_a_release_answers_the_question_that_was_asked_and_no_other(bench: ResultsBench) -> None:
    odd = await bench.receive(
        make_report(haemoglobin("1"), haemoglobin("6", id="b"), version=1, effective=NOW + timedelta(days=9))
    )
    await bench.release(await bench.receive(make_report(haemoglobin("2"), version=2)))
    held = await bench.get_report("m1")
    assert (held.state, "without b" in (held.reason or "")) == (ReportState.HELD, True)
    assert "future" in (odd.reason or "")
    await bench.release(held)
    assert (await bench.get_report("m1")).state is ReportState.SUPERSEDED


async def test_a_version_that_waits_for_one_that_a_third_supersedes_is_asked_about(tables: Path) -> None:
    async with open_bench({"mappings": str(tables), "left_out": "keep"}) as bench:
        await bench.receive(make_report(haemoglobin("1", id="a"), STRANGE, version=1, lines=("L0",)))
        await bench.receive(make_report(haemoglobin("2", id="b"), version=2, lines=("L1",)))
        (tables / "codes.csv").write_text("code,loinc\nNEW,4548-4\n")
        bench.mappings.reload()
        await bench.release(await bench.receive(make_report(haemoglobin("1", id="a"), STRANGE, version=3, lines=("L0",))))
        assert (await bench.get_report("m1")).state is ReportState.SUPERSEDED
        middle = await bench.get_report("m2")
        assert (middle.state, "without b, line L1" in (middle.reason or "")) == (ReportState.HELD, True)


@pytest.mark.parametrize(
    ("newer", "words"),
    [
        ({"not_performed": (NotPerformed(line="L1", reason="lost"),)}, "what was not performed"),
        ({"status": ReportStatus.PARTIAL}, "the end of line L0, L1, L2"),
    ],
)
async def test_what_an_older_version_alone_says_is_asked_about(tables: Path, newer: dict[str, Any], words: str) -> None:
    async with open_bench({"mappings": str(tables)}) as bench:
        await bench.receive(
            make_report(haemoglobin("1"), STRANGE, version=1, not_performed=ABSENT if "not_performed" in newer else ())
        )
        (tables / "codes.csv").write_text("code,loinc\nNEW,4548-4\n")
        bench.mappings.reload()
        held = await bench.receive(make_report(haemoglobin("1"), STRANGE, version=2, **newer))
        assert (held.state, words in (held.reason or "")) == (ReportState.HELD, True), held.reason


async def test_a_final_value_that_waits_is_not_overtaken_by_a_preliminary_one(bench: ResultsBench) -> None:
    await bench.receive(make_report(haemoglobin("1"), version=1, effective=NOW + timedelta(days=9)))
    open_ = haemoglobin("1", status=ObservationStatus.PRELIMINARY)
    held = await bench.receive(make_report(open_, version=2))
    assert (held.state, "leaves out hb" in (held.reason or "")) == (ReportState.HELD, True)


async def test_an_older_version_that_is_retried_stays_behind_a_newer_one_that_has_begun(bench: ResultsBench) -> None:
    bench.inject_faults(FaultRule(kind="status", status=422, route="POST /fhir/DiagnosticReport", count=1))
    await bench.receive(make_report(haemoglobin("1"), version=1))
    (first,) = await bench.jobs()
    bench.inject_faults(FaultRule(kind="status", status=503, route="POST /fhir/DiagnosticReport", count=1))
    await put(bench, make_report(haemoglobin("2"), version=2))
    await bench.run_due_jobs()
    await bench.run_due_jobs()
    assert {each.state.value for each in await bench.jobs()} == {"parked", "unknown"}
    await retry_job(bench.store, first.id, by="ann", now=bench.clock.now())
    await bench.run_until_idle()
    assert ((await bench.get_report("m1")).state, (await bench.get_report("m2")).state) == (
        ReportState.SUPERSEDED,
        ReportState.DELIVERED,
    )
    values = [each["valueQuantity"]["value"] for each in await bench.resource_versions("Observation", "RORDER.rep.hb")]
    assert values == [1, 2]
    assert await bench.jobs() == ()


async def test_a_version_that_only_refuses_ends_none_that_is_on_its_way(bench: ResultsBench) -> None:
    bench.inject_faults(FaultRule(kind="status", status=503, route="POST /fhir/DiagnosticReport", count=2))
    await put(bench, make_report(version=1, lines=("L1",)))
    await bench.run_due_jobs()
    await bench.run_due_jobs()
    held = await bench.receive(refused(version=2))
    assert (held.state, "leave out hb" in (held.reason or "")) == (ReportState.HELD, True)
    assert ((await bench.get_report("m1")).state, await bench.line_states()) == (
        ReportState.DELIVERED,
        ["accepted", "completed", "accepted"],
    )


async def put(bench: ResultsBench, message: Any) -> None:
    """Put a message into the inbox, and let nothing follow yet."""
    bench.message_count += 1
    await StoreInbox(bench.store, bench.clock, "lis", lambda: None).accept(f"m{bench.message_count}", message)


async def test_a_laboratory_that_sends_only_what_is_new_keeps_the_lines() -> None:
    async with open_bench({"left_out": "keep"}) as bench:
        for version, item in enumerate(("001.001", "004.001", "005.001"), 1):
            given = make_report(haemoglobin(str(version), id=item), items=(item,), version=version)
            assert (await bench.receive(given)).state is ReportState.DELIVERED
            assert await bench.line_states() == ["completed"] * version + ["accepted"] * (3 - version)
        (found,) = await bench.clinic_reports()
        assert found.lines == {line.procedure_request for line in bench.placed.lines}
        assert found.resource["code"]["coding"][0]["code"] == "001.001"
        assert len(found.observations) == 3


async def test_what_is_not_performed_beside_what_is_kept_cancels_no_line_that_was_reported() -> None:
    async with open_bench({"left_out": "keep"}) as bench:
        await bench.receive(make_report(items=("001.001",), version=1, status=ReportStatus.PARTIAL))
        absent = (NotPerformed(reason="clotted"),)
        await bench.receive(make_report(haemoglobin("2", id="b"), items=("004.001",), not_performed=absent, version=2))
        assert await bench.line_states() == ["accepted", "cancelled", "accepted"]


async def test_an_older_version_that_alone_has_a_value_is_not_left_aside_in_silence() -> None:
    async with open_bench({"left_out": "keep"}) as bench:
        await bench.receive(make_report(haemoglobin("2"), version=2))
        held = await bench.receive(make_report(haemoglobin("6.4", id="alone"), version=1))
        assert (held.state, "without alone" in (held.reason or "")) == (ReportState.HELD, True)
        assert (await bench.receive(make_report(haemoglobin("3"), version=3))).state is ReportState.DELIVERED
        assert (await bench.get_report("m2")).state is ReportState.HELD
        assert (await bench.receive(make_report(haemoglobin("6.4", id="alone"), version=4))).state is ReportState.DELIVERED
        assert (await bench.get_report("m2")).state is ReportState.SUPERSEDED
        (found,) = await bench.clinic_reports()
        assert sorted(str(one["valueQuantity"]["value"]) for one in found.observations) == ["3", "6.4"]


async def test_a_line_that_a_version_leaves_out_is_asked_about(bench: ResultsBench) -> None:
    await bench.receive(make_report(lines=("L0", "L1"), version=1))
    held = await bench.receive(make_report(lines=("L0",), version=2))
    assert (held.state, "lines: leave out L1" in (held.reason or "")) == (ReportState.HELD, True)
    await bench.release(held)
    (found,) = await bench.clinic_reports()
    assert found.lines == {bench.placed.lines[0].procedure_request}


async def test_a_change_of_unknown_outcome_is_never_taken_for_undone(bench: ResultsBench) -> None:
    """The reply to a change is lost, and looking for it is refused: whoever comes next looks at what is there."""
    await bench.receive(make_report(haemoglobin("13.2"), version=1))
    bench.inject_faults(
        FaultRule(kind="lost_reply", route="PUT /fhir/Observation/*", count=1),
        FaultRule(kind="status", status=403, route="GET /fhir/Observation/*", count=1, skip=1),
    )
    parked = await bench.receive(make_report(haemoglobin("14.0"), version=2))
    assert (parked.state, [each.state.value for each in await bench.jobs()]) == (ReportState.MATCHED, ["parked"])
    bench.inject_faults()
    assert (await bench.receive(make_report(haemoglobin("13.2"), version=3))).state is ReportState.DELIVERED
    values = [str(each["valueQuantity"]["value"]) for each in await bench.resource_versions("Observation", "RORDER.rep.hb")]
    assert values == ["13.2", "14.0", "13.2"]


async def test_a_change_of_unknown_outcome_that_a_person_retries_is_not_made_twice(bench: ResultsBench) -> None:
    await bench.receive(make_report(haemoglobin("13.2"), version=1))
    bench.inject_faults(
        FaultRule(kind="lost_reply", route="PUT /fhir/Observation/*", count=1),
        FaultRule(kind="status", status=403, route="GET /fhir/Observation/*", count=1, skip=1),
    )
    await bench.receive(make_report(haemoglobin("14.0"), version=2))
    bench.inject_faults()
    (parked,) = await bench.jobs()
    await retry_job(bench.store, parked.id, by="ann", now=bench.clock.now())
    await bench.run_until_idle()
    assert (await bench.get_report("m2")).state is ReportState.DELIVERED
    values = [str(each["valueQuantity"]["value"]) for each in await bench.resource_versions("Observation", "RORDER.rep.hb")]
    assert values == ["13.2", "14.0"]
