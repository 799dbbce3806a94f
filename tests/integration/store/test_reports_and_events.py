"""Reports, uploads, the vault, alerts and notes, the sign-in, users."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from lab_agent.conditions.ids import ConditionId
from lab_agent.conditions.model import AlertKey
from lab_agent.domain.records import Alert, Event
from lab_agent.domain.report_records import UploadRecord
from lab_agent.domain.state_machines import ReportState
from lab_agent.errors import AlreadyExistsError, CryptoError, LeaseLostError, StoreError
from lab_agent.ports.credential_repositories import Role, StoredToken, UserRecord

LEASE = timedelta(seconds=30)


async def test_report_round_trips(transact, factory):
    bodies = {"body": b'{"v":1.20}', "outgoing_body": b'{"v":1.20,"w":3.0}'}
    report = factory.report(report_id="7", version=2, issued=factory.now, order="R1", lines=("L1", "L2"), **bodies)
    assert await transact.reports.add(report) is True
    kept = await transact.reports.get_for_update(report.key)
    assert kept == replace(report, sequence=kept.sequence)
    assert kept.sequence > 0


async def test_message_is_stored_once(transact, factory):
    report = factory.report(message="file-1")
    await transact.reports.add(report)
    assert await transact.reports.add(replace(report, body=b"other")) is False
    assert (await transact.reports.get_for_update(report.key)).body == b"{}"
    assert await transact.reports.find("folder", "file-1") is not None
    assert await transact.reports.find("other", "file-1") is None


async def test_versions_are_ordered_by_arrival(transact, factory):
    bodies = [b"A", b"B", b"A"]
    for body in bodies:
        report = factory.report(order="R1", report_id="7", body=body)
        await transact.reports.add(report)
    await transact.reports.add(factory.report(order="R2", report_id="7"))
    moved = factory.report(order="R1", report_id="7", source="micro", matched_adapter="folder", body=b"by hand")
    await transact.reports.add(moved)
    versions = await transact.reports.versions("R1", "folder", "7")
    assert [version.body for version in versions] == bodies
    assert [each.key for each in await transact.reports.versions("R1", "micro", "7")] == [moved.key]
    assert [version.sequence for version in versions] == sorted({version.sequence for version in versions})


async def test_waiting_lists_reports_needing_operator(transact, factory):
    states = (ReportState.HELD, ReportState.MATCHED, ReportState.UNMATCHED, ReportState.UNMAPPED, ReportState.DISMISSED)
    reports = [factory.report(state=state) for state in states]
    for report in reports:
        await transact.reports.add(report)
    waiting = await transact.reports.needing_operator()
    assert [report.state for report in waiting] == [ReportState.HELD, ReportState.UNMATCHED, ReportState.UNMAPPED]


async def test_delivered_are_listed_by_order_and_time(transact, factory):
    later = factory.now + timedelta(hours=1)
    listed = [("R1", ReportState.DELIVERED, factory.now), ("R1", ReportState.SUPERSEDED, factory.now)]
    listed += [("R2", ReportState.DELIVERED, later), (None, ReportState.DELIVERED, later)]
    keys = []
    for order, state, at in listed:
        report = replace(factory.report(order=order, state=state), changed_at=at)
        keys.append(report.key)
        await transact.reports.add(report)
    (first,) = await transact.reports.delivered_of("R1")
    assert first.key == keys[0]

    async def between(since, until, after=0, limit=9):
        found = await transact.reports.delivered_between(since, until, after=after, limit=limit)
        return [each.key for each in found]

    assert await between(factory.now, later) == [keys[0], keys[2]]
    assert await between(factory.now, later, limit=1) == [keys[0]]
    assert await between(factory.now, later, after=first.sequence) == [keys[2]]
    assert await between(later, later) == [keys[2]]


async def test_saved_report_keeps_its_sequence(transact, factory):
    report = factory.report()
    await transact.reports.add(report)
    kept = await transact.reports.get_for_update(report.key)
    matched = replace(report.transition_to(ReportState.MATCHED, factory.now), order="R1", lines=("L1",))
    await transact.reports.save(matched)
    assert await transact.reports.get_for_update(report.key) == replace(matched, sequence=kept.sequence)
    with pytest.raises(StoreError):
        await transact.reports.get_for_update("P-none")
    with pytest.raises(StoreError):
        await transact.reports.save(factory.report())


async def test_uploads_are_replaced(transact):
    first = UploadRecord(
        identifier="i", resource_type="Observation", resource_id="1", version="1", digest="d", order="R1", report="P1"
    )
    await transact.uploads.save(first)
    second = replace(first, version="2", digest="e")
    await transact.uploads.save(second)
    assert await transact(lambda uow: (uow.uploads.get("i"), uow.uploads.get("j"))) == (second, None)


async def test_vault_round_trips(transact, factory):
    await transact.vault.save_identity("R1", "Иванова".encode(), at=factory.now)
    await transact.vault.save_identity("R1", b"second", at=factory.now)
    assert await transact(lambda uow: (uow.vault.identity("R1"), uow.vault.identity("R2"))) == (b"second", None)
    content = bytes(range(256)) * 50
    first = await transact.vault.save_document(content, "application/pdf", at=factory.now)
    assert await transact.vault.save_document(content, "application/pdf", at=factory.now) == first
    assert await transact.vault.document(first) == (content, "application/pdf")
    assert await transact.vault.document("none") is None
    sealed = await transact.vault.seal(b"PID|1||X")
    assert b"PID" not in sealed
    assert await transact.vault.unseal(sealed) == b"PID|1||X"
    with pytest.raises(CryptoError):
        await transact.vault.unseal(b"altered" + sealed)


async def test_alert_is_opened_once(transact, factory):
    silent, low = AlertKey(ConditionId.AGENT_POLL_OVERDUE), AlertKey(ConditionId.DISK_LOW)
    alert = Alert(condition=ConditionId.AGENT_POLL_OVERDUE, since=factory.now, opened_at=factory.now)
    opened = [await transact.alerts.open(alert) for _ in range(2)]
    closed = [await transact.alerts.close(silent, now=factory.now) for _ in range(2)]
    assert (opened, closed) == ([True, False], [True, False])
    assert await transact.alerts.open(alert) is True
    assert await transact.alerts.open_among([silent, low]) == {silent}
    await transact.alerts.close(silent, now=factory.now)
    assert await transact.alerts.open_among([silent]) == frozenset()


async def test_rejections_are_counted_once_per_order(transact, factory):
    def work(uow):
        for rule, order, minutes in (("r", "R1", 0), ("r", "R1", 1), ("r", "R2", 1), ("r", "R3", 9), ("s", "R4", 0)):
            uow.rejections.add(rule, order, at=factory.now - timedelta(minutes=minutes))

    await transact(work)
    assert await transact.rejections.count_since("r", factory.now - timedelta(minutes=5)) == 2
    assert await transact.rejections.count_since("none", factory.now - timedelta(minutes=5)) == 0


async def test_state_values_and_events_are_stored(transact, factory):
    await transact.events.add(Event(order="R1", at=factory.now, action="seen", text="came", by="worker"))
    await transact.key_values.set("k", "1")
    await transact.key_values.set("k", "2")
    assert await transact(lambda uow: (uow.key_values.get("k"), uow.key_values.get("none"))) == ("2", None)


def _token(generation, now):
    times = {"expires_at": now, "signed_in_at": now - LEASE, "obtained_at": now}
    return StoredToken(generation=generation, access_token=f"access-{generation}", refresh_token="r", **times)


async def test_older_token_generation_is_not_stored(transact, factory):
    assert await transact.oauth_tokens.current() is None
    for generation in (1, 2, 3):
        await transact.oauth_tokens.add(_token(generation, factory.now))
    assert await transact.oauth_tokens.current() == _token(3, factory.now)
    for generation in (2, 3):
        with pytest.raises(LeaseLostError):
            await transact.oauth_tokens.add(_token(generation, factory.now))
    bare = StoredToken(generation=9, access_token="a", refresh_token=None, expires_at=None)
    await transact.oauth_tokens.add(bare)
    assert await transact.oauth_tokens.current() == bare


async def test_refresh_lease_has_one_holder(transact, factory):
    async def take(owner, now):
        return await transact.oauth_tokens.acquire_refresh_lease(owner, now=now, lease=LEASE)

    assert await take("one", factory.now) is True
    assert await take("two", factory.now) is False
    assert await take("one", factory.now) is True
    assert await take("two", factory.now + LEASE) is True
    await transact.oauth_tokens.release_refresh_lease("one")
    assert await take("one", factory.now + LEASE) is False
    await transact.oauth_tokens.release_refresh_lease("two")
    assert await take("one", factory.now + LEASE) is True


async def test_users_round_trip(transact, factory):
    user = UserRecord(name="b", role=Role.VIEWER, password_hash="h", created_at=factory.now, changed_at=factory.now)
    await transact.users.add(user)
    await transact.users.add(replace(user, name="a"))
    with pytest.raises(AlreadyExistsError):
        await transact.users.add(user)
    await transact.users.save(replace(user, role=Role.ADMIN))
    assert [(each.name, each.role) for each in await transact.users.all()] == [
        ("a", Role.VIEWER),
        ("b", Role.ADMIN),
    ]
    assert await transact(lambda uow: (uow.users.remove("b"), uow.users.remove("b"), uow.users.get("b"))) == (True, False, None)
    with pytest.raises(StoreError):
        await transact.users.save(user)


async def test_many_uploads_are_found_in_parts(transact, factory):
    """No statement has more parameters than PostgreSQL takes, 65,535."""
    for identifier in ("1", "69999"):
        await transact.uploads.save(factory.upload(identifier))
    found = await transact.uploads.find([str(number) for number in range(70_000)])
    assert sorted(found) == ["1", "69999"]


async def test_event_is_added_once_since_then(transact, factory):
    event = Event(order="R1", at=factory.now, action="held", text="no contract")
    others = [replace(event, text="x"), replace(event, action="waiting"), replace(event, order="R2")]
    later = replace(event, at=factory.now + timedelta(hours=1))

    def add(uow):
        added = [uow.events.add_once(each, since=factory.now) for each in (event, *others, later)]
        return [*added, uow.events.add_once(later, since=later.at), uow.events.add_once(later, since=later.at)]

    assert await transact(add) == [True, True, True, True, False, True, False]
