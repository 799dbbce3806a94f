"""Telling from the store: once, over restarts and by several workers; what fails; what cannot be stored."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from lab_agent.operations.notification.building import build_channels, build_policies
from lab_agent.operations.notification.channel import NotificationNotSent
from lab_agent.operations.notification.message import Change, Message
from lab_agent.operations.notification.notifier import Notifier
from lab_agent.settings.notify import NotifySettings
from lab_agent.shared.conditions.model import ConditionId, OpenCondition
from lab_agent.shared.conditions.table import CONDITIONS
from lab_agent.shared.errors import LabAgentError, StoreError, StoreUnreachableError
from lab_agent.store.crypto import Cipher, new_key
from lab_agent.store.event_records import Alert
from lab_agent.store.schema import upgrade
from lab_agent.store.unit_of_work import Store, UnitOfWork
from tests.harness.clock import VirtualClock, wait_until
from tests.harness.databases import InlineStore
from tests.harness.notifications import LIS_DOWN, NOW, make_alert

SETTINGS = NotifySettings.model_validate({"command": {"sms": {"argv": ["true"]}}})


@dataclass
class RecordingChannel:
    """Keeps what it was sent; fails while `reason` is set."""

    name: str = "command.sms"
    timeout: float = 1.0
    reason: str = ""
    sent: list[Message] = field(default_factory=list)
    attempts: int = 0
    delay: float = 0.0

    async def send(self, message: Message) -> str:
        self.attempts += 1
        await asyncio.sleep(self.delay)
        if self.reason:
            raise NotificationNotSent(self.reason)
        self.sent.append(message)
        return ""


@dataclass
class Office:
    """A store with workers that tell what is in it."""

    store: Store
    clock: VirtualClock = field(default_factory=lambda: VirtualClock(NOW))
    observed: tuple[OpenCondition, ...] = ()
    failures: list[LabAgentError] = field(default_factory=list)
    faults: list[Exception | None] = field(default_factory=list)

    def worker(self, *channels: RecordingChannel, owner: str = "one", store: Store | None = None) -> Notifier:
        async def no_numbers() -> None:
            return None

        async def note(failure: Exception | None) -> None:
            if isinstance(failure, StoreUnreachableError):
                self.failures.append(failure)
            else:
                self.faults.append(failure)

        policy = build_policies(SETTINGS)["command.sms"]
        return Notifier(
            store=store or self.store,
            clock=self.clock,
            owner=owner,
            channels=channels,
            policies={each.name: policy for each in channels},
            laboratory="L",
            link=None,
            observed=lambda: self.observed,
            numbers=no_numbers,
            on_look=note,
        )

    async def write(self, *work: Any) -> None:
        def all_of_it(uow: UnitOfWork) -> None:
            for each in work:
                each(uow)

        await self.store.transact(all_of_it)

    async def open(self, *alerts: Alert) -> None:
        await self.write(*(lambda uow, each=each: uow.alerts.open(each) for each in alerts))

    async def looks(self, worker: Notifier, *seconds: float) -> None:
        for each in seconds:
            self.clock.advance(each)
            await worker.look()


@pytest.fixture
def office() -> Office:
    return Office(InlineStore())


def told(channel: RecordingChannel) -> list[tuple[Change, str]]:
    return [(item.change, str(item.condition.key)) for each in channel.sent for item in each.items]


STARTED, ENDED = (Change.STARTED, "exchange.unavailable"), (Change.ENDED, "exchange.unavailable")


async def test_restart_repeats_nothing_and_forgets_nothing(office: Office) -> None:
    channel = RecordingChannel()
    await office.open(make_alert())
    await office.looks(office.worker(channel), 0, 60)
    for _ in range(5):
        await office.looks(office.worker(channel), 60)
    await office.write(lambda uow: uow.alerts.close(make_alert().key, now=office.clock.now()))
    for _ in range(5):
        await office.looks(office.worker(channel), 150)
    assert told(channel) == [STARTED, ENDED]
    assert channel.sent[1].references == (channel.sent[0].id,)


@pytest.mark.slow
async def test_two_workers_on_postgresql_tell_once(postgres_url: str) -> None:
    upgrade(postgres_url)
    store = Store(postgres_url, Cipher(new_key()))
    await test_two_workers_tell_once(Office(store))
    await store.close()


async def test_two_workers_tell_once(office: Office) -> None:
    slow = RecordingChannel(delay=0.2)
    await office.open(make_alert())
    workers = [office.worker(slow, owner=owner) for owner in ("one", "two", "three")]
    await office.looks(workers[0], 0)
    office.clock.advance(60)
    await asyncio.gather(*(each.look() for each in workers))
    await office.looks(workers[2], 60, 60)
    assert len(slow.sent) == 1


async def test_channel_that_fails_is_told_by_the_others(office: Office) -> None:
    broken, other = RecordingChannel("email.it", reason="the mail server is down"), RecordingChannel()
    worker = office.worker(broken, other)
    await office.open(make_alert())
    with capture_logs() as logged:
        await office.looks(worker, 0, *[60.0] * 20)
    named = [each["action"] for each in logged if each.get("alert") == "notification.failed/email.it"]
    assert named == ["condition_found"], "the log names it once"
    assert broken.attempts < 10
    assert told(other)[1] == (Change.STARTED, "notification.failed/email.it")
    assert "the mail server is down" in other.sent[1].items[0].condition.cause
    broken.reason = ""
    await office.looks(worker, *[60.0] * 20)
    assert len(broken.sent) == 1
    assert told(other)[2] == (Change.ENDED, "notification.failed/email.it")


async def test_what_is_about_the_store_is_told_from_memory(office: Office) -> None:
    channel = RecordingChannel()
    worker = office.worker(channel, store=_FailingWrites(office.store, fail=None))  # type: ignore[arg-type]  # a stand-in
    full = OpenCondition(condition=CONDITIONS[ConditionId.STORE_DISK_FULL], since=NOW)
    for office.observed in ((full,), ()):
        for _ in range(10):
            office.clock.advance(60)
            with pytest.raises(StoreUnreachableError):
                await worker.look()
    assert told(channel) == [(Change.STARTED, "store.disk_full"), (Change.ENDED, "store.disk_full")]


async def test_message_whose_record_failed_is_not_sent_again(office: Office) -> None:
    """And where nothing is new, a look costs one read and no write."""
    channel = RecordingChannel()
    worker = office.worker(channel)
    await office.open(make_alert())
    await office.looks(worker, 0)
    office.clock.advance(60)
    worker.store = _FailingWrites(office.store, fail=(2,))  # type: ignore[assignment]  # a stand-in for the part that is used
    with pytest.raises(StoreUnreachableError):
        await worker.look()
    worker.store = office.store
    await office.looks(worker, 10, 60, 600)
    assert len(channel.sent) == 1
    counted = _FailingWrites(office.store, fail=())
    worker.store = counted  # type: ignore[assignment]  # a stand-in for the part of the store that is used
    await office.looks(worker, *[10.0] * 20)
    assert (counted.reads, counted.writes) == (20, 0)


async def test_stop_lets_a_message_arrive_and_records_it(office: Office) -> None:
    channel = RecordingChannel(delay=0.2)
    worker = office.worker(channel)
    await office.open(make_alert())
    await office.looks(worker, 0)
    office.clock.advance(60)
    running = asyncio.create_task(worker.run())
    await wait_until(lambda: channel.attempts > 0, "an attempt", interval=0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await office.looks(office.worker(channel), 10, 60)
    assert len(channel.sent) == 1


async def test_removed_channel_leaves_nothing_once_it_is_over(office: Office) -> None:
    old, new = RecordingChannel("email.old"), RecordingChannel()
    await office.open(make_alert(LIS_DOWN, "folder"))
    await office.looks(office.worker(old), 0, 60)
    await office.write(lambda uow: uow.alerts.close(make_alert(LIS_DOWN, "folder").key, now=office.clock.now()))
    await office.open(make_alert())
    await office.looks(office.worker(new), 10, 60)
    left = await office.store.run_read_only(lambda uow: uow.notifications.all())
    assert ({each.channel for each in left}, told(new)[0]) == ({"command.sms"}, STARTED)


async def test_unexpected_error_of_notifier_is_told(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    worker, faults = office.worker(RecordingChannel()), [ValueError(), StoreError("no such table")]

    async def fail(error: Exception) -> None:
        raise error

    for fault in faults:
        monkeypatch.setattr(Notifier, "look", lambda _, fault=fault: fail(fault))
        await worker._look_guarded()
    monkeypatch.undo()
    await worker._look_guarded()
    assert office.faults == [*faults, None]


@dataclass
class _FailingWrites:
    """Counts units of work; the writes of these numbers fail, or all of it."""

    store: Store
    fail: Sequence[int] | None
    reads: int = 0
    writes: int = 0

    async def run_read_only(self, work: Any) -> Any:
        self.reads += 1
        if self.fail is None:
            raise StoreUnreachableError
        return await self.store.run_read_only(work)

    async def transact(self, work: Any) -> Any:
        self.writes += 1
        if self.fail is None or self.writes in self.fail:
            raise StoreUnreachableError
        return await self.store.transact(work)


# --- a real command


def command(tmp_path: Path, script: str, **fields: Any) -> Any:
    path = tmp_path / "send.py"
    path.write_text(script)
    settings = {"command": {"sms": {"argv": [sys.executable, str(path), "; touch evil $(id)"], **fields}}}
    return build_channels(NotifySettings.model_validate(settings), VirtualClock(NOW))[0]


def message() -> Message:
    return Message(id="1", laboratory="L", at=NOW)


async def test_command_gets_json_and_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_AGENT_NOTIFY__EMAIL__IT__PASSWORD", "a mail password")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", "/run/credentials")
    script = f"""
import json, os, sys
with open({str(tmp_path / "out.json")!r}, "w") as file:
    json.dump({{"body": json.load(sys.stdin), "argv": sys.argv[1:], "environ": dict(os.environ)}}, file)
"""
    assert await command(tmp_path, script).send(message()) == ""
    got = json.loads((tmp_path / "out.json").read_text())
    assert (got["body"]["kind"], got["argv"]) == ("test", ["; touch evil $(id)"])
    assert got["environ"]["NOTIFICATION_TITLE"] == "[lab-agent L] test: notifications arrive"
    assert not [name for name in got["environ"] if name.startswith(("LAB_AGENT_", "CREDENTIALS_"))]


async def test_command_that_takes_too_long_is_ended_with_what_it_started(tmp_path: Path) -> None:
    script = f"""
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
open({str(tmp_path / "pid")!r}, "w").write(str(child.pid))
time.sleep(60)
"""
    channel = command(tmp_path, script, timeout=2)
    with pytest.raises(NotificationNotSent, match="did not end within 2 s"):
        await channel.send(message())
    state = Path(f"/proc/{(tmp_path / 'pid').read_text()}/stat")
    await wait_until(lambda: not state.exists() or ") Z" in state.read_text(), "the end of what it started")


async def test_command_that_fails_says_how(tmp_path: Path) -> None:
    with pytest.raises(NotificationNotSent, match="exit code 3"):
        await command(tmp_path, "raise SystemExit(3)").send(message())
    missing = NotifySettings.model_validate({"command": {"sms": {"argv": [shlex.quote("/nowhere/send")]}}})
    with pytest.raises(NotificationNotSent, match="/nowhere/send cannot be started: No such file"):
        await build_channels(missing, VirtualClock(NOW))[0].send(message())
