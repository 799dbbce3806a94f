"""The audit on the page: who may read it, what it shows and links, its notes, its export, and that an alteration shows."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from unittest.mock import AsyncMock

import pytest
from sqlalchemy import text

from lab_agent.operations.accounts import Role
from lab_agent.shared.errors import StoreFault, StoreUnreachableError
from lab_agent.status import audit_page
from lab_agent.status.audit_words import ACTION_WORDS, CHANNEL_WORDS, subject_page
from lab_agent.store.audit_records import AuditAction, AuditChannel, AuditEntry
from tests.harness import status_pages
from tests.integration.status.conftest import GOOD, HOSTILE, NOW, SECRETS, post

NOTE = "called Petrova"
FIRST = 4
"""The number of the first record that a test adds: each of the three users was added before."""


def entry(action: AuditAction = AuditAction.JOB_RETRIED, subject: str = GOOD, **fields: Any) -> AuditEntry:
    return AuditEntry(**{"at": NOW, "action": action, "subject": subject, "by": "anna", **fields})


async def add(pages: Any, *entries: AuditEntry) -> None:
    await pages.write(lambda uow: [uow.audit.add(each) for each in entries])


async def alter_records(pages: Any, statement: str, **values: Any) -> None:
    """Do what only somebody with the database can: the triggers that stop mistakes go first."""

    def alter(uow: Any) -> None:
        connection = uow.audit._session.connection()
        for (name,) in connection.execute(text("SELECT name FROM sqlite_master WHERE type = 'trigger'")).all():
            if "audit" in name:
                connection.execute(text(f"DROP TRIGGER {name}"))
        connection.execute(text(statement), values)

    await pages.write(alter)


def numbers(html: str) -> list[int]:
    return [int(part.split('"', maxsplit=1)[0]) for part in html.split('<tr id="record-')[1:]]


async def test_records_are_told_in_words_newest_first(pages: Any):
    assert (set(ACTION_WORDS), set(CHANNEL_WORDS)) == (set(AuditAction), set(AuditChannel))
    await add(pages, entry(details={"job": 7}), entry(AuditAction.RULE_RELEASED, "R1"))
    html = await pages.read("/audit", Role.ADMIN)
    assert numbers(html) == sorted(numbers(html), reverse=True)
    for told in ("retried a job", f'<a href="/orders/{GOOD}">{GOOD}</a>', "status page", '<span class="code">job</span> 7'):
        assert told in html
    assert 'href="/orders/R1"' not in html  # the name of a rule


async def test_address_is_the_filter(pages: Any):
    old = entry(subject="old", at=NOW - timedelta(days=10))
    await add(pages, old, entry(subject="mine"), entry(AuditAction.ORDER_RELEASED, "his", by="bert"))
    client = await pages.signed_in_client(Role.ADMIN)
    for query, expected in (
        ("actor=anna&subject=mine", ["mine"]),
        ("action=order_released", ["his"]),
        ("action=nonsense&actor=anna&from=2026-02-01&until=2026-02-25", ["old"]),
        ("from=2030-01-01", []),
    ):
        html = (await client.get(f"/audit?{query}")).text
        found = [name for name in ("old", "mine", "his") if f"<span>{name}</span>" in html]
        assert (query, found, "No record fits this filter." in html) == (query, expected, expected == [])
    await add(pages, *(entry() for _ in range(60)))
    first = numbers((await client.get("/audit?before=nonsense")).text)
    older = numbers((await client.get(f"/audit?before={first[-1]}")).text)
    assert (len(first), older) == (50, list(range(first[-1] - 1, 0, -1)))
    for day in ("yesterday", "0001-01-01", "9999-12-31", HOSTILE):
        for query in ("from", "until"):
            answer = await client.get("/audit", params={query: day})
            assert (answer.status_code, 'role="alert"' in answer.text, "<script>alert" in answer.text) == (200, True, False)


async def test_note_is_on_its_own_page_and_the_look_recorded(pages: Any):
    await add(pages, entry(note=NOTE), entry())
    client = await pages.signed_in_client(Role.ADMIN)
    assert "Petrova" not in (await client.get("/audit")).text
    assert "Petrova" not in (await client.get(f"/audit/{FIRST + 1}")).text
    assert await pages.records(AuditAction.AUDIT_NOTES_SHOWN) == []
    html = (await client.get(f"/audit/{FIRST}")).text
    assert NOTE in html
    assert "No patient names are shown on this page." not in html
    for number in ("0", "99", "nonsense", "9" * 30, "-1"):
        assert (await client.get(f"/audit/{number}")).status_code == 404, number
    (look,) = await pages.records(AuditAction.AUDIT_NOTES_SHOWN)
    assert (look.actor, look.subject, look.channel) == ("admin", str(FIRST), "page")


async def test_erasure_alteration_and_missing_end_show(pages: Any):
    await add(pages, *(entry(note=NOTE) for _ in range(3)), entry(), entry(subject="mine"), entry())
    await alter_records(pages, f"DELETE FROM audit_notes WHERE number = {FIRST}")
    for number, content in ((FIRST + 1, pages.context.cipher.encrypt(b"something else")), (FIRST + 2, b"x")):
        await alter_records(pages, f"UPDATE audit_notes SET ciphertext = :content WHERE number = {number}", content=content)
    await alter_records(pages, f"UPDATE audit_records SET actor = 'bert' WHERE number = {FIRST + 4}")
    client = await pages.signed_in_client(Role.ADMIN)
    for number, told in enumerate(
        (
            *("The note was erased.", "altered after it was written", "it cannot be read"),
            *("This record is whole.", "does not fit the one before it", "This record is whole."),
        )
    ):
        assert told in (await client.get(f"/audit/{FIRST + number}")).text
    assert "1 record on this page does not fit" in (await client.get("/audit")).text
    await alter_records(pages, "DELETE FROM audit_records WHERE number = (SELECT max(number) FROM audit_records)")
    assert "The audit does not end where it should." in (await client.get("/audit")).text


async def test_export_is_recorded_bounded_and_safe_in_spreadsheets(pages: Any, monkeypatch: pytest.MonkeyPatch):
    await add(pages, entry(subject="=1+1", note=NOTE))
    client = await pages.signed_in_client(Role.ADMIN)
    answer = await client.get("/audit.csv?action=job_retried")
    heading, line = answer.text.removeprefix("\ufeff").splitlines()
    assert (heading.startswith("number,at,action"), ",'=1+1," in line) == (True, True)
    assert [secret for secret in SECRETS if secret in answer.text] == []
    exported = await pages.records(AuditAction.AUDIT_EXPORTED)
    assert [(each.actor, each.details) for each in exported] == [("admin", '{"records":1}')]
    monkeypatch.setattr(audit_page, "MAX_EXPORTED", 5)
    monkeypatch.setattr(audit_page, "_EXPORT_PORTION", 2)
    await add(pages, *(entry() for _ in range(9)))
    numbers = [int(line.split(",")[0]) for line in (await client.get("/audit.csv")).text.splitlines()[1:]]
    assert numbers == list(range(numbers[0], numbers[0] - 5, -1))


def test_subjects_are_links_where_they_have_pages():
    for action, subject, page in (
        ("document_shown", "P00000000000001/2", "/results/P00000000000001"),
        ("refused_dismissed", "M00000000000001", "/refused/M00000000000001"),
        ("notice_announced", "P1", None),
        ("signed_in", "anna", None),
        ("order_released", "R/../users", None),
        ("order_released", "", None),
    ):
        assert subject_page(action, subject) == page, (action, subject)


async def test_sign_ins_are_recorded_with_address(pages: Any):
    client = await pages.signed_in_client(Role.OPERATOR)
    await client.post("/sign-in", data={"name": "operator", "password": "wrong"})
    await client.post("/sign-in", data={"name": "my password", "password": "wrong"})
    await post(client, "/sign-out")
    found = await pages.records(AuditAction.SIGNED_IN, AuditAction.SIGN_IN_REJECTED, AuditAction.SIGNED_OUT)
    assert [(each.action, each.channel, each.actor, each.subject, each.origin) for each in found] == [
        ("signed_in", "page", "operator", "operator", "127.0.0.1"),
        ("sign_in_rejected", "page", "", "operator", "127.0.0.1"),
        ("sign_in_rejected", "page", "", "", "127.0.0.1"),  # people type passwords into the field of the name
        ("signed_out", "page", "operator", "operator", ""),
    ]


async def test_result_is_shown_to_nobody_unrecorded(pages: Any, monkeypatch: pytest.MonkeyPatch):
    """But whoever signs in while nothing can be written gets in."""
    await status_pages.add_orders(pages)
    key = await status_pages.unmatched_result(pages)
    client = await pages.signed_in_client(Role.VIEWER)
    assert (await client.get(f"/results/{key}")).status_code == 200
    (look,) = await pages.records(AuditAction.RESULT_SHOWN)
    assert (look.actor, look.subject, look.channel) == ("viewer", key, "page")
    refuse = AsyncMock(side_effect=StoreUnreachableError("its disk is full", StoreFault.DISK_FULL))
    monkeypatch.setattr(pages.context.store, "transact", refuse)
    assert (await client.get(f"/results/{key}")).status_code == 503
    await pages.signed_in_client(Role.OPERATOR)
