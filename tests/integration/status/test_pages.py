"""What the pages show, and what they never show."""

from __future__ import annotations

import asyncio
import csv
import re
from dataclasses import replace
from html import unescape
from typing import Any
from unittest.mock import AsyncMock

import pytest

from lab_agent.operations.accounts import Role
from lab_agent.orders.records import OrderRecord
from lab_agent.queue import jobs
from lab_agent.queue.failure_causes import FailureCause
from lab_agent.queue.job_records import AttemptRecord, JobKind, ServiceMessage
from lab_agent.shared.errors import StoreError, StoreUnreachableError
from lab_agent.shared.ids import OrderKey, ResourceId
from lab_agent.status import order_list
from lab_agent.store.audit_records import AuditAction
from tests.integration.status.conftest import GOOD, HELD, HOSTILE, NOW, SECRETS, UNCERTAIN

PAGES = (
    *("/", "/orders", f"/orders/{GOOD}", f"/orders/{HELD}", f"/orders/{UNCERTAIN}", f"/orders/{GOOD}/judgement"),
    *(f"/orders/{GOOD}/results", "/waiting", "/failures", "/failures/members?cause=jobs.other", "/results", "/results/P0"),
    *("/results?state=unmatched", "/results?state=held", "/results/P1", "/turnaround", "/alerts", "/alerts?show=open"),
    *("/conditions", "/keys", "/catalogue", "/connection", "/adapters", "/rules", "/rules/order.contract"),
)


@pytest.mark.parametrize("role", [Role.VIEWER, Role.ADMIN])
async def test_every_page_is_escaped_and_names_no_patient(seeded: Any, role: Role):
    """Of a worker that only observes, which each page says; a viewer has no form but to sign out and for the look of the page."""
    seeded.context = replace(seeded.context, mode="observe")
    client = await seeded.signed_in_client(role)
    for path in PAGES:
        answer = await client.get(path)
        assert answer.status_code == 200, path
        found = [each for each in ("<script>alert", *SECRETS) if each in answer.text]
        found += re.findall(r"\son\w+=|<style|style=|javascript:|https?://(?!127)", answer.text)
        assert (path, found, "Observing only." in answer.text) == (path, [], True)
        forms = set(re.findall(r'<form[^>]*method="post" action="([^"]+)"', answer.text))
        assert role is not Role.VIEWER or forms == {"/preferences", "/sign-out"}, path
        if path in {"/", "/orders", "/waiting"}:
            assert "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;" in answer.text
    for path in ("/", "/orders", "/sign-in", "/nowhere", "/readyz", "/static/style.css"):
        headers = (await client.get(path)).headers
        policy = headers.pop("content-security-policy")
        assert [each for each in ("default-src 'self'", "frame-ancestors 'none'") if each not in policy] == [], path
        told = [headers[name] for name in ("x-content-type-options", "x-frame-options", "referrer-policy", "cache-control")]
        assert told == ["nosniff", "DENY", "same-origin", "no-cache" if "static" in path else "no-store"], path


async def test_orders_are_found_by_search_and_state(seeded: Any):
    """An unknown state is ignored."""
    client = await seeded.signed_in_client(Role.VIEWER)
    for query, found in (
        ("search=2603-0", [GOOD]),
        ("search= 7000000 ", [GOOD]),
        ("state=held&state=fetched&state=nonsense", [UNCERTAIN, HELD]),
        ('search="><script>alert(1)</script>', []),
    ):
        text = (await client.get(f"/orders?{query}")).text
        assert (re.findall(r'href="/orders/(R\w+)"', text), "<script>alert" in text) == (found, False), query
        assert ("No order found" in text) is (found == [])


async def test_paged_list_keeps_the_search(pages: Any):
    now = pages.clock.now()
    keys = [OrderKey(f"R{number:015}") for number in range(60)]
    orders = [OrderRecord(key=key, task_id=ResourceId(key), seen_at=now, changed_at=now) for key in keys]
    await pages.write(lambda uow: [uow.orders.add(order) for order in orders])
    client = await pages.signed_in_client(Role.VIEWER)
    first = (await client.get("/orders?state=seen")).text
    (further,) = re.findall(r'rel="next" href="([^"]+)"', first)
    second = (await client.get(unescape(further))).text
    assert sorted(re.findall(r'href="/orders/(R\w+)"', first + second)) == keys
    assert 'rel="next"' not in second
    ends = ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00", "0001-01-01T00:00:00Z", "2026-01-01T00:00:00+23:59")
    odd = [*(("page", each) for each in ("0", "-1", "x", "9" * 30, "²", "99999999"))]
    odd += [(way, f"{end}~R1") for end in ends for way in ("before", "after")]
    assert [each for each in odd if (await client.get("/orders", params=dict([each]))).status_code != 200] == []


async def test_export_holds_the_list_without_names_and_is_recorded(seeded: Any, monkeypatch: pytest.MonkeyPatch):
    """It ends where the page says that it does."""
    client = await seeded.signed_in_client(Role.VIEWER)
    answer = await client.get("/orders.csv?state=held&state=handed_over")
    heading, *lines = csv.reader(answer.text.removeprefix("\ufeff").splitlines())
    assert [line[:2] for line in (heading, *lines)] == [["order", "state"], [HELD, "held"], [GOOD, "handed_over"]]
    assert [secret for secret in SECRETS if secret in answer.text] == []
    exported = await seeded.records(AuditAction.ORDERS_EXPORTED)
    assert [(each.actor, each.details) for each in exported] == [("viewer", '{"orders":2}')]
    monkeypatch.setattr(order_list, "MAX_EXPORTED", 2)
    monkeypatch.setattr(order_list, "_EXPORT_PORTION", 1)
    assert "the first 2 of the list at most" in (await client.get("/orders")).text
    assert len((await client.get("/orders.csv")).text.splitlines()) == 1 + 2


async def test_order_page_shows_everything_about_it(seeded: Any):
    """The call of each attempt, its status, how long it took, and why it failed, too."""
    times = {"at": seeded.clock.now(), "milliseconds": 2_400}
    unavailable = {"status": 503, "cause": FailureCause.SERVICE_UNAVAILABLE}
    failed = AttemptRecord(number=1, call="PUT Task", **times, **unavailable)
    handed_over = AttemptRecord(number=1, call="submit", cause=FailureCause.LIS_UNAVAILABLE, **times)

    def log(uow: Any) -> None:
        uow.jobs.add(jobs.submit_order(GOOD, "folder", NOW))
        for job in uow.jobs.list_for_order(GOOD, open_only=False):
            if attempt := {JobKind.UPDATE_LINE_TASK: failed, JobKind.SUBMIT_ORDER: handed_over}.get(job.kind):
                uow.jobs.save(job.log_attempt(attempt))

    await seeded.write(log)
    text = unescape(await seeded.read(f"/orders/{GOOD}"))
    for shown in (
        "attempt 1): PUT Task · HTTP 503 Service Unavailable · 2.4 s · the service does not answer, or with an error of its own",
        "attempt 1): submit folder · 2.4 s · ",
        "assessed: handed_over",
    ):
        assert shown in text.partition('<ol class="timeline">')[2]
    numbers = ("2603-0", "26-0000", "task-0", "010.001", "7000000", "rep-0")
    for shown in (*numbers, "Item 020.014 needs EDTA blood", "the service rejected the report (422)"):
        assert shown in text


async def test_service_words_shown_to_operators_alone(seeded: Any):
    """What the service said may name the patient: a viewer does not read it, and no list shows it."""
    job = await seeded.get_job(JobKind.DELIVER_REPORT)
    said = f"error processing: Anna Petrova {HOSTILE}"
    spoken = ServiceMessage(at=seeded.clock.now(), text=said, attempt=3, answer="POST Observation was answered with 422")
    await seeded.write(lambda uow: uow.vault.save_service_message(job.id, job.order, spoken))
    operator, viewer = [await seeded.signed_in_client(role) for role in (Role.OPERATOR, Role.VIEWER)]
    assert await seeded.records(AuditAction.SERVICE_WORDS_SHOWN) == []
    text = (await operator.get(f"/orders/{job.order}")).text
    timeline = text[text.index('id="timeline"') :]
    assert "attempt 3: POST Observation was answered with 422. The service said: error processing: Anna Petrova" in timeline
    assert HOSTILE not in text
    assert "Anna" not in (await viewer.get(f"/orders/{job.order}")).text
    assert [each.actor for each in await seeded.records(AuditAction.SERVICE_WORDS_SHOWN)] == ["operator"]
    for path in ("/", "/waiting", "/orders", "/alerts"):
        assert "Anna" not in (await operator.get(path)).text


async def test_error_page_is_html_without_traceback(pages: Any, monkeypatch: pytest.MonkeyPatch):
    """Of an unknown address, an unavailable store, and a bug of ours."""
    client = await pages.signed_in_client(Role.VIEWER)
    addresses = ("/nowhere", "/orders/R1", "/orders/%00", "/orders/R%2F1", "/static/../app.py", "/static/%2e%2e/app.py", "/docs")
    answers = [(404, await client.get(path)) for path in (*addresses, "/openapi.json")]
    for failure, status in ((StoreUnreachableError(), 503), (RuntimeError("secret detail"), 500)):
        monkeypatch.setattr(pages.context.queries, "order_list", AsyncMock(side_effect=failure))
        answers.append((status, await client.get("/orders")))
    for status, answer in answers:
        kind = answer.headers["content-type"].partition(";")[0]
        assert (answer.status_code, kind) == (status, "text/html"), answer.url
        assert status == 404 or answer.headers["cache-control"] == "no-store"
        assert [each for each in ("secret", "Traceback") if each in answer.text] == []


@pytest.mark.parametrize(("path", "name"), [("/", "overview_page"), ("/orders", "order_list")])
async def test_page_is_read_once_and_for_nobody_without_session(pages, path, name, monkeypatch, caplog):
    """A read that was begun for a session that has ended gives nothing, nor does its failure."""
    read = AsyncMock(side_effect=getattr(pages.context.queries, name))
    monkeypatch.setattr(pages.context.queries, name, read)
    client, other = await pages.signed_in_client(Role.VIEWER), pages.new_client()
    assert ((await other.get(path)).status_code, read.await_count) == (303, 0)
    assert ((await client.get(path)).status_code, read.await_count) == (200, 1)
    monkeypatch.setattr(pages.context.queries, name, AsyncMock(side_effect=StoreError("broken")))
    assert (await client.get(path)).status_code == 500
    await pages.context.accounts.remove(Role.VIEWER.value, by="admin", now=pages.clock.now())
    for query in (read, AsyncMock(side_effect=StoreError("broken"))):
        monkeypatch.setattr(pages.context.queries, name, query)
        answer = await client.get(path)
        assert (answer.status_code, answer.text) == (303, "")
    await asyncio.sleep(0)
    assert "never retrieved" not in caplog.text
