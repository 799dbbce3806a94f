"""A database restored from a backup: what was done since is found out, and no laboratory system is told anything wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lab_agent.bootstrap import build_code_systems
from lab_agent.conditions.ids import ConditionId
from lab_agent.domain.job_records import JobKind
from lab_agent.domain.restoration import RestoreSign
from lab_agent.domain.state_machines import JobState, LineState, OrderState
from lab_agent.errors import InvalidTransitionError, ServiceRejected
from lab_agent.fhir.report_builder import order_identifier
from lab_agent.ports.repositories import UnitOfWork
from lab_agent.workflow.restored_store import (
    load_restoration,
    note_reconciled,
    note_restoration,
    release_restoration,
)
from tests.integration.workflow.conftest import Scenario, alter

MakeScenario = Callable[..., Scenario]


class Restore:
    """The database of a scenario as it was when this was made, to be put back."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.data = scenario.world.store._data.copy()  # type: ignore[attr-defined]

    def put_back(self) -> None:
        self.scenario.world.store._data = self.data.copy()  # type: ignore[attr-defined]


async def upload_report(scenario: Scenario, status: str = "final") -> None:
    """Our report about every line of the order is on the service."""
    key = scenario.world.order_key_of(scenario.task)
    (part,) = await scenario.world.store.run(lambda uow: uow.orders.work_orders(key))
    system = scenario.world.settings.order_system
    systems = build_code_systems(scenario.world.settings)
    identifier, order = order_identifier(system, part.key), await scenario.order_record()
    body = {
        "resourceType": "DiagnosticReport",
        "meta": {"security": [{"system": "read", "code": order.counterparty}]},
        "identifier": [{"system": identifier.system, "value": identifier.value}],
        "status": status,
        "code": {"coding": [{"system": systems.nomenclature.url, "code": "1"}]},
        "subject": {"reference": order.patient_reference},
        "effectiveDateTime": "2026-01-05T10:00:00+03:00",
        "issued": "2026-01-05T10:00:00+03:00",
        "basedOn": [{"reference": f"procedurerequest/{line.procedure_request_id}"} for line in await scenario.lines()],
    }
    await scenario.agent.exchange.create("DiagnosticReport", body)


async def finish_after_backup(scenario: Scenario) -> Restore:
    """The order is handed over, then backed up, then done; last the backup is put back."""
    await scenario.process_all()
    backup = Restore(scenario)
    await upload_report(scenario)
    await scenario.report_all()
    await scenario.world.drain(scenario.agent)
    assert scenario.status() == "completed"
    backup.put_back()
    assert (await scenario.order_record()).state is OrderState.HANDED_OVER
    return backup


async def settle(scenario: Scenario) -> None:
    for _ in range(3):
        await scenario.agent.reconcile.run()
        await scenario.world.drain(scenario.agent)


async def write(scenario: Scenario, work: Callable[[UnitOfWork], object]) -> None:
    def whole(uow: UnitOfWork) -> None:
        work(uow)
        uow.commit()

    await scenario.world.store.run(whole)


def as_it_is(report: dict[str, Any]) -> None:
    pass


def in_capitals(report: dict[str, Any]) -> None:
    report["status"] = report["status"].upper()


def as_texts(report: dict[str, Any]) -> None:
    report["basedOn"] = [f" {each['reference']} " for each in report["basedOn"]]


def in_singles(report: dict[str, Any]) -> None:
    report.update(status=[report["status"]], identifier=report["identifier"][0])


@pytest.mark.parametrize("spell", [as_it_is, in_capitals, as_texts, in_singles])
async def test_finished_order_is_taken_as_done(make_scenario: MakeScenario, spell: Callable[[dict[str, Any]], None]) -> None:
    scenario = make_scenario(2)
    await finish_after_backup(scenario)
    alter(scenario, "DiagnosticReport", spell)
    await settle(scenario)
    assert {line.state for line in await scenario.lines()} == {LineState.COMPLETED}
    assert (await scenario.order_record()).state is OrderState.CLOSED
    assert scenario.world.lis.cancelled == []
    restored = await scenario.world.store.run(load_restoration)
    assert restored is not None
    assert restored.sign is RestoreSign.OWN_REPORTS
    assert await scenario.is_told(ConditionId.AGENT_SECOND_AGENT), "no mark says that it was restored"


async def test_finished_order_not_handed_over_in_backup_is_not_submitted_again(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(2)
    await scenario.assess()
    backup = Restore(scenario)
    await scenario.world.drain(scenario.agent)
    await upload_report(scenario)
    await scenario.report_all()
    await scenario.world.drain(scenario.agent)
    backup.put_back()
    await settle(scenario)
    assert len(scenario.world.lis.submitted) == 1
    assert (await scenario.order_record()).state is OrderState.CLOSED
    assert {line.state for line in await scenario.lines()} == {LineState.COMPLETED}
    assert scenario.world.lis.cancelled == []


async def test_task_completed_by_others_without_our_report_is_withdrawn(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(2)
    await scenario.process_all()
    await upload_report(scenario, status="preliminary")
    for task in (*scenario.line_tasks, scenario.task):
        scenario.world.end_task(task, "completed")
    await settle(scenario)
    assert {line.state for line in await scenario.lines()} == {LineState.WITHDRAWN}
    assert len(scenario.world.lis.cancelled) >= 1
    assert await scenario.world.store.run(load_restoration) is None


async def test_nothing_is_done_while_own_reports_cannot_be_read(
    make_scenario: MakeScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = make_scenario(2)
    await finish_after_backup(scenario)
    find = scenario.agent.exchange.find

    async def refuse(*_: object) -> None:
        raise ServiceRejected("the search is not allowed", status=403)

    monkeypatch.setattr(scenario.agent.exchange, "find", refuse)
    await settle(scenario)
    assert (await scenario.agent.reconcile.run()).missed == 1
    assert {line.state for line in await scenario.lines()} == {LineState.ACCEPTED}
    assert scenario.world.lis.cancelled == []
    assert await scenario.is_told(ConditionId.LINES_TASK_UNREADABLE)
    monkeypatch.setattr(scenario.agent.exchange, "find", find)
    assert (await scenario.agent.reconcile.run()).missed == 0
    await settle(scenario)
    assert (await scenario.order_record()).state is OrderState.CLOSED


async def restore_before_handover(scenario: Scenario, *, submitted: bool) -> None:
    """Back up before the handover; with `submitted`, it is done after that. The backup is put back, noticed and released."""
    await scenario.assess()
    backup = Restore(scenario)
    if submitted:
        await scenario.world.drain(scenario.agent)
        assert len(scenario.world.lis.submitted) == 1
    backup.put_back()
    now = scenario.world.clock.now()
    await write(scenario, lambda uow: note_restoration(uow, RestoreSign.COMMAND, now))
    await write(scenario, lambda uow: note_reconciled(uow, now))
    await write(scenario, lambda uow: release_restoration(uow, now, "anna"))
    await scenario.world.drain(scenario.agent)


@pytest.mark.parametrize("submitted", [True, False])
async def test_handover_after_restore_asks_first(make_scenario: MakeScenario, submitted: bool) -> None:
    scenario = make_scenario(2)
    await restore_before_handover(scenario, submitted=submitted)
    assert len(scenario.world.lis.submitted) == 1
    assert (await scenario.order_record()).state is OrderState.HANDED_OVER


async def test_handover_that_nobody_can_verify_waits_for_a_person(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(2)
    scenario.world.lis.can_confirm = False
    await restore_before_handover(scenario, submitted=True)
    assert len(scenario.world.lis.submitted) == 1
    (job,) = [each for each in await scenario.jobs() if each.kind is JobKind.SUBMIT_ORDER]
    assert job.state is JobState.NEEDS_REVIEW


async def test_new_order_after_release_is_submitted_at_once(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(2)
    now = scenario.world.clock.now()
    await write(scenario, lambda uow: note_restoration(uow, RestoreSign.COMMAND, now))
    await write(scenario, lambda uow: note_reconciled(uow, now))
    await write(scenario, lambda uow: release_restoration(uow, now, "anna"))
    scenario.world.lis.can_confirm = False
    scenario.world.clock.advance(1)
    await scenario.process_all()
    assert len(scenario.world.lis.submitted) == 1


async def test_withdrawals_are_told_after_the_release(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(2)
    await scenario.process_all()
    now = scenario.world.clock.now()
    await write(scenario, lambda uow: note_restoration(uow, RestoreSign.COMMAND, now))
    for task in (*scenario.line_tasks, scenario.task):
        scenario.world.end_task(task)
    await scenario.agent.reconcile.run()
    await write(scenario, lambda uow: note_reconciled(uow, now))
    now = scenario.world.clock.now()
    await write(scenario, lambda uow: release_restoration(uow, now, "anna"))
    await scenario.world.drain(scenario.agent)
    assert scenario.world.lis.cancelled
    assert (await scenario.order_record()).state is OrderState.CLOSED


async def test_release_before_comparison_is_refused(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(1)
    now = scenario.world.clock.now()
    await write(scenario, lambda uow: note_restoration(uow, RestoreSign.COMMAND, now))
    with pytest.raises(InvalidTransitionError):
        await write(scenario, lambda uow: release_restoration(uow, now, "anna"))
