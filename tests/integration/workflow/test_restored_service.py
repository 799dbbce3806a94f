"""A service that was restored from its backup: what we had brought there is brought again, and nothing is analysed twice."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from lab_agent.conditions.ids import ConditionId
from lab_agent.domain.ids import ResourceId
from lab_agent.domain.job_records import JobKind
from lab_agent.domain.lab_messages import LabReport, ReportedObservation, ReportStatus
from lab_agent.domain.lab_order import LabOrder
from lab_agent.domain.records import Alert
from lab_agent.domain.state_machines import LineState, OrderState
from lab_agent.domain.values import Coding, Quantity
from lab_agent.errors import ServiceUnavailable
from lab_agent.fhir.report_builder import FINAL_STATUSES
from lab_agent.ports.exchange import Json, SavedResource
from lab_agent.workflow import operator_orders
from lab_agent.workflow.operator_results import SentSpan, upload_again
from lab_agent.workflow.result_inbox import StoreInbox
from lab_sandbox.faults.plan import FaultPlan, FaultRule
from lab_sandbox.references import Ref
from tests.integration.workflow.conftest import Scenario, pick_template
from tests.integration.workflow.test_revived_orders import recheck, request_again

MakeScenario = Callable[..., Scenario]


@dataclass
class Clinic:
    """A scenario of which every Task that we complete is held against the reports that the service has then."""

    scenario: Scenario
    messages: int = 0
    restore: Callable[[], None] = lambda: None
    without_report: list[str] = field(default_factory=list)

    def watch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        update = self.scenario.agent.exchange.update

        async def watched(kind: str, resource_id: ResourceId, body: Json, *, version: str) -> SavedResource:
            if kind == "Task" and body["status"] == "completed" and body.get("partOf") and not self.has_report(body):
                self.without_report.append(resource_id)
            return await update(kind, resource_id, body, version=version)

        monkeypatch.setattr(self.scenario.agent.exchange, "update", watched)

    def has_report(self, task: Json) -> bool:
        """Whether the service has a final report about the request of a line Task, with all of its observations."""
        request = str(task["basedOn"][0]["reference"]).rsplit("/", 1)[-1].lower()
        for report in self.resources("DiagnosticReport"):
            about = {str(each["reference"]).rsplit("/", 1)[-1].lower() for each in report["basedOn"]}
            if request in about and report["status"] in FINAL_STATUSES:
                names = [str(each["reference"]).rsplit("/", 1)[-1] for each in report["result"]]
                return all(self.scenario.world.service.resources.find(Ref("Observation", each)) for each in names)
        return False

    def resources(self, kind: str) -> list[dict[str, Any]]:
        found = self.scenario.world.service.store.find(kind, [], lambda _: True, limit=100)
        return [json.loads(one.body) for one in found]

    @property
    def tasks(self) -> list[str]:
        return [str(each["status"]) for each in self.scenario.world.all_tasks()]

    async def report(self, order: LabOrder, *, lines: int = 99, value: str = "13.20", **fields: Any) -> None:
        """A message of the laboratory: two values, the second of which is always the same."""
        self.messages += 1
        now = self.scenario.world.clock.now()
        values = {"718-7": value, "2345-7": "5.1"}
        given: dict[str, Any] = {
            "report_id": f"R{order.key}",
            "status": ReportStatus.FINAL,
            "order": order.key,
            "lines": tuple(line.key for line in order.lines[:lines]),
            "effective": now,
            "issued": now,
            "observations": tuple(
                ReportedObservation(
                    id=code,
                    code=Coding(system="http://loinc.org", code=code),
                    value_quantity=Quantity(value=Decimal(number), unit="g/L"),
                )
                for code, number in values.items()
            ),
        }
        inbox = StoreInbox(self.scenario.agent.store, self.scenario.world.clock, "folder")
        assert await inbox.accept(f"message {self.messages}", LabReport(**{**given, **fields}))

    async def settle(self) -> None:
        for _ in range(3):
            await self.scenario.agent.reconcile.run()
            await recheck(self.scenario)

    async def alerts(self, condition: ConditionId) -> list[Alert]:
        await self.scenario.is_told(condition)
        found = await self.scenario.world.store.run(lambda uow: uow.alerts.all_open())
        return [each for each in found if each.condition is condition]


@pytest.fixture
def finish(make_scenario: MakeScenario, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    async def run(orders: int = 1, *, lines: int = 99, **fields: Any) -> Clinic:
        """So many orders are handed over, the service is backed up, and they are reported; nothing is put back yet."""
        scenario = make_scenario(2)
        for _ in range(orders - 1):
            scenario.world.place_order(pick_template(scenario.world, 2), relabel=True)
        clinic = Clinic(scenario)
        clinic.watch(monkeypatch)
        await scenario.process_all()
        clinic.restore = scenario.world.back_up_service()
        for order in scenario.world.lis.submitted:
            await clinic.report(order, lines=lines, **fields)
        await scenario.world.drain(scenario.agent)
        assert len(clinic.resources("DiagnosticReport")) == orders
        return clinic

    return run


async def expect_all_done(clinic: Clinic, orders: int = 1) -> None:
    """Every order has its report, and nothing was analysed twice."""
    assert clinic.without_report == []
    assert set(clinic.tasks) == {"completed"}
    assert len(clinic.resources("DiagnosticReport")) == orders
    assert len(clinic.resources("Observation")) == 2 * orders
    assert len(clinic.scenario.world.lis.submitted) == orders
    assert clinic.scenario.world.lis.cancelled == []
    assert (await clinic.scenario.order_record()).state is OrderState.CLOSED


@pytest.mark.parametrize("orders", [1, 3])
async def test_lost_reports_are_sent_again(finish: Callable[..., Any], orders: int) -> None:
    clinic: Clinic = await finish(orders)
    clinic.restore()
    assert set(clinic.tasks) == {"requested"}
    await clinic.settle()
    await expect_all_done(clinic, orders)
    assert await clinic.alerts(ConditionId.LINES_HELD) == []
    (told,) = await clinic.alerts(ConditionId.EXCHANGE_RESTORED)
    assert told.count == orders


async def test_line_lost_in_open_order_ends_again(finish: Callable[..., Any]) -> None:
    clinic: Clinic = await finish(lines=1)
    clinic.restore()
    await clinic.settle()
    assert sorted(line.state for line in await clinic.scenario.lines()) == [LineState.ACCEPTED, LineState.COMPLETED]
    assert sorted(clinic.tasks) == ["completed", "requested", "requested"]
    assert clinic.without_report == []
    assert await clinic.alerts(ConditionId.LINES_HELD) == []


@pytest.mark.parametrize("value", ["13.20", "14.00"])
@pytest.mark.parametrize("found_first", [True, False])
async def test_report_sent_after_restore_is_whole_there(finish: Callable[..., Any], value: str, found_first: bool) -> None:
    """The same report, or a version 2 that changes one of two values, before the Tasks are seen or at the same time."""
    clinic: Clinic = await finish()
    clinic.restore()
    if found_first:
        await clinic.scenario.agent.poll.run()
    await clinic.report(clinic.scenario.world.lis.submitted[0], value=value)
    await clinic.scenario.world.drain(clinic.scenario.agent)
    await clinic.settle()
    await expect_all_done(clinic)
    values = {str(each["valueQuantity"]["value"]) for each in clinic.resources("Observation")}
    assert {Decimal(each) for each in values} == {Decimal(value), Decimal("5.1")}


async def test_line_accepted_by_hand_after_restore_waits_for_report(finish: Callable[..., Any]) -> None:
    """It was held before its report was lost, or by a release that did not look."""
    clinic: Clinic = await finish()
    scenario = clinic.scenario
    request_again(scenario, *scenario.line_tasks, scenario.task)
    await recheck(scenario)
    clinic.restore()
    for line in await scenario.lines():
        await operator_orders.accept_line(scenario.world.store, line.key, by="eve", now=scenario.world.clock.now())
    await clinic.report(scenario.world.lis.submitted[0])
    await scenario.world.drain(scenario.agent)
    await clinic.settle()
    await expect_all_done(clinic)


@pytest.mark.parametrize("lines", [1, 99])
async def test_service_backed_up_before_tasks_ended_is_completed_again(
    make_scenario: MakeScenario, monkeypatch: pytest.MonkeyPatch, lines: int
) -> None:
    """The backup was made between the upload of the report and the end of its Tasks."""
    scenario = make_scenario(2)
    clinic = Clinic(scenario)
    await scenario.process_all()
    await clinic.report(scenario.world.lis.submitted[0], lines=lines)
    scenario.world.clock.advance(1)
    await scenario.agent.run_jobs(JobKind.MATCH_REPORT)
    await scenario.agent.run_jobs(JobKind.DELIVER_REPORT)
    clinic.restore = scenario.world.back_up_service()
    assert (len(clinic.resources("DiagnosticReport")), set(clinic.tasks)) == (1, {"requested"})
    await scenario.world.drain(scenario.agent)
    ended = sorted(clinic.tasks)
    clinic.restore()
    clinic.watch(monkeypatch)
    scenario.world.clock.advance(300)
    await clinic.settle()
    assert sorted(clinic.tasks) == ended
    assert clinic.without_report == []
    assert await clinic.alerts(ConditionId.LINES_HELD) == []
    (told,) = await clinic.alerts(ConditionId.EXCHANGE_RESTORED)
    assert told.count == 1
    assert (len(clinic.resources("DiagnosticReport")), len(clinic.resources("Observation"))) == (1, 2)


async def test_line_put_back_with_report_there_is_held(finish: Callable[..., Any]) -> None:
    clinic: Clinic = await finish()
    request_again(clinic.scenario, *clinic.scenario.line_tasks, clinic.scenario.task)
    await recheck(clinic.scenario)
    assert [line.state for line in await clinic.scenario.lines()] == [LineState.HELD] * 2
    assert await clinic.alerts(ConditionId.LINES_HELD)
    assert await clinic.alerts(ConditionId.EXCHANGE_RESTORED) == []


async def test_report_lost_before_its_task_is_set_goes_first(
    make_scenario: MakeScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service fails between the report and the Tasks, and comes back without the report."""
    scenario = make_scenario(2)
    clinic = Clinic(scenario)
    await scenario.process_all()
    clinic.restore = scenario.world.back_up_service()
    await clinic.report(scenario.world.lis.submitted[0])
    update = scenario.agent.exchange.update

    async def fail(*_: object, **__: object) -> None:
        raise ServiceUnavailable("the service is down")

    monkeypatch.setattr(scenario.agent.exchange, "update", fail)
    for _ in range(3):
        await scenario.agent.run_jobs(JobKind.MATCH_REPORT, JobKind.DELIVER_REPORT, JobKind.UPDATE_LINE_TASK)
    assert len(clinic.resources("DiagnosticReport")) == 1
    clinic.restore()
    monkeypatch.setattr(scenario.agent.exchange, "update", update)
    clinic.watch(monkeypatch)
    await scenario.world.drain(scenario.agent, until=timedelta(minutes=10))
    await clinic.settle()
    await expect_all_done(clinic)


@pytest.mark.parametrize(
    "answer", [{"kind": "poison_task", "poison": "nan"}, {"kind": "status", "status": 500}, {"kind": "status", "status": 400}]
)
async def test_report_unreadable_before_its_task_is_set_is_read_again(
    make_scenario: MakeScenario, monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any]
) -> None:
    """The Task could not be set at once; then the report, which is there, is answered with something that tells nothing of it."""
    scenario = make_scenario(2)
    clinic, faults = Clinic(scenario), scenario.world.service.faults
    clinic.watch(monkeypatch)
    await scenario.process_all()
    await clinic.report(scenario.world.lis.submitted[0])
    faults.activate(plan({"kind": "status", "status": 503, "route": "GET /fhir/Task/*"}))
    for _ in range(3):
        await scenario.agent.run_jobs(JobKind.MATCH_REPORT, JobKind.DELIVER_REPORT, JobKind.UPDATE_LINE_TASK)
    faults.activate(plan({"route": "GET /fhir/DiagnosticReport/*", **answer}))
    await scenario.world.drain(scenario.agent, until=timedelta(minutes=10))
    assert faults.fired
    faults.activate(FaultPlan())
    await scenario.world.drain(scenario.agent, until=timedelta(minutes=10))
    await expect_all_done(clinic)


def plan(rule: dict[str, Any]) -> FaultPlan:
    return FaultPlan(faults=(FaultRule.model_validate(rule),))


async def test_id_given_to_another_resource_counts_as_lost(finish: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    clinic: Clinic = await finish()
    exchange = clinic.scenario.agent.exchange
    (lost,) = clinic.resources("DiagnosticReport")
    clinic.restore()
    read = exchange.read

    async def reused(kind: str, resource_id: ResourceId) -> SavedResource:
        if resource_id != lost["id"]:
            return await read(kind, resource_id)
        other = {**lost, "identifier": [{"system": "urn:other", "value": "7"}]}
        return SavedResource(resource_type=kind, id=resource_id, version="1", body=other)

    monkeypatch.setattr(exchange, "read", reused)
    await clinic.settle()
    await expect_all_done(clinic)


async def test_restored_service_is_told_for_a_day(finish: Callable[..., Any]) -> None:
    clinic: Clinic = await finish()
    clinic.restore()
    await clinic.settle()
    assert await clinic.alerts(ConditionId.EXCHANGE_RESTORED)
    clinic.scenario.world.clock.advance(24 * 3600)
    await clinic.scenario.agent.reconcile.run()
    assert await clinic.alerts(ConditionId.EXCHANGE_RESTORED) == []


async def lose_results(clinic: Clinic) -> None:
    """The reports are gone, and the Tasks are as we left them: nothing shows it."""
    tasks = clinic.scenario.world.all_tasks()
    clinic.restore()
    for task in tasks:
        clinic.scenario.world.force_task(task["id"], status="completed")
    await clinic.settle()
    assert clinic.resources("DiagnosticReport") == []


@pytest.mark.parametrize("by_order", [True, False])
async def test_operator_has_lost_results_uploaded_again(finish: Callable[..., Any], by_order: bool) -> None:
    clinic: Clinic = await finish(2)
    scenario, now = clinic.scenario, clinic.scenario.world.clock.now()
    await lose_results(clinic)
    what = scenario.world.order_key_of(scenario.task) if by_order else SentSpan(now - timedelta(hours=1), now)
    number = await upload_again(scenario.world.store, what, by="eve", note="restored", now=scenario.world.clock.now())
    await clinic.settle()
    assert number == len(clinic.resources("DiagnosticReport")) == (1 if by_order else 2)
    assert set(clinic.tasks) == {"completed"}
    assert (await scenario.order_record()).state is OrderState.CLOSED


async def test_results_that_are_there_are_not_written_again(finish: Callable[..., Any]) -> None:
    clinic: Clinic = await finish()
    before = clinic.resources("DiagnosticReport") + clinic.resources("Observation")
    order, now = clinic.scenario.world.order_key_of(clinic.scenario.task), clinic.scenario.world.clock.now()
    await upload_again(clinic.scenario.world.store, order, by="eve", note="restored", now=now)
    await clinic.settle()
    assert clinic.resources("DiagnosticReport") + clinic.resources("Observation") == before
    assert await clinic.alerts(ConditionId.EXCHANGE_RESTORED) == []
