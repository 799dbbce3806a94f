"""Reports, uploads, the vault, alerts and notes, the sign-in, users."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from lab_agent.domain.journal import Alert, Event, StoredToken, UploadRecord
from lab_agent.domain.lifecycle import ReportState
from lab_agent.errors import AlreadyKnownError, LeaseLostError, StoreError
from lab_agent.ports.store import Role, UserRecord

LEASE = timedelta(seconds=30)


async def test_a_report_comes_back_as_it_went_in(do, make):
    report = make.report(report_id="7", version=2, issued=make.now, order="R1", lines=("L1", "L2"), body=b'{"v":1.20}')
    assert await do(lambda uow: uow.reports.add(report)) is True
    kept = await do(lambda uow: uow.reports.take(report.key))
    assert kept == replace(report, sequence=kept.sequence)
    assert kept.sequence > 0


async def test_a_message_is_kept_once(do, make):
    report = make.report(message="file-1")
    await do(lambda uow: uow.reports.add(report))
    assert await do(lambda uow: uow.reports.add(replace(report, body=b"other"))) is False
    assert (await do(lambda uow: uow.reports.take(report.key))).body == b"{}"
    assert await do(lambda uow: uow.reports.known("folder", "file-1"))
    assert not await do(lambda uow: uow.reports.known("other", "file-1"))


async def test_versions_by_their_arrival_not_by_their_content(do, make):
    bodies = [b"A", b"B", b"A"]
    for body in bodies:
        report = make.report(order="R1", report_id="7", body=body)
        await do(lambda uow, report=report: uow.reports.add(report))
    await do(lambda uow: uow.reports.add(make.report(order="R2", report_id="7")))
    versions = await do(lambda uow: uow.reports.versions("R1", "7"))
    assert [version.body for version in versions] == bodies
    assert [version.sequence for version in versions] == sorted({version.sequence for version in versions})


async def test_waiting_reports(do, make):
    states = (ReportState.HELD, ReportState.MATCHED, ReportState.UNMATCHED, ReportState.UNMAPPED, ReportState.DISMISSED)
    reports = [make.report(state=state) for state in states]
    for report in reports:
        await do(lambda uow, report=report: uow.reports.add(report))
    waiting = await do(lambda uow: uow.reports.waiting())
    assert [report.state for report in waiting] == [ReportState.HELD, ReportState.UNMATCHED, ReportState.UNMAPPED]


async def test_a_saved_report_keeps_its_sequence(do, make):
    report = make.report()
    await do(lambda uow: uow.reports.add(report))
    kept = await do(lambda uow: uow.reports.take(report.key))
    matched = replace(report.become(ReportState.MATCHED, make.now), order="R1", lines=("L1",))
    await do(lambda uow: uow.reports.save(matched))
    assert await do(lambda uow: uow.reports.take(report.key)) == replace(matched, sequence=kept.sequence)
    with pytest.raises(StoreError):
        await do(lambda uow: uow.reports.take("P-none"))
    with pytest.raises(StoreError):
        await do(lambda uow: uow.reports.save(make.report()))


async def test_uploads_are_replaced(do):
    first = UploadRecord(
        identifier="i", resource_type="Observation", resource_id="1", version="1", digest="d", order="R1", report="P1"
    )
    await do(lambda uow: uow.uploads.put(first))
    second = replace(first, version="2", digest="e")
    await do(lambda uow: uow.uploads.put(second))
    assert await do(lambda uow: (uow.uploads.get("i"), uow.uploads.get("j"))) == (second, None)


async def test_the_vault(do, make):
    await do(lambda uow: uow.vault.put_identity("R1", "Иванова".encode(), at=make.now))
    await do(lambda uow: uow.vault.put_identity("R1", b"second", at=make.now))
    assert await do(lambda uow: (uow.vault.identity("R1"), uow.vault.identity("R2"))) == (b"second", None)
    content = bytes(range(256)) * 50
    first = await do(lambda uow: uow.vault.put_document(content, "application/pdf", at=make.now))
    assert await do(lambda uow: uow.vault.put_document(content, "application/pdf", at=make.now)) == first
    assert await do(lambda uow: uow.vault.document(first)) == (content, "application/pdf")
    assert await do(lambda uow: uow.vault.document("none")) is None


async def test_an_alert_is_open_once(do, make):
    alert = Alert(key="poll.silent", text="No poll", opened_at=make.now)
    opened = [await do(lambda uow: uow.book.open_alert(alert)) for _ in range(2)]
    closed = [await do(lambda uow: uow.book.close_alert("poll.silent", now=make.now)) for _ in range(2)]
    assert (opened, closed) == ([True, False], [True, False])
    assert await do(lambda uow: uow.book.open_alert(alert)) is True


async def test_refused_orders_are_counted_once_each(do, make):
    def work(uow):
        for rule, order, minutes in (("r", "R1", 0), ("r", "R1", 1), ("r", "R2", 1), ("r", "R3", 9), ("s", "R4", 0)):
            uow.book.add_refusal(rule, order, at=make.now - timedelta(minutes=minutes))

    await do(work)
    assert await do(lambda uow: uow.book.refusals_since("r", make.now - timedelta(minutes=5))) == 2
    assert await do(lambda uow: uow.book.refusals_since("none", make.now - timedelta(minutes=5))) == 0


async def test_notes_and_events(do, make):
    await do(lambda uow: uow.book.tell(Event(order="R1", at=make.now, action="seen", text="came", by="worker")))
    await do(lambda uow: uow.book.note("k", "1"))
    await do(lambda uow: uow.book.note("k", "2"))
    assert await do(lambda uow: (uow.book.noted("k"), uow.book.noted("none"))) == ("2", None)


def _token(generation, now):
    return StoredToken(generation=generation, access_token=f"access-{generation}", refresh_token="r", expires_at=now)


async def test_generations_of_the_sign_in(do, make):
    assert await do(lambda uow: uow.tokens.current()) is None
    for generation in (1, 2, 3):
        await do(lambda uow, generation=generation: uow.tokens.put(_token(generation, make.now)))
    assert await do(lambda uow: uow.tokens.current()) == _token(3, make.now)
    for generation in (2, 3):
        with pytest.raises(LeaseLostError):
            await do(lambda uow, generation=generation: uow.tokens.put(_token(generation, make.now)))
    bare = StoredToken(generation=9, access_token="a", refresh_token=None, expires_at=None)
    await do(lambda uow: uow.tokens.put(bare))
    assert await do(lambda uow: uow.tokens.current()) == bare


async def test_one_refresh_at_a_time(do, make):
    async def take(owner, now):
        return await do(lambda uow: uow.tokens.take_refresh_lease(owner, now=now, lease=LEASE))

    assert await take("one", make.now) is True
    assert await take("two", make.now) is False
    assert await take("one", make.now) is True
    assert await take("two", make.now + LEASE) is True
    await do(lambda uow: uow.tokens.drop_refresh_lease("one"))
    assert await take("one", make.now + LEASE) is False
    await do(lambda uow: uow.tokens.drop_refresh_lease("two"))
    assert await take("one", make.now + LEASE) is True


async def test_users(do, make):
    user = UserRecord(name="b", role=Role.VIEWER, password_hash="h", created_at=make.now, changed_at=make.now)
    await do(lambda uow: uow.users.add(user))
    await do(lambda uow: uow.users.add(replace(user, name="a")))
    with pytest.raises(AlreadyKnownError):
        await do(lambda uow: uow.users.add(user))
    await do(lambda uow: uow.users.save(replace(user, role=Role.ADMIN)))
    assert [(each.name, each.role) for each in await do(lambda uow: uow.users.all())] == [("a", Role.VIEWER), ("b", Role.ADMIN)]
    assert await do(lambda uow: (uow.users.remove("b"), uow.users.remove("b"), uow.users.get("b"))) == (True, False, None)
    with pytest.raises(StoreError):
        await do(lambda uow: uow.users.save(user))
