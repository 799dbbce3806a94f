"""Reports, corrections and late reports against the sandbox: what the clinic reads, and how often anything was written."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx
import pytest

from lab_agent.domain.failure_causes import FailureCause
from lab_agent.domain.job_records import JobKind
from lab_agent.domain.lab_messages import Document, LabRejection, NotPerformed, ObservationStatus, ReportStatus
from lab_agent.domain.report_records import HoldReason
from lab_agent.domain.state_machines import JobState, LineState, OrderState, ReportState
from lab_agent.domain.values import CodeableConcept, Identifier
from lab_agent.workflow import operator_results
from lab_sandbox.config import CLINIC_GUID, LABORATORY_GUID
from lab_sandbox.faults.plan import FaultKind, FaultRule
from tests.harness.documents import PDF
from tests.harness.results import CODES, ITEMS, NOW, ORDER, PART, ResultsBench, haemoglobin, make_report, open_bench
from tests.harness.sent_bodies import record_writes

LATER = NOW + timedelta(hours=1)


def _forget_uploads(uow: Any) -> None:
    uow._data.uploads.clear()
    uow.commit()


async def test_final_report_completes_lines_and_order(bench: ResultsBench) -> None:
    assert (await bench.receive(make_report())).state is ReportState.DELIVERED
    status = await bench.order_status()
    assert status.order == "completed"
    assert set(status.lines.values()) == {"completed"}
    (found,) = await bench.clinic_reports()
    assert str(found.observations[0]["valueQuantity"]["value"]) == "13.20"
    assert found.observations[0]["subject"]["reference"] == bench.placed.patient
    assert (await bench.get_order()).state is OrderState.CLOSED


@pytest.mark.parametrize("setting", ["completed", "cancelled"])
@pytest.mark.parametrize(("absent", "mixed"), [((), False), (("L1",), True), (("L0", "L1"), True), (("L0", "L1", "L2"), False)])
async def test_order_with_mixed_lines_ends_by_the_setting(setting: str, absent: tuple[str, ...], mixed: bool) -> None:
    async with open_bench(worker={"mixed_order_status": setting}) as bench:
        if absent:
            missing = tuple(NotPerformed(line=line, reason="clotted") for line in absent)
            await bench.receive(LabRejection(order=ORDER, not_performed=missing))
        if len(absent) < len(ITEMS):
            await bench.receive(make_report(lines=tuple(f"L{n}" for n in range(len(ITEMS)) if f"L{n}" not in absent)))
        plain = "cancelled" if len(absent) == len(ITEMS) else "completed"
        assert (await bench.order_status()).order == (setting if mixed else plain)
        assert (await bench.get_order()).state is OrderState.CLOSED


@pytest.mark.parametrize(("setting", "code"), [(None, ITEMS[0]), ("190.0002", "190.0002")])
async def test_report_about_several_tests_has_its_code(setting: str | None, code: str) -> None:
    async with open_bench({"several_tests_code": setting}) as bench:
        await bench.receive(make_report(report_id="all"))
        await bench.receive(make_report(report_id="one", lines=("L1",)))
        codes = {found["code"]["coding"][0]["code"] for found in await bench.partner.search("DiagnosticReport", {})}
        assert codes == {code, ITEMS[1]}


async def test_result_may_name_test_by_laboratory_code(bench: ResultsBench) -> None:
    """What the catalogue calls `lab_id` names the line, as the nomenclature code does."""
    report = await bench.receive(make_report(items=("lab-1",)))
    assert (report.state, report.lines) == (ReportState.DELIVERED, ("L1",))


async def test_results_write_only_uploads_and_tasks(bench: ResultsBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the partner ordered is not edited: uploads are new resources, and only Tasks are replaced."""
    writes = record_writes(monkeypatch)
    await bench.receive(make_report(documents=(Document(content=PDF),)))
    assert set((await bench.order_status()).lines.values()) == {"completed"}
    assert set(writes) == {"POST binary", "POST observation", "POST diagnosticreport", "PUT task"}


async def test_preliminary_final_corrected_update_one_resource(bench: ResultsBench) -> None:
    """A preliminary, a final and a corrected report are one resource in three versions."""
    preliminary = make_report(
        haemoglobin("13.2", status=ObservationStatus.PRELIMINARY), status=ReportStatus.PRELIMINARY, version=1
    )
    await bench.receive(preliminary)
    assert set((await bench.order_status()).lines.values()) == {"requested"}
    await bench.receive(make_report(version=2))
    corrected = make_report(haemoglobin("14.0"), version=3, issued=LATER)
    assert (await bench.receive(corrected)).state is ReportState.DELIVERED
    observation = await bench.resource_versions("Observation", "RORDER.rep.hb")
    assert [each["status"] for each in observation] == ["preliminary", "final", "amended"]
    assert [each["status"] for each in await bench.resource_versions("DiagnosticReport", "RORDER.rep")] == [
        "preliminary",
        "final",
        "final",
    ]
    assert len(await bench.clinic_reports()) == 1


async def test_changing_value_back_creates_third_version(bench: ResultsBench) -> None:
    """A value that changes and changes back makes three versions."""
    for number, value in enumerate(("1.0", "2.0", "1.0"), 1):
        await bench.receive(make_report(haemoglobin(value), version=number, issued=NOW + timedelta(minutes=number)))
    values = [each["valueQuantity"]["value"] for each in await bench.resource_versions("Observation", "RORDER.rep.hb")]
    assert values == [1.0, 2.0, 1.0]


async def test_unchanged_report_is_not_sent_again(bench: ResultsBench) -> None:
    other = replace(haemoglobin("7"), id="other")
    await bench.receive(make_report(haemoglobin("13.2"), other, version=1))
    await bench.receive(make_report(haemoglobin("13.3"), other, version=2, issued=LATER))
    assert len(await bench.resource_versions("Observation", "RORDER.rep.hb")) == 2
    assert len(await bench.resource_versions("Observation", "RORDER.rep.other")) == 1


@pytest.mark.parametrize(("value", "hold_reason"), [("2", None), ("1", HoldReason.CONFLICTING_VERSION)])
async def test_late_older_version_overwrites_nothing(bench: ResultsBench, value: str, hold_reason: HoldReason | None) -> None:
    """What it says already is superseded; where it differs, its number alone is no reason to drop it."""
    await bench.receive(make_report(haemoglobin("2"), version=2))
    late = await bench.receive(make_report(haemoglobin(value), version=1))
    assert (late.state is ReportState.SUPERSEDED, late.hold_reason) == (hold_reason is None, hold_reason)
    assert len(await bench.resource_versions("Observation", "RORDER.rep.hb")) == 1


async def test_correction_of_closed_order_moves_no_task(bench: ResultsBench) -> None:
    """A correction after the end of the order is delivered and moves no Task."""
    await bench.receive(make_report(version=1))
    before = [each.version for each in [await bench.exchange.read("Task", line.task) for line in bench.placed.lines]]  # type: ignore[arg-type]
    corrected = await bench.receive(make_report(haemoglobin("15"), version=2, issued=LATER))
    assert corrected.state is ReportState.DELIVERED
    after = [each.version for each in [await bench.exchange.read("Task", line.task) for line in bench.placed.lines]]  # type: ignore[arg-type]
    assert before == after
    assert (await bench.get_order()).state is OrderState.CLOSED


@pytest.mark.parametrize("route", ["POST /fhir/Observation", "POST /fhir/DiagnosticReport"])
async def test_lost_response_creates_no_duplicate(bench: ResultsBench, route: str) -> None:
    bench.inject_faults(FaultRule(kind="lost_reply", route=route, count=1))
    assert (await bench.receive(make_report())).state is ReportState.DELIVERED
    assert len(await bench.resource_versions("Observation", "RORDER.rep.hb")) == 1
    assert len(await bench.resource_versions("DiagnosticReport", "RORDER.rep")) == 1


@pytest.mark.parametrize("spelling", ["canonical_references", "lower_case_references", "absolute_references", "trailing_zeros"])
async def test_lost_replies_amend_nothing_however_the_service_spells(bench: ResultsBench, spelling: FaultKind) -> None:
    """A value that was stored, and whose reply was lost, is found again in the service's own spelling: it is not amended."""
    bench.inject_faults(
        FaultRule(kind=spelling, route="/fhir/*"),
        FaultRule(kind="lost_reply", route="POST /fhir/Observation", count=5),
        FaultRule(kind="lost_reply", route="POST /fhir/DiagnosticReport", count=1),
    )
    values = [replace(haemoglobin(f"1.{n}0"), id=f"v{n}") for n in range(5)]
    assert (await bench.receive(make_report(*values))).state is ReportState.DELIVERED
    bench.inject_faults()
    statuses = [[each["status"] for each in await bench.resource_versions("Observation", f"RORDER.rep.v{n}")] for n in range(5)]
    assert {status for versions in statuses for status in versions} == {"final"}
    rewritten = spelling == "absolute_references"  # to an address that is not base_url: nobody can tell that it is the same
    assert len(await bench.resource_versions("DiagnosticReport", "RORDER.rep")) == 1 + rewritten


async def test_changed_method_is_sent_and_amends_nothing(bench: ResultsBench) -> None:
    await bench.receive(make_report(version=1))
    other = haemoglobin("13.20", method=CodeableConcept(text="SLS"))
    await bench.receive(make_report(other, version=2, issued=LATER))
    first, second = await bench.resource_versions("Observation", "RORDER.rep.hb")
    assert (first["status"], second["status"], second["method"]) == ("final", "final", {"text": "SLS"})


@pytest.mark.parametrize("granted", [False, True])
async def test_own_rights_granted_only_where_set(granted: bool) -> None:
    """Where the creator has no right to what it created, we grant ourselves what a correction takes."""
    async with open_bench() as bench:
        exchange = bench.settings.exchange.model_copy(update={"grant_own_read": granted})
        bench.settings = bench.settings.model_copy(update={"exchange": exchange})
        await bench.receive(make_report())
        for kind, identifier in (("Observation", "RORDER.rep.hb"), ("DiagnosticReport", "RORDER.rep")):
            (found,) = await bench.resource_versions(kind, identifier)
            rights = {(each["system"].rpartition("/")[2], each["code"]) for each in found["meta"]["security"]}
            own = {right for right, guid in rights if guid == LABORATORY_GUID and right != "owner"}
            assert ("read", CLINIC_GUID) in rights
            assert own == ({"read", "readhistory", "updatebody"} if granted else set())


class WithoutResources(httpx.ASGITransport):
    """A service that answers writes without the resource (FHIR: `Prefer: return=OperationOutcome`)."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        request.headers["Prefer"] = "return=OperationOutcome"
        return await super().handle_async_request(request)


async def test_value_found_by_an_answer_without_it_is_corrected(bench: ResultsBench) -> None:
    """A conditional create that finds our older value may answer without showing it: it is read before it is believed."""
    bench.restart_agent(WithoutResources(bench.app))
    await bench.receive(make_report(version=1))
    await bench.store.run(_forget_uploads)
    await bench.receive(make_report(haemoglobin("15"), version=2, issued=LATER))
    versions = await bench.resource_versions("Observation", "RORDER.rep.hb")
    assert [(each["status"], str(each["valueQuantity"]["value"])) for each in versions] == [("final", "13.20"), ("amended", "15")]


@pytest.mark.parametrize("granted", [False, True])
async def test_correction_where_the_creator_has_no_right(granted: bool) -> None:
    """A service may give its creator no right to what it created: then we grant it ourselves, or say what to set."""
    async with open_bench(rules={"creator_rights": False}, exchange={"grant_own_read": granted}) as bench:
        await bench.receive(make_report(version=1))
        corrected = await bench.receive(make_report(haemoglobin("15"), version=2, issued=LATER))
        assert corrected.state is (ReportState.DELIVERED if granted else ReportState.MATCHED)
        assert ["exchange.grant_own_read" in (job.reason or "") for job in await bench.jobs()] == [True] * (not granted)


async def test_identifier_given_by_others_stays(bench: ResultsBench) -> None:
    """The service may number our resources for itself; a correction must not drop that number (law 4)."""
    await bench.receive(make_report(version=1))
    (found,) = await bench.exchange.find("Observation", Identifier(system=f"{CODES}/observation", value=f"{PART}.rep.hb"))
    theirs = {"system": "urn:service:numbers", "value": "4711"}
    numbered = {**found.body, "identifier": [*found.body["identifier"], theirs]}
    await bench.exchange.update("Observation", found.id, numbered, version=found.version)
    await bench.receive(make_report(haemoglobin("14"), version=2, issued=LATER))
    newest = (await bench.resource_versions("Observation", "RORDER.rep.hb"))[-1]
    assert (newest["valueQuantity"]["value"], theirs in newest["identifier"]) == (14, True)


@pytest.mark.parametrize("route", ["PUT /fhir/Observation/*", "PUT /fhir/DiagnosticReport/*"])
async def test_correction_with_lost_response_is_written_once(bench: ResultsBench, route: str) -> None:
    await bench.receive(make_report(version=1))
    bench.inject_faults(FaultRule(kind="lost_reply", route=route, count=1))
    assert (await bench.receive(make_report(haemoglobin("15"), version=2, issued=LATER))).state is ReportState.DELIVERED
    assert [each["status"] for each in await bench.resource_versions("Observation", "RORDER.rep.hb")] == ["final", "amended"]
    assert len(await bench.resource_versions("DiagnosticReport", "RORDER.rep")) == 2


async def test_value_missing_from_journal_is_still_amended(bench: ResultsBench) -> None:
    """A value whose upload the store has lost is amended all the same."""
    await bench.receive(make_report(version=1))

    await bench.store.run(_forget_uploads)
    await bench.receive(make_report(haemoglobin("15"), version=2, issued=LATER))
    assert [each["status"] for each in await bench.resource_versions("Observation", "RORDER.rep.hb")] == ["final", "amended"]


async def test_restored_version_is_not_written_over_the_later_one(bench: ResultsBench) -> None:
    """The backup has the first version on its way; the second one, which it does not know, was delivered since."""
    before = bench.store._data.copy()
    await bench.receive(make_report(version=1))
    await bench.receive(make_report(haemoglobin("15"), version=2, issued=LATER))
    bench.store._data = before
    first = await bench.receive(make_report(version=1))
    assert first.state is ReportState.MATCHED
    (job,) = [each for each in await bench.jobs() if each.kind is JobKind.DELIVER_REPORT]
    assert (job.state, job.failure_cause) == (JobState.DEAD_LETTER, FailureCause.NEWER_ON_SERVICE)
    newest = (await bench.resource_versions("Observation", "RORDER.rep.hb"))[-1]
    assert (newest["status"], newest["valueQuantity"]["value"]) == ("amended", 15)


@pytest.mark.parametrize("item", ["002.001", "GLU"])
async def test_several_reports_for_line_with_extra_test(bench: ResultsBench, item: str) -> None:
    """A line gets several reports, and an extra test."""
    extra = make_report(report_id="extra", lines=("L0",), items=(item,))
    assert (await bench.receive(extra)).state is ReportState.DELIVERED
    assert (await bench.order_status()).lines[bench.placed.lines[0].procedure_request] == "requested"
    assert (await bench.receive(make_report(lines=("L0",)))).state is ReportState.DELIVERED
    assert (await bench.order_status()).lines[bench.placed.lines[0].procedure_request] == "completed"
    codes = {found.resource["code"]["coding"][0]["code"] for found in await bench.clinic_reports()}
    assert codes == {"002.001", "001.001"}


@pytest.mark.parametrize(
    ("catalogue", "where"), [(True, "nor in the catalogue"), (False, "nor in any catalogue that can be read")]
)
async def test_unknown_extra_test_delivered_under_line_on_release(bench: ResultsBench, catalogue: bool, where: str) -> None:
    """An extra test that no mapping knows is held; once released it goes out under its line."""
    if not catalogue:
        bench.catalogue = lambda: None
    held = await bench.receive(make_report(lines=("L0",), items=("X-1",)))
    assert held.hold_reason is HoldReason.QUESTION
    assert where in (held.reason or "")
    await operator_results.release_result(bench.store, bench.matcher, held.key, by="ann", note="asked", now=bench.clock.now())
    await bench.run_until_idle()
    (found,) = await bench.clinic_reports()
    assert found.resource["code"]["coding"][0]["code"] == "001.001"


async def test_not_performed_lines_carry_their_reasons(bench: ResultsBench) -> None:
    await bench.receive(make_report(not_performed=(NotPerformed(item="004.001", reason="clotted"),)))
    status = await bench.order_status()
    request = bench.placed.lines[1].procedure_request
    assert status.lines[request] == "cancelled"
    assert status.reasons[request] == ("clotted",)
    assert status.order == "completed"


async def test_rejection_naming_only_its_line_is_matched(bench: ResultsBench) -> None:
    refused = LabRejection(not_performed=(NotPerformed(line="L2", reason="tube broken"),), collect_again=True)
    assert (await bench.receive(refused)).state is ReportState.DELIVERED
    said = (await bench.order_status()).reasons[bench.placed.lines[2].procedure_request]
    assert said == ("tube broken — please collect again",)


async def test_rejection_of_line_with_final_result_held(bench: ResultsBench) -> None:
    await bench.receive(make_report(lines=("L0",)))
    refused = await bench.receive(LabRejection(order=ORDER, not_performed=(NotPerformed(line="L0", reason="lost"),)))
    assert refused.hold_reason is HoldReason.LINE_HAS_RESULT


async def test_bad_report_does_not_block_next_report(bench: ResultsBench) -> None:
    """One bad report does not stop the next of its order."""
    bad = await bench.receive(make_report(haemoglobin("1", specimen="no such tube"), report_id="bad", lines=("L0",)))
    assert bad.hold_reason is HoldReason.DEFECT
    assert "observations[0].specimen" in (bad.reason or "")
    assert (await bench.receive(make_report(report_id="good", lines=("L1",)))).state is ReportState.DELIVERED


async def test_dead_lettered_older_version_superseded_without_blocking(bench: ResultsBench) -> None:
    """An older version that was dead-lettered is superseded and blocks nothing."""
    bench.inject_faults(FaultRule(kind="status", status=422, route="POST /fhir/DiagnosticReport", count=1))
    first = await bench.receive(make_report(haemoglobin("1"), version=1))
    assert first.state is ReportState.MATCHED
    await bench.receive(make_report(haemoglobin("2"), version=2))
    assert (await bench.get_report("m1")).state is ReportState.SUPERSEDED
    assert await bench.jobs() == ()
    assert (await bench.get_order()).state is OrderState.CLOSED
    assert (await bench.order_status()).order == "completed"
    assert [each["valueQuantity"]["value"] for each in await bench.resource_versions("Observation", "RORDER.rep.hb")] == [1, 2]
    assert bench.event_texts("superseded") == [f"result {first.key} is superseded: a newer version was delivered"]


async def test_report_for_completed_lines_of_closed_order_delivered(bench: ResultsBench) -> None:
    await bench.receive(make_report())
    again = await bench.receive(make_report(report_id="addendum", issued=LATER))
    assert again.state is ReportState.DELIVERED


async def test_first_report_for_withdrawn_order_is_held(bench: ResultsBench) -> None:
    await bench.withdraw()
    held = await bench.receive(make_report())
    assert held.hold_reason is HoldReason.UNEXPECTED
    assert await bench.clinic_reports() == []


async def test_references_to_different_orders_are_held(bench: ResultsBench) -> None:
    held = await bench.receive(make_report(order="RNOBODY"))
    assert held.state is ReportState.UNMATCHED
    assert "RNOBODY" in (held.reason or "")
    by_tube = await bench.receive(make_report(order=None, accession="unknown", barcode="1000000017", report_id="tube"))
    assert by_tube.state is ReportState.DELIVERED


async def test_lines_stay_resulted_while_exchange_unavailable(bench: ResultsBench) -> None:
    bench.inject_faults(FaultRule(kind="status", status=503, route="POST /fhir/*"))
    await bench.receive(make_report(lines=("L0",)))
    lines = await bench.store.run(lambda uow: uow.orders.lines(ORDER))
    assert lines[0].state is LineState.RESULTED
    bench.inject_faults()
    await bench.run_until_idle()
    assert (await bench.get_report("m1")).state is ReportState.DELIVERED
