"""Results reach a service that does what an STU3 server does, and such as answer, spell, add or grant otherwise."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import httpx
import pytest

from lab_agent.lis.lab_messages import Document, ObservationStatus, ReportStatus
from lab_agent.shared import exact_json
from lab_agent.shared.state_machines import JobState, OrderState, ReportState
from lab_agent.shared.values import CodeableConcept, Coding
from lab_sandbox.faults.plan import FaultRule
from tests.harness.documents import PDF
from tests.harness.results import NOW, ResultsBench, haemoglobin, make_report, open_bench, refused

LATER = NOW + timedelta(hours=1)
DELIVERED = ReportState.DELIVERED
AMENDED = (["final", "amended"], ["13.20", "14.0"])
LOST_CREATE = FaultRule(kind="lost_reply", route="POST *bservation", count=1)


async def correct(bench: ResultsBench, version: int = 2) -> ReportState:
    return (await bench.receive(make_report(haemoglobin("14.0"), version=version, issued=LATER))).state


async def kept(bench: ResultsBench) -> tuple[list[str], list[str]]:
    """The statuses and values that the service ever had."""
    return await bench.statuses(), await bench.values()


SERVICES: dict[str, dict[str, Any]] = {
    "strict": {"strict": True},
    "granting ourselves the right": {"exchange": {"grant_own_read": True}, "rules": {"creator_rights": False}},
    "minimal answers": {"rules": {"write_response": "minimal"}},
    "outcomes as answers": {"rules": {"write_response": "OperationOutcome"}},
}


@pytest.mark.slow
@pytest.mark.parametrize("service", SERVICES)
async def test_service_gets_reports_documents_and_corrections(service: str) -> None:
    """A preliminary report, the final one with a document, and a correction."""
    async with open_bench(**SERVICES[service]) as bench:
        early = haemoglobin("13.2", status=ObservationStatus.PRELIMINARY)
        printed = (Document(content=PDF, content_type="application/pdf"),)
        await bench.receive(make_report(early, status=ReportStatus.PRELIMINARY, version=1))
        await bench.receive(make_report(documents=printed, version=2))
        last = await bench.receive(make_report(haemoglobin("14.0"), documents=printed, version=3, issued=LATER))
        assert last.state is DELIVERED
        assert await bench.statuses() == ["preliminary", "final", "amended"]
        assert len(await bench.statuses("", "DiagnosticReport")) == 3
        (found,) = await bench.clinic_reports()
        assert [(await bench.partner.download_document(url)).content for url in found.documents] == [PDF]
        assert (await bench.order_status()).order == "completed"


@pytest.mark.slow
async def test_lost_replies_amend_nothing_where_strict_spelling_differs() -> None:
    """The service spells references its own way: what is read back is never what was sent, and means the same."""
    async with open_bench(strict=True) as bench:
        bench.inject_faults(FaultRule(kind="canonical_references"), LOST_CREATE.model_copy(update={"count": 3}))
        await bench.receive(make_report())
        assert await bench.statuses() == ["final"]
        assert (await bench.get_order()).state is OrderState.CLOSED


class RespellingTransport(httpx.AsyncBaseTransport):
    """A service that gives our uploads back spelled otherwise, and with `remark` says of a write only that it has a remark."""

    def __init__(self, app: Any, spell: Callable[[dict[str, Any]], dict[str, Any]], *, remark: bool = True) -> None:
        self._inner, self._spell, self._remark = httpx.ASGITransport(app), spell, remark

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        answer = await self._inner.handle_async_request(request)
        content = await answer.aread()
        if not content or not any(kind in request.url.path.lower() for kind in ("observation", "diagnosticreport")):
            return answer
        if self._remark and request.method != "GET":
            remark = {"severity": "information", "code": "informational"}
            return httpx.Response(422, json={"resourceType": "OperationOutcome", "issue": [remark]})
        body = exact_json.loads(content)
        for row in body.get("entry", ()):
            row["resource"] = self._spell(row["resource"])
        body = body if "entry" in body else self._spell(body)
        headers = {name: value for name, value in answer.headers.items() if name != "content-length"}
        return httpx.Response(answer.status_code, headers=headers, content=exact_json.dumps(body))


def with_additions(body: dict[str, Any]) -> dict[str, Any]:
    """An Observation with what a service adds by itself."""
    if body.get("resourceType") == "Observation":
        body["code"]["coding"][0].update(version="2.68", display="Hemoglobin", system="http://loinc.org/")
        body["code"]["coding"].append({"system": "urn:service", "code": "1"})
        body["valueQuantity"].update(system="http://unitsofmeasure.org", code="g/dL")
    return body


async def test_lost_reply_amends_nothing_where_service_adds(bench: ResultsBench) -> None:
    bench.restart_agent(RespellingTransport(bench.app, with_additions, remark=False))
    bench.inject_faults(LOST_CREATE)
    assert (await bench.receive(make_report())).state is DELIVERED
    assert set(await bench.statuses()) == {"final"}


def in_other_types(body: dict[str, Any]) -> dict[str, Any]:
    """Each of which is tried in `tests/unit/fhir/test_elements.py`."""
    single = {key: value[0] if isinstance(value, list) and len(value) == 1 else value for key, value in body.items()}
    return single | {key: str(body[key]).upper() for key in ("status",) if key in body}


@pytest.mark.slow
async def test_upload_in_other_types_is_what_was_sent(bench: ResultsBench) -> None:
    """Whatever is read back of a write that was rejected without an error, nothing is written twice or amended."""
    bench.restart_agent(RespellingTransport(bench.app, in_other_types))
    assert (await bench.receive(make_report(version=1))).state is DELIVERED
    assert (await bench.statuses(), await bench.statuses("", "DiagnosticReport")) == (["final"], ["final"])
    assert await correct(bench) is DELIVERED
    assert await kept(bench) == AMENDED


@pytest.mark.slow
async def test_renamed_coded_answer_is_amended(bench: ResultsBench) -> None:
    """`negative` for `positive` under the same code is another result."""
    for version, display in enumerate(("positive", "negative"), 1):
        answer = CodeableConcept(coding=(Coding(system="http://lab.example/answers", code="1", display=display),))
        observation = haemoglobin("1", value_quantity=None, value_codeable_concept=answer)
        await bench.receive(make_report(observation, version=version, issued=NOW + timedelta(hours=version)))
    assert await bench.statuses() == ["final", "amended"]


@pytest.mark.slow
async def test_journal_of_an_earlier_program_amends_nothing(bench: ResultsBench) -> None:
    """Its digests have another form: the values are compared with those on the service."""
    await bench.receive(make_report(version=1))
    bench.store.execute(f"UPDATE uploads SET digest = substr(digest, 1, instr(digest, ':')) || '{'0' * 64}'")
    await bench.receive(make_report(version=2, issued=NOW + timedelta(minutes=1)))
    assert await bench.statuses() == ["final"]
    await correct(bench, 3)
    assert await kept(bench) == AMENDED


@pytest.mark.slow
@pytest.mark.parametrize("restored", [False, True])
async def test_correction_of_unreadable_result_is_never_taken_for_delivered(restored: bool) -> None:
    """What a conditional create finds and cannot be read is not what was just sent."""
    async with open_bench(rules={"creator_rights": False}) as bench:
        if not restored:  # the first version is a dead letter: its reply was lost, and the next attempt refused
            bench.inject_faults(LOST_CREATE, refused(route=LOST_CREATE.route).model_copy(update={"skip": 1}))
        await bench.receive(make_report(version=1))
        if restored:
            bench.store.execute("DELETE FROM uploads")
        corrected = await bench.receive(make_report(haemoglobin("99"), version=2, issued=LATER))
        assert corrected.state is not DELIVERED
        found = [each for each in await bench.jobs(open_only=False) if each.target == corrected.key]
        (job,) = [each for each in found if "observ" in (each.reason or "")]
        assert (job.state, "exchange.grant_own_read" in (job.reason or "")) == (JobState.DEAD_LETTER, True)


@pytest.mark.slow
async def test_read_that_lags_behind_loses_no_correction() -> None:
    """A journal restored from before the first version, and one 404 behind the conditional create."""
    async with open_bench(rules={"write_response": "minimal"}) as bench:
        await bench.receive(make_report(version=1))
        bench.store.execute("DELETE FROM uploads")
        bench.inject_faults(FaultRule(kind="status", route="GET *bservation/*", status=404, count=1))
        assert await correct(bench) is DELIVERED
        assert await kept(bench) == AMENDED


@pytest.mark.slow
async def test_lost_reply_without_own_right_is_delivered() -> None:
    """That just this was sent, and nothing else ever, is recorded: what is there is as it was sent."""
    async with open_bench(rules={"creator_rights": False}) as bench:
        bench.inject_faults(LOST_CREATE.model_copy(update={"count": 2}))
        assert (await bench.receive(make_report(version=1))).state is DELIVERED
        assert len(await bench.statuses()) == 1
