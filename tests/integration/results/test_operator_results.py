"""What waits for an operator, and what is decided about it: one by one, all of one cause, and as mapping tables change."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from pypdf import PdfReader

from lab_agent import bootstrap
from lab_agent.lis.lab_messages import Document, ObservationStatus, ReportedPatient, ReportStatus
from lab_agent.orders.group_actions import GroupAction
from lab_agent.orders.held_group_actions import ResultGroup, dismiss_results, preview_results, release_results
from lab_agent.orders.job_actions import dismiss_job, mark_job_done
from lab_agent.results import result_actions
from lab_agent.results.hold_reasons import held, what_to_do
from lab_agent.results.mapping_loader import MappingCache
from lab_agent.results.records import HoldReason
from lab_agent.shared.errors import InputError, InvalidTransitionError, StoreError
from lab_agent.shared.ids import JobId, OrderKey
from lab_agent.shared.state_machines import OrderState, ReportState
from lab_agent.shared.values import Coding
from tests.harness.documents import PDF
from tests.harness.paths import MAPPINGS
from tests.harness.results import AWAY, NOW, ORDER, ResultsBench, haemoglobin, make_report, open_bench, refused
from tests.integration.results.histories import Step, act, dismiss, faults, get, lines, now, play, release, same
from tests.integration.workflow.conftest import parametrize_first

DELIVERED, DISMISSED, HELD = ReportState.DELIVERED, ReportState.DISMISSED, ReportState.HELD
UNMAPPED, UNMATCHED, MATCHED = ReportState.UNMAPPED, ReportState.UNMATCHED, ReportState.MATCHED
LOST = make_report(order=None, barcode="999")
NOBODYS = make_report(order="RNOBODY")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(MAPPINGS, tmp_path / "mappings"))


@pytest.fixture
async def mapped(folder: Path) -> AsyncIterator[ResultsBench]:
    async with open_bench({"mappings": folder}) as opened:
        yield opened


def in_words(code: str) -> Any:
    return haemoglobin("1", code=Coding(code=code), value_quantity=None, value_string="x")


# --- mapping tables


@pytest.mark.slow
async def test_mapping_release_skips_concurrently_decided_reports(
    mapped: ResultsBench, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A report that somebody else decides meanwhile is left to them."""
    found = [await mapped.receive(make_report(in_words("NEW"), report_id=name, lines=(name,))) for name in ("L0", "L1")]
    with (folder / "codes.csv").open("a") as table:
        table.write("NEW,718-7,Hemoglobin,\n")
    mapped.mappings.reload()
    await mapped.dismiss(found[0])
    monkeypatch.setattr(result_actions, "_unmapped_reports", lambda _: found)  # as they were listed before
    decided = await result_actions.release_mapped_results(mapped.store, mapped.matcher, by="ann", now=mapped.clock.now())
    assert [(each.report.key, each.moved) for each in decided] == [(found[1].key, True)]
    assert await mapped.report_states() == [DISMISSED, MATCHED]


@pytest.mark.slow
async def test_mapping_changed_before_delivery_holds_report(mapped: ResultsBench, folder: Path) -> None:
    """Its lines wait again; once another process has released it, ours reads the tables anew."""
    mapped.inject_faults(AWAY)
    assert (await mapped.receive(make_report(in_words("HGB"), lines=("L1",)))).state is MATCHED
    (folder / "codes.csv").write_text("code,loinc\nOTHER,718-7\n")
    mapped.mappings.reload()
    mapped.inject_faults()
    await mapped.run_until_idle()
    assert await mapped.report_states() == [UNMAPPED]
    assert await mapped.line_states() == ["accepted"] * 3
    shutil.copy(MAPPINGS / "codes.csv", folder)
    fresh = bootstrap.build_matcher(mapped.settings, MappingCache(folder), mapped.catalogue)
    await result_actions.release_mapped_results(mapped.store, fresh, by="ann", now=mapped.clock.now())
    await mapped.run_until_idle()
    assert await mapped.report_states() == [DELIVERED]


# --- decisions


async def match_to_nobody(bench: ResultsBench) -> None:
    lost = await bench.get_report("m1")
    with pytest.raises(StoreError):
        await result_actions.match_result(bench.store, bench.matcher, lost.key, OrderKey("RNOBODY"), lines=(), **bench.who)


def order(state: OrderState) -> Step:
    async def found(bench: ResultsBench) -> OrderState:
        return (await bench.get_order()).state

    return same(found, state)


def match(number: int, *lines: str) -> Step:
    async def step(bench: ResultsBench) -> None:
        assert (await bench.match(await bench.get_report(f"m{number}"), *lines)).moved

    return act(step)


EARLY = {"status": ReportStatus.PARTIAL, "lines": ("L0",)}
HISTORIES: dict[str, tuple[Step, ...]] = {
    "an unmatched report is matched": (
        get(LOST, UNMATCHED), act(match_to_nobody), match(1, "L0"), now(1, DELIVERED), lines("completed")),
    "what cannot be written as FHIR is not released": (
        get(make_report(haemoglobin("1", code=Coding(code="HGB"))), UNMAPPED), release(1, moved=False), now(1, UNMAPPED)),
    "the last open item that is dismissed closes its order": (
        faults(refused()), get(make_report(report_id="addendum", completes=()), MATCHED), get(make_report()),
        order(OrderState.HANDED_OVER), dismiss(1), order(OrderState.CLOSED)),
    # the final report is stuck, and nobody has given it up
    "a superseded version that is dismissed reopens its lines": (
        faults(refused()), get(make_report(version=1, lines=("L0",)), MATCHED),
        get(make_report(haemoglobin("1", status=ObservationStatus.PRELIMINARY), version=2, **EARLY),
        HoldReason.WAITS_FOR_VERSION),
        release(2, moved=False), lines("resulted"), dismiss(1), lines()),
}  # fmt: skip


@parametrize_first("case", HISTORIES, quick=2)
async def test_operator_decides_about_one_result(case: str) -> None:
    await play(HISTORIES[case])


async def test_decision_on_changed_report_is_rejected(bench: ResultsBench) -> None:
    """A report that changed since it was shown is not decided about."""
    lost = await bench.receive(LOST)
    for seen, is_current in ((lost.changed_at - timedelta(seconds=1), False), (lost.changed_at, True)):
        deciding = result_actions.dismiss_result(bench.store, lost.key, seen_changed_at=seen, **bench.who)
        if is_current:
            assert (await deciding).report.state is DISMISSED
        else:
            with pytest.raises(InvalidTransitionError):
                await deciding
            assert await bench.report_states() == [UNMATCHED]
    with pytest.raises(InvalidTransitionError):
        await bench.release(lost)


@pytest.mark.slow
@pytest.mark.parametrize("note", ["", "  \n\t ", "x" * 501])
async def test_note_must_be_present_and_short(bench: ResultsBench, note: str) -> None:
    lost = await bench.receive(NOBODYS)
    who: dict[str, Any] = {**bench.who, "note": note}
    for decision in (
        result_actions.dismiss_result(bench.store, lost.key, **who),
        result_actions.release_result(bench.store, bench.matcher, lost.key, **who),
        result_actions.match_result(bench.store, bench.matcher, lost.key, ORDER, **who),
        dismiss_job(bench.store, JobId(1), **who),
        mark_job_done(bench.store, JobId(1), **who),
    ):
        with pytest.raises(InputError):
            await decision
    assert await bench.report_states() == [UNMATCHED]


@parametrize_first("how", ["result", "job"])
async def test_dismissal_of_completing_report_reopens_line(bench: ResultsBench, how: str) -> None:
    """A line waits again when the report that completes it is dismissed; its dead-lettered delivery is over with it."""
    bench.inject_faults(refused(2))
    first = await bench.receive(make_report(report_id="a", lines=("L0", "L1")))
    second = await bench.receive(make_report(report_id="b", lines=("L1",)))
    assert (first.state, await bench.line_states()) == (MATCHED, ["resulted", "resulted", "accepted"])
    (stuck,) = [each for each in await bench.jobs() if each.target == first.key]
    if how == "result":
        assert (await bench.dismiss(first)).report.state is DISMISSED
    else:
        await dismiss_job(bench.store, stuck.id, **bench.who)
    assert stuck.id not in [each.id for each in await bench.jobs()]
    assert await bench.line_states() == ["accepted", "resulted", "accepted"], "another report will complete the second"
    await bench.dismiss(second)
    assert (await bench.receive(make_report(report_id="c"))).state is DELIVERED
    assert await bench.line_states() == ["completed"] * 3


async def test_order_wide_document_has_link_and_lines(bench: ResultsBench) -> None:
    """A document of the whole order carries only a link and names every line."""
    wide = make_report(report_id="all", completes=(), documents=(Document(content=PDF, title="Summary"),))
    assert (await bench.receive(replace(wide, observations=()))).state is DELIVERED
    (found,) = await bench.clinic_reports()
    assert found.lines == {line.procedure_request for line in bench.placed.lines}
    assert found.observations == ()
    assert (await bench.partner.download_document(found.documents[0])).content == PDF


@pytest.mark.slow
async def test_pdf_is_generated_when_lis_sends_none() -> None:
    async with open_bench({"print_reports": True, "print_name": "Laboratory One"}) as bench:
        await bench.receive(make_report())
        (found,) = await bench.clinic_reports()
        printed = (await bench.partner.download_document(found.documents[0])).content
        assert "718-7" in PdfReader(BytesIO(printed)).pages[0].extract_text()
        assert set((await bench.order_status()).lines.values()) == {"completed"}


# --- all results that wait for one cause


async def release_all(bench: ResultsBench, reason: HoldReason) -> int:
    done = (await release_results(bench.store, ResultGroup(HELD, reason), bench.matcher, **bench.who)).done
    await bench.run_until_idle()
    return done


@pytest.mark.slow
async def test_results_of_one_cause_are_released_and_no_other(bench: ResultsBench) -> None:
    for name in ("a", "b"):
        await bench.receive(make_report(report_id=name, observations=()))
    await bench.receive(make_report(haemoglobin("1", specimen="no such tube"), report_id="c"))
    assert await release_all(bench, HoldReason.QUESTION) == 2
    assert await bench.report_states() == [DELIVERED, DELIVERED, HELD]


async def test_results_of_another_patient_are_released_one_by_one_only(bench: ResultsBench) -> None:
    await bench.know_patient(family="Sample", gender="female", birth_date="1980-02-29", identifiers=[])
    await bench.receive(make_report(patient=ReportedPatient(birth_date=(NOW - timedelta(days=9999)).date(), gender="male")))
    group = ResultGroup(HELD, HoldReason.PATIENT_MISMATCH)
    preview = await preview_results(bench.store, group, GroupAction.RELEASE)
    assert (preview.number, preview.does, [each.number for each in preview.left_out]) == (0, (), [1])
    for reason in (HoldReason.PATIENT_MISMATCH, HoldReason.DEFECT, HoldReason.WAITS_FOR_VERSION):
        with pytest.raises(InputError):
            await release_all(bench, reason)
    with pytest.raises(InputError):
        await dismiss_results(bench.store, ResultGroup(HELD, HoldReason.WAITS_FOR_VERSION), **bench.who)
    assert (await bench.report_states(), await bench.clinic_reports()) == ([HELD], [])
    assert (await preview_results(bench.store, group, GroupAction.DISMISS)).number == 1
    assert (await dismiss_results(bench.store, group, **bench.who)).done == 1


def test_every_reason_has_sentence_and_next_step() -> None:
    for reason in HoldReason:
        hold = held(reason, "the {detail} as it is")
        assert ("the {detail} as it is" in hold.text, hold.state, hold.reason) == (True, HELD, reason)
        assert what_to_do(hold.state, hold.reason), reason
    waiting = {state for state in ReportState if state is not HELD and what_to_do(state, None)}
    assert waiting == {UNMATCHED, UNMAPPED}
