"""What must not come in, and what the LIS may answer: each in its own way, and everything else goes on."""

import asyncio
import hashlib
import json
import re
import time
from base64 import b64encode
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import ValidationError

from lab_agent.lis.http import HttpAdapter, HttpSettings
from lab_agent.lis.serialization import dump_message
from lab_agent.lis.testing import MemoryInbox, make_correction, make_order, make_report
from lab_agent.shared.errors import Failure, LisOutcomeUnknown, LisRejected, LisUnavailable, StoreUnreachableError
from tests.fakes.http_lis import AGENT_SECRET, LIS_SECRET, HttpLis, signed_headers
from tests.harness.documents import PDF
from tests.harness.programs import free_port

REPORT = make_report(1, make_order(1))
BODY = dump_message(REPORT)
OLD = "the-secret-of-last-year"


@dataclass
class AdapterHarness:
    lis: HttpLis
    adapter: HttpAdapter
    inbox: MemoryInbox
    refused: Path

    async def post(self, body: bytes, given: dict[str, str], path: str = "/messages") -> tuple[int, dict[str, Any]]:
        return await asyncio.to_thread(self.lis.post, body, given, path)


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[AdapterHarness]:
    lis = HttpLis(free_port())
    secrets = {"secret": AGENT_SECRET, "incoming_secret": LIS_SECRET, "previous_incoming_secret": OLD}
    own = {"url": lis.url, "port": lis.agent_port, "max_message_bytes": 20_000, "refused_folder": tmp_path / "refused"}
    settings = HttpSettings.model_validate({**secrets, **own})
    inbox = MemoryInbox()
    adapter = HttpAdapter(settings, "http")
    await adapter.start(inbox)
    yield AdapterHarness(lis, adapter, inbox, tmp_path / "refused")
    await adapter.stop()
    await asyncio.to_thread(lis.close)


async def test_repeated_message_stored_once_changed_content_again(harness: AdapterHarness) -> None:
    """A repeat may have a new time stamp; other content under a used id is another message."""
    now, before = {"kept": "now"}, {"kept": "before"}
    assert await harness.post(BODY, signed_headers(LIS_SECRET, "m1", BODY, timestamp=time.time() - 100)) == (200, now)
    for given in (signed_headers(LIS_SECRET, "m1", BODY), signed_headers(OLD, "m1", BODY)):
        assert await harness.post(BODY, given) == (200, before)
    assert harness.inbox.contents == [REPORT]
    other = dump_message(make_correction(REPORT, "9.99"))
    assert await harness.post(other, signed_headers(LIS_SECRET, "m1", other)) == (200, now)
    assert len(harness.inbox.messages) == 2


@pytest.mark.parametrize(
    "given",
    [
        signed_headers("another-secret-altogether", "m1", BODY),
        signed_headers(AGENT_SECRET, "m1", BODY),
        signed_headers(LIS_SECRET, "m1", BODY + b" "),
        *(signed_headers(LIS_SECRET, "m1", BODY, timestamp=time.time() + away) for away in (-1_000_000, 1_000_000)),
        *(
            {**signed_headers(LIS_SECRET, "m1", BODY), **changed}
            for changed in (
                *({"Idempotency-Key": "m2"}, {"Lab-Signature": "v1=é"}, {"Lab-Signature": ""}),
                *({"Lab-Timestamp": "²"}, {"Lab-Timestamp": "9" * 40}),
            )
        ),
        *(signed_headers(LIS_SECRET, name, BODY) for name in (" ", "m" * 201)),
        {},
    ],
)
async def test_unauthentic_request_rejected_and_not_stored(harness: AdapterHarness, given: dict[str, str]) -> None:
    status, said = await harness.post(BODY, given)
    assert (status, said["code"]) == (401, "invalid_signature")
    assert not harness.inbox.attempts
    assert not harness.inbox.rejections  # a stranger must not fill a person's list
    assert not harness.refused.exists()
    assert (await harness.post(BODY, signed_headers(LIS_SECRET, "good", BODY)))[0] == 200


async def test_oversized_message_in_chunks_rejected(harness: AdapterHarness) -> None:
    body = b" " * 20_001
    chunks: Any = iter((body[:10_000], body[10_000:]))
    assert (await harness.post(chunks, signed_headers(LIS_SECRET, "m1", body)))[0] == 413
    assert not harness.inbox.attempts


@pytest.mark.parametrize(
    ("body", "where"),
    [
        *((body, "") for body in (b"", b"{", b"\xff\xfe", BODY.replace(b'"report_id"', b'"reprot_id"'))),
        (BODY.replace(b'"report_id":"', b'"report_id":"' + b"x" * 201, 1), "report_id"),
        (BODY.replace(b'"status"', b'"status":"partial","status"', 1), "status"),
    ],
)
async def test_unreadable_message_rejected_with_reason_bytes_kept(harness: AdapterHarness, body: bytes, where: str) -> None:
    for _ in range(2):
        status, said = await harness.post(body, signed_headers(LIS_SECRET, "m1", body))
        assert status == 422
        assert said["problems"]
        assert not where or [problem["where"] for problem in said["problems"]] == [where]
    (kept,) = harness.refused.glob("*.message")
    assert kept.read_bytes() == body
    assert kept.with_suffix(".reason.txt").read_text()
    ((name, reason),) = harness.inbox.rejections.items()  # somebody here is told, too
    assert name == f"m1:{hashlib.sha256(body).hexdigest()[:16]}"
    assert reason in kept.with_suffix(".reason.txt").read_text()


async def test_rejected_body_is_read_again_under_its_id(harness: AdapterHarness) -> None:
    """And a document in Base64 is no text."""
    tree = {**json.loads(BODY), "issued": "2024-05-17T08:30:00", "colour": "red"}
    body, value = json.dumps(tree).encode(), b64encode(PDF).decode()
    text = dump_message(replace(REPORT, observations=(replace(REPORT.observations[0], value_quantity=None, value_string=value),)))
    for name, sent, expected in (("m1", body, 422), ("m2", BODY, 200), ("m3", text, 422)):
        assert (await harness.post(sent, signed_headers(LIS_SECRET, name, sent)))[0] == expected
    (name, raw), (_, document) = harness.inbox.raw.items()
    assert (raw, document) == (body, text)
    refused = await harness.adapter.parse_message(body, name)
    assert refused.parts[0].message_id == name
    assert [line.place for line in refused.trace if line.skipped] == ["colour"]
    assert [(one.table, one.key, one.value) for one in refused.suggestions] == [("lis.http", "time_zone", None)]
    (good,) = (await harness.adapter.parse_message(BODY, "m2")).parts
    assert {good.message_id: good.content} == harness.inbox.messages


async def test_nothing_is_answered_while_the_store_is_away(harness: AdapterHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bad message is not answered as rejected, either, until the agent's own store has taken note of it."""

    async def away(*_: object, raw: bytes) -> None:
        raise StoreUnreachableError

    with monkeypatch.context() as patch:
        patch.setattr(MemoryInbox, "reject", away)
        assert (await harness.post(b"{", signed_headers(LIS_SECRET, "m1", b"{")))[0] == 503
    assert not harness.refused.exists()
    assert (await harness.post(b"{", signed_headers(LIS_SECRET, "m1", b"{")))[0] == 422
    assert len(harness.inbox.rejections) == 1
    harness.inbox.fail_before = 1
    assert (await harness.post(BODY, signed_headers(LIS_SECRET, "m1", BODY)))[0] == 503
    assert await harness.post(BODY, signed_headers(LIS_SECRET, "m1", BODY)) == (200, {"kept": "now"})


async def test_truncated_message_not_accepted(harness: AdapterHarness) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", harness.adapter.port)
    lines = [f"{name}: {value}" for name, value in signed_headers(LIS_SECRET, "m1", BODY).items()]
    head = "\r\n".join(["POST /messages HTTP/1.1", "Host: x", f"Content-Length: {len(BODY)}", *lines, "", ""])
    writer.write(head.encode() + BODY[:-10])
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    assert (await harness.post(BODY, signed_headers(LIS_SECRET, "m2", BODY)))[0] == 200
    assert harness.inbox.attempts == 1
    assert (await harness.post(BODY, signed_headers(LIS_SECRET, "m1", BODY), "/orders"))[0] == 404


@pytest.mark.parametrize(
    ("answer", "failure"),
    [
        ((503, {"Retry-After": "7"}, b""), LisUnavailable),
        ((429, {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}, b""), LisUnavailable),
        *(((status, {}, b""), LisUnavailable) for status in (401, 404)),
        *(((status, {}, b"oops"), LisOutcomeUnknown) for status in (500, 504)),
        ((302, {"Location": "https://elsewhere.example/"}, b""), LisRejected),
        ((422, {}, b'{"code": "unknown_test", "text": "Mrs Sample has no such test"}'), LisRejected),
        ((400, {}, b"<html>"), LisRejected),
    ],
)
async def test_lis_response_decides_submit_outcome(
    harness: AdapterHarness, answer: tuple[int, dict[str, str], bytes], failure: type[Failure]
) -> None:
    order = make_order(1)
    harness.lis.next_responses = [answer]
    with pytest.raises(failure) as caught:
        await harness.adapter.submit(order)
    assert "Sample" not in str(caught.value)
    if answer[1].get("Retry-After") == "7":
        assert caught.value.retry_after == 7  # type: ignore[attr-defined]
    assert isinstance(await harness.adapter.submit(order), object)
    assert set(harness.lis.posted_names) == {order.key}
    sent = harness.lis.orders[order.key]["notifications"]
    assert {one["channel"]: one["wanted"] for one in sent} == {"sms": True, "email": False}


async def test_response_numbers_become_submit_result(harness: AdapterHarness) -> None:
    order = make_order(1)
    output = {"accession": "A7", "lines": {order.lines[0].key: "A7-1", "other": 5}, "tubes": {"123": "T9"}}
    answers = [(201, json.dumps(output).encode()), (409, b""), (200, b"not json"), (200, b"[]")]
    harness.lis.next_responses = [(status, {}, body) for status, body in answers]
    receipt = await harness.adapter.submit(order)
    assert (receipt.accession, receipt.line_accessions) == ("A7", {order.lines[0].key: "A7-1"})
    assert receipt.tube_accessions == {"123": "T9"}
    for _ in range(3):
        assert (await harness.adapter.submit(order)).accession is None


async def test_port_in_use_reported_in_one_sentence(harness: AdapterHarness) -> None:
    other = HttpAdapter(harness.adapter._settings, "second")
    with pytest.raises(LisUnavailable, match=r"lis\.second\.port"):
        await other.start(MemoryInbox())


async def test_openapi_describes_both_directions(harness: AdapterHarness) -> None:
    async with httpx.AsyncClient() as client:
        document = (await client.get(f"http://127.0.0.1:{harness.adapter.port}/openapi.json")).json()
    assert document["webhooks"]["orders"]["post"]
    assert document["components"]["schemas"]["LabReport"]["properties"]
    for reference in re.findall(r'"\$ref": "([^"]*)"', json.dumps(document)):
        place = document
        for step in reference.removeprefix("#/").split("/"):
            place = place[step]


@pytest.mark.parametrize(
    "wrong",
    [
        *({"url": url} for url in ("ftp://lis", "https://user:pass@lis.example/")),
        *({"orders_path": path} for path in ("https://elsewhere.example/", "../other")),
        *({"secret": "short"}, {"incoming_secret": AGENT_SECRET}, {"status_path": "orders"}, {"prefix": "lis"}),
    ],
)
def test_invalid_http_settings_rejected(wrong: dict[str, str]) -> None:
    given = {"url": "https://lis.example/", "secret": AGENT_SECRET, "incoming_secret": LIS_SECRET, **wrong}
    with pytest.raises(ValidationError) as caught:
        HttpSettings.model_validate(given)
    assert AGENT_SECRET not in str(caught.value)
