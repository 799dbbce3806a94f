"""Documents that are uploaded: once for each type, and named when the service rejects them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx
import pytest

from lab_agent.lis.lab_messages import Document
from lab_agent.results import result_actions
from lab_agent.results.document_upload import NOT_AS_SENT_ALERT
from lab_agent.shared.conditions.table import CONDITIONS
from lab_agent.shared.state_machines import JobState, ReportState
from lab_sandbox.faults.plan import FaultRule
from tests.harness.documents import PDF, PNG, make_pdf
from tests.harness.results import NOW, ResultsBench, haemoglobin, make_report, open_bench, refused

TABLE = b"a;b\n1;2\n"
DELIVERED = ReportState.DELIVERED


def table(kind: str = "text/csv") -> Document:
    return Document(content=TABLE, content_type=kind)


def numbered(number: int) -> Document:
    return Document(content=b"a;b\n%d;2\n" % number, content_type="text/csv")


async def receive(bench: ResultsBench, *documents: Document, version: int = 1, **more: Any) -> ReportState:
    issued = NOW + timedelta(hours=version)
    return (await bench.receive(make_report(documents=documents, version=version, issued=issued, **more))).state


async def forget_documents(bench: ResultsBench) -> None:
    """Purge the one document that we keep."""

    def forget(uow: Any) -> None:
        assert uow.purge.documents(before=bench.clock.now() + timedelta(days=1)) == 1

    await bench.store.transact(forget)


@pytest.mark.slow
async def test_corrected_content_type_makes_a_new_document(bench: ResultsBench) -> None:
    await receive(bench, table("text/plain"))
    await receive(bench, table("text/csv"), version=2)
    (found,) = await bench.clinic_reports()
    assert found.resource["presentedForm"][0]["contentType"] == "text/csv"
    assert (await bench.partner.download_document(found.documents[0], accept="text/csv")).content == TABLE


@pytest.mark.slow
async def test_kept_attachment_needs_no_bytes_once_uploaded() -> None:
    """An attachment kept from the previous version needs no bytes of ours once it is on the exchange."""
    async with open_bench({"left_out": "keep"}) as bench:
        picture = Document(content=PNG, content_type="image/png")
        await bench.receive(make_report(haemoglobin("1", id="ecg", value_quantity=None, value_attachment=picture), version=1))
        (before,) = await bench.clinic_reports()
        await forget_documents(bench)
        assert await receive(bench, version=2) is DELIVERED
        (found,) = await bench.clinic_reports()
        attached = [one["valueAttachment"] for one in found.observations if "valueAttachment" in one]
        assert attached == [before.observations[0]["valueAttachment"]]


@pytest.mark.slow
@pytest.mark.parametrize(("is_kept", "has_values"), [(True, False), (False, True), (False, False)])
async def test_document_lost_by_service_is_sent_again_if_kept(bench: ResultsBench, is_kept: bool, has_values: bool) -> None:
    """Without it, the values go; a report that is nothing else stays for a person."""
    report = make_report(documents=(Document(content=PDF),))
    await bench.receive(report if has_values else replace(report, observations=()))
    store = bench.app.state.service.store
    for kind in ("Binary", "Observation", "DiagnosticReport"):
        for lost in store.find(kind, [], lambda _: True):
            store.delete(lost, ())
    if not is_kept:
        await forget_documents(bench)
    await result_actions.upload_again(bench.store, bench.order.key, **bench.who)
    await bench.run_until_idle()
    assert [len(each.documents) for each in await bench.clinic_reports()] == ([int(is_kept)] if is_kept or has_values else [])
    stuck = [each for each in await bench.jobs() if each.state is JobState.DEAD_LETTER]
    assert bool(stuck) is not (is_kept or has_values)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("route", "skip", "status", "part"),
    [
        ("POST *Binary", 1, 413, "documents[1]: "),
        ("POST *observation", 0, 422, "observations[0]: "),
        ("POST *diagnosticreport", 0, 422, "the report itself: "),
    ],
)
async def test_rejected_upload_names_the_failing_part(bench: ResultsBench, route: str, skip: int, status: int, part: str) -> None:
    bench.inject_faults(FaultRule(kind="status", route=route, skip=skip, status=status))
    assert await receive(bench, Document(content=make_pdf("1")), Document(content=make_pdf("2"))) is ReportState.MATCHED
    reason = str((await bench.stuck_job()).reason)
    assert reason.startswith(part)
    assert ("results.max_document" in reason) == (status == 413)


class Stu3Transport(httpx.AsyncBaseTransport):
    """A service that treats a Binary as STU3 does: what is not sent as FHIR is the document itself. It keeps each request."""

    def __init__(self, app: Any) -> None:
        self._inner = httpx.ASGITransport(app)
        self._service = app.state.service
        self.requests: list[tuple[str, str]] = []
        self.tag_search: Any = 400
        """What a search of Binaries by tag is answered with: also others, others alone, or a status."""

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
        rows = [other, *tagged] if self.tag_search == "also others" else [other]
        return httpx.Response(200, json={"resourceType": "Bundle", "entry": [{"resource": each} for each in rows]})


def start_agent(bench: ResultsBench, **changes: Any) -> Stu3Transport:
    """A new run of the agent, with these settings, before a service that treats Binaries as STU3 does."""
    transport = Stu3Transport(bench.app)
    bench.restart_agent(transport, **changes)
    return transport


async def alerts(bench: ResultsBench) -> list[Any]:
    return [alert.key for alert in await bench.open_alerts()]


async def downloaded(bench: ResultsBench) -> list[bytes]:
    """The documents of the order, as the clinic downloads them."""
    urls = [url for found in await bench.clinic_reports() for url in found.documents]
    return [(await bench.partner.download_document(url, accept="*/*")).content for url in urls]


def methods(transport: Stu3Transport) -> list[str]:
    return [method for method, path in transport.requests if "Binary" in path]


async def test_documents_arrive_at_stu3_server_as_sent(bench: ResultsBench) -> None:
    transport = start_agent(bench)
    await receive(bench, table(), Document(content=PDF))
    assert await downloaded(bench) == [TABLE, PDF]
    assert await alerts(bench) == []
    assert methods(transport).count("GET") == 1, "the first one is read back"
    for version in (2, 3):
        await receive(bench, table(), Document(content=PDF), version=version)
    calls = methods(transport)
    assert (calls.count("POST"), calls.count("GET")) == (2, 2), "each is sent once, and checked once"


async def test_spoilt_document_is_told_and_sent_again_once_mended(bench: ResultsBench) -> None:
    """A document that is not what was sent opens an alert; after the mend, a later version brings it whole."""
    start_agent(bench, content_type="application/json")
    await receive(bench, table())
    assert "exchange.content_type" in CONDITIONS[NOT_AS_SENT_ALERT.condition].mend
    assert (await alerts(bench), len(bench.event_texts("document_not_as_sent"))) == ([NOT_AS_SENT_ALERT], 1)
    start_agent(bench)
    await receive(bench, table(), version=2)
    assert (await downloaded(bench), await alerts(bench)) == ([TABLE], [])


@pytest.mark.slow
async def test_every_spoilt_document_is_whole_again_once_resent(bench: ResultsBench) -> None:
    """The read-back of the first one did not happen, so that nobody knew of it: it is read before a report names it again."""
    start_agent(bench, content_type="application/json")
    bench.inject_faults(FaultRule(kind="status", route="GET /fhir/Binary/*", status=503, count=1))

    async def receive_all(version: int, numbers: Iterable[int]) -> None:
        for number in numbers:
            await receive(bench, numbered(number), version=version, report_id=f"report {number}")

    await receive_all(1, (1, 2))
    assert await alerts(bench) == [NOT_AS_SENT_ALERT]
    start_agent(bench)
    await receive_all(2, (2, 1))
    assert sorted(await downloaded(bench)) == [numbered(1).content, numbered(2).content]
    assert await alerts(bench) == []


@pytest.mark.slow
@pytest.mark.parametrize("status", [401, 503])
async def test_document_that_cannot_be_read_back_stops_nothing(bench: ResultsBench, status: int) -> None:
    """The creator may have no right to what it created."""
    start_agent(bench)
    bench.inject_faults(FaultRule(kind="status", route="GET /fhir/Binary/*", status=status))
    assert await receive(bench, table()) is DELIVERED
    assert await alerts(bench) == []


@pytest.mark.slow
async def test_lost_reply_to_document_is_listed_as_orphan(bench: ResultsBench) -> None:
    """The service may hold a copy that no report names: the timeline says when it was sent, and what it is."""
    bench.inject_faults(FaultRule(kind="lost_reply", route="POST /fhir/Binary", count=2))
    assert await receive(bench, table()) is DELIVERED
    assert await downloaded(bench) == [TABLE]
    texts = bench.event_texts("document_orphan")
    assert len(texts) == 2
    assert all("text/csv, 8 bytes, SHA-256 " in text and NOW.isoformat()[:16] in text for text in texts)
    bench.inject_faults(refused(2, status=503, route="POST /fhir/Binary").model_copy(update={"retry_after": 1}))
    assert await receive(bench, Document(content=PDF), report_id="rejected") is DELIVERED
    assert len(bench.event_texts("document_orphan")) == 2, "what was rejected leaves none"


@pytest.mark.slow
@pytest.mark.parametrize(("answer", "orphans"), [("also others", 0), ("others", 1), (400, 1)])
async def test_document_found_by_its_tag_is_not_uploaded_again(bench: ResultsBench, answer: Any, orphans: int) -> None:
    """Only a Binary with our tag counts: a service may ignore the search, or not offer it."""
    transport = start_agent(bench, document_search="tag")
    transport.tag_search = answer
    bench.inject_faults(FaultRule(kind="lost_reply", route="POST /fhir/Binary", count=1))
    assert await receive(bench, table()) is DELIVERED
    assert await downloaded(bench) == [TABLE]
    assert methods(transport).count("POST") == 1 + orphans
    assert len(bench.event_texts("document_orphan")) == orphans


@pytest.mark.slow
async def test_document_url_follows_the_path_of_creation(bench: ResultsBench) -> None:
    """Where the service is set to another path, the address in the report is that one, not the interface's."""
    start_agent(bench, paths=bench.settings.exchange.paths.model_copy(update={"create": "{Resource}"}))
    await receive(bench, table())
    (found,) = await bench.clinic_reports()
    assert found.resource["presentedForm"][0]["url"].startswith("Binary/")
    assert await downloaded(bench) == [TABLE]
