"""Documents that our own API serves: which are there, which are not, and in which format."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.routing import Route

from lab_agent.domain.lab_messages import Document
from lab_agent.domain.report_records import HostedDocument
from lab_api.errors import EXCEPTION_HANDLERS
from lab_api.hosted_documents import HostedDocuments, accepts
from lab_api.observation import Observation
from tests.harness.documents import PDF, make_pdf
from tests.harness.results import ORDER, ResultsBench, make_report, open_bench

HOST = {"documents": "host", "host_days": 7}
API = {"public_url": "https://lab.example/v1"}


def served(bench: ResultsBench) -> httpx.AsyncClient:
    documents = HostedDocuments(bench.store, bench.clock.now)
    route = Route("/v1/documents/{address}", documents.get_document, methods=["GET"])
    app = FastAPI(routes=[route], exception_handlers=EXCEPTION_HANDLERS)
    app.state.observation = Observation()
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="https://lab.example")


async def test_document_is_served_under_unguessable_url() -> None:
    async with open_bench(HOST, api=API) as bench:
        await bench.receive(make_report(documents=(Document(content=PDF), Document(content=make_pdf("2")))))
        (found,) = await bench.clinic_reports()
        first, second = found.documents
        assert first.startswith("https://lab.example/v1/documents/")
        assert len(first.rpartition("/")[2]) >= 43
        assert first != second
        async with served(bench) as client:
            answer = await client.get(first)
            assert (answer.status_code, answer.content) == (200, PDF)
            assert answer.headers["content-type"] == "application/pdf"
            assert answer.headers["content-length"] == str(len(PDF))
            again = await client.get(first, headers={"If-None-Match": answer.headers["etag"]})
            assert again.status_code == 304
            assert (await client.head(first)).headers["content-length"] == str(len(PDF))
            assert (await client.get(first, headers={"Accept": "image/png"})).status_code == 406
            missing = await client.get(first[:-1] + ("a" if first[-1] != "a" else "b"))
            assert (missing.status_code, missing.json()["resourceType"]) == (404, "OperationOutcome")
            bench.clock.time += timedelta(days=8)
            assert (await client.get(first)).status_code == 404


@pytest.mark.parametrize("authorization", [None, "Bearer wrong", "Basic bm9ib2R5Ong=", "nonsense"])
async def test_document_without_its_address_is_always_404(authorization: str | None) -> None:
    """The address is the right to read (a named deviation); whatever credentials come with another one, it is missing."""
    headers = {"Authorization": authorization} if authorization else {}
    async with open_bench(HOST, api=API) as bench, served(bench) as client:
        await bench.receive(make_report(documents=(Document(content=PDF),)))
        (found,) = await bench.clinic_reports()
        assert (await client.get(found.documents[0], headers=headers)).status_code == 200
        for address in (found.documents[0][:-1], "https://lab.example/v1/documents/x"):
            answer = await client.get(address, headers=headers)
            assert (answer.status_code, answer.json()["resourceType"]) == (404, "OperationOutcome")
        bench.clock.time += timedelta(days=8)
        assert (await client.get(found.documents[0], headers=headers)).status_code == 404


async def test_correction_with_same_document_keeps_its_url() -> None:
    async with open_bench(HOST, api=API) as bench:
        document = Document(content=PDF)
        await bench.receive(make_report(documents=(document,), version=1))
        (before,) = await bench.clinic_reports()
        await bench.receive(make_report(documents=(document,), version=2, issued=bench.clock.now() + timedelta(hours=1)))
        (after,) = await bench.clinic_reports()
        assert before.documents == after.documents


async def test_correction_after_expired_url_is_served_again() -> None:
    async with open_bench(HOST, api=API) as bench, served(bench) as client:
        document = Document(content=PDF)
        await bench.receive(make_report(documents=(document,), version=1))
        (before,) = await bench.clinic_reports()
        bench.clock.time += timedelta(days=8)
        assert (await client.get(before.documents[0])).status_code == 404
        await bench.receive(make_report(documents=(document,), version=2, issued=bench.clock.now()))
        (after,) = await bench.clinic_reports()
        assert (await client.get(after.documents[0])).content == PDF
        bench.clock.time += timedelta(days=6)
        assert (await client.get(after.documents[0])).status_code == 200


async def test_each_delivery_extends_url_lifetime() -> None:
    async with open_bench(HOST, api=API) as bench, served(bench) as client:
        document = Document(content=PDF)
        await bench.receive(make_report(documents=(document,), version=1))
        bench.clock.time += timedelta(days=5)
        await bench.receive(make_report(documents=(document,), version=2, issued=bench.clock.now()))
        bench.clock.time += timedelta(days=5)
        (found,) = await bench.clinic_reports()
        assert (await client.get(found.documents[0])).status_code == 200


async def test_same_bytes_of_other_type_get_own_url() -> None:
    """The same bytes under another content type have a URL of their own."""
    async with open_bench(HOST, api=API) as bench, served(bench) as client:
        kinds = ("text/plain", "text/csv")
        await bench.receive(make_report(documents=tuple(Document(content=b"hello", content_type=kind) for kind in kinds)))
        (found,) = await bench.clinic_reports()
        answers = [
            await client.get(address, headers={"Accept": kind}) for address, kind in zip(found.documents, kinds, strict=True)
        ]
        assert [answer.headers["content-type"].partition(";")[0] for answer in answers] == list(kinds)


@pytest.mark.parametrize("kind", ['application/pdf; name="отчёт"', "a/b\r\nX-Evil: 1", "x/y/z", "/", ""])
async def test_invalid_stored_content_type_served_as_octet_stream(kind: str) -> None:
    """Whatever content type is stored, the response has a valid Content-Type header."""
    async with open_bench(HOST, api=API) as bench, served(bench) as client:

        def put(uow: Any) -> None:
            kept = uow.vault.save_document(PDF, kind, at=bench.clock.now())
            uow.hosted_documents.save(
                HostedDocument(address="a" * 43, document=kept, content_type=kind, order=ORDER, kept_at=bench.clock.now())
            )
            uow.commit()

        await bench.store.run(put)
        answer = await client.get("https://lab.example/v1/documents/" + "a" * 43)
        assert (answer.status_code, answer.headers["content-type"]) == (200, "application/octet-stream")


async def test_stage_environment_serves_no_document() -> None:
    async with open_bench({"documents": "none"}) as bench:
        await bench.receive(make_report(documents=(Document(content=PDF), Document(url="https://lab.example/1"))))
        (found,) = await bench.clinic_reports()
        assert found.documents == ()


@pytest.mark.parametrize(
    ("accept", "taken"),
    [
        ([], True),
        (["*/*"], True),
        (["application/*;q=0.5"], True),
        (["text/html, application/pdf;q=0.1"], True),
        (["text/html"], False),
        (["*/*, application/pdf;q=0"], False),
    ],
)
def test_most_specific_accept_range_decides(accept: Any, taken: bool) -> None:
    assert accepts(accept, "application/pdf") is taken
