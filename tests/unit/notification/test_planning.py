"""What a channel tells, and when: starts, ends, reminders, what comes and goes, the rate, failures."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import pytest

from lab_agent.operations.notification.message import Change, Message
from lab_agent.operations.notification.planning import Policy, Situation, after_failure, after_success, make_message, make_plan
from lab_agent.shared.conditions.model import AlertKey, ConditionId, Severity
from lab_agent.store.event_records import Alert
from lab_agent.store.notification_records import ChannelRecord, Notification
from tests.harness.notifications import NOW, make_alert

POLICY = Policy(
    severity=Severity.WARNING,
    first_after=timedelta(seconds=60),
    ended_after=timedelta(seconds=300),
    remind_every=timedelta(days=1),
    at_most=3,
)
NAMES = {
    "service": ConditionId.EXCHANGE_UNAVAILABLE,
    "lis": ConditionId.LIS_UNAVAILABLE,
    "labels": ConditionId.LABELS_LOW,  # a warning
    "poll": ConditionId.AGENT_POLL_OVERDUE,  # covered by `service`
    "backup": ConditionId.BACKUP_OLD,
    "failed": ConditionId.NOTIFICATION_FAILED,
}
SIGNS = {Change.STARTED: "+", Change.ENDED: "-", Change.OPEN: "="}


@dataclass
class Desk:
    """A channel with what it has told, and a clock."""

    policy: Policy = POLICY
    record: ChannelRecord = field(default_factory=lambda: ChannelRecord(name="email.it"))
    known: dict[AlertKey, Notification] = field(default_factory=dict)
    now: datetime = NOW
    works: bool = True
    alerts: dict[str, Alert] = field(default_factory=dict)

    def look(self, names: Iterable[str], after: float = 0) -> Message | None:
        """Look after so many seconds, while just these are open; what is told then. What is new began at the last look."""
        self.alerts = {name: self.alerts.get(name) or self._begin(name) for name in names}
        self.now += timedelta(seconds=after)
        plan = make_plan(self.record, self.known, Situation.of(self.alerts.values(), None), self.policy, self.now)
        self.known |= {each.key: each for each in plan.changed}
        for each in plan.dropped:
            del self.known[each.key]
        if not plan.items:
            return None
        message = make_message(self.record, plan.items, self.known, laboratory="L", link=None, now=self.now)
        if not self.works:
            self.record = after_failure(self.record, "it is down", None, self.now)
            return None
        self.record, saved, ended = after_success(self.record, message, self.known, "", self.now)
        self.known |= {each.key: each for each in saved}
        for each in ended:
            del self.known[each.key]
        return message

    def _begin(self, name: str) -> Alert:
        kind, _, subject = name.partition(":")
        return make_alert(NAMES[kind], subject, at=self.now)


def said(message: Message | None) -> str:
    """Each item as its sign and name."""
    kinds = {condition: name for name, condition in NAMES.items()}
    items = () if message is None else message.items
    keys = [(SIGNS[each.change], each.condition.key) for each in items]
    return " ".join(f"{sign}{kinds[key.condition]}{':' * bool(key.subject)}{key.subject}" for sign, key in keys)


Steps = list[tuple[str, float, str]]
"""What is open, after how many seconds, and what is told then; `fails` where the channel does not work."""
L3, L4 = "labels:0 labels:1 labels:2", "labels:0 labels:1 labels:2 labels:3"
FULL: Steps = [("labels:0", 61, "+labels:0"), (L3[:17], 61, "+labels:1"), (L3, 61, "+labels:2"), (L4, 61, "")]
"""A channel that has sent as many as it may within an hour, of what is no more than a warning."""
LIS = "lis:b lis:a"
HISTORIES: dict[str, Steps] = {
    "what begins together is told once": [
        ("service", 0, ""), ("service lis", 50, ""), ("service lis", 10, "+service +lis"), *[("service lis", 10.0, "")] * 100],
    "an end is told once it lasts": [
        ("service", 0, ""), ("service", 60, "+service"), ("", 600, ""), ("", 300, "-service"), ("", 10_000, "")],
    "what comes and goes is told once": [
        ("service", 0, ""), ("service", 60, "+service"), *[("", 30.0, ""), ("service", 30.0, "")] * 50],
    "what comes and goes more quickly is told": [*[("service", 10.0, ""), ("", 10.0, "")] * 3, ("service", 10, "+service")],
    "what is over at once is not told": [("service", 0, ""), ("", 30, ""), ("", 100, ""), ("", 300, ""), ("", 1000, "")],
    "a reminder a day, oldest first": [
        ("lis:b", 30, ""), (LIS, 60, "+lis:b +lis:a"), (LIS, 86_399, ""), (LIS, 1, "=lis:b =lis:a"), (LIS, 86_399, ""),
        (LIS, 1, "=lis:b =lis:a")],
    "critical is told however many were sent, with all that waits": [
        *FULL, (f"{L4} service", 0, ""), (f"{L4} service", 60, "+service +labels:3"), (L4, 1, ""), (L4, 300, "-service"),
        (f"{L4} service", 0, ""), (f"{L4} service", 60, "+service"), (L4, 1, ""), (L4, 300, "-service")],
    "a warning, and its end, wait beside a critical that was told": [
        *FULL, (f"{L4} service", 60, "+service +labels:3"), (f"{L4} service labels:4", 61, ""),
        (f"{L4[9:]} service labels:4", 600, ""), (f"{L4[9:]} service labels:4", 3600, "+labels:4 -labels:0")],
    "what began and ended while nothing could be sent is told as over": [
        ("service", 0, ""), ("service", 61, "fails"), ("", 600, "fails"), ("", 1000, "-service")],
    "what is covered is told when nothing covers it any more": [
        ("service poll", 0, ""), ("service poll", 60, "+service"), ("poll", 61, "+poll"), *[("poll", 61.0, "")] * 4,
        ("poll", 61, "-service"), ("poll", 61, "")],
    "its own failure is for the others": [
        ("failed:email.it failed:other", 0, ""), ("failed:email.it failed:other", 60, "+failed:other")],
}  # fmt: skip
OTHER_POLICIES: dict[str, tuple[Policy, Steps]] = {
    "the least severity": (replace(POLICY, severity=Severity.CRITICAL), [("backup", 0, ""), ("backup", 60, "")]),
    "a reminder waits for the hour": (
        replace(POLICY, remind_every=timedelta(seconds=400)),
        [("service", 61, "+service"), ("service labels:0", 61, "+labels:0"), ("service labels:0 labels:1", 61, "+labels:1"),
         ("service labels:0 labels:1", 500, ""), ("service labels:0 labels:1", 3600, "=service =labels:0 =labels:1")]),
}  # fmt: skip


@pytest.mark.parametrize("name", [*HISTORIES, *OTHER_POLICIES])
def test_channel_tells_what_it_should_and_when(name: str) -> None:
    policy, steps = OTHER_POLICIES.get(name) or (POLICY, HISTORIES[name])
    desk, told, ids = Desk(policy), [], []
    for names, after, expected in steps:
        desk.works = expected != "fails"
        message = desk.look(names.split(), after)
        told.append(said(message))
        ids += [message.id] if message else []
    assert told == [expected.replace("fails", "") for _, _, expected in steps]
    assert len(set(ids)) == len(ids)
    assert desk.known.keys() <= {each.key for each in desk.alerts.values()}


def test_end_refers_to_the_start() -> None:
    desk = Desk()
    desk.look(["service"])
    start, _, end = desk.look(["service"], 60), desk.look([], 600), desk.look([], 300)
    assert start is not None
    assert end is not None
    assert (end.references, end.items[0].ended_at) == ((start.id,), NOW + timedelta(seconds=660))


def test_channel_that_is_down_for_hours_tells_once_when_it_works_again() -> None:
    desk, names = Desk(works=False), [f"lis:{number}" for number in range(5)]
    attempts = 0
    for _ in range(360):  # an hour
        before = desk.record.failures
        assert desk.look(names, 10) is None
        attempts += desk.record.failures > before
    assert 5 <= attempts <= 10
    desk.look(names[1:], 10)
    desk.works = True
    while (message := desk.look(names[1:], 10)) is None:
        assert desk.now < NOW + timedelta(hours=2)
    started = {each for each in said(message).split() if each.startswith("+")}
    assert (started, desk.record.failures) == ({f"+lis:{number}" for number in range(1, 5)}, 0)


def test_retry_after_of_the_other_side_is_kept() -> None:
    failed = after_failure(ChannelRecord(name="w"), "429", 1800.0, NOW)
    assert failed.retry_at == NOW + timedelta(seconds=1800)


def test_message_that_is_sent_again_has_the_same_id() -> None:
    desk, down = Desk(works=False), [make_alert()]
    desk.look(["service"])
    plan = make_plan(desk.record, desk.known, Situation.of(down, None), POLICY, NOW + timedelta(seconds=60))
    ids = {
        make_message(desk.record, plan.items, desk.known, laboratory="L", link=None, now=NOW + timedelta(hours=hours)).id
        for hours in (0, 5)
    }
    assert len(ids) == 1
