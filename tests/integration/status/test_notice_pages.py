"""Tests that are stopped or delayed: announced, seen and lifted on the page as by `lab-agent eta`."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from lab_agent.accounts import Role
from lab_agent.catalogue.spreadsheet.csv_files import read_tables
from lab_agent.catalogue_service.notices import Announcement, announce, load_notices
from lab_agent.catalogue_service.versions import activate
from lab_agent.domain.catalogue_records import CATALOGUE_CHANGE_STAMP
from tests.harness.paths import CATALOGUE
from tests.integration.status.conftest import HOSTILE, form_token

STOP = {"item": "001.001", "kind": "stop", "until": "3d"}


@pytest.fixture
async def offered(pages: Any) -> Any:
    """The page over a store with an active catalogue."""
    await activate(pages.context.store, read_tables(CATALOGUE), origin="x", by=None, now=pages.clock.now())
    return pages


async def client_and_token(offered: Any, role: Role = Role.OPERATOR) -> tuple[Any, str]:
    client = await offered.signed_in_client(role)
    return client, form_token((await client.get("/turnaround")).text)


async def notices(offered: Any) -> list[Any]:
    return list(await load_notices(offered.context.store, offered.clock.now()))


async def test_stop_notice_applies_at_once_and_is_announced(offered: Any):
    client, token = await client_and_token(offered)
    before = await offered.context.store.run(lambda uow: uow.key_values.get(CATALOGUE_CHANGE_STAMP))
    answer = await client.post("/turnaround", data={**STOP, "csrf_token": token, "caption": HOSTILE})
    assert (answer.status_code, answer.headers["location"]) == (303, "/turnaround?flash=stopped")
    assert await offered.context.store.run(lambda uow: uow.key_values.get(CATALOGUE_CHANGE_STAMP)) != before
    (notice,) = await notices(offered)
    now = offered.clock.now()
    assert (notice.item, notice.contract, notice.delay_hours, notice.caption) == ("001.001", None, None, HOSTILE)
    assert (notice.by, notice.made_at, notice.start, notice.end) == ("operator", now, now, now + timedelta(days=3))
    text = (await client.get(answer.headers["location"])).text
    for shown in ("The test is stopped; partners see it", "001.001", "every contract", "for another 3 d", "by operator"):
        assert shown in text
    assert ("&lt;script&gt;" in text, "<script>alert" in text) == (True, False)
    assert "/turnaround/lift" not in await offered.read("/turnaround"), "a viewer has no actions"
    answer = await client.post(
        "/turnaround", data={**STOP, "kind": "delay", "hours": "5", "contract": "C-100", "csrf_token": token}
    )
    assert answer.headers["location"] == "/turnaround?flash=announced-overridden"
    assert "a more severe notice applies" in (await client.get(answer.headers["location"])).text


async def test_delay_for_one_contract_and_future_period(offered: Any):
    client, token = await client_and_token(offered)
    form = {"item": "002.001", "kind": "delay", "hours": "1,50", "contract": "C-100", "from": "5h", "until": "2d"}
    answer = await client.post("/turnaround", data={**form, "csrf_token": token})
    assert answer.headers["location"] == "/turnaround?flash=delayed"
    (notice,) = await notices(offered)
    assert (notice.contract, str(notice.delay_hours), notice.start) == ("C-100", "1.50", offered.clock.now() + timedelta(hours=5))
    text = (await client.get("/turnaround")).text
    assert [each for each in ("delayed by 1.50 h", "contract C-100", "upcoming", "begins in 5 h") if each not in text] == []


WRONG = (
    ({"item": ""}, "enter the code of the test"),
    ({"item": "001.002", "contract": "C-200"}, "is not offered in contract C-200"),
    ({"contract": "C-10"}, "did you mean 'C-100'?"),
    ({"until": "soon"}, "write it as 2026-11-20T08:00+03:00, 2026-11-20, 12h or 3d"),
    ({"until": "2020-01-01"}, "name a later time"),
    ({"kind": "delay", "hours": "0"}, "name the hours of the delay"),
    ({"kind": "broken"}, "choose one of the two"),
    ({"caption": "x" * 501}, "use at most 500 characters"),
)


async def test_form_errors_keep_the_other_fields(offered: Any):
    """What is wrong is said at its field, all of it together, and the form keeps the rest."""
    client, token = await client_and_token(offered)
    for wrong, words in WRONG:
        answer = await client.post("/turnaround", data={**STOP, "caption": "A <b>", **wrong, "csrf_token": token})
        text = answer.text.replace("&#39;", "'")
        kept = [f'value="{wrong.get("item", "001.001")}"', *(['value="A &lt;b&gt;"'] if "caption" not in wrong else [])]
        told = [each for each in (words, "Nothing was announced", *kept) if each not in text]
        assert (wrong, answer.status_code, told) == (wrong, 422, [])
        assert "data-auto-refresh" not in text, "a page that keeps itself fresh would empty the form"
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
    assert "by anna" in (await client.get("/turnaround")).text
    for contract, status, told in (
        ("C-100", 303, "is still stopped or delayed"),
        ("C-100", 409, "somebody may have lifted it just now"),
        ("", 303, "Nothing is stopped or delayed."),
    ):
        answer = await client.post("/turnaround/lift", data={"csrf_token": token, "item": "001.001", "contract": contract})
        shown = await client.get(answer.headers["location"]) if answer.is_redirect else answer
        assert (answer.status_code, told in shown.text) == (status, True), told


async def test_spreadsheet_notice_is_listed_and_survives_lift(pages: Any, tmp_path: Path):
    """As one that is upcoming does, and one that nobody can read."""
    folder = Path(shutil.copytree(CATALOGUE, tmp_path / "catalogue"))
    sheet = (folder / "notices.csv").read_text()
    client, token = await client_and_token(pages)
    form = {"csrf_token": token, "item": "001.001", "contract": ""}
    for start, word in (("2026-01-01", "lifted-still-limited"), ("2026-04-01", "lifted-later"), (None, "lifted-unknown")):
        line = f"001.001,C-100,delayed,{start or '2026-01-01'}T00:00+03:00,2026-05-01T00:00+03:00,24,\n"
        (folder / "notices.csv").write_text(sheet + line)
        await activate(pages.context.store, read_tables(folder), origin="x", by=None, now=pages.clock.now())
        told = ["delayed by 24 h", "from the catalogue’s sheet <i>notices</i>"]
        if start is None:
            with closing(sqlite3.connect(tmp_path / "lab.db")) as db, db:
                db.execute("UPDATE catalogues SET content = x'00'")
            told = ["what its sheet notices says is not known", "Nothing is stopped or delayed as far as is known."]
        text = (await client.get("/turnaround")).text
        assert ([each for each in told if each not in text], "/turnaround/lift" in text) == ([], False)
        await client.post("/turnaround", data={**STOP, "csrf_token": token})
        assert (await client.get("/turnaround")).text.count("/turnaround/lift") == 1
        assert (await client.post("/turnaround/lift", data=form)).headers["location"] == f"/turnaround?flash={word}"
        assert (await client.post("/turnaround/lift", data=form)).status_code == 409


async def test_malformed_fields_never_break_the_page(offered: Any):
    client, token = await client_and_token(offered)
    for odd in ("", "\x00", "\uffff", "👩‍🔬" * 50, "%s{0}", "9" * 4000, "9999-12-31T23:59-14:00", "0001-01-01"):
        for name in ("item", "contract", "kind", "hours", "from", "until", "caption"):
            form = {**STOP, "kind": "delay", "hours": "2", name: odd, "csrf_token": token}
            assert (await client.post("/turnaround", data=form)).status_code in {303, 413, 422}, (name, odd)
        assert (await client.get("/turnaround")).status_code == 200, odd
        lifted = await client.post("/turnaround/lift", data={"item": odd, "contract": odd, "csrf_token": token})
        assert lifted.status_code == 409, odd
