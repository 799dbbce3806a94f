"""Documents that our own API serves: which are there, which are not, and in which format."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.routing import Route

from lab_agent.lis.lab_messages import Document
from lab_api.errors import EXCEPTION_HANDLERS
from lab_api.hosted_documents import HostedDocuments, accepts
from lab_api.observation import Observation
from tests.harness.documents import PDF, make_pdf
from tests.harness.results import ResultsBench, make_report, open_bench

PLACE = "https://lab.example/v1/documents/"


@asynccontextmanager
async def hosting() -> AsyncIterator[tuple[ResultsBench, httpx.AsyncClient]]:
    """A bench that hosts documents for a week, and a client of what it hosts."""
    async with open_bench({"documents": "host", "host_days": 7}, api={"public_url": "https://lab.example/v1"}) as bench:
        documents = HostedDocuments(bench.store, bench.clock.now)
        route = Route("/v1/documents/{address}", documents.get_document, methods=["GET"])
        app = FastAPI(routes=[route], exception_handlers=EXCEPTION_HANDLERS)
        app.state.observation = Observation()
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="https://lab.example") as client:
            yield bench, client


async def deliver(bench: ResultsBench, *documents: Document, version: int = 1) -> tuple[str, ...]:
    """Deliver a version with these documents; their addresses."""
    await bench.receive(make_report(documents=documents, version=version, issued=bench.clock.now()))
    (found,) = await bench.clinic_reports()
    return tuple(found.documents)


async def test_document_is_served_under_unguessable_url() -> None:
    async with hosting() as (bench, client):
        first, second = await deliver(bench, Document(content=PDF), Document(content=make_pdf("2")))
        assert first.startswith(PLACE)
        assert len(first.rpartition("/")[2]) >= 43
        assert first != second
        answer = await client.get(first)
        assert (answer.status_code, answer.content) == (200, PDF)
        assert answer.headers["content-type"] == "application/pdf"
        assert answer.headers["content-length"] == str(len(PDF))
        again = await client.get(first, headers={"If-None-Match": answer.headers["etag"]})
        assert again.status_code == 304
        assert (await client.head(first)).headers["content-length"] == str(len(PDF))
        assert (await client.get(first, headers={"Accept": "image/png"})).status_code == 406


async def test_document_without_its_address_is_always_404() -> None:
    """The address is the right to read (a named deviation); whatever credentials come with another one, it is missing."""
    async with hosting() as (bench, client):
        (address,) = await deliver(bench, Document(content=PDF))
        credentials = [{"Authorization": text} for text in ("Bearer wrong", "Basic bm9ib2R5Ong=", "nonsense")]
        for headers in ({}, *credentials):
            assert (await client.get(address, headers=headers)).status_code == 200
            for other in (address[:-1] + ("b" if address[-1] == "a" else "a"), address[:-1], f"{PLACE}x"):
                answer = await client.get(other, headers=headers)
                assert (answer.status_code, answer.json()["resourceType"]) == (404, "OperationOutcome")
        bench.clock.time += timedelta(days=8)
        assert (await client.get(address)).status_code == 404


@pytest.mark.slow
async def test_each_delivery_extends_lifetime_of_the_same_url() -> None:
    """Also once it was over: a correction with the same document names it again."""
    async with hosting() as (bench, client):
        (address,) = await deliver(bench, Document(content=PDF))
        for version, days, status in ((2, 5, 200), (3, 5, 200), (4, 8, 404)):
            bench.clock.time += timedelta(days=days)
            assert (await client.get(address)).status_code == status
            assert await deliver(bench, Document(content=PDF), version=version) == (address,)
        bench.clock.time += timedelta(days=6)
        assert (await client.get(address)).content == PDF


@pytest.mark.slow
async def test_same_bytes_of_other_type_get_own_url() -> None:
    async with hosting() as (bench, client):
        kinds = ("text/plain", "text/csv")
        addresses = await deliver(bench, *(Document(content=b"hello", content_type=kind) for kind in kinds))
        for address, kind in zip(addresses, kinds, strict=True):
            answer = await client.get(address, headers={"Accept": kind})
            assert answer.headers["content-type"].partition(";")[0] == kind


@pytest.mark.slow
async def test_invalid_stored_content_type_served_as_octet_stream() -> None:
    """Whatever content type is stored, the response has a valid Content-Type header."""
    async with hosting() as (bench, client):
        (address,) = await deliver(bench, Document(content=PDF))
        for kind in ('application/pdf; name="отчёт"', "a/b\r\nX-Evil: 1", "x/y/z", "/", ""):
            bench.store.execute(f"UPDATE hosted_documents SET content_type = '{kind}'")
            answer = await client.get(address)
            assert (answer.status_code, answer.headers["content-type"]) == (200, "application/octet-stream"), kind


@pytest.mark.slow
async def test_stage_environment_serves_no_document() -> None:
    async with open_bench({"documents": "none"}) as bench:
        assert await deliver(bench, Document(content=PDF), Document(url="https://lab.example/1")) == ()


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
