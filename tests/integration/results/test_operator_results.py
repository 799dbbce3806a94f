"""What waits for an operator, and what an operator decides about it."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from pypdf import PdfReader

from lab_agent import bootstrap
from lab_agent.domain.ids import JobId, LineKey, OrderKey, ReportKey
from lab_agent.domain.lab_messages import Document, LabMessage, LabRejection, NotPerformed, ObservationStatus, ReportStatus
from lab_agent.domain.state_machines import JobState, OrderState, ReportState
from lab_agent.domain.values import Coding, Quantity
from lab_agent.errors import InputError, InvalidTransitionError, StoreError
from lab_agent.mappings.loader import MappingCache
from lab_agent.workflow import operator_results
from lab_agent.workflow.operator_jobs import dismiss_job, mark_job_done
from lab_sandbox.faults.plan import FaultRule
from tests.harness.documents import PDF
from tests.harness.paths import MAPPINGS
from tests.harness.results import ORDER, ResultsBench, haemoglobin, make_report, open_bench


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(MAPPINGS, tmp_path / "mappings")
    return tmp_path / "mappings"


@pytest.fixture
async def mapped(folder: Path) -> AsyncIterator[ResultsBench]:
    async with open_bench({"mappings": folder}) as opened:
        yield opened


def local(code: str = "NEW", unit: str = "g/dL", **more: object) -> object:
    return replace(
        haemoglobin("1"), code=Coding(code=code), value_quantity=Quantity(value=Decimal("1.0"), unit=unit), **more  # type: ignore[arg-type]
    )  # fmt: skip


def events(bench: ResultsBench) -> list[tuple[str | None, str]]:
    return [(event.by, event.text) for event in bench.store._data.events if event.action == "operator"]


async def test_mapping_release_previews_then_releases_reports(mapped: ResultsBench, folder: Path) -> None:
    """Corrected mapping tables release the reports they complete, after a preview that changes nothing."""
    code = await mapped.receive(make_report(local(), report_id="a", lines=("L0",)))  # type: ignore[arg-type]
    unit = await mapped.receive(make_report(local("HGB", "furlong"), report_id="b", lines=("L1",)))  # type: ignore[arg-type]
    assert [code.state, unit.state] == [ReportState.UNMAPPED, ReportState.UNMAPPED]
    assert "code 'NEW' is not mapped" in (code.reason or "")
    with (folder / "codes.csv").open("a") as table:
        table.write("NEW,718-7,Hemoglobin,\n")
    with (folder / "units.csv").open("a") as table:
        table.write("g/dL,g/dL\n")
    assert mapped.mappings.reload()
    preview = await operator_results.preview_mapping_release(mapped.store, mapped.matcher, now=mapped.clock.now())
    assert {each.key: each.state for each in preview} == {code.key: ReportState.MATCHED, unit.key: ReportState.UNMAPPED}
    assert (await mapped.get_report("m1")).state is ReportState.UNMAPPED, "a preview changes nothing"
    await operator_results.release_mapped_results(mapped.store, mapped.matcher, by="ann", now=mapped.clock.now())
    await mapped.run_until_idle()
    assert [(await mapped.get_report(name)).state for name in ("m1", "m2")] == [ReportState.DELIVERED, ReportState.UNMAPPED]
    (found,) = await mapped.clinic_reports()
    assert found.observations[0]["code"]["coding"][0]["code"] == "718-7"
    assert ("ann", f"result {code.key} released (the mapping tables were changed): it is matched now") in events(mapped)


async def test_mapping_release_skips_concurrently_decided_reports(
    mapped: ResultsBench, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A report that somebody else decides meanwhile is left to them."""
    found = [
        await mapped.receive(make_report(local(unit="g/l"), report_id=name, lines=(line,)))
        for name, line in (("a", "L0"), ("b", "L1"))
    ]  # type: ignore[arg-type]
    with (folder / "codes.csv").open("a") as table:
        table.write("NEW,718-7,Hemoglobin,\n")
    mapped.mappings.reload()
    now = mapped.clock.now()
    await operator_results.dismiss_result(mapped.store, found[0].key, by="eve", note="sent by mistake", now=now)
    monkeypatch.setattr(operator_results, "_unmapped_reports", lambda _: found)  # as they were listed before eve decided
    decided = await operator_results.release_mapped_results(mapped.store, mapped.matcher, by="ann", now=now)
    assert [(each.report.key, each.moved) for each in decided] == [(found[1].key, True)]
    assert [(await mapped.get_report(name)).state for name in ("m1", "m2")] == [ReportState.DISMISSED, ReportState.MATCHED]


async def test_decision_on_changed_report_is_rejected(bench: ResultsBench) -> None:
    """A report that changed since it was shown is not decided about."""
    lost = await bench.receive(make_report(order=None, barcode="999"))
    now, before = bench.clock.now(), lost.changed_at - timedelta(seconds=1)
    with pytest.raises(InvalidTransitionError, match="changed since you looked; nothing was done"):
        await operator_results.dismiss_result(bench.store, lost.key, by="ann", note="not ours", now=now, seen_changed_at=before)
    assert (await bench.get_report("m1")).state is ReportState.UNMATCHED
    decided = await operator_results.dismiss_result(
        bench.store, lost.key, by="ann", note="not ours", now=now, seen_changed_at=lost.changed_at
    )
    assert decided.report.state is ReportState.DISMISSED


async def test_unreadable_mapping_tables_hold_report(folder: Path) -> None:
    """Mapping tables that cannot be read hold a report and never reject it."""
    (folder / "codes.csv").write_text("nonsense\n")
    async with open_bench({"mappings": folder}) as bench:
        held = await bench.receive(make_report())
        assert held.state is ReportState.UNMAPPED
        assert "cannot be read" in (held.reason or "")


async def test_mapping_changed_before_delivery_holds_report(mapped: ResultsBench, folder: Path) -> None:
    """A mapping table that changes between match and delivery holds the report."""
    mapped.inject_faults(FaultRule(kind="status", status=503, route="POST /fhir/*", count=1))
    await mapped.receive(make_report(local("HGB", "g/l"), lines=("L0",)))  # type: ignore[arg-type]
    mapped.inject_faults(FaultRule(kind="status", status=503, route="POST /fhir/*"))
    waiting = await mapped.receive(make_report(local("HGB", "g/l"), report_id="next", lines=("L1",)))  # type: ignore[arg-type]
    assert waiting.state is ReportState.MATCHED
    (folder / "codes.csv").write_text("code,loinc\nOTHER,718-7\n")
    mapped.mappings.reload()
    mapped.inject_faults()
    await mapped.run_until_idle()
    held = await mapped.get_report("m2")
    assert held.state is ReportState.UNMAPPED
    shutil.copy(MAPPINGS / "codes.csv", folder)
    fresh = bootstrap.build_matcher(
        mapped.settings, MappingCache(folder), mapped.catalogue
    )  # another process released it: ours reads the tables again
    await operator_results.release_mapped_results(mapped.store, fresh, by="ann", now=mapped.clock.now())
    await mapped.run_until_idle()
    assert (await mapped.get_report("m2")).state is ReportState.DELIVERED


async def test_unmatched_report_is_matched_by_operator(bench: ResultsBench) -> None:
    lost = await bench.receive(make_report(order=None, barcode="999"))
    assert lost.state is ReportState.UNMATCHED
    with pytest.raises(StoreError):
        await decide_match(bench, lost.key, OrderKey("RNOBODY"))
    decided = await decide_match(bench, lost.key, ORDER)
    assert decided.moved
    await bench.run_until_idle()
    assert (await bench.get_report("m1")).state is ReportState.DELIVERED
    assert events(bench)[0][0] == "ann"
    assert "read the paper" in events(bench)[0][1]


async def decide_match(bench: ResultsBench, key: ReportKey, order: OrderKey) -> operator_results.ResultDecision:
    return await operator_results.match_result(
        bench.store, bench.matcher, key, order, lines=(bench.line_key(0),), by="ann", note="read the paper", now=bench.clock.now()
    )


async def test_late_report_delivered_on_release(bench: ResultsBench) -> None:
    await bench.withdraw()
    held = await bench.receive(make_report())
    decided = await operator_results.release_result(
        bench.store, bench.matcher, held.key, by="ann", note="asked", now=bench.clock.now()
    )
    assert decided.report.state is ReportState.MATCHED
    await bench.run_until_idle()
    assert (await bench.get_report("m1")).state is ReportState.DELIVERED
    with pytest.raises(InvalidTransitionError):
        await operator_results.release_result(bench.store, bench.matcher, held.key, by="ann", note="again", now=bench.clock.now())


async def test_unmappable_report_cannot_be_released(bench: ResultsBench) -> None:
    """A report that cannot be written as FHIR stays unmapped even when an operator releases it."""
    held = await bench.receive(make_report(haemoglobin("1", code=Coding(code="HGB"))))
    decided = await operator_results.release_result(
        bench.store, bench.matcher, held.key, by="ann", note="go", now=bench.clock.now()
    )
    assert not decided.moved
    assert decided.report.state is ReportState.UNMAPPED


async def test_dismissed_report_is_final(bench: ResultsBench) -> None:
    held = await bench.receive(make_report(order="RNOBODY"))
    gone = await operator_results.dismiss_result(bench.store, held.key, by="ann", note="a test", now=bench.clock.now())
    assert gone.report.state is ReportState.DISMISSED
    assert gone.report.reason == "dismissed by ann: a test"
    assert await operator_results.waiting_results(bench.store) == ()


@pytest.mark.parametrize("note", ["", "  \n\t ", "x" * 501])
async def test_note_must_be_present_and_short(bench: ResultsBench, note: str) -> None:
    held = await bench.receive(make_report(order="RNOBODY"))
    who: dict[str, Any] = {"by": "ann", "note": note, "now": bench.clock.now()}
    for decision in (
        operator_results.dismiss_result(bench.store, held.key, **who),
        operator_results.release_result(bench.store, bench.matcher, held.key, **who),
        operator_results.match_result(bench.store, bench.matcher, held.key, ORDER, **who),
        dismiss_job(bench.store, JobId(1), **who),
        mark_job_done(bench.store, JobId(1), **who),
    ):
        with pytest.raises(InputError):
            await decision
    assert (await bench.get_report("m1")).state is ReportState.UNMATCHED


async def test_dismissal_of_unmatched_report_kept_in_history(bench: ResultsBench) -> None:
    """Who dismissed a report of no order stays in its history."""
    held = await bench.receive(make_report(order="RNOBODY"))
    await operator_results.dismiss_result(bench.store, held.key, by="ann", note=" a\ntest ", now=bench.clock.now())
    (arrival, decision) = [each for each in bench.store._data.events if each.report == held.key]
    assert arrival.action == "result_held"
    assert (decision.order, decision.by, decision.at) == (None, "ann", bench.clock.now())
    assert decision.text == f"result {held.key} dismissed (a test): it is dismissed now"


@pytest.mark.parametrize("how", ["result", "job"])
async def test_dismissal_of_completing_report_reopens_line(bench: ResultsBench, how: str) -> None:
    """A line waits again when the report that completes it is dismissed."""
    bench.inject_faults(FaultRule(kind="status", status=422, route="POST /fhir/DiagnosticReport", count=2))
    first = await bench.receive(make_report(report_id="a", lines=("L0", "L1")))
    second = await bench.receive(make_report(report_id="b", lines=("L1",)))
    assert await bench.line_states() == ["resulted", "resulted", "accepted"]
    if how == "result":
        await operator_results.dismiss_result(bench.store, first.key, by="ann", note="wrong", now=bench.clock.now())
    else:
        (stuck,) = [each for each in await bench.jobs() if each.target == first.key]
        await dismiss_job(bench.store, JobId(stuck.id), by="ann", note="wrong", now=bench.clock.now())
    assert await bench.line_states() == ["accepted", "resulted", "accepted"], "another report will complete the second"
    assert [text for text in timeline(bench) if "waits for a result again" in text]
    await operator_results.dismiss_result(bench.store, second.key, by="ann", note="wrong", now=bench.clock.now())
    assert (await bench.receive(make_report(report_id="c"))).state is ReportState.DELIVERED
    assert await bench.line_states() == ["completed"] * 3


async def test_dismissing_last_open_item_closes_order(bench: ResultsBench) -> None:
    bench.inject_faults(FaultRule(kind="status", status=422, route="POST /fhir/DiagnosticReport", count=1))
    addendum = await bench.receive(make_report(report_id="addendum", completes=()))
    await bench.receive(make_report())
    assert (await bench.get_order()).state is OrderState.HANDED_OVER
    await operator_results.dismiss_result(bench.store, addendum.key, by="ann", note="wrong", now=bench.clock.now())
    await bench.run_until_idle()
    assert (await bench.get_order()).state is OrderState.CLOSED
    assert (await bench.order_status()).order == "completed"


async def test_superseded_version_reopens_its_lines(bench: ResultsBench) -> None:
    bench.inject_faults(FaultRule(kind="status", status=422, route="POST /fhir/DiagnosticReport", count=1))
    first = await bench.receive(make_report(version=1, lines=("L0",)))
    back = make_report(
        haemoglobin("1", status=ObservationStatus.PRELIMINARY), version=2, lines=("L0",), status=ReportStatus.PARTIAL
    )
    held = await bench.receive(back)
    await operator_results.release_result(bench.store, bench.matcher, held.key, by="ann", note="it is", now=bench.clock.now())
    await bench.run_until_idle()
    assert await bench.line_states() == ["resulted", "accepted", "accepted"], "the final report is stuck; nobody gave it up"
    await operator_results.dismiss_result(bench.store, first.key, by="ann", note="not final", now=bench.clock.now())
    assert await bench.line_states() == ["accepted"] * 3


async def test_report_held_in_delivery_reopens_its_lines(mapped: ResultsBench, folder: Path) -> None:
    mapped.inject_faults(FaultRule(kind="status", status=503, route="POST /fhir/*"))
    await mapped.receive(make_report(local("HGB", "g/l"), lines=("L1",)))  # type: ignore[arg-type]
    (folder / "codes.csv").write_text("code,loinc\nOTHER,718-7\n")
    mapped.mappings.reload()
    mapped.inject_faults()
    await mapped.run_until_idle()
    assert (await mapped.get_report("m1")).state is ReportState.UNMAPPED
    assert await mapped.line_states() == ["accepted"] * 3


def timeline(bench: ResultsBench) -> list[str]:
    return [event.text for event in bench.store._data.events if event.order == ORDER]


async def test_dead_lettered_delivery_dismissed_with_its_report(bench: ResultsBench) -> None:
    bench.inject_faults(FaultRule(kind="status", status=422, route="POST /fhir/DiagnosticReport"))
    stuck = await bench.receive(make_report(lines=("L0",)))
    assert stuck.state is ReportState.MATCHED
    gone = await operator_results.dismiss_result(bench.store, stuck.key, by="ann", note="wrong", now=bench.clock.now())
    assert gone.report.state is ReportState.DISMISSED
    assert [each for each in await bench.jobs() if each.target == stuck.key] == []


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (Document(content=b"<html>sorry</html>"), "documents[0]: says that it is application/pdf, and is text/html"),
        (Document(content=b"%PDF-" + b"x" * 5000), "more than results.max_document"),
        (Document(url="file:///etc/passwd"), "no address that a clinic could open"),
    ],
)
async def test_document_with_wrong_content_is_held(document: Document, words: str) -> None:
    """A document that is not what its content type says is held."""
    async with open_bench({"max_document": 4000}) as bench:
        held = await bench.receive(make_report(documents=(document,)))
        assert held.state is ReportState.HELD
        assert words in (held.reason or "")
        assert (await bench.receive(make_report(report_id="good", lines=("L1",)))).state is ReportState.DELIVERED


async def test_missing_document_dead_letters_delivery(bench: ResultsBench) -> None:
    """A document that is no longer kept dead-letters its delivery with that reason."""
    bench.inject_faults(FaultRule(kind="status", status=503, route="POST /fhir/*"))
    await bench.receive(make_report(documents=(Document(content=PDF),)))

    def purge(uow: object) -> None:
        uow._data.documents.clear()  # type: ignore[attr-defined]
        uow.commit()  # type: ignore[attr-defined]

    await bench.store.run(purge)
    bench.inject_faults()
    await bench.run_until_idle()
    (stuck,) = await bench.jobs()
    assert stuck.state is JobState.DEAD_LETTER
    assert "is not kept any more" in (stuck.reason or "")


async def test_order_wide_document_has_link_and_lines(bench: ResultsBench) -> None:
    """A document of the whole order carries only a link and names every line."""
    wide = make_report(report_id="all", completes=(), observations=(), documents=(Document(content=PDF, title="Summary"),))
    wide = replace(wide, observations=())
    assert (await bench.receive(wide)).state is ReportState.DELIVERED
    (found,) = await bench.clinic_reports()
    assert found.lines == {line.procedure_request for line in bench.placed.lines}
    assert found.observations == ()
    assert (await bench.partner.download_document(found.documents[0])).content == PDF


async def test_pdf_is_generated_when_lis_sends_none() -> None:
    async with open_bench({"print_reports": True, "print_name": "Laboratory One"}) as bench:
        await bench.receive(
            make_report(haemoglobin("1", code=Coding(system="http://loinc.org", code="718-7", display="Haemoglobin")))
        )
        (found,) = await bench.clinic_reports()
        printed = (await bench.partner.download_document(found.documents[0])).content
        assert "718-7" in PdfReader(BytesIO(printed)).pages[0].extract_text()
        assert set((await bench.order_status()).lines.values()) == {"completed"}


async def matched(bench: ResultsBench, message: LabMessage, *lines: str) -> operator_results.ResultDecision:
    held = await bench.receive(message)
    assert held.state is ReportState.UNMATCHED
    keys = tuple(map(LineKey, lines))
    who: dict[str, Any] = {"by": "ann", "note": "read", "now": bench.clock.now()}
    decided = await operator_results.match_result(bench.store, bench.matcher, held.key, ORDER, lines=keys, **who)
    await bench.run_until_idle()
    return decided


async def test_rejection_matched_to_one_line_cancels_it(bench: ResultsBench) -> None:
    await matched(bench, LabRejection(order="RNOBODY", not_performed=(NotPerformed(reason="broken"),)), "L1")
    assert await bench.line_states() == ["accepted", "cancelled", "accepted"]


async def test_report_with_unknown_code_completes_chosen_line(
    bench: ResultsBench,
) -> None:
    """A report under a code that the order does not have completes the line the operator chooses."""
    await matched(bench, make_report(items=("HB-NEW",)), "L0")
    assert await bench.line_states() == ["completed", "accepted", "accepted"]
    (found,) = await bench.clinic_reports()
    assert found.resource["code"]["coding"][0]["code"] == "001.001"
