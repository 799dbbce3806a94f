"""Results reach a service that does what an STU3 server does, and one where the creator of a resource has no right to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx
import pytest

from lab_agent import exact_json
from lab_agent.domain.lab_messages import Document, LabRejection, NotPerformed, ObservationStatus, ReportStatus
from lab_agent.domain.state_machines import JobState, OrderState, ReportState
from lab_agent.domain.values import CodeableConcept, Coding
from lab_sandbox.faults.plan import FaultRule
from tests.harness.documents import PDF
from tests.harness.results import NOW, ORDER, ResultsBench, haemoglobin, make_report, open_bench

LATER = NOW + timedelta(hours=1)


def printed() -> Document:
    return Document(content=PDF, content_type="application/pdf")


async def report_and_correct(bench: ResultsBench) -> None:
    """A preliminary report, the final one with a document, and a correction."""
    preliminary = haemoglobin("13.2", status=ObservationStatus.PRELIMINARY)
    await bench.receive(make_report(preliminary, status=ReportStatus.PRELIMINARY, version=1))
    await bench.receive(make_report(documents=(printed(),), version=2))
    corrected = make_report(haemoglobin("14.0"), documents=(printed(),), version=3, issued=LATER)
    assert (await bench.receive(corrected)).state is ReportState.DELIVERED


async def test_strict_service_gets_reports_documents_and_corrections() -> None:
    async with open_bench(strict=True) as bench:
        await report_and_correct(bench)
        statuses = [each["status"] for each in await bench.resource_versions("Observation", "RORDER.rep.hb")]
        assert statuses == ["preliminary", "final", "amended"]
        (found,) = await bench.clinic_reports()
        assert [(await bench.partner.download_document(url)).content for url in found.documents] == [PDF]
        assert (await bench.order_status()).order == "completed"


async def test_strict_service_accepts_the_refusal_of_a_line() -> None:
    """STU3 requires `Task.output.type`: a validating server refused the refusal."""
    async with open_bench(strict=True) as bench:
        keys = tuple(bench.line_key(number) for number in range(len(bench.placed.lines)))
        refused = tuple(NotPerformed(line=key, reason="The sample is haemolysed.") for key in keys)
        await bench.receive(LabRejection(order=ORDER, not_performed=refused))
        status = await bench.order_status()
        assert {*status.lines.values(), status.order} == {"cancelled"}
        assert all("haemolysed" in texts[0] for texts in status.reasons.values())


@pytest.mark.parametrize("strict", [False, True])
async def test_lost_replies_amend_nothing_where_spelling_differs(strict: bool) -> None:
    """The service spells references its own way: what is read back is never what was sent, and means the same."""
    async with open_bench(strict=strict) as bench:
        bench.inject_faults(
            FaultRule(kind="canonical_references"), FaultRule(kind="lost_reply", route="POST /fhir/Observation", count=3)
        )
        await bench.receive(make_report())
        assert [each["status"] for each in await bench.resource_versions("Observation", "RORDER.rep.hb")] == ["final"]
        assert (await bench.get_order()).state is OrderState.CLOSED


@pytest.mark.parametrize("body", ["minimal", "OperationOutcome"])
async def test_writes_answered_without_the_resource_are_done(body: str) -> None:
    async with open_bench(rules={"write_response": body}) as bench:
        await report_and_correct(bench)
        assert len(await bench.resource_versions("DiagnosticReport", "RORDER.rep")) == 3


async def test_granted_own_right_lets_corrections_through() -> None:
    async with open_bench(exchange={"grant_own_read": True}, rules={"creator_rights": False}) as bench:
        await report_and_correct(bench)
        assert len(await bench.resource_versions("Observation", "RORDER.rep.hb")) == 3
        assert (await bench.order_status()).order == "completed"


async def test_correction_without_own_right_is_told() -> None:
    """The first report needs no right of ours; its correction does, and must not vanish."""
    async with open_bench(rules={"creator_rights": False}) as bench:
        assert (await bench.receive(make_report(version=1))).state is ReportState.DELIVERED
        corrected = await bench.receive(make_report(haemoglobin("14.0"), version=2, issued=LATER))
        assert corrected.state is not ReportState.DELIVERED
        assert "403" in str([job.reason for job in await bench.jobs(open_only=False)])


class AddingTransport(httpx.AsyncBaseTransport):
    """A service that gives Observations back with what it adds by itself."""

    def __init__(self, app: Any, **additions: Any) -> None:
        self._inner, self._additions = httpx.ASGITransport(app), additions

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        answer = await self._inner.handle_async_request(request)
        content = await answer.aread()
        if "bservation" not in request.url.path or not content:
            return answer
        body = exact_json.loads(content)
        for each in [row["resource"] for row in body.get("entry", ())] or [body]:
            if each.get("resourceType") == "Observation":
                each["code"]["coding"][0].update(self._additions)
                each["code"]["coding"].append({"system": "urn:service", "code": "1"})
                each["valueQuantity"].update(system="http://unitsofmeasure.org", code="g/dL")
        return httpx.Response(answer.status_code, headers=without_length(answer), content=exact_json.dumps(body))


def without_length(answer: httpx.Response) -> dict[str, str]:
    return {name: value for name, value in answer.headers.items() if name != "content-length"}


async def test_lost_reply_amends_nothing_where_service_adds(bench: ResultsBench) -> None:
    bench.restart_agent(AddingTransport(bench.app, version="2.68", display="Hemoglobin", system="http://loinc.org/"))
    bench.inject_faults(FaultRule(kind="lost_reply", route="POST *bservation", count=1))
    assert (await bench.receive(make_report())).state is ReportState.DELIVERED
    assert {each["status"] for each in await bench.resource_versions("Observation", "RORDER.rep.hb")} == {"final"}


class RespellingTransport(httpx.AsyncBaseTransport):
    """A service that gives our uploads back in other types, and says of what it did that it had only a remark."""

    def __init__(self, app: Any, spell: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        self._inner, self._spell = httpx.ASGITransport(app), spell

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        answer = await self._inner.handle_async_request(request)
        content = await answer.aread()
        if not any(kind in request.url.path.lower() for kind in ("observation", "diagnosticreport")):
            return answer
        if request.method != "GET":
            remark = {"severity": "information", "code": "informational"}
            return httpx.Response(422, json={"resourceType": "OperationOutcome", "issue": [remark]})
        body = exact_json.loads(content)
        for row in body.get("entry", ()):
            row["resource"] = self._spell(row["resource"])
        body = body if "entry" in body else self._spell(body)
        return httpx.Response(answer.status_code, headers=without_length(answer), content=exact_json.dumps(body))


def in_capitals(body: dict[str, Any]) -> dict[str, Any]:
    return {**body, "status": body["status"].upper()} if "status" in body else body


def lists_as_single(body: dict[str, Any]) -> dict[str, Any]:
    return {key: value[0] if isinstance(value, list) and len(value) == 1 else value for key, value in body.items()}


def single_as_lists(body: dict[str, Any]) -> dict[str, Any]:
    return {key: [value] if isinstance(value, dict) else value for key, value in body.items()}


def with_blanks(body: dict[str, Any]) -> dict[str, Any]:
    return {**body, "subject": {"reference": f" {body['subject']['reference']} "}} if "subject" in body else body


@pytest.mark.parametrize("spell", [in_capitals, lists_as_single, single_as_lists, with_blanks])
async def test_upload_in_other_types_is_what_was_sent(bench: ResultsBench, spell: Any) -> None:
    """Whatever is read back of a write that was rejected without an error, nothing is written twice or amended."""
    bench.restart_agent(RespellingTransport(bench.app, spell))
    assert (await bench.receive(make_report(version=1))).state is ReportState.DELIVERED
    for kind, identifier in (("Observation", "RORDER.rep.hb"), ("DiagnosticReport", "RORDER.rep")):
        assert [each["status"] for each in await bench.resource_versions(kind, identifier)] == ["final"]
    assert (await bench.receive(make_report(haemoglobin("14.0"), version=2, issued=LATER))).state is ReportState.DELIVERED
    kept = await bench.resource_versions("Observation", "RORDER.rep.hb")
    assert [(each["status"], str(each["valueQuantity"]["value"])) for each in kept] == [("final", "13.20"), ("amended", "14.0")]


async def test_renamed_coded_answer_is_amended(bench: ResultsBench) -> None:
    """`negative` for `positive` under the same code is another result."""
    for version, display in enumerate(("positive", "negative"), 1):
        answer = CodeableConcept(coding=(Coding(system="http://lab.example/answers", code="1", display=display),))
        observation = haemoglobin("1", value_quantity=None, value_codeable_concept=answer)
        await bench.receive(make_report(observation, version=version, issued=NOW + timedelta(hours=version)))
    kept = await bench.resource_versions("Observation", "RORDER.rep.hb")
    assert [each["status"] for each in kept] == ["final", "amended"]


async def test_journal_of_an_earlier_program_amends_nothing(bench: ResultsBench) -> None:
    """Its digests have another form: the values are compared with those on the service."""
    await bench.receive(make_report(version=1))
    uploads = bench.store._data.uploads
    for key, each in uploads.items():
        uploads[key] = replace(each, digest=f"{each.digest.split(':')[0]}:{'0' * 64}")
    for version, value in ((2, "13.20"), (3, "14")):
        await bench.receive(make_report(haemoglobin(value), version=version, issued=NOW + timedelta(hours=version)))
    kept = await bench.resource_versions("Observation", "RORDER.rep.hb")
    assert [(each["status"], str(each["valueQuantity"]["value"])) for each in kept] == [("final", "13.20"), ("amended", "14")]


def lose_first_create() -> tuple[FaultRule, ...]:
    """The reply to the first Observation is lost, and the next attempt is refused: the first version is a dead letter."""
    route = "POST *observation"
    return (
        FaultRule(kind="lost_reply", route=route, count=1),
        FaultRule(kind="status", route=route, skip=1, status=422, count=1),
    )


@pytest.mark.parametrize("restored", [False, True])
async def test_correction_of_unreadable_result_is_never_taken_for_delivered(restored: bool) -> None:
    """What a conditional create finds and cannot be read is not what was just sent."""
    async with open_bench(rules={"creator_rights": False}) as bench:
        if not restored:
            bench.inject_faults(*lose_first_create())
        await bench.receive(make_report(version=1))
        if restored:
            bench.store._data.uploads.clear()
        corrected = await bench.receive(make_report(haemoglobin("99"), version=2, issued=LATER))
        assert corrected.state is not ReportState.DELIVERED
        (job,) = [
            job for job in await bench.jobs(open_only=False) if job.target == corrected.key and "observ" in (job.reason or "")
        ]
        assert job.state is JobState.DEAD_LETTER
        assert "exchange.grant_own_read" in (job.reason or "")


async def test_read_that_lags_behind_loses_no_correction() -> None:
    """A journal restored from before the first version, and one 404 behind the conditional create."""
    async with open_bench(rules={"write_response": "minimal"}) as bench:
        await bench.receive(make_report(version=1))
        bench.store._data.uploads.clear()
        bench.inject_faults(FaultRule(kind="status", route="GET *bservation/*", status=404, count=1))
        corrected = await bench.receive(make_report(haemoglobin("99"), version=2, issued=LATER))
        assert corrected.state is ReportState.DELIVERED
        kept = await bench.resource_versions("Observation", "RORDER.rep.hb")
        assert [(each["status"], str(each["valueQuantity"]["value"])) for each in kept] == [("final", "13.20"), ("amended", "99")]


async def test_lost_reply_without_own_right_is_delivered() -> None:
    """That just this was sent, and nothing else ever, is recorded: what is there is as it was sent."""
    async with open_bench(rules={"creator_rights": False}) as bench:
        bench.inject_faults(FaultRule(kind="lost_reply", route="POST *bservation", count=2))
        assert (await bench.receive(make_report(version=1))).state is ReportState.DELIVERED
        assert len(await bench.resource_versions("Observation", "RORDER.rep.hb")) == 1
