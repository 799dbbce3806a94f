"""Documents under addresses of our own: what is there, what is not, and in which format."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from lab_agent.domain.results import Document
from lab_api.documents import HostedDocuments, takes
from lab_api.problems import add_handlers
from tests.results.bench import Bench, open_bench, report

PDF = b"%PDF-1.4\n%%EOF\n"
HOST = {"documents": "host", "host_days": 7}
API = {"public_url": "https://lab.example/v1"}


def served(bench: Bench) -> httpx.AsyncClient:
    app = FastAPI()
    app.include_router(HostedDocuments(bench.store, bench.clock.now).routes("/v1"))
    add_handlers(app)
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="https://lab.example")


async def test_a_document_is_served_under_an_address_that_nobody_guesses() -> None:
    async with open_bench(HOST, api=API) as bench:
        await bench.send(report(documents=(Document(content=PDF), Document(content=PDF + b"2"))))
        (found,) = await bench.seen()
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


async def test_a_correction_with_the_same_document_keeps_its_address() -> None:
    async with open_bench(HOST, api=API) as bench:
        document = Document(content=PDF)
        await bench.send(report(documents=(document,), version=1))
        (before,) = await bench.seen()
        await bench.send(report(documents=(document,), version=2, issued=bench.clock.now() + timedelta(hours=1)))
        (after,) = await bench.seen()
        assert before.documents == after.documents


async def test_on_stage_no_document_goes_out() -> None:
    async with open_bench({"documents": "none"}) as bench:
        await bench.send(report(documents=(Document(content=PDF), Document(url="https://lab.example/1"))))
        (found,) = await bench.seen()
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
def test_the_most_specific_range_decides(accept: Any, taken: bool) -> None:
    assert takes(accept, "application/pdf") is taken
