"""A database restored from a backup: what was done since is found out, and no laboratory system is told anything wrong."""

from __future__ import annotations

import pytest

from lab_agent.bootstrap import build_code_systems
from lab_agent.fhir.report_builder import order_identifier
from lab_agent.orders.restored_store import load_restoration, note_reconciled, note_restoration, release_restoration
from lab_agent.queue.job_records import JobKind
from lab_agent.shared.conditions.model import ConditionId
from lab_agent.shared.errors import InvalidTransitionError, ServiceRejected
from lab_agent.shared.state_machines import JobState, LineState, OrderState
from lab_agent.store.restoration import RestoreSign
from lab_agent.store.unit_of_work import UnitOfWork
from tests.integration.workflow.conftest import MakeScenario, Scenario


async def upload_report(scenario: Scenario, status: str = "final") -> None:
    """Our report about every line of the order is on the service."""
    (part,) = await scenario.world.store.transact(lambda uow: uow.orders.work_orders(scenario.key))
    identifier, order = order_identifier(scenario.world.settings.order_system, part.key), await scenario.order_record()
    body = {
        "resourceType": "DiagnosticReport",
        "meta": {"security": [{"system": "read", "code": order.counterparty}]},
        "identifier": [{"system": identifier.system, "value": identifier.value}],
        "status": status,
        "code": {"coding": [{"system": build_code_systems(scenario.world.settings).nomenclature.url, "code": "1"}]},
        "subject": {"reference": order.patient_reference},
        "effectiveDateTime": "2026-01-05T10:00:00+03:00",
        "issued": "2026-01-05T10:00:00+03:00",
        "basedOn": [{"reference": f"procedurerequest/{line.procedure_request_id}"} for line in await scenario.lines()],
    }
    await scenario.agent.exchange.create("DiagnosticReport", body)


async def finish_after_backup(scenario: Scenario, *, handed_over: bool = True) -> None:
    """The order is handed over, then backed up, or the other way round, then done; last the backup is put back."""
    await (scenario.process_all() if handed_over else scenario.assess())
    put_back = scenario.world.store.back_up()  # type: ignore[attr-defined]
    await scenario.drain()
    await upload_report(scenario)
    await scenario.finish()
    assert scenario.status() == "completed"
    put_back()
    assert await scenario.state() is (OrderState.HANDED_OVER if handed_over else OrderState.FETCHED)


async def expect_done_once(scenario: Scenario) -> None:
    assert set(await scenario.line_states()) == {LineState.COMPLETED}
    assert await scenario.state() is OrderState.CLOSED
    assert (len(scenario.handed_over), scenario.told_lis) == (1, [])


async def test_finished_order_is_taken_as_done(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(2)
    await finish_after_backup(scenario)
    await scenario.reconcile(3)
    await expect_done_once(scenario)
    restored = await scenario.world.store.transact(load_restoration)
    assert restored is not None
    assert restored.sign is RestoreSign.OWN_REPORTS
    assert await scenario.is_told(ConditionId.AGENT_SECOND_AGENT), "no mark says that it was restored"


async def test_finished_order_not_handed_over_in_backup_is_not_submitted_again(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(2)
    await finish_after_backup(scenario, handed_over=False)
    await scenario.reconcile(3)
    await expect_done_once(scenario)


async def test_task_completed_by_others_without_our_report_is_withdrawn(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(2)
    await scenario.process_all()
    await upload_report(scenario, status="preliminary")
    scenario.end(status="completed")
    await scenario.reconcile(3)
    assert set(await scenario.line_states()) == {LineState.WITHDRAWN}
    assert scenario.told_lis
    assert await scenario.world.store.transact(load_restoration) is None


async def test_nothing_is_done_while_own_reports_cannot_be_read(
    make_scenario: MakeScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = make_scenario(2)
    await finish_after_backup(scenario)

    async def refuse(*_: object) -> None:
        raise ServiceRejected("the search is not allowed", status=403)

    with monkeypatch.context() as refused:
        refused.setattr(scenario.agent.exchange, "find", refuse)
        await scenario.reconcile(3)
        assert (await scenario.agent.reconcile.run()).missed == 1
        assert (set(await scenario.line_states()), scenario.told_lis) == ({LineState.ACCEPTED}, [])
        assert await scenario.is_told(ConditionId.LINES_TASK_UNREADABLE)
    assert (await scenario.agent.reconcile.run()).missed == 0
    await scenario.reconcile(3)
    await expect_done_once(scenario)


async def note_and_release(scenario: Scenario) -> None:
    """A restore is noticed, what is open compared, and released."""
    now = scenario.world.clock.now()

    def work(uow: UnitOfWork) -> None:
        note_restoration(uow, RestoreSign.COMMAND, now)
        note_reconciled(uow, now)
        release_restoration(uow, now, "anna")

    await scenario.write(work)


@pytest.mark.parametrize(("submitted", "can_confirm"), [(True, True), (True, False), (False, True)])
async def test_handover_after_restore_asks_first(make_scenario: MakeScenario, submitted: bool, can_confirm: bool) -> None:
    """The backup is of before the handover; a system that cannot tell whether it has the order leaves it to a person."""
    scenario = make_scenario(2)
    scenario.world.lis.can_confirm = can_confirm
    await scenario.assess()
    put_back = scenario.world.store.back_up()  # type: ignore[attr-defined]
    if submitted:
        await scenario.drain()
        assert scenario.handed_over == [2]
    put_back()
    await note_and_release(scenario)
    await scenario.drain()
    assert scenario.handed_over == [2]
    if can_confirm:
        assert await scenario.state() is OrderState.HANDED_OVER
    else:
        assert [job.state for job in await scenario.jobs() if job.kind is JobKind.SUBMIT_ORDER] == [JobState.NEEDS_REVIEW]


async def test_new_order_after_release_is_submitted_at_once(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(2)
    await note_and_release(scenario)
    scenario.world.lis.can_confirm = False
    await scenario.recheck(1)
    assert scenario.handed_over == [2]


async def test_withdrawals_are_told_after_the_release(make_scenario: MakeScenario) -> None:
    """There is none before what is open was compared."""
    scenario = make_scenario(2)
    await scenario.process_all()
    now = scenario.world.clock.now()
    await scenario.write(lambda uow: note_restoration(uow, RestoreSign.COMMAND, now))
    with pytest.raises(InvalidTransitionError):
        await scenario.write(lambda uow: release_restoration(uow, now, "anna"))
    scenario.end()
    await scenario.reconcile(drain=False)
    await scenario.write(lambda uow: note_reconciled(uow, now))
    await scenario.write(lambda uow: release_restoration(uow, now, "anna"))
    await scenario.drain()
    assert scenario.told_lis
    assert await scenario.state() is OrderState.CLOSED
