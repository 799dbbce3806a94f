"""What is told of the agent's health: at the addresses for machines, on the pages, and while the store does not work."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from datetime import timedelta
from html import unescape
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, Mock

from lab_agent.operations.accounts import Role
from lab_agent.queue.job_records import JobKind
from lab_agent.shared.conditions.model import ConditionId, OpenCondition
from lab_agent.shared.conditions.table import CONDITIONS
from lab_agent.shared.errors import StoreFault, StoreUnreachableError
from lab_agent.status.sessions import SESSION_COOKIE
from lab_agent.store.event_records import Alert
from tests.integration.status.conftest import HOSTILE, NOW, PASSWORD, form_token

AWAY = Mock(overview=AsyncMock(side_effect=StoreUnreachableError))
"""Views of a store that does not answer."""


async def test_healthz_names_the_stopped_worker_part(pages: Any):
    client = pages.new_client()
    for status, told in ((200, {"status": "ok", "missing": []}), (503, {"status": "failing", "missing": ["delivery"]})):
        answer = await client.get("/healthz")
        assert (answer.status_code, answer.json()) == (status, told)
        pages.missing.append("delivery")


async def test_readyz_names_outage_and_stays_ready(seeded: Any):
    """It tells which remote system is unavailable and is ready all the same; what was found may name a path, and is not told."""
    told = {"status": "ready", "mode": "normal", "store": "ok", "last_poll": "2026-03-01T02:59:48+00:00"}
    conditions = [
        {"id": "rule.stopped", "severity": "critical", "since": "2026-03-01T02:53:00+00:00"},
        {"id": "lis.unavailable", "severity": "critical", "since": NOW.isoformat()},
    ]
    assert (await seeded.new_client().get("/readyz")).json() == {**told, "conditions": conditions}
    answer = await (await seeded.signed_in_client(Role.VIEWER)).get("/readyz")
    assert (answer.status_code, "gone" in answer.text) == (200, False)
    full = answer.json()["conditions"]
    assert [(each["subject"], [one["text"] for one in each["affected"]]) for each in full] == [
        ("line.specimen", ["2 orders"]),
        ("folder", ["1 order to hand over"]),
    ]


async def test_stranger_sees_no_path_in_readyz(pages: Any):
    subject = "/srv/lab/secret"
    found = OpenCondition(condition=CONDITIONS[ConditionId.STORE_READ_ONLY], subject=subject, detail=subject, since=NOW)
    pages.context = replace(pages.context, observed_conditions=lambda: (found,))
    forged = pages.new_client(headers={"cookie": f"{SESSION_COOKIE}=forged"})
    for client in (pages.new_client(), forged):
        answer = await client.get("/readyz")
        told = [{"id": "store.read_only", "severity": found.condition.severity.value, "since": NOW.isoformat()}]
        assert (answer.json()["conditions"], "secret" in answer.text) == (told, False)
    full = (await (await pages.signed_in_client(Role.VIEWER)).get("/readyz")).json()["conditions"]
    assert [each["subject"] for each in full] == [subject]


async def test_readyz_is_unready_without_store(pages: Any):
    pages.context = replace(pages.context, queries=AWAY)
    answer = await pages.new_client().get("/readyz")
    told, fault = answer.json(), "store.unreachable"
    assert (answer.status_code, [each["id"] for each in told.pop("conditions")]) == (503, [fault])
    assert told == {"status": "not ready", "mode": "normal", "store": fault, "last_poll": None, "reason": fault}
    assert (await pages.new_client().get("/healthz")).status_code == 200


async def test_agent_that_cannot_work_or_write_is_unready(pages: Any):
    """A path stays in the page."""
    for id_, detail, store in (
        (ConditionId.AGENT_CANNOT_WORK, "ValueError", "ok"),
        (ConditionId.STORE_READ_ONLY, "/srv/lab.db", "store.read_only"),
    ):
        found = OpenCondition(condition=CONDITIONS[id_], detail=detail, since=NOW - timedelta(minutes=12))
        pages.context = replace(pages.context, observed_conditions=lambda found=found: (found,))
        answer = await pages.new_client().get("/readyz")
        told = answer.json()
        assert (answer.status_code, told["store"], told["reason"]) == (503, store, id_.value)
        client = await pages.signed_in_client(Role.VIEWER)
        assert "mend" in (await client.get("/readyz")).json()
        assert (detail in answer.text, detail in (await client.get("/")).text) == (False, True)


async def test_metrics_are_computed_on_request(seeded: Any):
    """What is finished grows for years, and is not counted; values of a store that is away are missing rather than old."""
    client = seeded.new_client()
    answer = await client.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert [each for each in ("Petrova", "2603-0", "R0000000000GOOD", "partner-guid") if each in answer.text] == []
    review = 'lab_agent_jobs{kind="submit_order",state="needs_review"} 1.0'
    oldest = f'lab_agent_oldest_age_seconds{{what="order"}} {(4 * 60 + 58) * 60}.0'
    for line in (review, oldest, 'lab_agent_orders{state="held"} 1.0', "lab_agent_store_reachable 1.0"):
        assert line in answer.text
    job = await seeded.get_job(JobKind.SUBMIT_ORDER)
    await seeded.write(lambda uow: uow.jobs.save(uow.jobs.get(job.id).complete(seeded.clock.now())))
    again = (await client.get("/metrics")).text
    assert (review in again, 'state="done"' in again) == (False, False)
    seeded.context = replace(seeded.context, queries=AWAY)
    answer = await seeded.new_client().get("/metrics")
    assert (answer.status_code, "lab_agent_orders{" in answer.text) == (200, False)
    for line in ("lab_agent_store_reachable 0.0", "lab_agent_alerts_open NaN"):
        assert line in answer.text


SHORT = 10.0
"""Seconds; SQLite's usual patience is fifteen."""


def first_sentence(html: str) -> str:
    """The heading of a page."""
    return unescape(re.sub(r"<[^>]+>", "", re.search(r"<h1[^>]*>(.*?)</h1>", html, flags=re.DOTALL)[1]))


async def open_alert(pages: Any, condition: ConditionId, subject: str = "", detail: str = "", **ago: float) -> None:
    since = NOW - timedelta(**ago)
    alert = Alert(condition=condition, subject=subject, detail=detail, since=since, opened_at=NOW)
    await pages.write(lambda uow: uow.alerts.open(alert))


async def test_overview_begins_with_verdict(pages: Any):
    """The conditions follow, worst first, then oldest first, each with its age and what it affects."""
    client = await pages.signed_in_client(Role.VIEWER)
    assert first_sentence((await client.get("/")).text) == "All is well: 0 orders today."
    await open_alert(pages, ConditionId.BACKUP_OLD, days=3)
    await open_alert(pages, ConditionId.EXCHANGE_UNAVAILABLE, detail="connection refused", minutes=12)
    text = (await client.get("/")).text
    told = first_sentence(text)
    assert told.startswith("The exchange service does not answer, for 12 min.")
    assert told.endswith(" And 1 more condition.")
    titles = [unescape(re.sub(r"<[^>]+>", "", each)).split()[0] for each in re.findall(r"<h3>(.*?)</h3>", text)]
    assert titles == ["critical", "warning"]  # the severity is a word
    shown = text[text.index('id="exchange.unavailable"') :].partition("</li>")[0]
    for part in ('for <time datetime="2026-03-01T02:48:00+00:00"', 'href="/conditions#exchange.unavailable"'):
        assert part in shown


async def test_hostile_details_are_harmless(pages: Any):
    """HTML, control characters, direction marks and very long texts; a command that is copied quotes what it is about."""
    await open_alert(pages, ConditionId.LIS_UNAVAILABLE, f"x; rm -rf ~ {HOSTILE}", f"{HOSTILE}\x1b[2J\u202e`a`b`" + "z" * 90_000)
    await open_alert(pages, ConditionId.DISK_LOW, "$(reboot)' \"><b>", "")
    client = await pages.signed_in_client(Role.ADMIN)
    for path in ("/", "/alerts", "/alerts?show=open"):
        text = (await client.get(path)).text
        assert [each for each in ("<script>alert", "<b>", "\x1b", "\u202e") if each in text] == []
        assert (len(text) < 30_000, "&lt;script&gt;" in text) == (True, True)
    command = re.findall(r'<code class="command">([^<]*)</code>', (await client.get("/")).text)[-1]
    assert unescape(command) == "df -h '$(reboot)'\"'\"' \"><b>'"


async def test_history_tells_beginning_end_and_duration(seeded: Any):
    client = await seeded.signed_in_client(Role.VIEWER)
    text = (await client.get("/alerts")).text
    row = next(each for each in text.split("<tr>") if "exchange.unavailable" in each)
    assert [each for each in ("1 h", 'href="/conditions#exchange.unavailable"') if each not in row] == []
    for which, shown, hidden in (("open", "lis", "exchange"), ("closed", "exchange", "lis")):
        listed = (await client.get(f"/alerts?show={which}")).text
        assert (f"{shown}.unavailable" in listed, f"{hidden}.unavailable" in listed) == (True, False)
    assert (await client.get("/alerts?show=<b>")).text.count("<tr>") == text.count("<tr>")


async def test_table_has_entry_for_every_condition(pages: Any):
    text = unescape(await pages.read("/conditions"))
    assert re.findall(r'<section class="card entry" id="([^"]+)"', text) == [each.value for each in CONDITIONS]


async def test_pages_say_what_is_wrong_with_the_store(pages: Any, tmp_path: Path):
    """The pages of a store that does not work are 503, at once, and name its condition; so does the answer to an action."""
    operator, stranger = await pages.signed_in_client(Role.OPERATOR), pages.new_client()
    token = form_token((await operator.get("/")).text)
    entry = CONDITIONS[ConditionId.STORE_DELETED]
    (tmp_path / "lab.db").unlink()
    started = time.monotonic()
    answers = [await operator.get(path) for path in ("/", "/orders", "/waiting")]
    assert time.monotonic() - started < SHORT
    answers.append(await operator.post("/orders/R0000000000GOOD/retry", data={"csrf_token": token}))
    assert ("Your action was not done." in answers[-1].text, "Nothing was done" in answers[-1].text) == (True, False)
    answers.append(await stranger.post("/sign-in", data={"name": "operator", "password": PASSWORD}))
    for answer in answers:
        assert (answer.status_code, entry.title in unescape(answer.text)) == (503, True), answer.url
    assert all(first_sentence(each.text).startswith(f"{entry.title}, for ") for each in (*answers[:3], answers[-1]))
    readiness = await stranger.get("/readyz")
    assert (readiness.status_code, readiness.json()["reason"]) == (503, entry.id.value)
    assert (await stranger.get("/healthz")).status_code == 200
    pages.context = replace(pages.context, observed_conditions=lambda: pages.context.store.health.conditions)
    page = await pages.new_client().get("/sign-in")
    assert (page.status_code, entry.title in page.text, "nobody can sign in" in page.text) == (200, True, True)
    assert [each.url for each in (answers[-1], readiness, page) if str(tmp_path) in each.text] == []


async def test_pages_of_a_known_outage_say_since_when(pages: Any):
    """While the worker knows of an outage, pages answer without waiting for the store, and tell its age."""
    client = await pages.signed_in_client(Role.VIEWER)
    health = pages.context.store.health
    health.is_watched = True
    locked = StoreUnreachableError("it was locked by another program for too long", StoreFault.LOCKED)
    health.failed(locked, NOW - timedelta(minutes=12), reading=True)
    answer = await client.get("/orders")
    assert answer.status_code == 503
    assert first_sentence(answer.text).startswith("The database is locked by another program, for 12 min; ")
    assert "for too long" in answer.text, "whoever is signed in reads the detail"
    assert "for too long" not in (await pages.new_client().post("/sign-in", data={"name": "x", "password": "x"})).text
    health.recovered()
    assert (await client.get("/orders")).status_code == 200
