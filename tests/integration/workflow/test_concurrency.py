"""Each interleaving that must come out right, as far as the workflow decides it, by its own name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from lab_agent.orders import job_actions
from lab_agent.orders.unconfirmed_orders import UnconfirmedOrders
from lab_agent.queue.job_lease import JobLease
from lab_agent.queue.job_records import JobKind
from lab_agent.shared.conditions.model import ConditionId
from lab_agent.shared.errors import InvalidTransitionError, LeaseLostError
from lab_agent.shared.state_machines import JobState, LineState, OrderState
from tests.harness.fault_injection import FaultInjector, SimulatedCrash
from tests.harness.jobs import claim_jobs
from tests.integration.workflow.conftest import MakeScenario, Scenario, listen


class LostAnswer(FaultInjector):
    """Lets the answer to the next call of one method be lost, and nothing else happen."""

    def __init__(self, method: str) -> None:
        super().__init__(rng=Random(1))
        self.method = method
        self.lost = 0

    async def checkpoint(self, name: str) -> None:
        self.last = name

    def draw_fault(self, *kinds: str) -> str | None:
        if "lost" in kinds and self.method in self.last.split() and not self.lost:
            self.lost += 1
            return "lost"
        return None


def lose_one_answer(scenario: Scenario, method: str) -> LostAnswer:
    """From now on the worker's next call of that method is done, and its answer is lost."""
    injector = LostAnswer(method)
    for part in (scenario.agent._http._transport, scenario.agent.adapters.get(), scenario.agent.store):  # type: ignore[attr-defined]
        part._injector = injector
    return injector


async def test_reconcile_after_lost_completed_response_keeps_line_completed(make_scenario: MakeScenario) -> None:
    """Our update to completed arrived and its response was lost; then reconciliation runs."""
    scenario = make_scenario(1)
    await scenario.process_all()
    await scenario.report_all()
    injector = lose_one_answer(scenario, "PUT")
    await scenario.agent.run_jobs(JobKind.UPDATE_LINE_TASK)
    assert (injector.lost, scenario.statuses()) == (1, ["completed"])
    assert [e.state for e in await scenario.jobs() if e.kind is JobKind.UPDATE_LINE_TASK] == [JobState.OUTCOME_UNKNOWN]
    await scenario.reconcile(drain=False)
    assert await scenario.line_states() == [LineState.COMPLETED]
    await scenario.drain()
    assert (await scenario.state(), scenario.told_lis) == (OrderState.CLOSED, [])
    assert scenario.world.status_history(scenario.line_tasks[0]).count("completed") == 1


async def test_reconcile_skips_tasks_with_open_jobs(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(2, acknowledge_status="accepted")
    await scenario.assess()
    await scenario.agent.run_jobs(JobKind.SUBMIT_ORDER)
    scenario.end(scenario.line_tasks[0])
    await scenario.reconcile(drain=False)
    assert await scenario.line_states() == [LineState.ACCEPTED] * 2
    await scenario.drain()
    assert await scenario.line_states() == [LineState.WITHDRAWN, LineState.ACCEPTED]
    assert scenario.statuses() == ["cancelled", "accepted"]


# --- the handover


async def test_submit_with_lost_answer_is_verified_not_repeated(make_scenario: MakeScenario) -> None:
    """A laboratory system that cannot tell whether it has the order leaves it to a person; its late answer settles it."""
    scenario = make_scenario(1)
    world = scenario.world
    world.lis.can_confirm = False
    await scenario.assess()
    injector = lose_one_answer(scenario, "submit")
    await scenario.drain()
    assert (injector.lost, scenario.handed_over) == (1, [1])
    unconfirmed = UnconfirmedOrders(world.store, world.clock, scenario.agent.adapters)
    assert await unconfirmed.run() == 0
    assert [job.state for job in await scenario.jobs()] == [JobState.NEEDS_REVIEW]
    world.lis.can_confirm = True
    assert await unconfirmed.run() == 1
    await scenario.drain()
    assert (await scenario.state(), scenario.handed_over) == (OrderState.HANDED_OVER, [1])
    assert await unconfirmed.run() == 0


async def test_submit_in_doubt_is_left_to_the_operator(make_scenario: MakeScenario) -> None:
    """An answer that settles nothing does not make the program try for ever, and a retry of all jobs leaves it alone."""
    scenario = make_scenario(1)
    world = scenario.world
    await scenario.assess()
    (submit,) = [job for job in await scenario.jobs() if job.kind is JobKind.SUBMIT_ORDER]
    unconfirmed = UnconfirmedOrders(world.store, world.clock, scenario.agent.adapters)

    def set_aside(uow: Any) -> None:
        held = replace(uow.jobs.get(submit.id), state=JobState.IN_FLIGHT)  # as a worker had it
        uow.jobs.save(held.needs_review(world.clock.now(), "internal error"))

    for count in (1, 1, 1, 0, 0):
        await world.store.transact(set_aside)
        assert await unconfirmed.run() == count
    with pytest.raises(InvalidTransitionError, match=f"outbox done {submit.id}"):
        await job_actions.retry_order(world.store, scenario.key, by="eve", now=world.clock.now())
    assert scenario.handed_over == []


async def test_fetch_order_job_cannot_be_dismissed(make_scenario: MakeScenario) -> None:
    """An order is not left without an assessment."""
    scenario = make_scenario(1)
    await scenario.agent.poll.run()
    (fetch,) = await scenario.jobs()
    with pytest.raises(InvalidTransitionError):
        await job_actions.dismiss_job(scenario.world.store, fetch.id, by="eve", note="no", now=scenario.world.clock.now())


async def test_lines_that_the_answer_does_not_name_are_in_the_timeline(make_scenario: MakeScenario) -> None:
    """The order is handed over, since it was accepted; whoever looks for the other lines finds why they wait."""
    scenario = make_scenario(3)
    scenario.world.lis.names_first_line_only = True
    await scenario.process_all()
    assert (await scenario.state(), await scenario.line_states()) == (OrderState.HANDED_OVER, [LineState.ACCEPTED] * 3)
    [told], [submitted] = scenario.told("lines_not_named"), scenario.world.lis.submitted
    assert [line.key in told for line in submitted.lines] == [False, True, True]


async def test_expired_lease_holder_cannot_write(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(1)
    await scenario.assess()
    world = scenario.world
    (first,) = await claim_jobs(scenario.agent.runner, [JobKind.SUBMIT_ORDER], 1)
    world.clock.advance(world.settings.worker.lease + 1)
    (again,) = await claim_jobs(world.agent("other").runner, [JobKind.SUBMIT_ORDER], 1)
    assert again.job.id == first.job.id
    assert again.job.fencing_token > first.job.fencing_token
    with pytest.raises(LeaseLostError):
        await JobLease(first.job, world.store, world.clock, timedelta(seconds=180)).mark_started()
    await scenario.agent.runner.run(first)
    assert await scenario.state() is OrderState.FETCHED
    assert scenario.handed_over == [], "a late owner must not reach the laboratory system"


async def test_crash_between_commit_and_call_submits_once(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(1)
    await scenario.assess()

    async def dies(name: str) -> None:
        if name == "before submit":
            raise SimulatedCrash(name)

    scenario.agent.injector.checkpoint = dies  # type: ignore[method-assign]
    with pytest.raises(SimulatedCrash):
        await scenario.agent.run_jobs(JobKind.SUBMIT_ORDER)
    assert scenario.handed_over == []
    scenario.agent = scenario.world.agent("next")
    await scenario.drain(scenario.world.settings.worker.lease + 1)
    assert scenario.handed_over == [1]


# --- lines that come late


async def test_lines_missing_at_first_fetch_are_awaited(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(3)
    scenario.agent.injector.faults = 1.0
    scenario.agent.injector.draw_fault = lambda *kinds: "short" if kinds == ("short",) else None  # type: ignore[method-assign]
    await scenario.process_all()
    assert (len(await scenario.lines()), scenario.handed_over) == (3, [3])


async def reconcile_at(scenario: Scenario, method: str, change: Callable[[], object]) -> list[str]:
    """The order's last report comes; then the first call of that method is followed by a change and a reconciliation.

    Gives the states of the lines after that.
    """
    exchange: Any = scenario.agent.exchange
    call, seen = getattr(exchange, method), list[str]()

    async def and_reconcile(*args: Any, **options: Any) -> Any:
        answer = await call(*args, **options)
        is_last = method != "update" or args[1] == scenario.task
        if not seen and is_last and await scenario.state() is OrderState.REPORTED:
            seen.append("begun")
            change()
            await scenario.reconcile(drain=False)
            seen[:] = [state.value for state in await scenario.line_states()]
        return answer

    setattr(exchange, method, and_reconcile)
    await scenario.finish()
    return sorted(seen)


@pytest.mark.parametrize("when", ["open", "before the end", "line_tasks", "read", "update"])
async def test_line_that_comes_late_is_held_until_decided(make_scenario: MakeScenario, when: str) -> None:
    """While the order is open, right before its end, between the look for late lines and the update of the order-level Task,
    or while that is sent: the line is not lost with the order, and a person decides about it.
    """
    scenario = make_scenario(1)
    await scenario.process_all()
    late: list[str] = []

    def add_line() -> None:
        late.append(scenario.world.add_late_line(scenario.task))

    if when in {"open", "before the end"}:
        add_line()
        await scenario.reconcile(2 if when == "open" else 0, drain=False)
        await scenario.finish()
    else:
        assert await reconcile_at(scenario, when, add_line) == ["completed", "held"]
    (first, line) = await scenario.lines()
    assert (first.state, line.state, line.task_id) == (LineState.COMPLETED, LineState.HELD, late[0])
    assert line.item
    assert line.procedure_request_id
    assert scenario.status() == ("completed" if when == "update" else "requested"), "it waits for the late line"
    assert await scenario.state() is OrderState.HANDED_OVER
    assert await scenario.is_told(ConditionId.LINES_HELD)
    await scenario.reject_line(line.key, "came too late; order it anew")
    await scenario.drain(61)
    assert (scenario.status(late[0]), scenario.outputs(late[0])) == ("cancelled", ["came too late; order it anew"])
    assert (scenario.status(), await scenario.state()) == ("completed", OrderState.CLOSED)
    assert not await scenario.is_told(ConditionId.LINES_HELD)


async def test_line_put_back_while_the_order_is_about_to_end_is_kept(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(2)
    await scenario.process_all()
    put_back = scenario.line_tasks[0]
    seen = await reconcile_at(scenario, "line_tasks", lambda: scenario.force("requested", put_back))
    assert seen == sorted(await scenario.line_states()) == ["completed", "held"]
    assert (scenario.status(), await scenario.state()) == ("requested", OrderState.HANDED_OVER)


async def test_withdrawn_late_line_is_not_sent_to_lis(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(1)
    await scenario.process_all()
    late = scenario.world.add_late_line(scenario.task)
    await scenario.reconcile(drain=False)
    scenario.end(late)
    await scenario.reconcile()
    assert (await scenario.line_states(), scenario.told_lis) == ([LineState.ACCEPTED, LineState.WITHDRAWN], [])
    assert not await scenario.is_told(ConditionId.LINES_HELD)


# --- the poll


async def test_poll_skips_known_orders_without_further_reads(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(2)
    await scenario.process_all()
    asked = listen(scenario)
    assert scenario.status() == "requested"
    assert [await scenario.agent.poll.run() for _ in range(3)] == [0, 0, 0]
    assert len(asked) == 3
