"""A laboratory system paused and resumed at the command line."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from lab_agent.domain import jobs
from lab_agent.domain.ids import OrderKey, ResourceId
from lab_agent.domain.job_records import JobKind
from lab_agent.domain.records import OrderRecord
from lab_agent.domain.state_machines import OrderState
from tests.integration.cli.conftest import Cli, LaboratoryFolder

NOW = datetime(2026, 3, 3, tzinfo=UTC)
KEY = OrderKey("R000000000000001")


def add_handover(uow: Any) -> None:
    order = OrderRecord(key=KEY, task_id=ResourceId("1"), state=OrderState.FETCHED, seen_at=NOW, changed_at=NOW)
    uow.orders.add(order)
    uow.jobs.add(jobs.submit_order(KEY, "folder", NOW))


def claim(uow: Any) -> int:
    kinds = frozenset({JobKind.SUBMIT_ORDER})
    return len(uow.jobs.claim({kinds: 9}, owner="w", now=datetime.now(UTC), lease=timedelta(minutes=1)))


def test_pauses_and_resumes_a_system(cli: Cli, lab: LaboratoryFolder) -> None:
    lab.write(add_handover)
    done = cli("adapter", "pause", "folder", "--reason", "a new server", "--by", "ana")
    assert (done.code, "lab-agent adapter resume folder" in done.out) == (0, True)
    assert lab.write(claim) == 0
    assert "folder is paused, by ana since" in cli("outbox", "show", "1").out
    assert "The laboratory system folder is paused" in cli("status").out
    again = cli("adapter", "pause", "folder", "--reason", "again")
    assert (again.code, "paused already, by ana" in again.err) == (1, True)
    assert cli("adapter", "resume", "folder", "--reason", "it runs", "--by", "eve").code == 0
    assert cli("outbox", "show", "1", "--json").json()["waits_for"] is None
    assert lab.write(claim) == 1
    assert cli("adapter", "resume", "folder", "--reason", "again").code == 1
    listed = cli("audit", "list").out
    assert ("adapter_paused" in listed, "adapter_resumed" in listed, "a new server" in listed) == (True, True, False)


def test_unknown_system_and_missing_reason_change_nothing(cli: Cli, lab: LaboratoryFolder) -> None:
    unknown = cli("adapter", "pause", "foldr", "--reason", "x")
    assert (unknown.code, "did you mean 'folder'?" in unknown.err) == (2, True)
    assert cli("adapter", "pause", "folder", "--reason", " ").code == 2
    assert cli("adapter", "pause", "folder").code == 2
    assert cli("adapter", "resume", "folder", "--reason", "x").code == 1
