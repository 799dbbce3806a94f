"""Each interleaving that must come out right, as far as steps decide it, by its own name."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import timedelta
from random import Random

import pytest

from lab_agent.domain.records import JobKind
from lab_agent.domain.state_machines import JobState, LineState, OrderState
from lab_agent.errors import LeaseLostError
from lab_agent.worker.job_lease import JobLease
from lab_agent.workflow import operator_orders
from lab_sandbox.references import Ref
from tests.harness.fault_injection import FaultInjector, SimulatedCrash
from tests.integration.workflow.conftest import Scenario, pick_template

MakeScene = Callable[..., Scenario]


class Once(FaultInjector):
    """A life in which one named thing happens to the next call of a kind: its answer is lost."""

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


def lose_one_answer(scene: Scenario, method: str) -> Once:
    """From now on the worker's next call of that method is done, and its answer is lost."""
    life = Once(method)
    for part in (scene.agent._http._transport, scene.agent.adapters._lis, scene.agent.store):  # type: ignore[attr-defined]
        part._injector = life
    return life


async def test_reconcile_after_lost_completed_response_keeps_line_completed(make_scenario: MakeScene) -> None:
    """Our update to completed arrived and its response was lost; then reconciliation runs."""
    here = make_scenario(1)
    await here.process_all()
    await here.report_all()
    life = lose_one_answer(here, "PUT")
    await here.agent.run_jobs(JobKind.UPDATE_LINE_TASK)
    assert life.lost == 1
    assert here.statuses() == ["completed"]
    assert [e.state for e in await here.jobs() if e.kind is JobKind.UPDATE_LINE_TASK] == [JobState.OUTCOME_UNKNOWN]

    await here.agent.reconcile.run()
    assert [line.state for line in await here.lines()] == [LineState.COMPLETED]
    await here.world.drain(here.agent)
    assert (await here.order_record()).state is OrderState.CLOSED
    assert here.world.status_history(here.line_tasks[0]).count("completed") == 1
    assert here.world.lis.cancelled == []


async def test_reconcile_skips_tasks_with_open_jobs(make_scenario: MakeScene) -> None:
    here = make_scenario(2, acknowledge_status="accepted")
    await here.assess()
    await here.agent.run_jobs(JobKind.SUBMIT_ORDER)
    here.world.end_task(here.line_tasks[0])
    await here.agent.reconcile.run()
    assert [line.state for line in await here.lines()] == [LineState.ACCEPTED] * 2
    await here.world.drain(here.agent)
    assert [line.state for line in await here.lines()] == [LineState.WITHDRAWN, LineState.ACCEPTED]
    assert here.statuses() == ["cancelled", "accepted"]


async def test_outputs_are_set_once_despite_lost_response(make_scenario: MakeScene) -> None:
    here = make_scenario(1, spoil=0)
    await here.assess()
    life = lose_one_answer(here, "PUT")
    await here.world.drain(here.agent)
    assert life.lost == 1
    assert len(here.outputs(here.line_tasks[0])) == 1
    assert here.status() == "cancelled"


async def test_submit_with_lost_answer_is_verified_not_repeated(make_scenario: MakeScene) -> None:
    here = make_scenario(1)
    await here.assess()
    life = lose_one_answer(here, "submit")
    await here.world.drain(here.agent)
    assert life.lost == 1
    assert len(here.world.lis.submitted) == 1
    assert (await here.order_record()).state is OrderState.HANDED_OVER


async def test_unverifiable_submit_waits_for_operator(make_scenario: MakeScene) -> None:
    here = make_scenario(1)
    here.world.lis.can_confirm = False
    await here.assess()
    lose_one_answer(here, "submit")
    await here.world.drain(here.agent)
    assert [e.state for e in await here.jobs()] == [JobState.NEEDS_REVIEW]
    assert len(here.world.lis.submitted) == 1


async def test_expired_lease_holder_cannot_write(make_scenario: MakeScene) -> None:
    here = make_scenario(1)
    await here.assess()
    world = here.world
    (first,) = await here.agent.runner.claim([JobKind.SUBMIT_ORDER], 1)
    world.clock.advance(world.settings.worker.lease + 1)
    other = world.agent("other")
    (again,) = await other.runner.claim([JobKind.SUBMIT_ORDER], 1)
    assert again.id == first.id
    assert again.fencing_token > first.fencing_token
    late = JobLease(first, world.store, world.clock, timedelta(seconds=180))
    with pytest.raises(LeaseLostError):
        await late.mark_started()
    await here.agent.runner.run(first)
    assert (await here.order_record()).state is OrderState.FETCHED
    assert world.lis.submitted == [], "a late owner must not reach the laboratory system"


async def test_start_renews_lease_to_outlast_the_call(make_scenario: MakeScene) -> None:
    here = make_scenario(1)
    await here.assess()
    (job,) = await here.agent.runner.claim([JobKind.SUBMIT_ORDER], 1)
    lease = timedelta(seconds=here.world.settings.worker.lease)
    here.world.clock.advance(lease.total_seconds() * 0.9)
    await JobLease(job, here.world.store, here.world.clock, lease).mark_started()
    kept = await here.world.store.run(lambda uow: uow.jobs.get(job.id))
    assert kept is not None
    assert kept.lease_until == here.world.clock.now() + lease
    assert kept.started


async def test_lines_missing_at_first_fetch_are_awaited(make_scenario: MakeScene) -> None:
    here = make_scenario(3)
    here.agent.injector.faults = 1.0
    here.agent.injector.draw_fault = lambda *kinds: "short" if kinds == ("short",) else None  # type: ignore[method-assign]
    await here.process_all()
    assert len(await here.lines()) == 3
    assert [len(order.lines) for order in here.world.lis.submitted] == [3]


async def place_late_line(here: Scenario) -> str:
    """The partner adds one more Task to an order that the laboratory has."""
    service, config = here.world.service, here.world.service.config
    kept = service.resources.find(Ref("Task", here.line_tasks[0]))
    assert kept is not None
    body = {key: value for key, value in json.loads(kept.body).items() if key not in {"id", "meta"}} | {"status": "requested"}
    grants = {(right, config.counterparties[1].guid) for right in ("read", "updatebody")}
    return service.resources.create("Task", body, here.world.clinic, grants).ref.id


async def test_line_arriving_after_assessment_is_held_with_alert(make_scenario: MakeScene) -> None:
    here = make_scenario(1)
    await here.process_all()
    late = await place_late_line(here)
    await here.agent.reconcile.run()
    await here.agent.reconcile.run()
    (_, line) = await here.lines()
    assert (line.task_id, line.state) == (late, LineState.HELD)
    assert line.item
    assert line.procedure_request_id
    await here.report_all()
    await here.world.drain(here.agent)
    assert (await here.order_record()).state is OrderState.HANDED_OVER, "the order waits for the decision about the line"
    assert here.status(late) == "requested"
    assert await here.is_alert_open(f"line.{line.key}.late")


async def test_line_arriving_before_order_end_is_kept(make_scenario: MakeScene) -> None:
    """A line that comes just before the order ends is not lost with it."""
    here = make_scenario(1)
    await here.process_all()
    late = await place_late_line(here)
    await here.report_all()
    await here.world.drain(here.agent)
    (first, line) = await here.lines()
    assert first.state is LineState.COMPLETED
    assert (line.task_id, line.state) == (late, LineState.HELD)
    assert here.status() == "requested", "the order-level Task waits for the late line"
    assert (await here.order_record()).state is OrderState.HANDED_OVER
    now = here.world.clock.now()
    await operator_orders.reject_line(here.world.store, line.key, "came too late; order it anew", by="eve", now=now)
    here.world.clock.advance(61)
    await here.world.drain(here.agent)
    assert (here.status(late), here.status()) == ("cancelled", "completed")
    assert (await here.order_record()).state is OrderState.CLOSED


async def test_operator_rejects_a_late_line(make_scenario: MakeScene) -> None:
    here = make_scenario(1)
    await here.process_all()
    late = await place_late_line(here)
    await here.agent.reconcile.run()
    line = (await here.lines())[1]
    now = here.world.clock.now()
    await operator_orders.reject_line(here.world.store, line.key, "came too late; order it anew", by="eve", now=now)
    await here.report_all()
    await here.world.drain(here.agent)
    assert (here.status(late), here.outputs(late)) == ("cancelled", ["came too late; order it anew"])
    assert (await here.order_record()).state is OrderState.CLOSED
    assert here.status() == "completed"
    assert not await here.is_alert_open(f"line.{line.key}.late")


async def test_operator_enters_a_late_line_by_hand(make_scenario: MakeScene) -> None:
    here = make_scenario(1)
    await here.process_all()
    late = await place_late_line(here)
    await here.agent.reconcile.run()
    line = (await here.lines())[1]
    await operator_orders.accept_line(here.world.store, line.key, by="eve", now=here.world.clock.now())
    await here.report_all()
    await here.world.end_line(here.world.store, line.key)
    await here.world.drain(here.agent)
    assert here.status(late) == here.status() == "completed"
    assert (await here.order_record()).state is OrderState.CLOSED


async def test_withdrawn_late_line_is_not_sent_to_lis(make_scenario: MakeScene) -> None:
    here = make_scenario(1)
    await here.process_all()
    late = await place_late_line(here)
    await here.agent.reconcile.run()
    here.world.end_task(late)
    await here.agent.reconcile.run()
    await here.world.drain(here.agent)
    line = (await here.lines())[1]
    assert line.state is LineState.WITHDRAWN
    assert here.world.lis.cancelled == []
    assert not await here.is_alert_open(f"line.{line.key}.late")


async def test_poll_skips_known_orders_without_further_reads(make_scenario: MakeScene) -> None:
    here = make_scenario(2)
    await here.process_all()
    asked: list[str] = []
    handle = here.agent._http._transport.handle_async_request  # type: ignore[attr-defined]

    async def listen(request: object) -> object:
        asked.append(f"{request.method} {request.url.path}")  # type: ignore[attr-defined]
        return await handle(request)

    here.agent._http._transport.handle_async_request = listen  # type: ignore[attr-defined]
    assert here.status() == "requested"
    assert [await here.agent.poll.run() for _ in range(3)] == [0, 0, 0]
    assert len(asked) == 3


async def test_concurrent_polls_store_an_order_once(make_scenario: MakeScene) -> None:
    here = make_scenario(2)
    other = here.world.agent("other")
    found = await asyncio.gather(here.agent.poll.run(), other.poll.run())
    assert sum(found) == 1
    await here.world.drain(other)
    assert len(here.world.lis.submitted) == 1


async def order_again(here: Scenario, *, same_patient: bool) -> str:
    """The same order once more, with the same tubes: of the same patient, or of another."""
    again = pick_template(here.world, len(here.line_tasks))
    if not same_patient:
        return here.world.place_order(again)
    request = here.world.get_task(here.line_tasks[0])["basedOn"][0]["reference"].rsplit("/", 1)[-1]
    kept = here.world.service.resources.find(Ref("ProcedureRequest", request))
    assert kept is not None
    patient = json.loads(kept.body)["subject"]["reference"].rsplit("/", 1)[-1]
    return here.world.place_order(again, patient=patient)


async def test_label_of_another_patient_rejects(make_scenario: MakeScene) -> None:
    here = make_scenario(1)
    await here.process_all()
    here.task = await order_again(here, same_patient=False)
    await here.process_all()
    assert here.statuses() == ["cancelled"]
    assert "in use for another patient" in here.outputs(here.line_tasks[0])[0]


async def test_label_of_same_patient_warns(make_scenario: MakeScene) -> None:
    here = make_scenario(1)
    await here.process_all()
    here.task = await order_again(here, same_patient=True)
    await here.process_all()
    assert (await here.order_record()).state is OrderState.HANDED_OVER
    assert any(e.action == "warn" and "tube.label-reused" in e.text for e in await here.events())


async def test_rejected_line_reordered_with_same_tube_is_accepted(make_scenario: MakeScene) -> None:
    here = make_scenario(1, spoil=0)
    await here.process_all()
    assert here.statuses() == ["cancelled"]
    here.task = await order_again(here, same_patient=False)
    await here.process_all()
    assert (await here.order_record()).state is OrderState.HANDED_OVER
    assert not [e for e in await here.events() if "label" in e.text]


async def test_concurrent_orders_with_one_tube_accept_one(make_scenario: MakeScene) -> None:
    here = make_scenario(1)
    second = here.world.place_order(pick_template(here.world, 1))
    await here.agent.poll.run()
    for _ in range(6):
        await here.agent.run_jobs(JobKind.FETCH_ORDER)
        here.world.clock.advance(6)
    states = {(await here.world.stored_order(task))[0].state for task in (here.task, second)}
    assert states == {OrderState.FETCHED, OrderState.REJECTED}


async def test_crash_between_commit_and_call_submits_once(make_scenario: MakeScene) -> None:
    """A worker that dies between the commit and the call submits the order once."""
    here = make_scenario(1)
    await here.assess()
    here.agent.injector.crashes = 0.0
    seen: list[str] = []

    async def dies(name: str) -> None:
        seen.append(name)
        if name == "before submit":
            raise SimulatedCrash(name)

    here.agent.injector.checkpoint = dies  # type: ignore[method-assign]
    with pytest.raises(SimulatedCrash):
        await here.agent.run_jobs(JobKind.SUBMIT_ORDER)
    assert here.world.lis.submitted == []
    here.world.clock.advance(here.world.settings.worker.lease + 1)
    await here.world.drain(here.world.agent("next"))
    assert len(here.world.lis.submitted) == 1
    assert "before submit" in seen
