"""The pages about operation: the connection, laboratory systems, rules, the catalogue, and tests that are stopped or delayed."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any
from unittest.mock import AsyncMock

import pytest

from lab_agent.catalogue.notices import Announcement, announce, load_notices
from lab_agent.catalogue.records import CATALOGUE_CHANGE_STAMP
from lab_agent.catalogue.spreadsheet.csv_files import read_tables
from lab_agent.catalogue.versions import activate, load_active_catalogue
from lab_agent.operations.accounts import Role
from lab_agent.queue import jobs
from lab_agent.queue.job_records import JobKind
from lab_agent.shared.errors import LisUnavailable
from lab_agent.store.audit_records import AuditAction
from lab_agent.store.credential_records import StoredToken
from tests.harness.paths import CATALOGUE
from tests.integration.status.conftest import GOOD, HOSTILE, NOW, form_token, offer_catalogue, post

SECRET = "token-that-nobody-sees"


async def test_connection_shows_the_sign_in_and_never_a_token(pages: Any):
    now = pages.clock.now()
    times = {"expires_at": now + timedelta(minutes=50), "signed_in_at": now - timedelta(days=3), "obtained_at": now}
    token = StoredToken(generation=7, access_token=SECRET, refresh_token=f"{SECRET}-2", **times)
    await pages.write(lambda uow: uow.oauth_tokens.add(token))
    text = await pages.read("/connection")
    shown = ("http://127.0.0.1/", "in 50 min", f'<time datetime="{times["signed_in_at"].isoformat()}">', "<dd>7</dd>")
    assert [each for each in shown if each not in text] == []
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
    for note, status in ((" ", 422), ("a new server", 303), ("again", 409)):
        assert (await post(client, "/adapters/folder/pause", note=note)).status_code == status
    shown = [(await client.get(path)).text for path in ("/adapters", "/", f"/orders/{GOOD}")]
    for text, told in zip(shown, ("Resume folder", 'id="lis.paused/folder"', "Waits: the laboratory system folder"), strict=True):
        assert (told in text, "a new server" in text) == (True, False)
    text = await seeded.read("/adapters", Role.OPERATOR)
    assert ("Paused by admin" in text, "/adapters/folder/resume" in text) == (True, False)
    assert await claimed() == 0
    for note, status in (("it runs", 303), ("again", 409)):
        assert (await post(client, "/adapters/folder/resume", note=note)).status_code == status
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


async def test_stop_is_shown_with_the_test(offered: Any):
    now = offered.clock.now()
    assert "can be ordered as usual" in await offered.read("/catalogue/tests/003.020")
    for start, caption in ((now, "No reagent"), (now + timedelta(days=2), "Then slowly")):
        announced = Announcement(item="003.020", start=start, end=start + timedelta(days=1), caption=caption)
        await announce(offered.context.store, announced, by="ana", now=now)
    text = await offered.read("/catalogue/tests/003.020")
    assert text.index("stopped") < text.index("No reagent") < text.index("Also announced") < text.index("Then slowly")
    # A viewer can neither stop nor delay it.
    for each in ("can be ordered as usual", "/turnaround?item="):
        assert each not in text
    assert "holds 5.0 ml, of which 0.5 ml cannot be used" in text


async def test_changes_between_versions_are_shown(offered: Any):
    """Any two can be compared."""
    tables = read_tables(CATALOGUE)
    name = next(name for name in tables if tables[name].rows and "caption" in tables[name].rows[0].cells)
    first, *others = tables[name].rows
    changed = replace(first, cells={**first.cells, "caption": "A name that is new"})
    tables[name] = replace(tables[name], rows=(changed, *others))
    await activate(offered.context.store, tables, origin="second.xlsx", by=None, now=offered.clock.now())
    newest, former = [each.number for each in await offered.context.queries.catalogue_versions(limit=9)]
    client = await offered.signed_in_client(Role.VIEWER)
    for query, shown in (
        (f"version={newest}", ("A name that is new", "1 row changed")),
        (f"version={former}&before={newest}", (f'<option value="{newest}" selected>',)),
    ):
        text = (await client.get(f"/catalogue/diff?{query}")).text
        assert [each for each in shown if each not in text] == []
    for query in (f"version={newest + 9}", f"version={newest}&before=77"):
        assert (await client.get(f"/catalogue/diff?{query}")).status_code == 404


STOP = {"item": "001.001", "kind": "stop", "until": "3d"}


async def client_and_token(offered: Any, role: Role = Role.OPERATOR) -> tuple[Any, str]:
    client = await offered.signed_in_client(role)
    return client, form_token((await client.get("/turnaround")).text)


async def notices(offered: Any) -> list[Any]:
    return list(await load_notices(offered.context.store, offered.clock.now()))


async def test_stop_notice_applies_at_once_and_is_announced(offered: Any):
    client, token = await client_and_token(offered)
    before = await offered.context.store.transact(lambda uow: uow.key_values.get(CATALOGUE_CHANGE_STAMP))
    answer = await client.post("/turnaround", data={**STOP, "csrf_token": token, "caption": HOSTILE})
    assert (answer.status_code, answer.headers["location"]) == (303, "/turnaround?flash=stopped")
    assert await offered.context.store.transact(lambda uow: uow.key_values.get(CATALOGUE_CHANGE_STAMP)) != before
    (notice,) = await notices(offered)
    now = offered.clock.now()
    assert (notice.item, notice.contract, notice.delay_hours, notice.caption) == ("001.001", None, None, HOSTILE)
    assert (notice.by, notice.made_at, notice.start, notice.end) == ("operator", now, now, now + timedelta(days=3))
    text = (await client.get(answer.headers["location"])).text
    for shown in ("The test is stopped; partners see it", "001.001", "every contract", "for another 3 d", "by operator"):
        assert shown in text
    assert ("&lt;script&gt;" in text, "<script>alert" in text) == (True, False)
    assert "/turnaround/lift" not in await offered.read("/turnaround"), "a viewer has no actions"
    delay = {**STOP, "kind": "delay", "hours": "1,50", "contract": "C-100", "csrf_token": token}
    for changes, flash in (({}, "announced-overridden"), ({"item": "002.001", "from": "5h", "until": "2d"}, "delayed")):
        answer = await client.post("/turnaround", data={**delay, **changes})
        assert answer.headers["location"] == f"/turnaround?flash={flash}"
    made = next(each for each in await notices(offered) if each.item == "002.001")
    assert (made.contract, str(made.delay_hours), made.start) == ("C-100", "1.50", now + timedelta(hours=5))
    text = (await client.get("/turnaround")).text
    assert [each for each in ("delayed by 1.50 h", "contract C-100", "begins in 5 h") if each not in text] == []


async def test_form_errors_keep_the_other_fields(offered: Any):
    """What is wrong is said at its field, all of it together, and the form keeps the rest."""
    client, token = await client_and_token(offered)
    for wrong in (
        *({"item": ""}, {"item": "001.002", "contract": "C-200"}, {"contract": "C-10"}, {"until": "2020-01-01"}),
        *({"kind": "delay", "hours": "0"}, {"kind": "broken"}, {"caption": "x" * 501}),
    ):
        answer = await client.post("/turnaround", data={**STOP, "caption": "A <b>", **wrong, "csrf_token": token})
        kept = [f'value="{wrong.get("item", "001.001")}"', *(['value="A &lt;b&gt;"'] if "caption" not in wrong else [])]
        lacking = [each for each in ("Nothing was announced", *kept) if each not in answer.text]
        marked = answer.text.count('aria-invalid="true"') or answer.text.count("choose one of the two")
        assert (wrong, answer.status_code, marked, lacking) == (wrong, 422, 1, [])
        assert "data-auto-refresh" not in answer.text, "a page that keeps itself fresh would empty the form"
    form = {"item": "", "kind": "delay", "hours": "x", "from": "y", "until": "z", "csrf_token": token}
    assert (await client.post("/turnaround", data=form)).text.count('aria-invalid="true"') == 4
    assert await notices(offered) == []


async def test_notice_is_lifted_once(seeded: Any):
    """Without a catalogue there is none to announce."""
    client, token = await client_and_token(seeded)
    answer = await client.post("/turnaround", data={**STOP, "csrf_token": token})
    assert (answer.status_code, "lab-agent catalogue import" in answer.text) == (422, True)
    now = seeded.clock.now()
    await activate(seeded.context.store, read_tables(CATALOGUE), origin="x", by=None, now=now)
    for contract, hours in ((None, None), ("C-100", Decimal(2))):
        said = Announcement(item="001.001", start=now, end=now + timedelta(days=1), contract=contract, delay_hours=hours)
        await announce(seeded.context.store, said, by="anna", now=now)
    for contract, status, flash in (("C-100", 303, "lifted-still-limited"), ("C-100", 409, None), ("", 303, "lifted")):
        answer = await client.post("/turnaround/lift", data={"csrf_token": token, "item": "001.001", "contract": contract})
        location = flash and f"/turnaround?flash={flash}"
        assert (answer.status_code, answer.headers.get("location")) == (status, location)
    assert "Nothing is stopped or delayed." in (await client.get("/turnaround")).text


async def test_malformed_fields_never_break_the_page(offered: Any):
    client, token = await client_and_token(offered)
    for odd in ("", "\x00", "\uffff", "👩‍🔬" * 50, "%s{0}", "9" * 4000, "9999-12-31T23:59-14:00", "0001-01-01"):
        for name in ("item", "contract", "kind", "hours", "from", "until", "caption"):
            form = {**STOP, "kind": "delay", "hours": "2", name: odd, "csrf_token": token}
            assert (await client.post("/turnaround", data=form)).status_code in {303, 413, 422}, (name, odd)
        assert (await client.get("/turnaround")).status_code == 200, odd
        lifted = await client.post("/turnaround/lift", data={"item": odd, "contract": odd, "csrf_token": token})
        assert lifted.status_code == 409, odd
