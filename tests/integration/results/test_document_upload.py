"""Documents that are uploaded: once for each type, and named when the service rejects them."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx
import pytest

from lab_agent.conditions.model import AlertKey
from lab_agent.conditions.table import CONDITIONS
from lab_agent.domain.ids import report_key
from lab_agent.domain.lab_messages import Document
from lab_agent.domain.state_machines import JobState, ReportState
from lab_agent.workflow import operator_results
from lab_agent.workflow.document_upload import NOT_AS_SENT_ALERT
from lab_sandbox.faults.plan import FaultRule
from tests.harness.documents import PDF, PNG, make_pdf
from tests.harness.results import NOW, ResultsBench, haemoglobin, make_report, open_bench

TABLE = b"a;b\n1;2\n"
CURVE = PNG


def table(kind: str) -> Document:
    return Document(content=TABLE, content_type=kind)


async def test_corrected_content_type_makes_a_new_document(bench: ResultsBench) -> None:
    await bench.receive(make_report(documents=(table("text/plain"),), version=1))
    await bench.receive(make_report(documents=(table("text/csv"),), version=2, issued=NOW + timedelta(hours=1)))
    (found,) = await bench.clinic_reports()
    assert found.resource["presentedForm"][0]["contentType"] == "text/csv"
    assert (await bench.partner.download_document(found.documents[0], accept="text/csv")).content == TABLE


async def test_kept_attachment_needs_no_bytes_once_uploaded() -> None:
    """An attachment kept from the previous version needs no bytes of ours once it is on the exchange."""
    async with open_bench({"left_out": "keep"}) as bench:
        curve = replace(
            haemoglobin("1", value_quantity=None, value_attachment=Document(content=CURVE, content_type="image/png")), id="ecg"
        )
        await bench.receive(make_report(curve, version=1))
        (before,) = await bench.clinic_reports()

        def forget(uow: Any) -> None:
            assert uow.purge.documents(before=bench.clock.now() + timedelta(days=1)) == 1
            uow.commit()

        await bench.store.run(forget)
        kept = await bench.receive(make_report(haemoglobin("2"), version=2, issued=NOW + timedelta(hours=1)))
        assert (kept.state, kept.reason) == (ReportState.DELIVERED, None)
        (found,) = await bench.clinic_reports()
        attached = [one["valueAttachment"] for one in found.observations if "valueAttachment" in one]
        assert attached == [before.observations[0]["valueAttachment"]]


@pytest.mark.parametrize("is_kept", [True, False])
@pytest.mark.parametrize("has_values", [True, False])
async def test_document_lost_by_service_is_sent_again_if_kept(bench: ResultsBench, is_kept: bool, has_values: bool) -> None:
    """Without it, the values go; a report that is nothing else stays for a person."""
    report = make_report(documents=(Document(content=PDF),))
    await bench.receive(report if has_values else replace(report, observations=()))
    store = bench.app.state.service.store
    for kind in ("Binary", "Observation", "DiagnosticReport"):
        for lost in store.find(kind, [], lambda _: True):
            store.delete(lost, ())

    def forget(uow: Any) -> None:
        assert is_kept or uow.purge.documents(before=bench.clock.now() + timedelta(days=1)) == 1
        uow.commit()

    await bench.store.run(forget)
    now = bench.clock.now()
    await operator_results.upload_again(bench.store, bench.order.key, by="ann", note="restored", now=now)
    await bench.run_until_idle()
    found = await bench.clinic_reports()
    assert [len(each.documents) for each in found] == ([int(is_kept)] if is_kept or has_values else [])
    stuck = [each for each in await bench.jobs() if each.state is JobState.DEAD_LETTER]
    assert bool(stuck) is not (is_kept or has_values)


@pytest.mark.parametrize(
    ("route", "skip", "status", "words"),
    [
        ("POST *Binary", 1, 413, "documents[1]: POST Binary was answered with 413"),
        ("POST *observation", 0, 422, "observations[0]: POST Observation was answered with 422"),
        ("POST *diagnosticreport", 0, 422, "the report itself: POST DiagnosticReport was answered with 422"),
    ],
)
async def test_rejected_upload_names_the_failing_part(
    bench: ResultsBench, route: str, skip: int, status: int, words: str
) -> None:
    bench.inject_faults(FaultRule(kind="status", route=route, skip=skip, status=status))
    documents = (Document(content=make_pdf("1")), Document(content=make_pdf("2")))
    await bench.receive(make_report(haemoglobin("1"), documents=documents), "refused")
    (stuck,) = [each for each in await bench.jobs() if each.state is JobState.DEAD_LETTER]
    assert (stuck.reason or "").startswith(words)
    assert ("results.max_document" in (stuck.reason or "")) == (status == 413)
    assert (
        await bench.store.run(lambda uow: uow.reports.get_for_update(report_key("lis", "refused")))
    ).state is ReportState.MATCHED


class Stu3Transport(httpx.AsyncBaseTransport):
    """A service that treats a Binary as STU3 does: what is not sent as FHIR is the document itself. It keeps each request."""

    def __init__(self, app: Any) -> None:
        self._inner = httpx.ASGITransport(app)
        self._service = app.state.service
        self.requests: list[tuple[str, str]] = []
        self.tag_search: Any = 400
        """What a search of Binaries by tag is answered with: the tagged ones, all, others, none, or a status."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append((request.method, request.url.path))
        if "_tag" in request.url.params:
            return self._search_binaries(request.url.params["_tag"])
        is_document = request.method == "POST" and request.url.path.endswith("Binary")
        if is_document and request.headers["content-type"] != "application/fhir+json":
            request.headers["content-type"] = "application/x-json"
        return await self._inner.handle_async_request(request)

    def _search_binaries(self, tag: str) -> httpx.Response:
        if isinstance(self.tag_search, int):
            return httpx.Response(self.tag_search)
        kept = [json.loads(one.body) for one in self._service.store.find("Binary", [], lambda _: True, limit=9)]
        tagged = [one for one in kept if any(f"{each['system']}|{each['code']}" == tag for each in one["meta"].get("tag", ()))]
        other = {"resourceType": "Binary", "id": "other", "meta": {"versionId": "1", "tag": [{"system": "x", "code": "y"}]}}
        rows = {"tagged": tagged, "all": [other, *tagged], "others": [other], "none": []}[self.tag_search]
        return httpx.Response(200, json={"resourceType": "Bundle", "entry": [{"resource": each} for each in rows]})


def start_agent(bench: ResultsBench, **changes: Any) -> Stu3Transport:
    """A new run of the agent, with these settings, before a service that treats Binaries as STU3 does."""
    transport = Stu3Transport(bench.app)
    bench.restart_agent(transport, **changes)
    return transport


def open_alerts(bench: ResultsBench) -> dict[AlertKey, str]:
    return {alert.key: alert.detail for alert in bench.store._data.alerts if alert.closed_at is None}


async def downloaded(bench: ResultsBench) -> list[bytes]:
    """The documents of the order, as the clinic downloads them."""
    urls = [url for found in await bench.clinic_reports() for url in found.documents]
    return [(await bench.partner.download_document(url, accept="*/*")).content for url in urls]


async def test_documents_arrive_at_stu3_server_as_sent(bench: ResultsBench) -> None:
    transport = start_agent(bench)
    await bench.receive(make_report(documents=(table("text/csv"), Document(content=PDF))))
    assert await downloaded(bench) == [TABLE, PDF]
    assert open_alerts(bench) == {}
    assert len([path for method, path in transport.requests if method == "GET" and "/Binary/" in path]) == 1


async def test_spoilt_document_is_told_and_sent_again_once_mended(bench: ResultsBench) -> None:
    """A document that is not what was sent opens an alert; after the mend, a later version brings it whole."""
    start_agent(bench, content_type="application/json")
    await bench.receive(make_report(documents=(table("text/csv"),), version=1))
    assert "exchange.content_type" in CONDITIONS[NOT_AS_SENT_ALERT.condition].mend
    assert "Binary" in open_alerts(bench)[NOT_AS_SENT_ALERT]
    assert len(bench.event_texts("document_not_as_sent")) == 1
    start_agent(bench)
    await bench.receive(make_report(documents=(table("text/csv"),), version=2, issued=NOW + timedelta(hours=1)))
    assert await downloaded(bench) == [TABLE]
    assert open_alerts(bench) == {}


def document(number: int) -> Document:
    return Document(content=b"a;b\n%d;2\n" % number, content_type="text/csv")


async def test_every_spoilt_document_is_whole_again_once_resent(bench: ResultsBench) -> None:
    """The read-back of the first one did not happen, so that nobody knew of it: it is read before a report names it again."""
    start_agent(bench, content_type="application/json")
    bench.inject_faults(FaultRule(kind="status", route="GET /fhir/Binary/*", status=503, count=1))
    for number, report_id in ((1, "A"), (2, "B")):
        await bench.receive(make_report(documents=(document(number),), version=1, report_id=report_id))
    assert NOT_AS_SENT_ALERT in open_alerts(bench)
    start_agent(bench)
    for number, report_id in ((2, "B"), (1, "A")):
        later = NOW + timedelta(hours=1)
        await bench.receive(make_report(documents=(document(number),), version=2, issued=later, report_id=report_id))
    assert sorted(await downloaded(bench)) == [document(1).content, document(2).content]
    assert open_alerts(bench) == {}


async def test_document_is_checked_once_and_sent_once(bench: ResultsBench) -> None:
    transport = start_agent(bench)
    documents = (document(1), document(2))
    for version in (1, 2, 3):
        await bench.receive(make_report(documents=documents, version=version, issued=NOW + timedelta(hours=version)))
    calls = [method for method, path in transport.requests if "Binary" in path]
    assert (calls.count("POST"), calls.count("GET")) == (2, 2)


@pytest.mark.parametrize("status", [401, 403, 404, 503])
async def test_document_that_cannot_be_read_back_stops_nothing(bench: ResultsBench, status: int) -> None:
    """The creator may have no right to what it created."""
    start_agent(bench)
    bench.inject_faults(FaultRule(kind="status", route="GET /fhir/Binary/*", status=status))
    report = await bench.receive(make_report(documents=(table("text/csv"),)))
    assert report.state is ReportState.DELIVERED
    assert open_alerts(bench) == {}


async def test_lost_reply_to_document_is_listed_as_orphan(bench: ResultsBench) -> None:
    """The service may hold a copy that no report names: the timeline says when it was sent, and what it is."""
    bench.inject_faults(FaultRule(kind="lost_reply", route="POST /fhir/Binary", count=2))
    assert (await bench.receive(make_report(documents=(table("text/csv"),)))).state is ReportState.DELIVERED
    assert await downloaded(bench) == [TABLE]
    texts = bench.event_texts("document_orphan")
    assert len(texts) == 2
    assert all("text/csv, 8 bytes, SHA-256 " in text and NOW.isoformat()[:16] in text for text in texts)


@pytest.mark.parametrize(("answer", "orphans"), [("tagged", 0), ("all", 0), ("others", 1), ("none", 1), (400, 1), (501, 1)])
async def test_document_found_by_its_tag_is_not_uploaded_again(bench: ResultsBench, answer: Any, orphans: int) -> None:
    """Only a Binary with our tag counts: a service may ignore the search, or not offer it."""
    transport = start_agent(bench, document_search="tag")
    transport.tag_search = answer
    bench.inject_faults(FaultRule(kind="lost_reply", route="POST /fhir/Binary", count=1))
    assert (await bench.receive(make_report(documents=(table("text/csv"),)))).state is ReportState.DELIVERED
    assert await downloaded(bench) == [TABLE]
    assert len([path for method, path in transport.requests if method == "POST" and path.endswith("Binary")]) == 1 + orphans
    assert len(bench.event_texts("document_orphan")) == orphans


async def test_rejected_document_leaves_no_orphan(bench: ResultsBench) -> None:
    bench.inject_faults(FaultRule(kind="status", route="POST /fhir/Binary", status=503, retry_after=1, count=2))
    assert (await bench.receive(make_report(documents=(table("text/csv"),)))).state is ReportState.DELIVERED
    assert bench.event_texts("document_orphan") == []


async def test_document_url_follows_the_path_of_creation() -> None:
    """Where the service is set to another path, the address in the report is that one, not the interface's."""
    async with open_bench() as bench:
        paths = bench.settings.exchange.paths.model_copy(update={"create": "{Resource}"})
        bench.settings = bench.settings.model_copy(
            update={"exchange": bench.settings.exchange.model_copy(update={"paths": paths})}
        )
        start_agent(bench)
        await bench.receive(make_report(documents=(table("text/csv"),)))
        (found,) = await bench.clinic_reports()
        assert found.resource["presentedForm"][0]["url"].startswith("Binary/")
        assert await downloaded(bench) == [TABLE]
