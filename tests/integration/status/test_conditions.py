"""What the pages say of conditions: on the overview, in the history, in the table; and of the store while it does not work."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from html import unescape
from pathlib import Path
from typing import Any

from lab_agent.accounts import Role
from lab_agent.conditions.ids import ConditionId
from lab_agent.conditions.table import CONDITIONS
from lab_agent.domain.records import Alert
from lab_agent.errors import StoreFault, StoreUnreachableError
from tests.integration.status.conftest import HOSTILE, NOW, PASSWORD, form_token

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
    client = await pages.signed_in_client(Role.VIEWER)
    assert first_sentence((await client.get("/")).text) == "All is well: 0 orders today."
    await open_alert(pages, ConditionId.BACKUP_OLD, days=3)
    await open_alert(pages, ConditionId.EXCHANGE_UNAVAILABLE, detail="connection refused", minutes=12)
    told = first_sentence((await client.get("/")).text)
    assert told.startswith("The exchange service does not answer, for 12 min.")
    assert told.endswith(" And 1 more condition.")


async def test_overview_tells_cause_age_affected_and_mend_of_each(seeded: Any):
    await open_alert(seeded, ConditionId.EXCHANGE_UNAVAILABLE, detail="connection refused", minutes=12)
    await open_alert(seeded, ConditionId.BACKUP_OLD, days=3)
    text = await seeded.read("/")
    titles = [unescape(re.sub(r"<[^>]+>", "", each)).split()[0] for each in re.findall(r"<h3>(.*?)</h3>", text)]
    assert titles == ["critical"] * 3 + ["warning"]  # worst first, then oldest first; the severity is a word
    entry = CONDITIONS[ConditionId.EXCHANGE_UNAVAILABLE]
    shown = unescape(text[text.index('id="exchange.unavailable"') :].partition("</li>")[0])
    age = 'for <time datetime="2026-03-01T02:48:00+00:00"'
    for told in ("connection refused", age, entry.affects, entry.mend, f'<code class="command">{entry.command}</code>'):
        assert told in shown
    assert re.search(r'<a href="/[^"]*">1 result to deliver</a>', shown)
    assert 'href="/conditions#exchange.unavailable"' in shown


async def test_hostile_details_are_harmless(pages: Any):
    """HTML, control characters, direction marks and very long texts; a command that is copied quotes what it is about."""
    await open_alert(pages, ConditionId.LIS_UNAVAILABLE, f"x; rm -rf ~ {HOSTILE}", f"{HOSTILE}\x1b[2J\u202e`a`b`" + "z" * 90_000)
    await open_alert(pages, ConditionId.DISK_LOW, "$(reboot)' \"><b>", "")
    client = await pages.signed_in_client(Role.ADMIN)
    for path in ("/", "/alerts", "/alerts?show=open"):
        text = (await client.get(path)).text
        assert "<script>alert" not in text
        assert "<b>" not in text
        assert not set(text) & set("\x1b\u202e")
        assert len(text) < 30_000
        assert "&lt;script&gt;" in text
    command = re.findall(r'<code class="command">([^<]*)</code>', (await client.get("/")).text)[-1]
    assert unescape(command) == "df -h '$(reboot)'\"'\"' \"><b>'"


async def test_history_tells_beginning_end_and_duration(seeded: Any):
    client = await seeded.signed_in_client(Role.VIEWER)
    text = (await client.get("/alerts")).text
    assert "The laboratory system folder does not answer" in text
    row = next(each for each in text.split("<tr>") if "exchange.unavailable" in each)
    assert [each for each in ("1 h", 'href="/conditions#exchange.unavailable"') if each not in row] == []
    for which, shown, hidden in (("open", "lis", "exchange"), ("closed", "exchange", "lis")):
        listed = (await client.get(f"/alerts?show={which}")).text
        assert (f"{shown}.unavailable" in listed, f"{hidden}.unavailable" in listed) == (True, False)
    assert (await client.get("/alerts?show=<b>")).text.count("<tr>") == text.count("<tr>")


async def test_table_has_entry_for_every_condition(pages: Any):
    text = unescape(await pages.read("/conditions"))
    assert re.findall(r'<section class="card entry" id="([^"]+)"', text) == [each.value for each in CONDITIONS]
    assert "{subject}" not in text


@contextmanager
def deleted(path: Path) -> Iterator[None]:
    path.unlink()
    yield


async def test_pages_say_what_is_wrong_with_the_store(pages: Any, tmp_path: Path):
    """The pages of a store that does not work are 503, at once, and name its condition; so does the answer to an action."""
    operator, stranger = await pages.signed_in_client(Role.OPERATOR), pages.new_client()
    token = form_token((await operator.get("/")).text)
    entry = CONDITIONS[ConditionId.STORE_DELETED]
    with deleted(tmp_path / "lab.db"):
        for path in ("/", "/orders", "/waiting"):
            started = time.monotonic()
            answer = await operator.get(path)
            assert time.monotonic() - started < SHORT
            assert answer.status_code == 503
            assert first_sentence(answer.text).startswith(f"{entry.title}, for ")
            for words in (entry.cause, entry.mend, entry.affects):
                assert words in unescape(re.sub(r"</?code>", "`", answer.text))
        answer = await operator.post("/orders/R0000000000GOOD/retry", data={"csrf_token": token})
        assert answer.status_code == 503
        assert "Your action was not done." in answer.text
        assert "Nothing was done" not in answer.text
        answer = await stranger.post("/sign-in", data={"name": "operator", "password": PASSWORD})
        assert answer.status_code == 503
        assert first_sentence(answer.text).startswith(f"{entry.title}, for ")
        assert str(tmp_path) not in answer.text
        page = await stranger.get("/sign-in")
        assert page.status_code == 200
        readiness = await stranger.get("/readyz")
        assert (readiness.status_code, readiness.json()["reason"]) == (503, ConditionId.STORE_DELETED.value)
        assert str(tmp_path) not in readiness.text
        assert (await stranger.get("/healthz")).status_code == 200


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


async def test_sign_in_page_says_that_the_store_does_not_work(pages: Any, tmp_path: Path):
    with deleted(tmp_path / "lab.db"):
        await pages.new_client().get("/readyz")
        pages.context = replace(pages.context, observed_conditions=lambda: pages.context.store.health.conditions)
        text = (await pages.new_client().get("/sign-in")).text
    assert [each for each in (CONDITIONS[ConditionId.STORE_DELETED].title, "nobody can sign in") if each not in text] == []
    assert str(tmp_path) not in text
