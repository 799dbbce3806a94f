"""What notification channels have told, in all three stores."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from lab_agent.conditions.ids import ConditionId
from lab_agent.domain.notifications import ChannelRecord, Notification
from lab_agent.domain.records import Alert
from tests.integration.store.conftest import NOW, UnitOfWorkRunner

LEASE = timedelta(minutes=1)
TOLD = Notification(
    channel="email.it",
    condition=ConditionId.LIS_UNAVAILABLE,
    subject="folder",
    since=NOW - timedelta(hours=1),
    noticed_at=NOW,
    told_at=NOW,
    affected="3 orders",
    message_id="abc",
)


async def test_notifications_are_kept_by_channel_and_alert(transact: UnitOfWorkRunner) -> None:
    other = replace(TOLD, channel="command.sms", told_at=None, noticed_at=NOW + LEASE)
    await transact.notifications.save([TOLD, other])
    await transact.notifications.save([replace(TOLD, ended_at=NOW)])
    assert await transact.notifications.all() == (replace(TOLD, ended_at=NOW), other)
    await transact.notifications.delete([TOLD])
    assert await transact.notifications.all() == (other,)


async def test_channels_are_kept_by_name(transact: UnitOfWorkRunner) -> None:
    channel = ChannelRecord(name="email.it", failures=2, reason="it refuses", retry_at=NOW, sent_at=(NOW.isoformat(),))
    await transact.notifications.save_channel(replace(channel, failures=1))
    await transact.notifications.save_channel(channel)
    assert await transact.notifications.channels() == (channel,)


async def test_one_worker_may_send_until_its_lease_ends(transact: UnitOfWorkRunner) -> None:
    async def takes(owner: str, seconds: float = 0) -> bool:
        now = NOW + timedelta(seconds=seconds)
        return bool(await transact.leases.acquire("x", owner, now=now, lease=LEASE))

    assert [await takes("one"), await takes("two"), await takes("one", 30)] == [True, False, True]
    assert [await takes("two", 61), await takes("two", 91)] == [False, True]
    await transact.leases.release("x", "one")
    assert not await takes("one", 92)
    await transact.leases.release("x", "two")
    assert await takes("one", 92)


async def test_all_open_alerts_in_the_order_of_their_opening(transact: UnitOfWorkRunner) -> None:
    def alert(subject: str, minutes: int) -> Alert:
        at = NOW + timedelta(minutes=minutes)
        return Alert(condition=ConditionId.LIS_UNAVAILABLE, subject=subject, since=at, opened_at=at)

    for each in (alert("b", 2), alert("a", 1), alert("c", 3)):
        await transact.alerts.open(each)
    await transact.alerts.close(alert("c", 3).key, now=NOW)
    assert await transact.alerts.all_open() == (alert("a", 1), alert("b", 2))
