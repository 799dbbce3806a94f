"""Reports, corrections and late reports against the sandbox: what the clinic reads, and how often anything was written."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from lab_agent.lis.lab_messages import Document, LabRejection, NotPerformed, ObservationStatus, ReportStatus
from lab_agent.queue.failure_causes import FailureCause
from lab_agent.queue.job_records import JobKind
from lab_agent.results.records import HoldReason
from lab_agent.shared.state_machines import JobState, OrderState, ReportState
from lab_agent.shared.values import Identifier
from lab_sandbox.config import CLINIC_GUID, LABORATORY_GUID
from lab_sandbox.faults.plan import FaultRule
from tests.harness.documents import PDF
from tests.harness.results import CODES, NOW, ORDER, PART, ResultsBench, haemoglobin, make_report, open_bench
from tests.harness.sent_bodies import record_writes
from tests.integration.workflow.conftest import parametrize_first

LATER = NOW + timedelta(hours=1)
DELIVERED = ReportState.DELIVERED


def hb(value: str = "13.20", name: str = "hb", **more: Any) -> Any:
    return haemoglobin(value, id=name, **more)


async def receive_correction(bench: ResultsBench, value: str = "15") -> ReportState:
    return (await bench.receive(make_report(hb(value), version=2, issued=LATER))).state


async def test_final_report_completes_lines_and_order(bench: ResultsBench) -> None:
    assert (await bench.receive(make_report())).state is DELIVERED
    status = await bench.order_status()
    assert status.order == "completed"
    assert set(status.lines.values()) == {"completed"}
    (found,) = await bench.clinic_reports()
    assert str(found.observations[0]["valueQuantity"]["value"]) == "13.20"
    assert found.observations[0]["subject"]["reference"] == bench.placed.patient
    assert (await bench.get_order()).state is OrderState.CLOSED
    addendum = await bench.receive(make_report(report_id="addendum", issued=LATER))
    assert addendum.state is DELIVERED, "for lines that are completed, of an order that is closed"


@parametrize_first(
    "setting, absent, ends",
    [("completed", ("L1",), "completed"), ("cancelled", ("L0", "L1"), "cancelled"), ("cancelled", (), "completed")],
)
async def test_order_with_mixed_lines_ends_by_the_setting(setting: str, absent: tuple[str, ...], ends: str) -> None:
    async with open_bench(worker={"mixed_order_status": setting}) as bench:
        if absent:
            missing = tuple(NotPerformed(line=line, reason="clotted") for line in absent)
            await bench.receive(LabRejection(order=ORDER, not_performed=missing))
        await bench.receive(make_report(lines=tuple({"L0", "L1", "L2"}.difference(absent))))
        assert ((await bench.order_status()).order, (await bench.get_order()).state) == (ends, OrderState.CLOSED)


@pytest.mark.slow
async def test_report_about_several_tests_has_the_code_of_the_settings() -> None:
    async with open_bench({"several_tests_code": "190.0002"}) as bench:
        await bench.receive(make_report())
        (found,) = await bench.clinic_reports()
        assert found.resource["code"]["coding"][0]["code"] == "190.0002"


@pytest.mark.slow
async def test_result_may_name_test_by_laboratory_code(bench: ResultsBench) -> None:
    """What the catalogue calls `lab_id` names the line, as the nomenclature code does."""
    report = await bench.receive(make_report(items=("lab-1",)))
    assert (report.state, report.lines) == (DELIVERED, ("L1",))


async def test_results_write_only_uploads_and_tasks(bench: ResultsBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the partner ordered is not edited: uploads are new resources, and only Tasks are replaced."""
    writes = record_writes(monkeypatch)
    await bench.receive(make_report(documents=(Document(content=PDF),)))
    assert set((await bench.order_status()).lines.values()) == {"completed"}
    assert set(writes) == {"POST binary", "POST observation", "POST diagnosticreport", "PUT task"}


async def test_preliminary_final_corrected_update_one_resource(bench: ResultsBench) -> None:
    """They are one resource in three versions; what stays is not written again, and after the end no Task moves."""
    other = hb("7", "other")
    early = make_report(hb(status=ObservationStatus.PRELIMINARY), other, status=ReportStatus.PRELIMINARY, version=1)
    await bench.receive(early)
    assert set((await bench.order_status()).lines.values()) == {"requested"}
    await bench.receive(make_report(hb(), other, version=2))
    before = [(await bench.exchange.read("Task", line.task)).version for line in bench.placed.lines]  # type: ignore[arg-type]
    assert (await bench.receive(make_report(hb("14.0"), other, version=3, issued=LATER))).state is DELIVERED
    assert await bench.statuses() == ["preliminary", "final", "amended"]
    assert await bench.statuses("", "DiagnosticReport") == ["preliminary", "final", "final"]
    assert await bench.statuses(".other") == ["final"]
    assert len(await bench.clinic_reports()) == 1
    assert before == [(await bench.exchange.read("Task", line.task)).version for line in bench.placed.lines]  # type: ignore[arg-type]
    await bench.receive(make_report(hb(), other, version=4, issued=LATER + timedelta(hours=1)))
    assert (await bench.values())[1:] == ["13.20", "14.0", "13.20"], "a value that changes back is another version"


@parametrize_first("route", ["POST /fhir/Observation", "POST /fhir/DiagnosticReport", "PUT /fhir/*"], quick=2)
async def test_lost_response_writes_nothing_twice(bench: ResultsBench, route: str) -> None:
    bench.inject_faults(FaultRule(kind="lost_reply", route=route, count=1))
    assert (await bench.receive(make_report(version=1))).state is DELIVERED
    bench.inject_faults(*(FaultRule(kind="lost_reply", route=f"PUT /fhir/{kind}/*", count=1)
                          for kind in ("Observation", "DiagnosticReport")))  # fmt: skip
    assert await receive_correction(bench) is DELIVERED
    assert await bench.statuses() == ["final", "amended"]
    assert await bench.statuses("", "DiagnosticReport") == ["final", "final"]


@parametrize_first("granted", [False, True])
async def test_own_rights_granted_only_where_set(granted: bool) -> None:
    """Where the creator has no right to what it created, we grant ourselves what a correction takes, or say what to set."""
    async with open_bench(rules={"creator_rights": False}, exchange={"grant_own_read": granted}) as bench:
        await bench.receive(make_report(version=1))
        for kind, identifier in (("Observation", "RORDER.rep.hb"), ("DiagnosticReport", "RORDER.rep")):
            (found,) = await bench.resource_versions(kind, identifier)
            rights = {(each["system"].rpartition("/")[2], each["code"]) for each in found["meta"]["security"]}
            own = {right for right, guid in rights if guid == LABORATORY_GUID and right != "owner"}
            assert ("read", CLINIC_GUID) in rights
            assert own == ({"read", "readhistory", "updatebody"} if granted else set())
        assert await receive_correction(bench) is (DELIVERED if granted else ReportState.MATCHED)
        assert ["exchange.grant_own_read" in (job.reason or "") for job in await bench.jobs()] == [True] * (not granted)
        assert await bench.statuses() == (["final", "amended"] if granted else ["final"])


@pytest.mark.slow
async def test_identifier_given_by_others_stays(bench: ResultsBench) -> None:
    """The service may number our resources for itself; a correction must not drop that number (law 4)."""
    await bench.receive(make_report(version=1))
    (found,) = await bench.exchange.find("Observation", Identifier(system=f"{CODES}/observation", value=f"{PART}.rep.hb"))
    theirs = {"system": "urn:service:numbers", "value": "4711"}
    numbered = {**found.body, "identifier": [*found.body["identifier"], theirs]}
    await bench.exchange.update("Observation", found.id, numbered, version=found.version)
    await receive_correction(bench)
    newest = (await bench.resource_versions("Observation", "RORDER.rep.hb"))[-1]
    assert (newest["valueQuantity"]["value"], theirs in newest["identifier"]) == (15, True)


async def test_restored_version_is_not_written_over_the_later_one(bench: ResultsBench) -> None:
    """The backup knows of neither version; the second one was delivered since, and the laboratory sends the first one again."""
    restore = bench.store.back_up()
    await bench.receive(make_report(version=1))
    await receive_correction(bench)
    restore()
    first = await bench.receive(make_report(version=1))
    assert first.state is ReportState.MATCHED
    (job,) = [each for each in await bench.jobs() if each.kind is JobKind.DELIVER_REPORT]
    assert (job.state, job.failure_cause) == (JobState.DEAD_LETTER, FailureCause.NEWER_ON_SERVICE)
    assert ((await bench.statuses())[-1], (await bench.values())[-1]) == ("amended", "15")


@parametrize_first("item", ["002.001", "GLU"])
async def test_several_reports_for_line_with_extra_test(bench: ResultsBench, item: str) -> None:
    """A line gets several reports, and an extra test."""
    request = bench.placed.lines[0].procedure_request
    assert (await bench.receive(make_report(report_id="extra", lines=("L0",), items=(item,)))).state is DELIVERED
    assert (await bench.order_status()).lines[request] == "requested"
    assert (await bench.receive(make_report(lines=("L0",)))).state is DELIVERED
    assert (await bench.order_status()).lines[request] == "completed"
    codes = {found.resource["code"]["coding"][0]["code"] for found in await bench.clinic_reports()}
    assert codes == {"002.001", "001.001"}


@pytest.mark.slow
@pytest.mark.parametrize("catalogue", [True, False])
async def test_unknown_extra_test_delivered_under_line_on_release(bench: ResultsBench, catalogue: bool) -> None:
    """An extra test that no mapping knows is held; once released it goes out under its line."""
    if not catalogue:
        bench.catalogue = lambda: None
    held = await bench.receive(make_report(lines=("L0",), items=("X-1",)))
    assert held.hold_reason is HoldReason.QUESTION
    assert ("catalogue that can be read" in (held.reason or "")) is not catalogue
    await bench.release(held)
    (found,) = await bench.clinic_reports()
    assert found.resource["code"]["coding"][0]["code"] == "001.001"


async def test_not_performed_lines_carry_their_reasons(bench: ResultsBench) -> None:
    await bench.receive(make_report(lines=("L0", "L1"), not_performed=(NotPerformed(item="004.001", reason="clotted"),)))
    refused = LabRejection(not_performed=(NotPerformed(line="L2", reason="tube broken"),), collect_again=True)
    assert (await bench.receive(refused)).state is DELIVERED, "a rejection may name its line alone"
    status = await bench.order_status()
    said = [(status.lines[line.procedure_request], status.reasons.get(line.procedure_request)) for line in bench.placed.lines]
    assert [state for state, _ in said] == ["completed", "cancelled", "cancelled"]
    assert [reasons for _, reasons in said[1:]] == [("clotted",), ("tube broken — please collect again",)]
    assert status.order == "completed"


# --- observations go up side by side: whatever becomes of one, what the service answered to the others is known from then on

NAMES = [f"o{number}" for number in range(7)]
REPORT = make_report(*(hb(name=name) for name in NAMES))
REFUSED = FaultRule(kind="status", status=422, route="POST /fhir/Observation", count=1)
LOST = FaultRule(kind="lost_reply", route="POST /fhir/Observation", count=1)


def second(rule: FaultRule) -> FaultRule:
    """The same fault of the request after the first."""
    return rule.model_copy(update={"skip": 1})


def last_name(identifier: str) -> str:
    return identifier.rpartition(".")[2]


async def recorded(bench: ResultsBench) -> set[str]:
    """The observations of which the store knows that the service has them."""
    return set(map(last_name, await bench.store.transact(lambda uow: uow.uploads.find([f"{PART}.rep.{name}" for name in NAMES]))))


async def deliver_once(bench: ResultsBench) -> Any:
    """Match the report, and try once to deliver it; the job then."""
    await bench.accept(REPORT)
    await bench.run_due_jobs()
    await bench.run_due_jobs()
    (job,) = [each for each in await bench.jobs() if each.kind is JobKind.DELIVER_REPORT]
    return job


async def test_refused_observation_hides_no_answer_to_others(bench: ResultsBench) -> None:
    bench.inject_faults(REFUSED)
    job = await deliver_once(bench)
    assert (job.state, (job.reason or "").partition("[")[0]) == (JobState.DEAD_LETTER, "observations")
    there = await bench.partner.search("Observation", {})
    assert await recorded(bench) == {last_name(each["identifier"][0]["value"]) for each in there} != set()


@parametrize_first("faults", [[LOST], [LOST, second(REFUSED)], [REFUSED, second(LOST)]])
async def test_unknown_outcome_is_settled_first(
    bench: ResultsBench, faults: list[FaultRule], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lost reply decides, also beside an upload that was refused; each observation is there once in the end, in its order."""
    bench.inject_faults(*faults, FaultRule(kind="latency", route="POST /fhir/Observation", count=2, seconds=0.05))
    writes = record_writes(monkeypatch)
    assert (await deliver_once(bench)).state is JobState.OUTCOME_UNKNOWN
    known = await recorded(bench)
    writes.clear()
    await bench.run_until_idle()
    assert await bench.report_states() == [DELIVERED]
    assert Counter(writes)["POST observation"] <= len(NAMES) - len(known)
    (report,) = await bench.clinic_reports()
    assert [last_name(each["identifier"][0]["value"]) for each in report.observations] == NAMES
