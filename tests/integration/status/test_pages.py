"""What the pages show, and what they never show."""

from __future__ import annotations

import asyncio
import csv
import re
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest

import lab_agent.status
from lab_agent.accounts import Role
from lab_agent.domain import jobs
from lab_agent.domain.audit import AuditAction
from lab_agent.domain.failure_causes import FailureCause
from lab_agent.domain.ids import OrderKey, ResourceId
from lab_agent.domain.job_records import AttemptRecord, JobKind, ServiceMessage
from lab_agent.domain.records import OrderRecord
from lab_agent.errors import StoreError, StoreUnreachableError
from lab_agent.status import order_list
from tests.integration.status.conftest import GOOD, HELD, HOSTILE, NOW, SECRETS, UNCERTAIN

PAGES = (
    *("/", "/orders", f"/orders/{GOOD}", f"/orders/{HELD}", f"/orders/{UNCERTAIN}", f"/orders/{GOOD}/judgement"),
    *(f"/orders/{GOOD}/results", "/waiting", "/failures", "/failures/members?cause=jobs.other", "/results", "/results/P0"),
    *("/results?state=unmatched", "/results?state=held", "/results/P1", "/turnaround", "/alerts", "/alerts?show=open"),
    *("/conditions", "/keys", "/catalogue", "/connection", "/adapters", "/rules", "/rules/order.contract"),
)
PACKAGE = Path(lab_agent.status.__file__).parent


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
    """By any printed number; an unknown state is ignored."""
    client = await seeded.signed_in_client(Role.VIEWER)
    for search in ("R0000000000GOOD", "L00", "task-0", "2603-0", "26-0000", "7000000", " 7000000 "):
        text = (await client.get("/orders", params={"search": search})).text
        assert re.findall(r'href="/orders/(R\w+)"', text) == ["R0000000000GOOD"], search
    text = (await client.get("/orders?state=held&state=fetched&state=nonsense")).text
    assert re.findall(r'href="/orders/(R\w+)"', text) == ["R00000000DOUBT", "R0000000000HELD"]
    assert 'value="held" checked' in text
    assert "No order found" in (await client.get("/orders?state=closed")).text
    hostile = await client.get("/orders", params={"search": '"><script>alert(1)</script>'})
    assert "<script>alert" not in hostile.text


async def test_paged_list_keeps_the_search(pages: Any):
    now = pages.clock.now()
    keys = [OrderKey(f"R{number:015}") for number in range(60)]
    orders = [OrderRecord(key=key, task_id=ResourceId(key), seen_at=now, changed_at=now) for key in keys]
    await pages.write(lambda uow: [uow.orders.add(order) for order in orders])
    client = await pages.signed_in_client(Role.VIEWER)
    first = (await client.get("/orders?state=seen")).text
    further = re.search(r'rel="next" href="([^"]+)"', first)
    assert further is not None
    second = (await client.get(unescape(further[1]))).text
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
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    heading, *lines = csv.reader(answer.text.removeprefix("\ufeff").splitlines())
    assert heading[:2] == ["order", "state"]
    assert [line[:2] for line in lines] == [[HELD, "held"], [GOOD, "handed_over"]]
    assert [secret for secret in SECRETS if secret in answer.text] == []
    exported = await seeded.records(AuditAction.ORDERS_EXPORTED)
    assert [(each.actor, each.details) for each in exported] == [("viewer", '{"orders":2}')]
    monkeypatch.setattr(order_list, "MAX_EXPORTED", 2)
    monkeypatch.setattr(order_list, "_EXPORT_PORTION", 1)
    assert "the first 2 of the list at most" in (await client.get("/orders")).text
    assert len((await client.get("/orders.csv")).text.splitlines()) == 1 + 2


async def test_order_page_shows_everything_about_it(seeded: Any):
    """The call of each attempt, its status, how long it took, and why it failed, too; and how often a held order was read."""
    at = seeded.clock.now()
    unavailable = {"status": 503, "cause": FailureCause.SERVICE_UNAVAILABLE}
    failed = AttemptRecord(number=1, at=at, milliseconds=2_400, call="PUT Task", **unavailable)
    done = AttemptRecord(number=2, at=at, milliseconds=80, call="PUT Task", status=200)
    handed_over = AttemptRecord(number=1, at=at, milliseconds=400, call="submit", cause=FailureCause.LIS_UNAVAILABLE)

    def log(uow: Any) -> None:
        uow.jobs.add(jobs.submit_order(GOOD, "folder", at))
        for job in uow.jobs.list_for_order(GOOD, open_only=False):
            if job.kind is JobKind.UPDATE_LINE_TASK:
                uow.jobs.save(job.log_attempt(failed).log_attempt(done))
            if job.kind is JobKind.SUBMIT_ORDER:
                uow.jobs.save(job.log_attempt(handed_over))
        (look,) = [each for each in uow.jobs.list_for_order(HELD, open_only=True) if each.kind is JobKind.FETCH_ORDER]
        uow.jobs.save(replace(look, attempts=229))

    await seeded.write(log)
    client = await seeded.signed_in_client(Role.VIEWER)
    text = unescape((await client.get(f"/orders/{GOOD}")).text)
    timeline = text.partition('<ol class="timeline">')[2]
    for shown in (
        "attempt 1): PUT Task · HTTP 503 Service Unavailable · 2.4 s · the service does not answer, or with an error of its own",
        "attempt 2): PUT Task · HTTP 200 OK · 80 ms · did not fail",
        "attempt 1): submit folder · 400 ms · ",
        "assessed: handed_over",
    ):
        assert shown in timeline
    numbers = ("2603-0", "26-0000", "task-0", "010.001", "7000000", "rep-0")
    for shown in (*numbers, "Item 020.014 needs EDTA blood", "the service rejected the report (422)"):
        assert shown in text
    assert "read 229 times in all" in (await client.get(f"/orders/{HELD}")).text.partition('<ol class="timeline">')[2]


async def test_service_words_shown_to_operators_alone(seeded: Any):
    """What the service said may name the patient: a viewer does not read it, and no list shows it."""
    job = await seeded.get_job(JobKind.DELIVER_REPORT)
    said = f"error processing: Anna Petrova {HOSTILE}"
    spoken = ServiceMessage(at=seeded.clock.now(), text=said, attempt=3, answer="POST Observation was answered with 422")
    await seeded.write(lambda uow: uow.vault.save_service_message(job.id, job.order, spoken))
    await seeded.write(lambda uow: uow.jobs.save(job.reschedule(NOW, NOW, "r").failed(NOW, FailureCause.INVALID_RESPONSE)))
    operator, viewer = [await seeded.signed_in_client(role) for role in (Role.OPERATOR, Role.VIEWER)]
    assert await seeded.records(AuditAction.SERVICE_WORDS_SHOWN) == []
    text = (await operator.get(f"/orders/{job.order}")).text
    timeline = text[text.index('id="timeline"') :]
    assert "attempt 3: POST Observation was answered with 422. The service said: error processing: Anna Petrova" in timeline
    assert "Anna Petrova" in text
    assert "other JSON than the interface" in text
    assert HOSTILE not in text
    assert "Anna" not in (await viewer.get(f"/orders/{job.order}")).text
    assert [each.actor for each in await seeded.records(AuditAction.SERVICE_WORDS_SHOWN)] == ["operator"]
    for path in ("/", "/waiting", "/orders", "/alerts"):
        assert "Anna" not in (await operator.get(path)).text


async def test_error_page_is_html_without_traceback(seeded: Any):
    client = await seeded.signed_in_client(Role.VIEWER)
    addresses = ("/nowhere", "/orders/R1", "/orders/%00", "/orders/R%2F1", "/static/../app.py", "/static/%2e%2e/app.py", "/docs")
    for path in (*addresses, "/openapi.json"):
        answer = await client.get(path)
        kind = answer.headers["content-type"].partition(";")[0]
        assert (path, answer.status_code, kind, "Traceback" in answer.text) == (path, 404, "text/html", False)
    assert (await client.delete("/orders")).status_code == 405


async def test_failures_show_error_page_without_traceback(pages: Any, monkeypatch: pytest.MonkeyPatch):
    """An unavailable store is an error page, and a bug of ours shows no traceback."""
    client = await pages.signed_in_client(Role.VIEWER)
    for failure, status in ((StoreUnreachableError(), 503), (RuntimeError("secret detail"), 500)):
        monkeypatch.setattr(pages.context.queries, "order_list", AsyncMock(side_effect=failure))
        answer = await client.get("/orders")
        assert (answer.status_code, answer.headers["cache-control"]) == (status, "no-store")
        assert [each for each in ("secret", "Traceback") if each in answer.text] == []


def test_page_has_no_external_resources_and_small_script():
    for file in (*PACKAGE.glob("templates/*"), *PACKAGE.glob("static/*")):
        addresses = re.findall(r"(?:https?:)?//[\w.]+", re.sub(r"^//.*|\s//.*", "", file.read_text(), flags=re.MULTILINE))
        assert set(addresses) <= {"http://www.w3.org"}, file.name
    for script in PACKAGE.glob("static/*.js"):
        assert len(script.read_text().splitlines()) < 150, script.name


EARLY = pytest.mark.parametrize(("path", "name"), [("/", "overview_page"), ("/orders", "order_list")])


@EARLY
async def test_page_is_read_once_and_for_nobody_without_session(pages, path, name, monkeypatch):
    begun = []
    read = getattr(pages.context.queries, name)

    async def note(*args, **fields):
        begun.append(path)
        return await read(*args, **fields)

    monkeypatch.setattr(pages.context.queries, name, note)
    client, other = await pages.signed_in_client(Role.VIEWER), pages.new_client()
    assert (await other.get(path)).status_code == 303
    assert begun == []
    assert (await client.get(path)).status_code == 200
    assert begun == [path]
    other.cookies.update(client.cookies)
    await pages.context.accounts.remove(Role.VIEWER.value, by="admin", now=pages.clock.now())
    answer = await other.get(path)
    assert (answer.status_code, answer.text) == (303, "")


@EARLY
async def test_failed_read_is_told_once(pages, path, name, monkeypatch, caplog):
    async def fail(*_, **__):
        raise StoreError("broken")

    client = await pages.signed_in_client(Role.VIEWER)
    monkeypatch.setattr(pages.context.queries, name, fail)
    assert (await client.get(path)).status_code == 500
    await pages.context.accounts.remove(Role.VIEWER.value, by="admin", now=pages.clock.now())
    assert (await client.get(path)).status_code == 303
    await asyncio.sleep(0)
    assert "never retrieved" not in caplog.text
