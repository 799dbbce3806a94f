"""What a channel tells, and when: starts, ends, reminders, what comes and goes, the rate, failures."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from lab_agent.conditions.ids import ConditionId
from lab_agent.conditions.model import AlertKey, Severity
from lab_agent.domain.notifications import ChannelRecord, Notification
from lab_agent.domain.records import Alert
from lab_agent.notification.message import Change, Message
from lab_agent.notification.planning import (
    Policy,
    Situation,
    after_failure,
    after_success,
    make_message,
    make_plan,
)
from tests.harness.notifications import LIS_DOWN, NOW, SERVICE_DOWN, make_alert

POLICY = Policy(
    severity=Severity.WARNING,
    first_after=timedelta(seconds=60),
    ended_after=timedelta(seconds=300),
    remind_every=timedelta(days=1),
    at_most=3,
)


LABELS_LOW = ConditionId.LABELS_LOW
"""A warning."""


@dataclass
class Desk:
    """A channel with what it has told, and a clock."""

    record: ChannelRecord = field(default_factory=lambda: ChannelRecord(name="email.it"))
    known: dict[AlertKey, Notification] = field(default_factory=dict)
    now: datetime = NOW
    works: bool = True
    policy: Policy = POLICY

    def look(self, alerts: Iterable[Alert], after: float = 0) -> Message | None:
        """Look after so many seconds; what is told, if anything. A channel that does not work fails."""
        self.now += timedelta(seconds=after)
        plan = make_plan(self.record, self.known, Situation.of(alerts, None), self.policy, self.now)
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


def said(message: Message | None) -> list[tuple[Change, str]]:
    return [] if message is None else [(each.change, str(each.condition.key)) for each in message.items]


STARTED = [(Change.STARTED, "exchange.unavailable")]
ENDED = [(Change.ENDED, "exchange.unavailable")]


def test_what_begins_together_is_one_message_and_is_told_once():
    desk, down = Desk(), [make_alert()]
    assert desk.look(down) is None
    both = [*down, make_alert(LIS_DOWN, "folder", at=NOW + timedelta(seconds=50))]
    assert desk.look(both, 50) is None
    assert said(desk.look(both, 10)) == [*STARTED, (Change.STARTED, "lis.unavailable/folder")]
    assert [desk.look(both, 10) for _ in range(100)] == [None] * 100


def test_end_is_told_once_it_lasts_and_refers_to_the_start():
    desk, down = Desk(), [make_alert()]
    desk.look(down)
    start = desk.look(down, 60)
    assert desk.look([], 600) is None
    end = desk.look([], 300)
    assert said(end) == ENDED
    assert end.references == (start.id,)
    assert end.items[0].ended_at == NOW + timedelta(seconds=660)
    assert desk.known == {}
    assert desk.look([], 10_000) is None


def test_what_comes_and_goes_is_told_once():
    desk, down = Desk(), [make_alert()]
    desk.look(down)
    told = [desk.look(down, 60)]
    for _ in range(50):
        told += [desk.look([], 30), desk.look([make_alert(at=desk.now)], 30)]
    assert [said(each) for each in told if each] == [STARTED]


def test_what_comes_and_goes_more_quickly_than_anything_is_told_is_told_all_the_same():
    desk, told = Desk(), []
    for _ in range(5):
        told += [desk.look([make_alert(at=desk.now)], 10), desk.look([], 10)]
    assert said(next(each for each in told if each)) == STARTED


def test_what_is_over_at_once_is_not_told():
    desk = Desk()
    desk.look([make_alert()])
    assert [desk.look([], after) for after in (30, 100, 300, 1000)] == [None] * 4
    assert desk.known == {}


def test_reminder_a_day_has_all_that_is_open_oldest_first():
    desk = Desk()
    alerts = [make_alert(LIS_DOWN, "b", at=NOW), make_alert(LIS_DOWN, "a", at=NOW - timedelta(hours=1))]
    desk.look(alerts, 60)
    assert desk.look(alerts, 86_399) is None
    keys = [(Change.OPEN, "lis.unavailable/a"), (Change.OPEN, "lis.unavailable/b")]
    first = desk.look(alerts, 1)
    assert said(first) == keys
    assert desk.look(alerts, 86_399) is None
    second = desk.look(alerts, 1)
    assert said(second) == keys
    assert first.id != second.id


def test_more_than_the_rate_waits_for_the_hour_and_is_one_message():
    desk, alerts, told = Desk(), [], []
    for number in range(30):
        alerts.append(make_alert(LABELS_LOW, f"{number:02}", at=desk.now))
        told.append(desk.look(alerts, 61))
    sent = [each for each in told if each]
    assert len(sent) == 3
    rest = desk.look(alerts, 3600)
    assert rest is not None
    assert sum(len(each.items) for each in sent) + len(rest.items) == 30


def full_desk() -> tuple[Desk, list[Alert]]:
    """A channel that has sent as many as it may within an hour, of what is no more than a warning."""
    desk, alerts = Desk(), list[Alert]()
    for number in range(POLICY.at_most + 1):
        alerts.append(make_alert(LABELS_LOW, f"{number:02}", at=desk.now))
        sent = desk.look(alerts, 61)
    assert sent is None
    return desk, alerts


def test_critical_is_told_however_many_were_sent():
    """At its start, with all that waits, and at its end; a repetition of it too."""
    desk, alerts = full_desk()
    for round_ in range(2):
        critical = make_alert(SERVICE_DOWN, at=desk.now)
        assert desk.look([*alerts, critical]) is None, "no earlier than any other"
        started = desk.look([*alerts, critical], 60)
        assert started is not None
        assert len(started.items) == (1 if round_ else 2)
        assert desk.look(alerts, 1) is None
        ended = desk.look(alerts, 300)
        assert ended is not None
        assert [each.change for each in ended.items] == [Change.ENDED]


def test_warning_waits_beside_a_critical_that_was_told():
    desk, alerts = full_desk()
    critical = make_alert(SERVICE_DOWN, at=desk.now)
    assert desk.look([*alerts, critical], 60) is not None
    alerts = [*alerts, critical, make_alert(LABELS_LOW, "new", at=desk.now)]
    assert desk.look(alerts, 61) is None
    assert desk.look(alerts[1:], 600) is None, "nor is the end of one told"
    assert desk.look(alerts[1:], 3600) is not None


def test_reminder_waits_for_the_hour():
    desk = Desk(policy=replace(POLICY, remind_every=timedelta(seconds=400)))
    alerts = [make_alert(SERVICE_DOWN)]
    for number in range(POLICY.at_most):
        assert desk.look([*alerts, *(make_alert(LABELS_LOW, str(each)) for each in range(number))], 61) is not None
    seen = [*alerts, *(make_alert(LABELS_LOW, str(each)) for each in range(POLICY.at_most - 1))]
    assert desk.look(seen, 500) is None
    assert desk.look(seen, 3600) is not None


def test_channel_that_is_down_for_hours_tells_once_when_it_works_again():
    desk = Desk(works=False)
    alerts = [make_alert(LIS_DOWN, str(number), at=NOW) for number in range(5)]
    attempts = 0
    for _ in range(360):  # an hour
        before = desk.record.failures
        assert desk.look(alerts, 10) is None
        attempts += desk.record.failures > before
    assert 5 <= attempts <= 10
    desk.look(alerts[1:], 10)
    desk.works = True
    while (message := desk.look(alerts[1:], 10)) is None:
        assert desk.now < NOW + timedelta(hours=2)
    started = {key for change, key in said(message) if change is Change.STARTED}
    assert started == {f"lis.unavailable/{number}" for number in range(1, 5)}
    assert desk.record.failures == 0


def test_what_began_and_ended_while_nothing_could_be_sent_is_told_as_over():
    desk = Desk(works=False)
    desk.look([make_alert()], 0)
    desk.look([make_alert()], 61)
    desk.look([], 600)
    desk.works = True
    assert said(desk.look([], 1000)) == ENDED


def test_retry_after_of_the_other_side_is_kept():
    failed = after_failure(ChannelRecord(name="w"), "429", 1800.0, NOW)
    assert failed.retry_at == NOW + timedelta(seconds=1800)


def test_least_severity_and_own_failure_are_left_out():
    desk = Desk(policy=replace(POLICY, severity=Severity.CRITICAL))
    warning = make_alert(ConditionId.BACKUP_OLD)
    desk.look([warning])
    assert desk.look([warning], 60) is None
    mine, other = (make_alert(ConditionId.NOTIFICATION_FAILED, name) for name in ("email.it", "webhook.chat"))
    all_of_it = Desk()
    all_of_it.look([mine, other])
    assert said(all_of_it.look([mine, other], 60)) == [(Change.STARTED, "notification.failed/webhook.chat")]


def test_covered_condition_is_told_when_nothing_covers_it_any_more():
    desk = Desk()
    overdue = make_alert(ConditionId.AGENT_POLL_OVERDUE)
    both = [make_alert(), overdue]
    desk.look(both)
    assert said(desk.look(both, 60)) == STARTED
    told = [desk.look([overdue], 61) for _ in range(8)]
    assert [said(each) for each in told if each] == [[(Change.STARTED, "agent.poll_overdue")], ENDED]


def test_message_that_is_sent_again_has_the_same_id():
    desk, down = Desk(works=False), [make_alert(SERVICE_DOWN)]
    desk.look(down)
    plan = make_plan(desk.record, desk.known, Situation.of(down, None), POLICY, NOW + timedelta(seconds=60))
    ids = {
        make_message(desk.record, plan.items, desk.known, laboratory="L", link=None, now=NOW + timedelta(hours=hours)).id
        for hours in (0, 5)
    }
    assert len(ids) == 1
