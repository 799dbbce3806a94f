"""Each interleaving that must come out right, as far as the workflow decides it, by its own name."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from lab_agent.conditions.ids import ConditionId
from lab_agent.domain.job_records import JobKind
from lab_agent.domain.state_machines import JobState, LineState, OrderState
from lab_agent.errors import InvalidTransitionError, LeaseLostError
from lab_agent.rules.rule import Finding, Severity
from lab_agent.worker.job_lease import JobLease
from lab_agent.workflow import operator_orders
from lab_agent.workflow.order_assessment import reassess
from lab_agent.workflow.order_decision import RELEASE_HINT
from lab_agent.workflow.unconfirmed_orders import UnconfirmedOrders
from lab_sandbox.references import Ref
from tests.harness.fault_injection import FaultInjector, SimulatedCrash
from tests.harness.jobs import claim_jobs
from tests.integration.workflow.conftest import Scenario, pick_template

MakeScenario = Callable[..., Scenario]


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
    assert injector.lost == 1
    assert scenario.statuses() == ["completed"]
    assert [e.state for e in await scenario.jobs() if e.kind is JobKind.UPDATE_LINE_TASK] == [JobState.OUTCOME_UNKNOWN]

    await scenario.agent.reconcile.run()
    assert [line.state for line in await scenario.lines()] == [LineState.COMPLETED]
    await scenario.world.drain(scenario.agent)
    assert (await scenario.order_record()).state is OrderState.CLOSED
    assert scenario.world.status_history(scenario.line_tasks[0]).count("completed") == 1
    assert scenario.world.lis.cancelled == []


async def test_reconcile_skips_tasks_with_open_jobs(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(2, acknowledge_status="accepted")
    await scenario.assess()
    await scenario.agent.run_jobs(JobKind.SUBMIT_ORDER)
    scenario.world.end_task(scenario.line_tasks[0])
    await scenario.agent.reconcile.run()
    assert [line.state for line in await scenario.lines()] == [LineState.ACCEPTED] * 2
    await scenario.world.drain(scenario.agent)
    assert [line.state for line in await scenario.lines()] == [LineState.WITHDRAWN, LineState.ACCEPTED]
    assert scenario.statuses() == ["cancelled", "accepted"]


async def test_outputs_are_set_once_despite_lost_response(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(1, spoil=0)
    await scenario.assess()
    injector = lose_one_answer(scenario, "PUT")
    await scenario.world.drain(scenario.agent)
    assert injector.lost == 1
    assert len(scenario.outputs(scenario.line_tasks[0])) == 1
    assert scenario.status() == "cancelled"


async def test_submit_with_lost_answer_is_verified_not_repeated(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(1)
    await scenario.assess()
    injector = lose_one_answer(scenario, "submit")
    await scenario.world.drain(scenario.agent)
    assert injector.lost == 1
    assert len(scenario.world.lis.submitted) == 1
    assert (await scenario.order_record()).state is OrderState.HANDED_OVER


async def test_unverifiable_submit_waits_for_operator(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(1)
    scenario.world.lis.can_confirm = False
    await scenario.assess()
    lose_one_answer(scenario, "submit")
    await scenario.world.drain(scenario.agent)
    assert [e.state for e in await scenario.jobs()] == [JobState.NEEDS_REVIEW]
    assert len(scenario.world.lis.submitted) == 1


async def test_late_confirmation_settles_what_waits_for_operator(make_scenario: MakeScenario) -> None:
    """A laboratory system that answers after an operator was asked has answered."""
    scenario = make_scenario(1)
    world = scenario.world
    world.lis.can_confirm = False
    await scenario.assess()
    lose_one_answer(scenario, "submit")
    await world.drain(scenario.agent)
    unconfirmed = UnconfirmedOrders(world.store, world.clock, scenario.agent.adapters)
    assert await unconfirmed.run() == 0
    assert [e.state for e in await scenario.jobs()] == [JobState.NEEDS_REVIEW]
    world.lis.can_confirm = True
    assert await unconfirmed.run() == 1
    await world.drain(scenario.agent)
    assert (await scenario.order_record()).state is OrderState.HANDED_OVER
    assert len(world.lis.submitted) == 1
    assert await unconfirmed.run() == 0


async def test_handover_that_waits_again_is_left_to_the_operator(make_scenario: MakeScenario) -> None:
    """An answer that settles nothing does not make the program try for ever."""
    scenario = make_scenario(1)
    world = scenario.world
    await scenario.assess()
    unconfirmed = UnconfirmedOrders(world.store, world.clock, scenario.agent.adapters)

    def set_aside(uow: Any) -> None:
        job = next(
            each for each in uow.jobs.list_for_order(world.order_key_of(scenario.task)) if each.kind is JobKind.SUBMIT_ORDER
        )
        now = world.clock.now()
        held = replace(job, state=JobState.IN_FLIGHT)  # as a worker had it
        uow.jobs.save(held.needs_review(now, "internal error"))
        uow.commit()

    for count in (1, 1, 1, 0, 0):
        await world.store.run(set_aside)
        assert await unconfirmed.run() == count


async def test_lines_that_the_answer_does_not_name_are_in_the_timeline(make_scenario: MakeScenario) -> None:
    """The order is handed over, since it was accepted; whoever looks for the other lines finds why they wait."""
    scenario = make_scenario(3)
    scenario.world.lis.names_first_line_only = True
    await scenario.assess()
    await scenario.agent.run_jobs(JobKind.SUBMIT_ORDER)
    assert (await scenario.order_record()).state is OrderState.HANDED_OVER
    assert [line.state for line in await scenario.lines()] == [LineState.ACCEPTED] * 3
    [told] = [event.text for event in await scenario.events() if event.action == "lines_not_named"]
    [submitted] = scenario.world.lis.submitted
    assert [line.key in told for line in submitted.lines] == [False, True, True]


async def test_expired_lease_holder_cannot_write(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(1)
    await scenario.assess()
    world = scenario.world
    (first,) = await claim_jobs(scenario.agent.runner, [JobKind.SUBMIT_ORDER], 1)
    world.clock.advance(world.settings.worker.lease + 1)
    other = world.agent("other")
    (again,) = await claim_jobs(other.runner, [JobKind.SUBMIT_ORDER], 1)
    assert again.job.id == first.job.id
    assert again.job.fencing_token > first.job.fencing_token
    late = JobLease(first.job, world.store, world.clock, timedelta(seconds=180))
    with pytest.raises(LeaseLostError):
        await late.mark_started()
    await scenario.agent.runner.run(first)
    assert (await scenario.order_record()).state is OrderState.FETCHED
    assert world.lis.submitted == [], "a late owner must not reach the laboratory system"


async def test_start_renews_lease_to_outlast_the_call(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(1)
    await scenario.assess()
    (job,) = await claim_jobs(scenario.agent.runner, [JobKind.SUBMIT_ORDER], 1)
    lease = timedelta(seconds=scenario.world.settings.worker.lease)
    scenario.world.clock.advance(lease.total_seconds() * 0.9)
    await JobLease(job.job, scenario.world.store, scenario.world.clock, lease).mark_started()
    kept = await scenario.world.store.run(lambda uow: uow.jobs.get(job.job.id))
    assert kept is not None
    assert kept.lease_until == scenario.world.clock.now() + lease
    assert kept.started


async def test_lines_missing_at_first_fetch_are_awaited(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(3)
    scenario.agent.injector.faults = 1.0
    scenario.agent.injector.draw_fault = lambda *kinds: "short" if kinds == ("short",) else None  # type: ignore[method-assign]
    await scenario.process_all()
    assert len(await scenario.lines()) == 3
    assert [len(order.lines) for order in scenario.world.lis.submitted] == [3]


async def place_late_line(scenario: Scenario) -> str:
    """The partner adds one more Task to an order that the laboratory has."""
    service, config = scenario.world.service, scenario.world.service.config
    kept = service.resources.find(Ref("Task", scenario.line_tasks[0]))
    assert kept is not None
    body = {key: value for key, value in json.loads(kept.body).items() if key not in {"id", "meta"}} | {"status": "requested"}
    grants = {(right, config.counterparties[1].guid) for right in ("read", "updatebody")}
    return service.resources.create("Task", body, scenario.world.clinic, grants).ref.id


async def test_line_arriving_after_assessment_is_held_with_alert(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(1)
    await scenario.process_all()
    late = await place_late_line(scenario)
    await scenario.agent.reconcile.run()
    await scenario.agent.reconcile.run()
    (_, line) = await scenario.lines()
    assert (line.task_id, line.state) == (late, LineState.HELD)
    assert line.item
    assert line.procedure_request_id
    await scenario.report_all()
    await scenario.world.drain(scenario.agent)
    assert (await scenario.order_record()).state is OrderState.HANDED_OVER, "the order waits for the decision about the line"
    assert scenario.status(late) == "requested"
    assert await scenario.is_told(ConditionId.LINES_HELD)


async def test_line_arriving_before_order_end_is_kept(make_scenario: MakeScenario) -> None:
    """A line that comes just before the order ends is not lost with it."""
    scenario = make_scenario(1)
    await scenario.process_all()
    late = await place_late_line(scenario)
    await scenario.report_all()
    await scenario.world.drain(scenario.agent)
    (first, line) = await scenario.lines()
    assert first.state is LineState.COMPLETED
    assert (line.task_id, line.state) == (late, LineState.HELD)
    assert scenario.status() == "requested", "the order-level Task waits for the late line"
    assert (await scenario.order_record()).state is OrderState.HANDED_OVER
    now = scenario.world.clock.now()
    await operator_orders.reject_line(scenario.world.store, line.key, "came too late; order it anew", by="eve", now=now)
    scenario.world.clock.advance(61)
    await scenario.world.drain(scenario.agent)
    assert (scenario.status(late), scenario.status()) == ("cancelled", "completed")
    assert (await scenario.order_record()).state is OrderState.CLOSED


async def change_nothing() -> None:
    """Nothing happens but the reconciliation."""


def reconcile_at(scenario: Scenario, method: str, change: Callable[[], Awaitable[object]] = change_nothing) -> list[str]:
    """From the order's last report on, the first call of that method is followed by a change and by a reconciliation.

    Gives the states of the lines after that, once it has happened.
    """
    exchange, seen = scenario.agent.exchange, list[str]()
    call = getattr(exchange, method)

    async def and_reconcile(*args: Any, **options: Any) -> Any:
        answer = await call(*args, **options)
        is_last = method != "update" or args[1] == scenario.task
        if not seen and is_last and (await scenario.order_record()).state is OrderState.REPORTED:
            seen.append("begun")
            await change()
            await scenario.agent.reconcile.run()
            seen[:] = [line.state.value for line in await scenario.lines()]
        return answer

    setattr(exchange, method, and_reconcile)
    return seen


@pytest.mark.parametrize("method", ["line_tasks", "read"])
async def test_line_held_while_the_order_is_about_to_end_is_kept(make_scenario: MakeScenario, method: str) -> None:
    """A line comes, and reconciliation holds it, between the look for late lines and the update of the order-level Task."""
    scenario = make_scenario(1)
    await scenario.process_all()
    await scenario.report_all()
    seen = reconcile_at(scenario, method, lambda: place_late_line(scenario))
    await scenario.world.drain(scenario.agent)
    assert seen == ["completed", "held"]
    (_, line) = await scenario.lines()
    assert line.state is LineState.HELD
    assert scenario.status() == "requested", "the order-level Task waits for the late line"
    assert (await scenario.order_record()).state is OrderState.HANDED_OVER
    assert await scenario.is_told(ConditionId.LINES_HELD)


async def test_line_put_back_while_the_order_is_about_to_end_is_kept(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(2)
    await scenario.process_all()
    await scenario.report_all()

    async def put_back() -> None:
        scenario.world.force_task(scenario.line_tasks[0], status="requested")

    seen = reconcile_at(scenario, "line_tasks", put_back)
    await scenario.world.drain(scenario.agent)
    assert sorted(seen) == ["completed", "held"]
    assert sorted(line.state.value for line in await scenario.lines()) == ["completed", "held"]
    assert scenario.status() == "requested"
    assert (await scenario.order_record()).state is OrderState.HANDED_OVER


async def test_line_held_while_the_end_of_its_order_is_sent_is_decided_by_a_person(make_scenario: MakeScenario) -> None:
    """The order-level Task is completed already; the line is not withdrawn with the order, which ends after it."""
    scenario = make_scenario(1)
    await scenario.process_all()
    await scenario.report_all()
    seen = reconcile_at(scenario, "update", lambda: place_late_line(scenario))
    await scenario.world.drain(scenario.agent)
    assert seen == ["completed", "held"]
    (_, line) = await scenario.lines()
    assert line.state is LineState.HELD
    assert await scenario.is_told(ConditionId.LINES_HELD)
    assert (await scenario.order_record()).state is OrderState.HANDED_OVER
    now = scenario.world.clock.now()
    await operator_orders.reject_line(scenario.world.store, line.key, "came too late; order it anew", by="eve", now=now)
    await scenario.world.drain(scenario.agent)
    assert (scenario.status(line.task_id), scenario.status()) == ("cancelled", "completed")
    assert (await scenario.order_record()).state is OrderState.CLOSED


async def test_operator_rejects_a_late_line(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(1)
    await scenario.process_all()
    late = await place_late_line(scenario)
    await scenario.agent.reconcile.run()
    line = (await scenario.lines())[1]
    now = scenario.world.clock.now()
    await operator_orders.reject_line(scenario.world.store, line.key, "came too late; order it anew", by="eve", now=now)
    await scenario.report_all()
    await scenario.world.drain(scenario.agent)
    assert (scenario.status(late), scenario.outputs(late)) == ("cancelled", ["came too late; order it anew"])
    assert (await scenario.order_record()).state is OrderState.CLOSED
    assert scenario.status() == "completed"
    assert not await scenario.is_told(ConditionId.LINES_HELD)


async def test_operator_enters_a_late_line_by_hand(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(1)
    await scenario.process_all()
    late = await place_late_line(scenario)
    await scenario.agent.reconcile.run()
    line = (await scenario.lines())[1]
    await operator_orders.accept_line(scenario.world.store, line.key, by="eve", now=scenario.world.clock.now())
    await scenario.report_all()
    await scenario.world.end_line(scenario.world.store, line.key)
    await scenario.world.drain(scenario.agent)
    assert scenario.status(late) == scenario.status() == "completed"
    assert (await scenario.order_record()).state is OrderState.CLOSED


async def test_withdrawn_late_line_is_not_sent_to_lis(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(1)
    await scenario.process_all()
    late = await place_late_line(scenario)
    await scenario.agent.reconcile.run()
    scenario.world.end_task(late)
    await scenario.agent.reconcile.run()
    await scenario.world.drain(scenario.agent)
    line = (await scenario.lines())[1]
    assert line.state is LineState.WITHDRAWN
    assert scenario.world.lis.cancelled == []
    assert not await scenario.is_told(ConditionId.LINES_HELD)


async def test_poll_skips_known_orders_without_further_reads(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(2)
    await scenario.process_all()
    asked: list[str] = []
    handle = scenario.agent._http._transport.handle_async_request  # type: ignore[attr-defined]

    async def listen(request: object) -> object:
        asked.append(f"{request.method} {request.url.path}")  # type: ignore[attr-defined]
        return await handle(request)

    scenario.agent._http._transport.handle_async_request = listen  # type: ignore[attr-defined]
    assert scenario.status() == "requested"
    assert [await scenario.agent.poll.run() for _ in range(3)] == [0, 0, 0]
    assert len(asked) == 3


async def test_concurrent_polls_store_an_order_once(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(2)
    other = scenario.world.agent("other")
    found = await asyncio.gather(scenario.agent.poll.run(), other.poll.run())
    assert sum(found) == 1
    await scenario.world.drain(other)
    assert len(scenario.world.lis.submitted) == 1


async def order_again(scenario: Scenario, *, relabel: bool = False, **patient: str) -> str:
    """The same order once more, with the same tubes and a Patient created anew, in whom `patient` differs."""
    again = pick_template(scenario.world, len(scenario.line_tasks))
    return scenario.world.place_order(replace(again, patient={**again.patient, **patient}), relabel=relabel)


async def release(scenario: Scenario) -> frozenset[str]:
    """An operator releases the order, as the command does; gives the rules."""
    store, key = scenario.world.store, (await scenario.order_record()).key
    holds = (await reassess(store, scenario.agent.assessor, key)).assessment.holds
    return await operator_orders.release_order(store, key, holds, "looked", by="eve", now=scenario.world.clock.now())


def specimen_of(scenario: Scenario, order_task: str) -> Ref:
    """The Specimen of an order's first line."""
    resources, line = scenario.world.service.resources, scenario.world.line_tasks(order_task)[0]
    request = resources.find(Ref("ProcedureRequest", line["basedOn"][0]["reference"].rsplit("/", 1)[-1]))
    assert request is not None
    return Ref("Specimen", json.loads(request.body)["specimen"][0]["reference"].rsplit("/", 1)[-1])


def read_tube(scenario: Scenario, order_task: str) -> list[dict[str, Any]]:
    """The containers of that Specimen."""
    specimen = scenario.world.service.resources.find(specimen_of(scenario, order_task))
    assert specimen is not None
    containers: list[dict[str, Any]] = json.loads(specimen.body)["container"]
    return containers


def replace_tube(scenario: Scenario, containers: list[dict[str, Any]]) -> None:
    """The partner edits that Specimen of the scenario's order."""
    scenario.world._replace(specimen_of(scenario, scenario.task), container=containers)


@pytest.mark.parametrize("other", [{"birthDate": "1950-01-01"}, {"gender": "other"}])
async def test_label_of_another_patient_holds(make_scenario: MakeScenario, other: dict[str, str]) -> None:
    scenario = make_scenario(1)
    await scenario.process_all()
    scenario.task = await order_again(scenario, **other)
    await scenario.process_all()
    assert (await scenario.order_record()).state is OrderState.HELD
    assert scenario.statuses() == ["requested"]
    assert "is in use" in str((await scenario.order_record()).reason)
    assert str((await scenario.order_record()).reason).endswith(RELEASE_HINT)


async def test_operator_releases_order_with_label_in_use(make_scenario: MakeScenario) -> None:
    """Somebody has looked: the name was changed by marriage, say."""
    scenario = make_scenario(1)
    await scenario.process_all()
    scenario.task = await order_again(scenario, birthDate="1950-01-01")
    await scenario.process_all()
    record, now = await scenario.order_record(), scenario.world.clock.now()
    other_hold = Finding("order.catalogue", Severity.HOLD, "order", "no catalogue")
    with pytest.raises(InvalidTransitionError):
        await operator_orders.release_order(scenario.world.store, record.key, [other_hold], "looked", by="eve", now=now)
    assert await release(scenario) == {"tube.label-in-use"}
    await scenario.world.drain(scenario.agent)
    assert (await scenario.order_record()).state is OrderState.HANDED_OVER
    assert "tube.label-in-use" in await scenario.reported_rules("warn")
    assert not await scenario.is_told(ConditionId.ORDERS_HELD)


async def test_release_is_of_what_was_found_alone(make_scenario: MakeScenario) -> None:
    """Released, and put on hold at once; then the partner edits the order, which gets the barcode of a third patient."""
    scenario = make_scenario(1)
    await scenario.process_all()
    third = await order_again(scenario, birthDate="1940-01-01", relabel=True)
    await scenario.process_all()
    scenario.task = await order_again(scenario, birthDate="1950-01-01")
    await scenario.process_all()
    scenario.world.update_task(scenario.task, status="on-hold")
    await release(scenario)
    await scenario.world.drain(scenario.agent)
    tube = read_tube(scenario, third)
    replace_tube(scenario, tube)
    scenario.world.update_task(scenario.task, status="requested")
    for _ in range(2):
        scenario.world.clock.advance(301)
        await scenario.world.drain(scenario.agent)
    record = await scenario.order_record()
    assert (record.state, len(scenario.world.lis.submitted)) == (OrderState.HELD, 2)
    assert str(tube[0]["identifier"][0]["value"]) in str(record.reason)


async def test_released_order_that_is_taken_back_holds_again(make_scenario: MakeScenario) -> None:
    """Put on hold after its release, right before the handover: what is requested later may be another order."""
    scenario = make_scenario(1)
    await scenario.process_all()
    scenario.task = await order_again(scenario, birthDate="1950-01-01")
    await scenario.process_all()
    await release(scenario)
    await scenario.assess()
    assert (await scenario.order_record()).state is OrderState.FETCHED
    scenario.world.update_task(scenario.task, status="on-hold")
    await scenario.world.drain(scenario.agent)
    scenario.world.update_task(scenario.task, status="requested")
    for _ in range(2):
        scenario.world.clock.advance(301)
        await scenario.world.drain(scenario.agent)
    record = await scenario.order_record()
    assert (record.state, "is in use" in str(record.reason)) == (OrderState.HELD, True)


async def test_label_of_same_patient_created_anew_warns(make_scenario: MakeScenario) -> None:
    """An additional test from the same tube: the partner creates a Patient for each order, which is the document's default."""
    scenario = make_scenario(1)
    await scenario.process_all()
    scenario.task = await order_again(scenario)
    await scenario.process_all()
    assert (await scenario.order_record()).state is OrderState.HANDED_OVER
    assert "tube.label-reused" in await scenario.reported_rules("warn")


async def test_label_of_purged_patient_holds(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(1)
    await scenario.process_all()
    first = (await scenario.order_record()).key
    scenario.world.store._data.identities.pop(first)  # type: ignore[attr-defined]
    scenario.task = await order_again(scenario)
    await scenario.process_all()
    assert (await scenario.order_record()).state is OrderState.HELD


async def test_rejected_line_reordered_with_same_tube_is_accepted(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(1, spoil=0)
    await scenario.process_all()
    assert scenario.statuses() == ["cancelled"]
    scenario.task = await order_again(scenario)
    await scenario.process_all()
    assert (await scenario.order_record()).state is OrderState.HANDED_OVER
    assert not {rule for rule in await scenario.reported_rules("refuse", "warn") if "label" in rule}


async def test_concurrent_orders_with_one_tube_accept_one(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(1)
    second = await order_again(scenario, birthDate="1950-01-01")
    await scenario.agent.poll.run()
    for _ in range(6):
        await scenario.agent.run_jobs(JobKind.FETCH_ORDER)
        scenario.world.clock.advance(6)
    states = {(await scenario.world.stored_order(task))[0].state for task in (scenario.task, second)}
    assert states == {OrderState.FETCHED, OrderState.HELD}


async def test_crash_between_commit_and_call_submits_once(make_scenario: MakeScenario) -> None:
    """A worker that dies between the commit and the call submits the order once."""
    scenario = make_scenario(1)
    await scenario.assess()
    scenario.agent.injector.crashes = 0.0
    seen: list[str] = []

    async def dies(name: str) -> None:
        seen.append(name)
        if name == "before submit":
            raise SimulatedCrash(name)

    scenario.agent.injector.checkpoint = dies  # type: ignore[method-assign]
    with pytest.raises(SimulatedCrash):
        await scenario.agent.run_jobs(JobKind.SUBMIT_ORDER)
    assert scenario.world.lis.submitted == []
    scenario.world.clock.advance(scenario.world.settings.worker.lease + 1)
    await scenario.world.drain(scenario.world.agent("next"))
    assert len(scenario.world.lis.submitted) == 1
    assert "before submit" in seen
