"""One order, several laboratory systems: each has its own part of it, and what one does holds back no other."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from lab_agent.conditions.ids import ConditionId
from lab_agent.conditions.model import AlertKey
from lab_agent.domain.ids import LineKey, report_key
from lab_agent.domain.job_records import JobKind
from lab_agent.domain.lab_messages import AccessionUpdate, LabRejection, LabReport, NotPerformed
from lab_agent.domain.records import LineRecord
from lab_agent.domain.report_records import ReportRecord
from lab_agent.domain.state_machines import JobState, LineState, OrderState, ReportState, WorkOrderState
from lab_agent.errors import InvalidTransitionError, StoreError
from lab_agent.ports.lis import SubmitResult
from lab_agent.workflow import operator_jobs, operator_orders, operator_results
from lab_agent.workflow.adapter_pauses import pause_adapter, resume_adapter
from lab_agent.workflow.attention_alerts import AttentionAlerts
from lab_agent.workflow.result_inbox import StoreInbox
from lab_agent.workflow.unconfirmed_orders import UnconfirmedOrders
from tests.harness.fault_injection import SimulatedLis
from tests.harness.jobs import claim_jobs
from tests.harness.orders import OrderTemplate, procedure_requests
from tests.harness.results import haemoglobin, make_report
from tests.harness.world import World
from tests.integration.workflow.conftest import Scenario, pick_template

CHEMISTRY, MICROBIOLOGY = "folder", "micro"
NOTE: dict[str, Any] = {"by": "eve", "note": "I asked them"}


@dataclass
class Laboratory(Scenario):
    """An order of three lines, of which the last goes to the laboratory system for microbiology."""

    @property
    def chemistry(self) -> SimulatedLis:
        return self.world.systems[CHEMISTRY]

    @property
    def microbiology(self) -> SimulatedLis:
        return self.world.systems[MICROBIOLOGY]

    async def work_orders(self) -> dict[str, WorkOrderState]:
        key = self.world.order_key_of(self.task)
        return {each.adapter: each.state for each in await self.world.store.run(lambda uow: uow.orders.work_orders(key))}

    async def lines_at(self, adapter: str) -> list[LineRecord]:
        return [line for line in await self.lines() if line.adapter == adapter]

    async def states_at(self, adapter: str) -> set[LineState]:
        return {line.state for line in await self.lines_at(adapter)}

    async def receive(self, adapter: str, message: Any) -> ReportRecord:
        """A message of one laboratory system comes in, and everything that follows happens."""
        name = f"m{id(message)}"
        await StoreInbox(self.world.store, self.world.clock, adapter).accept(name, message)
        await self.world.drain(self.agent)
        return await self.world.store.run(lambda uow: uow.reports.get_for_update(report_key(adapter, name)))

    def report(self, **fields: Any) -> LabReport:
        """A final report of the order."""
        now = self.world.clock.now()
        given = {"order": self.world.order_key_of(self.task), "effective": now, "issued": now}
        return make_report(haemoglobin("13.2"), **{**given, **fields})

    async def wait(self, minutes: int = 30) -> None:
        """Let time go by, and everything happen that is due."""
        for _ in range(minutes // 5):
            self.world.clock.advance(300)
            await self.world.drain(self.agent)

    def reports_on_service(self) -> list[Any]:
        return list(self.world.service.store.find("DiagnosticReport", [], lambda _: True, limit=9))


def order_template(world: World) -> OrderTemplate:
    return pick_template(world, 3)


@pytest.fixture
def make_laboratory() -> Any:
    def make(*, lines_elsewhere: int = 1, **worker: Any) -> Laboratory:
        template = order_template(World("scenario"))
        items = [each["code"]["coding"][0]["code"] for each in procedure_requests(template.bundle)[-lines_elsewhere:]]
        world = World("scenario", routes=[{"items": items, "adapter": MICROBIOLOGY}], **worker)
        return Laboratory(world, world.agent(), world.place_order(template))

    return make


@pytest.fixture
def laboratory(make_laboratory: Any) -> Laboratory:
    made: Laboratory = make_laboratory()
    return made


async def test_each_laboratory_system_gets_its_own_lines(laboratory: Laboratory) -> None:
    await laboratory.process_all()
    ((chemistry,), (culture,)) = laboratory.chemistry.submitted, laboratory.microbiology.submitted
    assert (len(chemistry.lines), len(culture.lines)) == (2, 1)
    assert {line.key for line in culture.lines} == {line.key for line in await laboratory.lines_at(MICROBIOLOGY)}
    for part in (chemistry, culture):
        assert {each.id for each in part.specimens} == {each for line in part.lines for each in line.specimens}
        assert part.answers == chemistry.answers
    assert chemistry.key == culture.key == laboratory.world.order_key_of(laboratory.task)
    assert (await laboratory.order_record()).state is OrderState.HANDED_OVER
    assert set((await laboratory.work_orders()).values()) == {WorkOrderState.HANDED_OVER}


async def test_system_that_is_down_holds_no_other_back(laboratory: Laboratory) -> None:
    laboratory.microbiology.is_down = True
    await laboratory.process_all()
    assert (len(laboratory.chemistry.submitted), laboratory.microbiology.submitted) == (1, [])
    assert (await laboratory.order_record()).state is OrderState.FETCHED, "it is handed over when all of it is"
    assert (await laboratory.receive(CHEMISTRY, laboratory.report())).state is ReportState.DELIVERED
    assert await laboratory.states_at(CHEMISTRY) == {LineState.COMPLETED}
    assert await laboratory.states_at(MICROBIOLOGY) == {LineState.ACCEPTED}
    assert sorted(laboratory.statuses()) == ["completed", "completed", "requested"]
    assert laboratory.status() == "requested", "the order waits for its other part"
    laboratory.microbiology.is_down = False
    await laboratory.wait()
    assert len(laboratory.microbiology.submitted) == 1
    assert (await laboratory.order_record()).state is OrderState.HANDED_OVER
    await laboratory.receive(MICROBIOLOGY, laboratory.report(report_id="culture"))
    assert laboratory.statuses() == ["completed"] * 3
    assert laboratory.status() == "completed"
    assert (await laboratory.order_record()).state is OrderState.CLOSED


async def decide_about(laboratory: Laboratory, decide: Any) -> None:
    """Pause or resume microbiology."""

    def write(uow: Any) -> None:
        decide(uow, MICROBIOLOGY, **NOTE, now=laboratory.world.clock.now())
        uow.commit()

    await laboratory.world.store.run(write)


async def test_paused_system_is_told_nothing_and_its_results_are_delivered(laboratory: Laboratory) -> None:
    await laboratory.process_all()
    (line,) = await laboratory.lines_at(MICROBIOLOGY)
    await decide_about(laboratory, pause_adapter)
    laboratory.world.end_task(line.task_id)
    await laboratory.agent.reconcile.run()
    await laboratory.wait()
    assert laboratory.microbiology.cancelled == []
    laboratory.agent = laboratory.world.agent("after a restart")
    await laboratory.wait()
    assert laboratory.microbiology.cancelled == []
    assert (await laboratory.receive(CHEMISTRY, laboratory.report())).state is ReportState.DELIVERED
    await decide_about(laboratory, resume_adapter)
    await laboratory.world.drain(laboratory.agent)
    assert laboratory.microbiology.cancelled == [(line.order, (line.key,))]


async def test_handover_waits_for_the_end_of_a_pause(laboratory: Laboratory) -> None:
    await decide_about(laboratory, pause_adapter)
    await laboratory.process_all()
    await laboratory.wait()
    assert (len(laboratory.chemistry.submitted), laboratory.microbiology.submitted) == (1, [])
    await decide_about(laboratory, resume_adapter)
    await laboratory.world.drain(laboratory.agent)
    assert (len(laboratory.chemistry.submitted), len(laboratory.microbiology.submitted)) == (1, 1)
    await decide_about(laboratory, pause_adapter)
    report = laboratory.report(report_id="culture")
    assert (await laboratory.receive(MICROBIOLOGY, report)).state is ReportState.DELIVERED, "it is never refused"


async def test_paused_system_is_not_asked_about_a_handover_in_doubt(
    laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = laboratory.world
    await laboratory.assess()
    for claimed in await claim_jobs(laboratory.agent.runner, [JobKind.SUBMIT_ORDER], 9):
        job = claimed.job.mark_started(world.clock.now()).needs_review(world.clock.now(), "no answer")
        await world.store.run(lambda uow, job=job: (uow.jobs.save(job), uow.commit()))
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


async def test_crash_between_two_handovers_repeats_none(laboratory: Laboratory) -> None:
    await laboratory.assess()
    (first,) = await claim_jobs(laboratory.agent.runner, [JobKind.SUBMIT_ORDER], 1)
    await laboratory.agent.runner.run(first)
    assert len(laboratory.chemistry.submitted) + len(laboratory.microbiology.submitted) == 1
    laboratory.agent = laboratory.world.agent("after the crash")
    await laboratory.process_all()
    assert (len(laboratory.chemistry.submitted), len(laboratory.microbiology.submitted)) == (1, 1)
    assert (await laboratory.order_record()).state is OrderState.HANDED_OVER


async def test_unknown_outcome_is_verified_where_it_happened(laboratory: Laboratory) -> None:
    """A process dies right after one of two submits: that system alone is asked whether it has its part."""
    await laboratory.assess()
    (first,) = await claim_jobs(laboratory.agent.runner, [JobKind.SUBMIT_ORDER], 1)
    doomed = laboratory.agent
    adapter = doomed.adapters.get(str(first.job.payload["adapter"]))
    submit = adapter.submit

    async def dies_after_submit(order: Any) -> Any:
        await submit(order)
        doomed.injector.dead = True
        await doomed.injector.checkpoint("after submit")

    adapter.submit = dies_after_submit  # type: ignore[method-assign]
    doomed.spawn(doomed.runner.run(first))
    await doomed.wait_idle()
    laboratory.agent = laboratory.world.agent("after the crash")
    await laboratory.wait(10)
    assert (len(laboratory.chemistry.submitted), len(laboratory.microbiology.submitted)) == (1, 1)
    assert set((await laboratory.work_orders()).values()) == {WorkOrderState.HANDED_OVER}


async def test_withdrawn_line_is_cancelled_at_its_system_alone(laboratory: Laboratory) -> None:
    await laboratory.process_all()
    (line,) = await laboratory.lines_at(MICROBIOLOGY)
    laboratory.world.end_task(line.task_id)
    await laboratory.agent.reconcile.run()
    await laboratory.world.drain(laboratory.agent)
    assert laboratory.microbiology.cancelled == [(line.order, (line.key,))]
    assert laboratory.chemistry.cancelled == []
    await laboratory.receive(CHEMISTRY, laboratory.report())
    assert laboratory.status() == "completed"


async def test_part_withdrawn_before_its_handover_is_not_handed_over(make_laboratory: Any) -> None:
    laboratory: Laboratory = make_laboratory(acknowledge_status="in-progress")
    laboratory.microbiology.is_down = True
    await laboratory.process_all()
    assert sorted(laboratory.statuses()) == ["in-progress", "in-progress", "requested"], "what is handed over is acknowledged"
    assert laboratory.status() == "requested"
    (line,) = await laboratory.lines_at(MICROBIOLOGY)
    laboratory.world.end_task(line.task_id)
    await laboratory.agent.reconcile.run()
    laboratory.microbiology.is_down = False
    await laboratory.wait()
    assert laboratory.microbiology.submitted == []
    assert (await laboratory.order_record()).state is OrderState.HANDED_OVER
    assert laboratory.status() == "in-progress"
    assert (await laboratory.work_orders())[MICROBIOLOGY] is WorkOrderState.CANCELLED


async def test_rejected_part_dismissed_cancels_its_lines_alone(laboratory: Laboratory) -> None:
    laboratory.microbiology.rejects = True
    await laboratory.process_all()
    (dead,) = [job for job in await laboratory.jobs() if job.state is JobState.DEAD_LETTER]
    await operator_jobs.dismiss_job(laboratory.world.store, dead.id, now=laboratory.world.clock.now(), **NOTE)
    await laboratory.world.drain(laboratory.agent)
    assert await laboratory.states_at(MICROBIOLOGY) == {LineState.CANCELLED}
    assert await laboratory.states_at(CHEMISTRY) == {LineState.ACCEPTED}
    assert (await laboratory.order_record()).state is OrderState.HANDED_OVER
    await laboratory.receive(CHEMISTRY, laboratory.report())
    assert sorted(laboratory.statuses()) == ["cancelled", "completed", "completed"]
    assert laboratory.status() == "completed"


async def test_same_report_id_and_number_of_two_systems_stay_apart(laboratory: Laboratory) -> None:
    for lis in (laboratory.chemistry, laboratory.microbiology):
        lis.answer = SubmitResult(accession="2403-17")
    await laboratory.process_all()
    blood = await laboratory.receive(CHEMISTRY, laboratory.report(order=None, accession="2403-17", report_id="17"))
    assert await laboratory.states_at(MICROBIOLOGY) == {LineState.ACCEPTED}
    culture = await laboratory.receive(MICROBIOLOGY, laboratory.report(order=None, accession="2403-17", report_id="17"))
    assert {each.state for each in (blood, culture)} == {ReportState.DELIVERED}
    assert culture.lines == tuple(line.key for line in await laboratory.lines_at(MICROBIOLOGY))
    assert len(laboratory.reports_on_service()) == 2
    assert laboratory.status() == "completed"
    texts = {event.text for event in await laboratory.events()}
    assert {"final report 17 of folder matched", "final report 17 of micro matched"} <= texts
    assert {"final report 17 of folder is on the service", "final report 17 of micro is on the service"} <= texts


async def test_number_of_another_system_finds_nothing(laboratory: Laboratory) -> None:
    laboratory.chemistry.answer = SubmitResult(accession="C-1")
    await laboratory.process_all()
    lost = await laboratory.receive(MICROBIOLOGY, laboratory.report(order=None, accession="C-1"))
    assert (lost.state, lost.order) == (ReportState.UNMATCHED, None)


async def test_numbers_that_come_later_number_their_part_alone(laboratory: Laboratory) -> None:
    await laboratory.process_all()
    update = AccessionUpdate(order=laboratory.world.order_key_of(laboratory.task), accession="M-9")
    await laboratory.receive(MICROBIOLOGY, update)
    key = laboratory.world.order_key_of(laboratory.task)
    parts = await laboratory.world.store.run(lambda uow: uow.orders.work_orders(key))
    assert {each.adapter: each.accession for each in parts} == {CHEMISTRY: None, MICROBIOLOGY: "M-9"}


@pytest.mark.parametrize("named", ["line", "line and order", "item", "not performed"])
async def test_report_about_another_systems_line_waits(laboratory: Laboratory, named: str) -> None:
    await laboratory.process_all()
    (line,) = await laboratory.lines_at(MICROBIOLOGY)
    order = laboratory.world.order_key_of(laboratory.task)
    message = {
        "line": laboratory.report(order=None, lines=(line.key,)),
        "line and order": laboratory.report(lines=(line.key,)),
        "item": laboratory.report(items=(line.item,)),
        "not performed": LabRejection(order=order, not_performed=(NotPerformed(item=line.item, reason="broken"),)),
    }[named]
    held = await laboratory.receive(CHEMISTRY, message)
    assert held.state is ReportState.UNMATCHED
    assert "is at the laboratory system micro, not at folder" in (held.reason or "")
    assert await laboratory.states_at(MICROBIOLOGY) == {LineState.ACCEPTED}


async def test_operator_matches_result_to_another_systems_line(laboratory: Laboratory) -> None:
    await laboratory.process_all()
    (line,) = await laboratory.lines_at(MICROBIOLOGY)
    held = await laboratory.receive(CHEMISTRY, laboratory.report(lines=(line.key,)))
    store, matcher, now = laboratory.world.store, _matcher(laboratory), laboratory.world.clock.now()
    await operator_results.match_result(store, matcher, held.key, line.order, lines=(line.key,), now=now, **NOTE)
    await laboratory.world.drain(laboratory.agent)
    after = await store.run(lambda uow: uow.reports.get_for_update(held.key))
    assert (after.state, after.source, after.adapter) == (ReportState.DELIVERED, CHEMISTRY, MICROBIOLOGY)
    assert await laboratory.states_at(MICROBIOLOGY) == {LineState.COMPLETED}
    assert await laboratory.states_at(CHEMISTRY) == {LineState.ACCEPTED}


async def test_changed_route_moves_no_line(laboratory: Laboratory) -> None:
    await laboratory.assess()
    lis = laboratory.world.settings.lis.model_copy(update={"routes": ()})
    laboratory.world.settings = laboratory.world.settings.model_copy(update={"lis": lis})
    laboratory.agent = laboratory.world.agent("with other settings")
    await laboratory.process_all()
    assert (len(laboratory.chemistry.submitted), len(laboratory.microbiology.submitted)) == (1, 1)


async def test_task_on_hold_keeps_back_what_is_not_handed_over(laboratory: Laboratory) -> None:
    """One part is at its system when the partner puts the order on hold: the other waits, and goes on with the order."""
    laboratory.microbiology.is_down = True
    await laboratory.process_all()
    laboratory.world.force_task(laboratory.task, status="on-hold")
    laboratory.microbiology.is_down = False
    await laboratory.wait()
    assert laboratory.microbiology.submitted == []
    assert await laboratory.is_told(ConditionId.ORDERS_PART_WAITS)
    laboratory.world.force_task(laboratory.task, status="requested")
    await laboratory.wait()
    assert (len(laboratory.chemistry.submitted), len(laboratory.microbiology.submitted)) == (1, 1)


async def test_alert_of_a_waiting_part_ends_when_it_is_submitted(laboratory: Laboratory) -> None:
    """An operator's retry counts the attempts anew; the part waited all the same."""
    laboratory.microbiology.is_down = True
    await laboratory.process_all()
    laboratory.world.force_task(laboratory.task, status="on-hold")
    laboratory.microbiology.is_down = False
    await laboratory.wait()
    laboratory.microbiology.rejects = True
    laboratory.world.force_task(laboratory.task, status="requested")
    await laboratory.wait()
    assert not await laboratory.is_told(ConditionId.ORDERS_PART_WAITS), "it waits for no order on hold any more"
    assert await laboratory.is_told(ConditionId.JOBS_LIS_REJECTED)
    laboratory.microbiology.rejects = False
    [job] = [each for each in await laboratory.jobs() if each.kind is JobKind.SUBMIT_ORDER]
    await operator_jobs.retry_job(laboratory.world.store, job.id, by="eve", now=laboratory.world.clock.now())
    await laboratory.world.drain(laboratory.agent)
    assert len(laboratory.microbiology.submitted) == 1
    assert not await laboratory.is_told(ConditionId.JOBS_LIS_REJECTED)


async def test_line_withdrawn_right_before_the_handover_is_not_handed_over(laboratory: Laboratory) -> None:
    """The partner cancels it after the look at the Tasks, and reconciliation sees that before anything is submitted."""
    await laboratory.assess()
    withdrawn = (await laboratory.lines_at(CHEMISTRY))[0]
    adapter = laboratory.agent.adapters.get(CHEMISTRY)
    prepare = adapter.prepare

    async def withdraw_meanwhile(order: Any) -> None:
        adapter.prepare = prepare  # type: ignore[method-assign]
        laboratory.world.end_task(withdrawn.task_id)
        await laboratory.agent.reconcile.run()
        await prepare(order)

    adapter.prepare = withdraw_meanwhile  # type: ignore[method-assign]
    await laboratory.world.drain(laboratory.agent)
    [order] = laboratory.chemistry.submitted
    assert withdrawn.key not in {line.key for line in order.lines}
    assert len(order.lines) == 1
    assert (await laboratory.order_record()).state is OrderState.HANDED_OVER


async def test_order_taken_back_is_handed_over_once(laboratory: Laboratory) -> None:
    """Nothing went out when the order was put on hold: it is held as a whole, and decided and handed over once more."""
    await laboratory.assess()
    laboratory.world.force_task(laboratory.task, status="on-hold")
    await laboratory.wait(10)
    assert (await laboratory.order_record()).state is OrderState.HELD
    laboratory.world.force_task(laboratory.task, status="requested")
    await laboratory.wait()
    assert (len(laboratory.chemistry.submitted), len(laboratory.microbiology.submitted)) == (1, 1)
    assert (await laboratory.order_record()).state is OrderState.HANDED_OVER


async def test_line_entered_by_hand_names_its_system(laboratory: Laboratory) -> None:
    await laboratory.process_all()
    first = (await laboratory.lines())[0]
    late = LineRecord(
        key=LineKey("LLATE"),
        order=first.order,
        task_id=first.task_id,
        procedure_request_id=first.procedure_request_id,
        state=LineState.HELD,
        changed_at=laboratory.world.clock.now(),
    )

    def add(uow: Any) -> None:
        uow.orders.add_line(late)
        uow.commit()

    await laboratory.world.store.run(add)
    now = laboratory.world.clock.now() + timedelta(seconds=1)
    with pytest.raises(StoreError, match="--adapter"):
        await operator_orders.accept_line(laboratory.world.store, late.key, by="eve", now=now)
    await operator_orders.accept_line(laboratory.world.store, late.key, adapter=MICROBIOLOGY, by="eve", now=now)
    assert late.key in {line.key for line in await laboratory.lines_at(MICROBIOLOGY)}


async def put_back(laboratory: Laboratory, line: LineRecord) -> None:
    """The partner withdraws a line, and requests it again some minutes later."""
    await withdraw(laboratory, line)
    laboratory.world.clock.advance(300)
    laboratory.world.force_task(line.task_id, status="requested")
    await laboratory.agent.reconcile.run()
    await laboratory.world.drain(laboratory.agent)
    states = {each.key: each.state for each in await laboratory.lines()}
    assert states[line.key] is LineState.HELD


async def withdraw(laboratory: Laboratory, line: LineRecord) -> None:
    laboratory.world.end_task(line.task_id)
    await laboratory.agent.reconcile.run()
    await laboratory.world.drain(laboratory.agent)


async def enter_by_hand(laboratory: Laboratory, line: LineRecord, adapter: str) -> None:
    now = laboratory.world.clock.now()
    await operator_orders.accept_line(laboratory.world.store, line.key, adapter=adapter, by="eve", now=now)


async def test_line_entered_elsewhere_leaves_its_number_behind(laboratory: Laboratory) -> None:
    """The other laboratory system may give the same number to somebody else's tube."""
    await laboratory.assess()
    line = (await laboratory.lines_at(CHEMISTRY))[0]
    laboratory.chemistry.answer = SubmitResult(accession="C-1", line_accessions={line.key: "C-1-0"})
    await laboratory.process_all()
    await put_back(laboratory, line)
    await enter_by_hand(laboratory, line, MICROBIOLOGY)
    assert {each.accession for each in await laboratory.lines_at(MICROBIOLOGY)} == {None}
    lost = await laboratory.receive(MICROBIOLOGY, laboratory.report(order=None, accession="C-1-0"))
    assert (lost.state, lost.order) == (ReportState.UNMATCHED, None)


async def test_withdrawal_is_told_where_the_line_was_entered_by_hand(make_laboratory: Any) -> None:
    laboratory: Laboratory = make_laboratory()
    laboratory.microbiology.rejects = True
    await laboratory.process_all()
    (dead,) = [job for job in await laboratory.jobs() if job.state is JobState.DEAD_LETTER]
    await operator_jobs.dismiss_job(laboratory.world.store, dead.id, now=laboratory.world.clock.now(), **NOTE)
    await laboratory.world.drain(laboratory.agent)
    (line, *_) = await laboratory.lines_at(CHEMISTRY)
    await put_back(laboratory, line)
    await enter_by_hand(laboratory, line, MICROBIOLOGY)
    laboratory.microbiology.cancelled.clear()
    laboratory.world.clock.advance(300)
    await withdraw(laboratory, line)
    assert laboratory.microbiology.cancelled == [(line.order, (line.key,))]
    texts = [event.text for event in await laboratory.events() if event.action == "cancel_at_lis"]
    assert texts[-1] == "the laboratory system micro was informed of the withdrawal"


async def test_line_of_a_part_on_its_way_is_not_entered_by_hand(make_laboratory: Any) -> None:
    """Else the handover would bring to the laboratory system what somebody has entered there already."""
    laboratory: Laboratory = make_laboratory(lines_elsewhere=2)
    laboratory.microbiology.is_down = True
    await laboratory.process_all()
    line, other = await laboratory.lines_at(MICROBIOLOGY)
    await put_back(laboratory, line)
    with pytest.raises(InvalidTransitionError, match="not handed over yet"):
        await enter_by_hand(laboratory, line, MICROBIOLOGY)
    laboratory.microbiology.is_down = False
    await laboratory.wait()
    (submitted,) = laboratory.microbiology.submitted
    assert [each.key for each in submitted.lines] == [other.key]
    await enter_by_hand(laboratory, line, MICROBIOLOGY)
    assert await laboratory.states_at(MICROBIOLOGY) == {LineState.ACCEPTED}
    assert len(laboratory.microbiology.submitted) == 1


async def test_report_matched_to_another_system_keeps_its_own_identifier(make_laboratory: Any) -> None:
    """Two laboratory systems give the same report id; an operator matched the first of the reports to the other's line."""
    laboratory: Laboratory = make_laboratory(lines_elsewhere=2)
    await laboratory.process_all()
    first, second = await laboratory.lines_at(MICROBIOLOGY)
    held = await laboratory.receive(CHEMISTRY, laboratory.report(lines=(first.key,), report_id="24-7"))
    store, matcher, now = laboratory.world.store, _matcher(laboratory), laboratory.world.clock.now()
    await operator_results.match_result(store, matcher, held.key, first.order, lines=(first.key,), now=now, **NOTE)
    await laboratory.world.drain(laboratory.agent)
    laboratory.world.clock.advance(60)
    own = await laboratory.receive(MICROBIOLOGY, laboratory.report(lines=(second.key,), report_id="24-7"))
    before = await store.run(lambda uow: uow.reports.get_for_update(held.key))
    assert (before.state, own.state) == (ReportState.DELIVERED, ReportState.DELIVERED)
    assert len(laboratory.reports_on_service()) == 2
    assert await laboratory.states_at(MICROBIOLOGY) == {LineState.COMPLETED}


async def test_part_of_an_order_that_ended_right_before_its_handover_is_cancelled(laboratory: Laboratory) -> None:
    laboratory.microbiology.is_down = True
    await laboratory.process_all()
    laboratory.microbiology.is_down = False
    laboratory.world.end_task(laboratory.task)
    await laboratory.wait()
    assert laboratory.microbiology.submitted == []
    assert (await laboratory.work_orders())[MICROBIOLOGY] is WorkOrderState.CANCELLED


async def test_dismissed_part_of_a_withdrawn_order_is_cancelled(laboratory: Laboratory) -> None:
    laboratory.microbiology.rejects = True
    await laboratory.process_all()
    laboratory.world.end_task(laboratory.task)
    await laboratory.agent.reconcile.run()
    await laboratory.world.drain(laboratory.agent)
    (dead,) = [job for job in await laboratory.jobs() if job.state is JobState.DEAD_LETTER]
    await operator_jobs.dismiss_job(laboratory.world.store, dead.id, now=laboratory.world.clock.now(), **NOTE)
    assert (await laboratory.work_orders())[MICROBIOLOGY] is WorkOrderState.CANCELLED


async def test_system_without_a_table_is_told_as_long_as_it_has_lines(laboratory: Laboratory) -> None:
    await laboratory.process_all()
    store, clock = laboratory.world.store, laboratory.world.clock
    watch = AttentionAlerts(store, clock, timedelta(hours=1), {CHEMISTRY: "the adapter folder cannot be loaded"})
    await watch.run()
    broken, removed = AlertKey(ConditionId.LIS_NOT_LOADED, CHEMISTRY), AlertKey(ConditionId.LIS_REMOVED, MICROBIOLOGY)
    alerts = {each.key: each for each in store._data.alerts}
    assert alerts[broken].detail == "the adapter folder cannot be loaded"
    assert alerts[removed].count
    await laboratory.receive(MICROBIOLOGY, laboratory.report())
    await AttentionAlerts(store, clock, timedelta(hours=1), {CHEMISTRY: None}).run()
    assert not await laboratory.is_alert_open(broken)
    assert not await laboratory.is_alert_open(removed)


async def test_retry_leaves_the_system_in_doubt_alone(laboratory: Laboratory) -> None:
    """Nobody knows whether chemistry has its part; microbiology's goes out all the same."""
    await laboratory.assess()
    store, now = laboratory.world.store, laboratory.world.clock.now()

    def leave_in_doubt(uow: Any) -> None:
        (claimed,) = uow.jobs.claim({frozenset({JobKind.SUBMIT_ORDER}): 1}, owner="x", now=now, lease=timedelta(seconds=5))
        uow.jobs.save(claimed.needs_review(now, "nobody can tell"))
        uow.commit()

    await store.run(leave_in_doubt)
    key = laboratory.world.order_key_of(laboratory.task)
    handovers = [job for job in await laboratory.jobs() if job.kind is JobKind.SUBMIT_ORDER]
    (first, second) = sorted(handovers, key=lambda job: job.state is not JobState.NEEDS_REVIEW)
    retried = await operator_jobs.retry_order(store, key, by="eve", now=now)
    assert [job.id for job in retried.unverified] == [first.id]
    assert second.id in {job.id for job in retried.jobs}
    name = str(first.payload["adapter"])
    assert f"the laboratory system {name} has order" in operator_jobs.describe_unverified(first)
    assert f"the laboratory system {name} AGAIN" in operator_jobs.describe_retry(first.kind, JobState.NEEDS_REVIEW, name)


def _matcher(laboratory: Laboratory) -> Any:
    return laboratory.agent.runner.handlers[JobKind.MATCH_REPORT].matcher  # type: ignore[attr-defined]
