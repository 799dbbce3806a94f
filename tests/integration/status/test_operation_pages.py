"""The pages about operation: the connection, laboratory systems, rules, the catalogue with its versions and label pools."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any
from unittest.mock import AsyncMock

import pytest

from lab_agent.accounts import Role
from lab_agent.catalogue.spreadsheet.csv_files import read_tables
from lab_agent.catalogue_service.notices import Announcement, announce
from lab_agent.catalogue_service.versions import activate, load_active_catalogue
from lab_agent.domain import jobs
from lab_agent.domain.audit import AuditAction
from lab_agent.domain.job_records import JobKind
from lab_agent.errors import LisUnavailable
from lab_agent.ports.credential_repositories import StoredToken
from tests.harness.paths import CATALOGUE
from tests.integration.status.conftest import GOOD, NOW, offer_catalogue, post

SECRET = "token-that-nobody-sees"


async def test_connection_shows_the_sign_in_and_never_a_token(pages: Any):
    now = pages.clock.now()
    times = {"expires_at": now + timedelta(minutes=50), "signed_in_at": now - timedelta(days=3)}
    names = {"generation": 7, "access_token": SECRET, "refresh_token": f"{SECRET}-2"}
    token = StoredToken(**names, **times, obtained_at=now - timedelta(minutes=10))
    await pages.write(lambda uow: uow.oauth_tokens.add(token))
    text = await pages.read("/connection")
    ages = ("in 50 min", "10 min ago", f'<time datetime="{times["signed_in_at"].isoformat()}">', "<dd>7</dd>")
    assert [each for each in ("http://127.0.0.1/", "offline_access", *ages) if each not in text] == []
    assert [each for each in (SECRET, "Refresh the sign-in") if each in text] == []


async def test_admin_tests_refreshes_and_forgets_the_sign_in(pages: Any):
    client, desk = await pages.signed_in_client(Role.ADMIN), pages.context.connection
    assert "The service has answered with our sign-in" in (await post(client, "/connection/test")).text
    answer = await post(client, "/connection/refresh")
    assert answer.headers["location"] == "/connection?flash=sign-in-refreshed"
    assert (await post(client, "/connection/forget", note="a new account")).status_code == 409
    desk.forget.assert_not_awaited()
    assert (await post(client, "/connection/forget", note="a new account", confirmed="yes")).status_code == 303
    for done, action in ((desk.refresh, AuditAction.SIGN_IN_REFRESHED), (desk.forget, AuditAction.SIGN_IN_FORGOTTEN)):
        done.assert_awaited_once_with()
        assert [each.actor for each in await pages.records(action)] == ["admin"]
    desk.check.side_effect = LisUnavailable("connection refused")
    assert "connection refused" in (await post(client, "/connection/test")).text


async def test_adapters_are_shown_and_tested(seeded: Any):
    check = AsyncMock(side_effect=LisUnavailable("its folder is gone"))
    seeded.context = replace(seeded.context, check_adapter=check)
    client = await seeded.signed_in_client(Role.OPERATOR)
    text = (await client.get("/adapters")).text
    for shown in ("folder", "not loaded", "no installed package offers an adapter mllp", "none yet", "2 h ago"):
        assert shown in text
    assert "its folder is gone" in (await post(client, "/adapters/folder/test")).text
    check.assert_awaited_once_with("folder")
    assert (await post(client, "/adapters/hl7/test")).status_code == 404


async def test_admin_pauses_and_resumes_a_system(seeded: Any):
    """What waits for it waits; an operator sees the pause, and cannot end it."""

    async def claimed() -> int:
        taken = {"owner": "w", "now": NOW, "lease": timedelta(minutes=1)}
        return len(await seeded.write(lambda uow: uow.jobs.claim({frozenset({JobKind.SUBMIT_ORDER}): 9}, **taken)))

    await seeded.write(lambda uow: uow.jobs.add(jobs.submit_order(GOOD, "folder", NOW)))
    client = await seeded.signed_in_client(Role.ADMIN)
    assert "Pause folder" in (await client.get("/adapters")).text
    for name, note, status in (
        ("folder", " ", 422),
        ("none", "why", 404),
        ("folder", "a new server", 303),
        ("folder", "again", 409),
    ):
        assert (await post(client, f"/adapters/{name}/pause", note=note)).status_code == status
    text, overview, order = [(await client.get(path)).text for path in ("/adapters", "/", f"/orders/{GOOD}")]
    assert [each for each in ("Paused by admin", "Resume folder", "/adapters/folder/resume") if each not in text] == []
    told = ("The laboratory system folder is paused", 'id="lis.paused/folder"')
    assert [each for each in told if each not in overview] == []
    assert order.count("Waits: the laboratory system folder is paused, by admin since") == 2  # of the order, and of its job
    assert "a new server" not in text + overview + order
    text = await seeded.read("/adapters", Role.OPERATOR)
    assert ("Paused by admin" in text, "/adapters/folder/resume" in text) == (True, False)
    assert await claimed() == 0
    for note, status in (("it runs", 303), ("again", 409)):
        assert (await post(client, "/adapters/folder/resume", note=note)).status_code == status
    assert "is paused" not in (await client.get(f"/orders/{GOOD}")).text
    assert await claimed() == 1
    for action in (AuditAction.ADAPTER_PAUSED, AuditAction.ADAPTER_RESUMED):
        assert [each.actor for each in await seeded.records(action)] == ["admin"]


async def test_rules_show_severity_hits_and_a_trial(seeded: Any):
    seeded.context = replace(seeded.context, rule_severities={"order.requisition": "warn"})
    client = await seeded.signed_in_client(Role.VIEWER)
    text = (await client.get("/rules")).text
    assert [each for each in ('id="order.requisition"', "set here; its own is", "Rejected in 7 days") if each not in text] == []
    assert "Of the newest 3 orders" in (await client.get("/rules/order.contract")).text
    assert (await client.get("/rules/no.such")).status_code == 404


@pytest.fixture
async def offered(pages: Any) -> Any:
    """The sample catalogue, and a pool that runs low."""
    store, now = pages.context.store, pages.clock.now()
    await activate(store, read_tables(CATALOGUE), origin="first.xlsx", by="ana", now=now - timedelta(days=2))
    offer_catalogue(pages, await load_active_catalogue(store))
    return pages


async def test_catalogue_is_listed_searched_and_shown(offered: Any):
    client = await offered.signed_in_client(Role.OPERATOR)
    text = (await client.get("/catalogue")).text
    for shown in ("first.xlsx", "by ana", "001.001", "1000 of 1000", "low", "no rate in the last week"):
        assert shown in text
    assert "001.001" not in (await client.get("/catalogue", params={"search": "no test has this"})).text
    assert "/turnaround?item=001.001" in (await client.get("/catalogue/tests/001.001")).text
    assert 'value="001.001"' in (await client.get("/turnaround?item=001.001")).text
    assert (await client.get("/catalogue/tests/999.999")).status_code == 404


async def test_all_of_a_test_is_shown(offered: Any):
    client = await offered.signed_in_client(Role.VIEWER)
    for code, shown in (
        ("003.020", ("Cortisol", "holds 5.0 ml, of which 0.5 ml cannot be used", "one of them", "no: needs one of its own")),
        ("006.001", ("0 min: Venepuncture before the load", "120 min", "recommended")),
        ("190.110", ("not with", 'href="/catalogue/tests/060.001"')),
        ("042.036", ("0000-0000", "Cytology vial 20", "Cervical canal")),
        ("190.1558", ("00000-XXXXX-00000000", "without a limit")),
        ("002.015", ("all of them needed", "Height in centimetres", "Urine, 24 hours", "required")),
    ):
        text = (await client.get(f"/catalogue/tests/{code}")).text
        assert [each for each in (*shown, "can be ordered as usual") if each not in text] == [], code
        assert "/turnaround?item=" not in text, "a viewer can neither stop nor delay it"


async def test_stop_and_delay_are_shown_with_the_test(offered: Any):
    store, now = offered.context.store, offered.clock.now()
    for start, hours, caption in ((0, None, "No reagent"), (48, Decimal(5), "Then slowly")):
        begin = now + timedelta(hours=start)
        announced = Announcement(item="001.001", start=begin, end=begin + timedelta(days=1), delay_hours=hours, caption=caption)
        await announce(store, announced, by="ana", now=now)
    client = await offered.signed_in_client(Role.VIEWER)
    text = (await client.get("/catalogue/tests/001.001")).text
    current, other = text.index("No reagent"), text.index("Then slowly")
    assert "stopped" in text[:current]
    assert "Also announced" in text[current:other]
    assert "can be ordered as usual" not in text


async def test_changes_between_versions_are_shown(offered: Any):
    tables = read_tables(CATALOGUE)
    name = next(name for name in tables if tables[name].rows and "caption" in tables[name].rows[0].cells)
    sheet = tables[name]
    first = replace(sheet.rows[0], cells={**sheet.rows[0].cells, "caption": "A name that is new"})
    tables[name] = replace(sheet, rows=(first, *sheet.rows[1:]))
    await activate(offered.context.store, tables, origin="second.xlsx", by=None, now=offered.clock.now())
    client = await offered.signed_in_client(Role.VIEWER)
    newest = (await offered.context.queries.catalogue_versions())[0]
    text = (await client.get(f"/catalogue/diff?version={newest.number}")).text
    assert "A name that is new" in text
    assert "1 row changed" in text
    assert (await client.get("/catalogue/diff?version=1")).status_code == 404
    (first,) = (each for each in await offered.context.queries.catalogue_versions(limit=9) if each.number != newest.number)
    assert '<select name="before">' in (await client.get("/catalogue")).text
    back = (await client.get(f"/catalogue/diff?version={first.number}&before={newest.number}")).text
    assert f'<option value="{newest.number}" selected>' in back, "any two can be compared"
    assert (await client.get(f"/catalogue/diff?version={newest.number}&before=77")).status_code == 404
