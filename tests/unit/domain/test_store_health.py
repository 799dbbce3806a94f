"""The outage of the database as a process knows it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lab_agent.shared.conditions.model import ConditionId
from lab_agent.shared.conditions.table import CONDITIONS
from lab_agent.shared.errors import StoreConflictError, StoreFault, StoreUnreachableError
from lab_agent.store.store_health import StoreHealth, explain_error, name_host, to_open_condition

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)


def failed(health: StoreHealth, fault: StoreFault, minutes: int = 0, detail: str = "out", *, reading: bool = False) -> Any:
    """The outage after this failure."""
    health.failed(StoreUnreachableError(detail, fault), NOW + timedelta(minutes=minutes), reading=reading)
    assert health.outage is not None
    return health.outage


def test_outage_whose_faults_alternate_keeps_its_beginning() -> None:
    health = StoreHealth()
    for minutes, fault in enumerate((StoreFault.UNREACHABLE, StoreFault.LOCKED, StoreFault.UNREACHABLE)):
        outage = failed(health, fault, minutes)
        assert (outage.fault, outage.since) == (fault, NOW)
    health.recovered()
    assert failed(health, StoreFault.LOCKED, 60).since == NOW + timedelta(hours=1)


def test_outage_stays_unreadable_until_it_was_read() -> None:
    health = StoreHealth()
    assert failed(health, StoreFault.UNREACHABLE, reading=True).reads_fail
    assert failed(health, StoreFault.LOCKED).reads_fail
    health.can_be_read()
    assert health.outage is not None
    assert health.outage.reads_fail is False
    assert failed(health, StoreFault.LOCKED, reading=True).reads_fail


def test_health_begins_without_an_outage_or_a_watcher() -> None:
    health = StoreHealth()
    assert (health.outage, health.is_watched, health.lock_wait(), health.wait_fault) == (None, False, 0.0, StoreFault.LOCKED)
    assert health.conditions == ()
    health.on_change()
    health.can_be_read()
    health.check(reading=False)
    health.failed(StoreConflictError("conflict"), NOW)
    assert health.outage is None


def test_failure_is_one_of_writing_unless_told() -> None:
    health = StoreHealth()
    health.failed(StoreUnreachableError("out", StoreFault.LOCKED), NOW)
    assert health.outage is not None
    assert health.outage.reads_fail is False


def test_first_error_of_a_fault_is_its_detail() -> None:
    health = StoreHealth()
    for detail in ("first", "second"):
        assert failed(health, StoreFault.LOCKED, detail=detail).reads_fail is False
    (condition,) = health.conditions
    assert (condition.condition, condition.detail, condition.since) == (CONDITIONS[ConditionId.STORE_LOCKED], "first", NOW)
    assert name_host(condition, "") is condition
    assert name_host(condition, "h1").detail == "on h1: first"
    outage = failed(health, StoreFault.UNREACHABLE, detail="third", reading=True)
    assert (outage.detail, outage.reads_fail, outage.key) == ("third", True, (ConditionId.STORE_UNREACHABLE, ""))


def test_change_is_told_once() -> None:
    health, told = StoreHealth(), list[str]()
    health.on_change = lambda: told.append("")
    health.recovered()
    assert len(told) == 0
    for fault in (StoreFault.LOCKED, StoreFault.LOCKED, StoreFault.UNREACHABLE):
        failed(health, fault)
    assert len(told) == 2
    health.recovered()
    assert (len(told), health.outage) == (3, None)


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


def test_error_of_the_known_outage_has_its_beginning() -> None:
    later = NOW + timedelta(hours=1)
    health = StoreHealth()
    failed(health, StoreFault.LOCKED, detail="first")
    unreachable = (ConditionId.STORE_UNREACHABLE, later, "second")
    known = {StoreFault.LOCKED: (ConditionId.STORE_LOCKED, NOW, "first"), StoreFault.UNREACHABLE: unreachable, None: unreachable}
    for fault, (condition, since, detail) in known.items():
        told = to_open_condition(StoreUnreachableError("second", fault), health, later)
        assert (told.condition, told.since, told.detail) == (CONDITIONS[condition], since, detail)
    told = to_open_condition(StoreConflictError("conflict"), StoreHealth(), NOW)
    assert (told.condition, told.detail, told.since) == (CONDITIONS[ConditionId.STORE_UNREACHABLE], "conflict", NOW)


@pytest.mark.parametrize(
    ("error", "condition"),
    [
        (StoreConflictError("out"), ConditionId.STORE_UNREACHABLE),
        (StoreUnreachableError("out", None), ConditionId.STORE_UNREACHABLE),
        *((StoreUnreachableError("out", each), ConditionId(f"store.{each.value}")) for each in StoreFault),
    ],
)
def test_error_is_explained_with_its_mend(error: Exception, condition: ConditionId) -> None:
    told = CONDITIONS[condition]
    first, second = explain_error(error).split("\n")
    assert (first, second) == (f"{told.title}. out", f"{told.mend} (`{told.command}`)" if told.command else told.mend)
