"""What the pages show, and what they never show."""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import httpx
import pytest

import lab_agent.status
from lab_agent.accounts import Role
from lab_agent.domain import jobs
from lab_agent.domain.audit import AuditAction
from lab_agent.domain.failure_causes import FailureCause
from lab_agent.domain.ids import OrderKey, ResourceId
from lab_agent.domain.job_records import AttemptRecord, JobKind, ServiceMessage
from lab_agent.domain.records import OrderRecord
from lab_agent.errors import StoreUnreachableError
from lab_agent.status import order_list
from lab_agent.status.app import create_app
from tests.integration.status.conftest import GOOD, HELD, HOSTILE, NOW, SECRETS

PAGES = (
    "/",
    "/orders",
    "/orders/R0000000000GOOD",
    "/orders/R0000000000HELD",
    "/orders/R00000000DOUBT",
    "/waiting",
    "/results",
    "/results?state=unmatched",
    "/results?state=held",
    "/results/P0",
    "/results/P1",
    "/turnaround",
    "/alerts",
    "/alerts?show=open",
    "/conditions",
    "/keys",
    "/failures",
    "/failures/members?cause=jobs.other",
    "/orders/R0000000000GOOD/judgement",
    "/orders/R0000000000GOOD/results",
    "/catalogue",
    "/connection",
    "/adapters",
    "/rules",
    "/rules/order.contract",
)
PACKAGE = Path(lab_agent.status.__file__).parent


class Broken:
    """Views that fail in a given way."""

    def __init__(self, failure: Exception) -> None:
        self._failure = failure

    def __getattr__(self, name: str) -> Any:
        async def fail(*_: Any, **__: Any) -> Any:
            raise self._failure

        return fail


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


async def test_overview_shows_current_state(seeded: Any):
    text = await seeded.read("/")
    assert "12 s ago" in text
    assert re.search(r"Waiting for you</a></span><strong>5<", text)
    assert "2 orders are overdue." in text
    assert "4 h 58 min" in text
    assert re.search(r'href="#lis.unavailable/folder">folder</a>.*?The laboratory system folder does not answer', text)
    assert "Observing only" not in text


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

    def many(uow: Any) -> None:
        for number in range(120):
            key = OrderKey(f"R{number:015}")
            uow.orders.add(OrderRecord(key=key, task_id=ResourceId(f"t{number}"), seen_at=now, changed_at=now))

    await pages.write(many)
    client = await pages.signed_in_client(Role.VIEWER)
    seen, path = [], "/orders?state=seen"
    for _ in range(3):
        text = (await client.get(path)).text
        seen += re.findall(r'href="/orders/(R\w+)"', text)
        further = re.search(r'rel="next" href="([^"]+)"', text)
        path = further[1].replace("&amp;", "&") if further else ""
    assert len(set(seen)) == len(seen) == 120
    assert path == ""
    for nonsense in ("0", "-1", "x", "9" * 30, "²", "99999999"):
        assert (await client.get("/orders", params={"page": nonsense})).status_code == 200
    for end in ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00", "0001-01-01T00:00:00Z", "2026-01-01T00:00:00+23:59"):
        for way in ("before", "after"):
            assert (await client.get("/orders", params={way: f"{end}~R1"})).status_code == 200


async def test_export_holds_the_list_without_names_and_is_recorded(seeded: Any):
    client = await seeded.signed_in_client(Role.VIEWER)
    answer = await client.get("/orders.csv?state=held&state=handed_over")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    heading, *lines = csv.reader(answer.text.removeprefix("\ufeff").splitlines())
    assert heading[:2] == ["order", "state"]
    assert [line[:2] for line in lines] == [[HELD, "held"], [GOOD, "handed_over"]]
    assert [secret for secret in SECRETS if secret in answer.text] == []
    exported = await seeded.records(AuditAction.ORDERS_EXPORTED)
    assert [(each.actor, each.details) for each in exported] == [("viewer", '{"orders":2}')]


async def test_export_ends_where_the_page_says_that_it_does(seeded: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(order_list, "MAX_EXPORTED", 2)
    monkeypatch.setattr(order_list, "_EXPORT_PORTION", 1)
    client = await seeded.signed_in_client(Role.VIEWER)
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
    text = (await operator.get(f"/orders/{job.order}")).text
    timeline = text[text.index('id="timeline"') :]
    assert "attempt 3: POST Observation was answered with 422. The service said: error processing: Anna Petrova" in timeline
    assert "Anna Petrova" in text
    assert "other JSON than the interface" in text
    assert HOSTILE not in text
    assert "Anna" not in (await viewer.get(f"/orders/{job.order}")).text
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


async def test_failures_show_error_page_without_traceback(pages: Any):
    """An unavailable store is an error page, and a bug of ours shows no traceback."""
    client = await pages.signed_in_client(Role.VIEWER)
    for failure, status in ((StoreUnreachableError(), 503), (RuntimeError("secret detail"), 500)):
        broken = replace(pages.context, queries=Broken(failure))
        transport = httpx.ASGITransport(create_app(broken), raise_app_exceptions=True)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8481", cookies=client.cookies) as browser:
            answer = await browser.get("/orders")
        assert answer.status_code == status, answer.text
        assert "secret" not in answer.text
        assert "Traceback" not in answer.text
        assert answer.headers["cache-control"] == "no-store"


def test_page_has_no_external_resources_and_small_script():
    for file in (*PACKAGE.glob("templates/*"), *PACKAGE.glob("static/*")):
        addresses = re.findall(r"(?:https?:)?//[\w.]+", re.sub(r"^//.*|\s//.*", "", file.read_text(), flags=re.MULTILINE))
        assert set(addresses) <= {"http://www.w3.org"}, file.name
    for script in PACKAGE.glob("static/*.js"):
        assert len(script.read_text().splitlines()) < 150, script.name
