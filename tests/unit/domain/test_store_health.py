"""The outage of the database as a process knows it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from lab_agent.conditions.ids import ConditionId
from lab_agent.conditions.table import CONDITIONS
from lab_agent.domain.store_health import StoreHealth, explain_error, name_host, to_open_condition
from lab_agent.errors import StoreConflictError, StoreFault, StoreUnreachableError

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)


def test_outage_whose_faults_alternate_keeps_its_beginning() -> None:
    health = StoreHealth()
    for number, fault in enumerate([StoreFault.UNREACHABLE, StoreFault.LOCKED, StoreFault.UNREACHABLE]):
        health.failed(StoreUnreachableError("out", fault), NOW + timedelta(minutes=number))
    assert health.outage is not None
    assert (health.outage.fault, health.outage.since) == (StoreFault.UNREACHABLE, NOW)
    health.recovered()
    health.failed(StoreUnreachableError("out", StoreFault.LOCKED), NOW + timedelta(hours=1))
    assert health.outage.since == NOW + timedelta(hours=1)


def test_outage_stays_unreadable_until_it_was_read() -> None:
    health = StoreHealth()
    health.failed(StoreUnreachableError("out", StoreFault.UNREACHABLE), NOW, reading=True)
    health.failed(StoreUnreachableError("out", StoreFault.LOCKED), NOW)
    assert health.outage is not None
    assert health.outage.reads_fail
    health.can_be_read()
    assert health.outage.reads_fail is False
    health.failed(StoreUnreachableError("out", StoreFault.LOCKED), NOW, reading=True)
    assert health.outage.reads_fail


def test_health_begins_without_an_outage_or_a_watcher() -> None:
    health = StoreHealth()
    assert (health.outage, health.is_watched, health.lock_wait(), health.wait_fault) == (None, False, 0.0, StoreFault.LOCKED)
    assert health.conditions == ()
    health.on_change()
    health.can_be_read()
    health.check(reading=False)


def test_first_error_of_a_fault_is_its_detail() -> None:
    health = StoreHealth()
    health.failed(StoreConflictError("conflict"), NOW)
    assert health.outage is None
    for detail in ("first", "second"):
        health.failed(StoreUnreachableError(detail, StoreFault.LOCKED), NOW)
    assert health.outage is not None
    assert health.outage.reads_fail is False
    (condition,) = health.conditions
    assert (condition.condition, condition.detail, condition.since) == (CONDITIONS[ConditionId.STORE_LOCKED], "first", NOW)
    health.failed(StoreUnreachableError("third", StoreFault.UNREACHABLE), NOW, reading=True)
    assert health.outage is not None
    assert (health.outage.detail, health.outage.reads_fail) == ("third", True)
    assert health.outage.key == (ConditionId.STORE_UNREACHABLE, "")


def test_change_is_told_once() -> None:
    health, told = StoreHealth(), list[str]()
    health.on_change = lambda: told.append("")
    health.recovered()
    assert len(told) == 0
    for fault in (StoreFault.LOCKED, StoreFault.LOCKED, StoreFault.UNREACHABLE):
        health.failed(StoreUnreachableError("out", fault), NOW)
    assert len(told) == 2
    health.recovered()
    assert len(told) == 3
    assert health.outage is None


@pytest.mark.parametrize(
    ("watched", "reads_fail", "reading", "raises"),
    [
        (False, True, True, False),
        (True, True, True, True),
        (True, True, False, True),
        (True, False, False, True),
        (True, False, True, False),
    ],
)
def test_watched_outage_fails_at_once(watched: bool, reads_fail: bool, reading: bool, raises: bool) -> None:
    health = StoreHealth()
    health.is_watched = watched
    health.failed(StoreUnreachableError("out", StoreFault.LOCKED), NOW, reading=reads_fail)
    if not raises:
        health.check(reading=reading)
        return
    with pytest.raises(StoreUnreachableError, match="out") as raised:
        health.check(reading=reading)
    assert raised.value.fault is StoreFault.LOCKED


@pytest.mark.parametrize(
    ("fault", "condition", "since"),
    [
        (StoreFault.LOCKED, ConditionId.STORE_LOCKED, NOW),
        (StoreFault.UNREACHABLE, ConditionId.STORE_UNREACHABLE, NOW + timedelta(hours=1)),
        (None, ConditionId.STORE_UNREACHABLE, NOW + timedelta(hours=1)),
    ],
)
def test_error_of_the_known_outage_has_its_beginning(fault: StoreFault | None, condition: ConditionId, since: datetime) -> None:
    health = StoreHealth()
    health.failed(StoreUnreachableError("first", StoreFault.LOCKED), NOW)
    told = to_open_condition(StoreUnreachableError("second", fault), health, NOW + timedelta(hours=1))
    assert (told.condition, told.since) == (CONDITIONS[condition], since)
    assert told.detail == ("first" if since == NOW else "second")


def test_conflict_is_told_as_unreachable_database() -> None:
    told = to_open_condition(StoreConflictError("conflict"), StoreHealth(), NOW)
    assert (told.condition, told.detail, told.since) == (CONDITIONS[ConditionId.STORE_UNREACHABLE], "conflict", NOW)
    title, mend = (getattr(CONDITIONS[ConditionId.STORE_UNREACHABLE], name) for name in ("title", "mend"))
    assert explain_error(StoreConflictError("conflict")).startswith(f"{title}. conflict\n{mend}")


def test_host_is_named_where_several_tell() -> None:
    health = StoreHealth()
    health.failed(StoreUnreachableError("out", StoreFault.LOCKED), NOW)
    (condition,) = health.conditions
    assert name_host(condition, "") is condition
    assert name_host(condition, "h1").detail == "on h1: out"


@pytest.mark.parametrize(
    ("fault", "condition"),
    [(None, ConditionId.STORE_UNREACHABLE)] + [(each, ConditionId(f"store.{each.value}")) for each in StoreFault],
)
def test_error_is_explained_with_its_mend(fault: StoreFault | None, condition: ConditionId) -> None:
    told = CONDITIONS[condition]
    first, second = explain_error(StoreUnreachableError("out", fault)).split("\n")
    assert (first, second) == (f"{told.title}. out", f"{told.mend} (`{told.command}`)" if told.command else told.mend)
