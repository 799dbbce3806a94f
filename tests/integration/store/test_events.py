"""What happens in an agent: units of work, events, alerts, notifications, leases, workers, and the sign-in at the service."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from lab_agent.queue.workers import WorkerRecord
from lab_agent.shared.conditions.model import AlertKey, ConditionId
from lab_agent.shared.errors import LeaseLostError
from lab_agent.store.credential_records import StoredToken
from lab_agent.store.event_records import Alert, Event
from lab_agent.store.notification_records import ChannelRecord, Notification
from lab_agent.store.queries import Queries
from tests.integration.store.conftest import LEASE, NOW

HOUR = timedelta(hours=1)


async def test_only_what_ends_well_is_kept(store, transact):
    def fails(uow):
        uow.key_values.set("1", "lost")
        raise ZeroDivisionError

    await store.rehearse(lambda uow: uow.key_values.set("2", "rehearsed"))
    await store.transact(lambda uow: uow.key_values.set("3", "kept"))
    with pytest.raises(ZeroDivisionError):
        await store.transact(fails)
    assert await transact(lambda uow: [uow.key_values.get(key) for key in "123"]) == [None, None, "kept"]


async def test_event_is_added_once_since_then(transact):
    event = Event(order="R1", at=NOW, action="held", text="no contract")
    others = [replace(event, text="x"), replace(event, action="waiting"), replace(event, order="R2")]
    later = replace(event, at=NOW + HOUR)

    def add(uow):
        added = [uow.events.add_once(each, since=NOW) for each in (event, *others, later)]
        return [*added, uow.events.add_once(later, since=later.at), uow.events.add_once(later, since=later.at)]

    assert await transact(add) == [True, True, True, True, False, True, False]


async def test_rejections_are_counted_once_per_order(transact):
    for rule, order, minutes in (("r", "R1", 0), ("r", "R1", 1), ("r", "R2", 1), ("r", "R3", 9), ("s", "R4", 0)):
        await transact.rejections.add(rule, order, at=NOW - timedelta(minutes=minutes))
    since = NOW - timedelta(minutes=5)
    assert [await transact.rejections.count_since(rule, since) for rule in ("r", "none")] == [2, 0]


async def test_alert_is_opened_once(transact):
    def alert(subject: str, minutes: int) -> Alert:
        at = NOW + timedelta(minutes=minutes)
        return Alert(condition=ConditionId.LIS_UNAVAILABLE, subject=subject, since=at, opened_at=at)

    low = AlertKey(ConditionId.DISK_LOW)
    b, a, c = alert("b", 2), alert("a", 1), alert("c", 3)
    assert [await transact.alerts.open(each) for each in (b, a, c, c)] == [True, True, True, False]
    assert await transact.alerts.all_open() == (a, b, c), "in the order of their opening"
    assert [await transact.alerts.close(c.key, now=NOW) for _ in range(2)] == [True, False]
    assert await transact.alerts.all_open() == (a, b)
    assert await transact.alerts.open_among([a.key, c.key, low]) == {a.key}
    assert await transact.alerts.open(c) is True
    assert await transact.alerts.open_among([c.key, low]) == {c.key}


async def test_open_alert_shows_latest_text_and_start(store, transact):
    first = Alert(condition=ConditionId.RESULTS_HELD, detail="one", since=NOW, opened_at=NOW - HOUR, count=1)
    other = replace(first, condition=ConditionId.DISK_LOW)
    await transact(lambda uow: uow.alerts.open(other) and uow.alerts.close(other.key, now=NOW))
    later = replace(first, detail="three", count=3, since=NOW - HOUR, opened_at=NOW)
    opened = [await transact.alerts.open(each) for each in (first, later, replace(later, since=NOW))]
    assert opened == [True, False, False], "it began earlier"
    assert (await Queries(store).overview(now=NOW)).alerts == (replace(later, opened_at=first.opened_at),)


async def test_notifications_and_channels_are_kept(transact):
    what = {"channel": "email.it", "condition": ConditionId.LIS_UNAVAILABLE, "subject": "folder", "affected": "3 orders"}
    told = Notification(**what, since=NOW - HOUR, noticed_at=NOW, told_at=NOW, message_id="abc")
    other = replace(told, channel="command.sms", told_at=None, noticed_at=NOW + LEASE)
    await transact.notifications.save([told, other])
    await transact.notifications.save([replace(told, ended_at=NOW)])
    assert await transact.notifications.all() == (replace(told, ended_at=NOW), other)
    await transact.notifications.delete([told])
    assert await transact.notifications.all() == (other,)
    channel = ChannelRecord(name="email.it", failures=2, reason="it refuses", retry_at=NOW, sent_at=(NOW.isoformat(),))
    for each in (replace(channel, failures=1), channel):
        await transact.notifications.save_channel(each)
    assert await transact.notifications.channels() == (channel,)


@pytest.mark.parametrize("kind", ["lease", "refresh"])
async def test_lease_has_one_holder_until_it_ends(transact, kind):
    """That of a task by its name, and that of the refresh of our token."""

    async def takes(owner: str, seconds: float = 0) -> bool:
        now = NOW + timedelta(seconds=seconds)
        if kind == "lease":
            return bool(await transact.leases.acquire("x", owner, now=now, lease=LEASE))
        return bool(await transact.oauth_tokens.acquire_refresh_lease(owner, now=now, lease=LEASE))

    async def release(owner: str) -> None:
        await (transact.leases.release("x", owner) if kind == "lease" else transact.oauth_tokens.release_refresh_lease(owner))

    assert [await takes("one"), await takes("two"), await takes("one", 30)] == [True, False, True]
    assert [await takes("two", 61), await takes("two", 91)] == [False, True]
    await release("one")
    assert not await takes("one", 92)
    await release("two")
    assert await takes("one", 92)


async def test_older_token_generation_is_not_stored(transact):
    def token(generation):
        times = {"expires_at": NOW, "signed_in_at": NOW - LEASE, "obtained_at": NOW}
        return StoredToken(generation=generation, access_token=f"access-{generation}", refresh_token="r", **times)

    assert await transact.oauth_tokens.current() is None
    for generation in (1, 2, 3):
        await transact.oauth_tokens.add(token(generation))
    assert await transact.oauth_tokens.current() == token(3)
    for generation in (2, 3):
        with pytest.raises(LeaseLostError):
            await transact.oauth_tokens.add(token(generation))
    bare = StoredToken(generation=9, access_token="a", refresh_token=None, expires_at=None)
    await transact.oauth_tokens.add(bare)
    assert await transact.oauth_tokens.current() == bare


def make_worker(name: str = "host-1", **fields: Any) -> WorkerRecord:
    start: dict[str, Any] = {"host": "host", "pid": 7, "version": "1.0", "mode": "normal", "started_at": NOW, "beat_at": NOW}
    return WorkerRecord(name=name, **{**start, **fields})


async def test_workers_are_listed_latest_heartbeat_first(transact):
    """Each heartbeat replaces the one before; old ones are purged."""
    ended = make_worker(stopped_at=NOW, stopped_by="SIGTERM", ended_part="catalogue", fault="KeyError")
    living = make_worker("host-2", beat_at=NOW + LEASE, loop_lag_ms=12, stalled_at=NOW, stalled_ms=180_000)
    for each in (make_worker(), ended, make_worker("host-2"), living):
        await transact.workers.save(each)
    assert await transact.workers.newest() == (living, ended)
    assert await transact.workers.newest(limit=1) == (living,)
    assert await transact.workers.purge(before=NOW + LEASE) == 1
    assert await transact.workers.newest() == (living,)
