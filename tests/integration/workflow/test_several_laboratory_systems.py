"""One order, several laboratory systems: each has its own part of it, and what one does holds back no other."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest

from lab_agent.operations.attention_alerts import AttentionAlerts
from lab_agent.orders import job_actions
from lab_agent.orders.pause_actions import pause_adapter, resume_adapter
from lab_agent.orders.unconfirmed_orders import UnconfirmedOrders
from lab_agent.queue.claiming import ClaimedJob
from lab_agent.queue.job_records import JobKind
from lab_agent.shared.conditions.model import AlertKey, ConditionId
from lab_agent.shared.state_machines import JobState, LineState, OrderState, ReportState, WorkOrderState
from lab_agent.store.crypto import Cipher, new_key
from lab_agent.store.schema import upgrade
from lab_agent.store.unit_of_work import Store, UnitOfWork
from tests.harness.clock import DEADLINE
from tests.harness.jobs import claim_jobs
from tests.integration.workflow.laboratories import CHEMISTRY, MICROBIOLOGY, NOTE, Laboratory, make_laboratory


@pytest.fixture
def laboratory() -> Laboratory:
    return make_laboratory()


async def test_each_laboratory_system_gets_its_own_lines(laboratory: Laboratory) -> None:
    await laboratory.process_all()
    ((chemistry,), (culture,)) = laboratory.chemistry.submitted, laboratory.microbiology.submitted
    assert (len(chemistry.lines), len(culture.lines)) == (2, 1)
    assert {line.key for line in culture.lines} == {line.key for line in await laboratory.lines_at(MICROBIOLOGY)}
    for part in (chemistry, culture):
        assert {each.id for each in part.specimens} == {each for line in part.lines for each in line.specimens}
        assert part.answers == chemistry.answers
    assert chemistry.key == culture.key == laboratory.key
    assert await laboratory.state() is OrderState.HANDED_OVER
    assert set((await laboratory.work_orders()).values()) == {WorkOrderState.HANDED_OVER}


async def test_system_that_is_down_holds_no_other_back(laboratory: Laboratory) -> None:
    laboratory.microbiology.is_down = True
    await laboratory.process_all()
    assert laboratory.counts == (1, 0)
    assert await laboratory.state() is OrderState.FETCHED, "it is handed over when all of it is"
    assert (await laboratory.receive(laboratory.report())).state is ReportState.DELIVERED
    assert await laboratory.states_at(CHEMISTRY) == {LineState.COMPLETED}
    assert await laboratory.states_at(MICROBIOLOGY) == {LineState.ACCEPTED}
    assert sorted(laboratory.statuses()) == ["completed", "completed", "requested"]
    assert laboratory.status() == "requested", "the order waits for its other part"
    laboratory.microbiology.is_down = False
    await laboratory.wait()
    assert (laboratory.counts, await laboratory.state()) == ((1, 1), OrderState.HANDED_OVER)
    await laboratory.receive(laboratory.report(report_id="culture"), MICROBIOLOGY)
    assert {*laboratory.statuses(), laboratory.status()} == {"completed"}
    assert await laboratory.state() is OrderState.CLOSED


# --- a system that is paused


async def decide_about(laboratory: Laboratory, decide: Any) -> None:
    """Pause or resume microbiology."""
    await laboratory.write(lambda uow: decide(uow, MICROBIOLOGY, **NOTE, now=laboratory.world.clock.now()))


async def test_paused_system_is_told_nothing_and_its_results_are_delivered(laboratory: Laboratory) -> None:
    """Neither of a handover nor of a withdrawal, also after a restart; what it sends is never refused."""
    await decide_about(laboratory, pause_adapter)
    await laboratory.process_all()
    await laboratory.wait()
    assert laboratory.counts == (1, 0)
    await decide_about(laboratory, resume_adapter)
    await laboratory.drain()
    assert laboratory.counts == (1, 1)
    (line,) = await laboratory.lines_at(MICROBIOLOGY)
    await decide_about(laboratory, pause_adapter)
    laboratory.end(line.task_id)
    await laboratory.reconcile()
    laboratory.restart()
    await laboratory.wait()
    assert laboratory.microbiology.cancelled == []
    assert (await laboratory.receive(laboratory.report())).state is ReportState.DELIVERED
    await decide_about(laboratory, resume_adapter)
    await laboratory.drain()
    assert (laboratory.microbiology.cancelled, laboratory.chemistry.cancelled) == ([(line.order, (line.key,))], [])


@pytest.mark.slow
async def test_paused_system_is_not_asked_about_a_handover_in_doubt(
    laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = laboratory.world
    await laboratory.assess()
    for claimed in await claim_jobs(laboratory.agent.runner, [JobKind.SUBMIT_ORDER], 9):
        job = claimed.job.mark_started(world.clock.now()).needs_review(world.clock.now(), "no answer")
        await laboratory.write(lambda uow, job=job: uow.jobs.save(job))  # type: ignore[misc]
    asked: list[str] = []
    for name in (CHEMISTRY, MICROBIOLOGY):

        async def was_received(_: Any, name: str = name) -> None:
            asked.append(name)

        monkeypatch.setattr(laboratory.agent.adapters.get(name), "was_received", was_received)
    unconfirmed = UnconfirmedOrders(world.store, world.clock, laboratory.agent.adapters)
    await decide_about(laboratory, pause_adapter)
    await unconfirmed.run()
    assert asked == [CHEMISTRY]
    await decide_about(laboratory, resume_adapter)
    await unconfirmed.run()
    assert sorted(asked) == [CHEMISTRY, CHEMISTRY, MICROBIOLOGY]


# --- handovers that fail


@pytest.mark.parametrize("is_in_doubt", [False, True])
async def test_crash_between_two_handovers_repeats_none(laboratory: Laboratory, is_in_doubt: bool) -> None:
    """The process dies after the first of them, or before its answer: that system alone is asked whether it has its part."""
    await laboratory.assess()
    (first,) = await claim_jobs(laboratory.agent.runner, [JobKind.SUBMIT_ORDER], 1)
    doomed = laboratory.agent
    adapter: Any = doomed.adapters.get(str(first.job.payload["adapter"]))
    submit = adapter.submit

    async def dies_after_submit(order: Any) -> Any:
        await submit(order)
        doomed.injector.dead = True
        await doomed.injector.checkpoint("after submit")

    if is_in_doubt:
        adapter.submit = dies_after_submit
    doomed.spawn(doomed.runner.run(first))
    await doomed.wait_idle()
    assert sum(laboratory.counts) == 1
    laboratory.restart()
    await laboratory.wait(10)
    assert (laboratory.counts, await laboratory.state()) == ((1, 1), OrderState.HANDED_OVER)
    assert set((await laboratory.work_orders()).values()) == {WorkOrderState.HANDED_OVER}


async def test_rejected_part_dismissed_cancels_its_lines_alone(laboratory: Laboratory) -> None:
    laboratory.microbiology.rejects = True
    await laboratory.process_all()
    await laboratory.dismiss_dead_letter()
    assert await laboratory.states_at(MICROBIOLOGY) == {LineState.CANCELLED}
    assert await laboratory.states_at(CHEMISTRY) == {LineState.ACCEPTED}
    assert await laboratory.state() is OrderState.HANDED_OVER
    await laboratory.receive(laboratory.report())
    assert (sorted(laboratory.statuses()), laboratory.status()) == (["cancelled", "completed", "completed"], "completed")


@pytest.mark.slow
async def test_changed_route_moves_no_line(laboratory: Laboratory) -> None:
    await laboratory.assess()
    laboratory.restart("lis", routes=())
    await laboratory.process_all()
    assert laboratory.counts == (1, 1)


@pytest.mark.slow
async def test_retry_leaves_the_system_in_doubt_alone(laboratory: Laboratory) -> None:
    """Nobody knows whether chemistry has its part; microbiology's goes out all the same."""
    await laboratory.assess()
    store, now = laboratory.world.store, laboratory.world.clock.now()

    def leave_in_doubt(uow: Any) -> None:
        (claimed,) = uow.jobs.claim({frozenset({JobKind.SUBMIT_ORDER}): 1}, owner="x", now=now, lease=timedelta(seconds=5))
        uow.jobs.save(claimed.needs_review(now, "nobody can tell"))

    await laboratory.write(leave_in_doubt)
    handovers = [job for job in await laboratory.jobs() if job.kind is JobKind.SUBMIT_ORDER]
    (first, second) = sorted(handovers, key=lambda job: job.state is not JobState.NEEDS_REVIEW)
    retried = await job_actions.retry_order(store, laboratory.key, by="eve", now=now)
    assert [job.id for job in retried.unverified] == [first.id]
    assert second.id in {job.id for job in retried.jobs}


@pytest.mark.slow
async def test_system_without_a_table_is_told_as_long_as_it_has_lines(laboratory: Laboratory) -> None:
    await laboratory.process_all()
    store, clock = laboratory.world.store, laboratory.world.clock
    await AttentionAlerts(store, clock, timedelta(hours=1), {CHEMISTRY: "the adapter folder cannot be loaded"}).run()
    broken, removed = AlertKey(ConditionId.LIS_NOT_LOADED, CHEMISTRY), AlertKey(ConditionId.LIS_REMOVED, MICROBIOLOGY)
    alerts = laboratory.open_alerts()
    assert (alerts[broken].detail, alerts[removed].count > 0) == ("the adapter folder cannot be loaded", True)
    await laboratory.receive(laboratory.report(), MICROBIOLOGY)
    await AttentionAlerts(store, clock, timedelta(hours=1), {CHEMISTRY: None}).run()
    assert laboratory.open_alerts().keys().isdisjoint({broken, removed})


# --- withdrawals, and orders taken back


async def test_part_withdrawn_before_its_handover_is_not_handed_over() -> None:
    laboratory = make_laboratory(acknowledge_status="in-progress")
    laboratory.microbiology.is_down = True
    await laboratory.process_all()
    assert sorted(laboratory.statuses()) == ["in-progress", "in-progress", "requested"], "what is handed over is acknowledged"
    assert laboratory.status() == "requested"
    (line,) = await laboratory.lines_at(MICROBIOLOGY)
    laboratory.end(line.task_id)
    await laboratory.reconcile(drain=False)
    laboratory.microbiology.is_down = False
    await laboratory.wait()
    assert (laboratory.counts, await laboratory.state()) == ((1, 0), OrderState.HANDED_OVER)
    assert laboratory.status() == "in-progress"
    assert (await laboratory.work_orders())[MICROBIOLOGY] is WorkOrderState.CANCELLED


@pytest.mark.parametrize("is_rejected", [False, True])
async def test_part_of_an_order_that_ended_before_its_handover_is_cancelled(laboratory: Laboratory, is_rejected: bool) -> None:
    """Its system was away, or had rejected it, which an operator dismisses."""
    laboratory.microbiology.is_down, laboratory.microbiology.rejects = not is_rejected, is_rejected
    await laboratory.process_all()
    laboratory.microbiology.is_down = False
    laboratory.end(laboratory.task)
    if is_rejected:
        await laboratory.reconcile()
        await laboratory.dismiss_dead_letter()
    await laboratory.wait()
    assert laboratory.counts == (1, 0)
    assert (await laboratory.work_orders())[MICROBIOLOGY] is WorkOrderState.CANCELLED


async def test_task_on_hold_keeps_back_what_is_not_handed_over(laboratory: Laboratory) -> None:
    """One part is at its system when the partner puts the order on hold: the other waits, and goes on with the order.

    Its alert ends when it is submitted; an operator's retry counts the attempts anew, and the part waited all the same.
    """
    laboratory.microbiology.is_down = True
    await laboratory.process_all()
    laboratory.force("on-hold", laboratory.task)
    laboratory.microbiology.is_down = False
    await laboratory.wait()
    assert laboratory.counts == (1, 0)
    assert await laboratory.is_told(ConditionId.ORDERS_PART_WAITS)
    laboratory.microbiology.rejects = True
    laboratory.force("requested", laboratory.task)
    await laboratory.wait()
    assert not await laboratory.is_told(ConditionId.ORDERS_PART_WAITS), "it waits for no order on hold any more"
    assert await laboratory.is_told(ConditionId.JOBS_LIS_REJECTED)
    laboratory.microbiology.rejects = False
    job = await laboratory.dead_letter()
    await job_actions.retry_job(laboratory.world.store, job.id, by="eve", now=laboratory.world.clock.now())
    await laboratory.drain()
    assert laboratory.counts == (1, 1)
    assert not await laboratory.is_told(ConditionId.JOBS_LIS_REJECTED)


@pytest.mark.slow
async def test_order_taken_back_is_handed_over_once(laboratory: Laboratory) -> None:
    """Nothing went out when the order was put on hold: it is held as a whole, and decided and handed over once more."""
    await laboratory.assess()
    laboratory.force("on-hold", laboratory.task)
    await laboratory.wait(10)
    assert await laboratory.state() is OrderState.HELD
    laboratory.force("requested", laboratory.task)
    await laboratory.wait()
    assert (laboratory.counts, await laboratory.state()) == ((1, 1), OrderState.HANDED_OVER)


async def test_line_withdrawn_right_before_the_handover_is_not_handed_over(laboratory: Laboratory) -> None:
    """The partner cancels it after the look at the Tasks, and reconciliation sees that before anything is submitted."""
    await laboratory.assess()
    withdrawn = (await laboratory.lines_at(CHEMISTRY))[0]
    adapter: Any = laboratory.agent.adapters.get(CHEMISTRY)
    prepare = adapter.prepare

    async def withdraw_meanwhile(order: Any) -> None:
        adapter.prepare = prepare
        laboratory.end(withdrawn.task_id)
        await laboratory.reconcile(drain=False)
        await prepare(order)

    adapter.prepare = withdraw_meanwhile
    await laboratory.drain()
    [order] = laboratory.chemistry.submitted
    assert (withdrawn.key in {line.key for line in order.lines}, len(order.lines)) == (False, 1)
    assert await laboratory.state() is OrderState.HANDED_OVER


@pytest.mark.slow
async def test_part_that_was_loaded_before_its_order_was_taken_back_is_not_handed_over(postgres_url: str) -> None:
    """Two workers on one PostgreSQL: the claim of one part, not committed yet, is unseen by the one that takes the order back."""
    one_handover = {frozenset({JobKind.SUBMIT_ORDER}): 1}
    upgrade(postgres_url)
    store = Store(postgres_url, Cipher(new_key()))
    try:
        laboratory = make_laboratory(store=store)
        one, two = laboratory.agent, laboratory.world.agent("two")
        await laboratory.assess()
        [first] = await one.runner.claimer.claim(one_handover)
        claimed, taken_back = threading.Event(), threading.Event()

        def claim_slowly(uow: UnitOfWork) -> tuple[ClaimedJob, ...]:
            found = two.runner.claimer.claim_in(uow, one_handover, load=True)
            claimed.set()
            assert taken_back.wait(DEADLINE)
            return found

        claiming = asyncio.create_task(store.transact(claim_slowly))
        assert await asyncio.to_thread(claimed.wait, 20)
        laboratory.force("on-hold", laboratory.task)
        await one.runner.run(first)
        assert await laboratory.state() is OrderState.HELD
        laboratory.force("requested", laboratory.task)
        taken_back.set()
        [second] = await claiming
        await two.runner.run(second)
        assert (await laboratory.state(), laboratory.counts) == (OrderState.HELD, (0, 0))
        await laboratory.wait(60)
        assert laboratory.counts == (1, 1)
        assert set((await laboratory.work_orders()).values()) == {WorkOrderState.HANDED_OVER}
        assert set(await laboratory.line_states()) == {LineState.ACCEPTED}
    finally:
        await store.close()
