"""The outage of the database as a process knows it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from lab_agent.domain.store_health import StoreHealth
from lab_agent.errors import StoreFault, StoreUnreachableError

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
    assert not health.outage.reads_fail
