"""A service that was restored from its backup: what we had brought there is brought again, and nothing is analysed twice."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from lab_agent.exchange.service import Json, SavedResource
from lab_agent.fhir.report_builder import FINAL_STATUSES
from lab_agent.lis.lab_order import LabOrder
from lab_agent.queue.job_records import JobKind
from lab_agent.results.result_actions import SentSpan, upload_again
from lab_agent.results.result_inbox import StoreInbox
from lab_agent.shared.conditions.model import ConditionId
from lab_agent.shared.errors import ServiceUnavailable
from lab_agent.shared.ids import ResourceId
from lab_agent.shared.state_machines import LineState, OrderState
from lab_agent.shared.values import Coding
from lab_agent.store.event_records import Alert
from lab_sandbox.faults.plan import FaultPlan
from lab_sandbox.references import Ref
from tests.harness.results import haemoglobin
from tests.integration.workflow.conftest import MakeScenario, Scenario, parametrize_first, pick_template
from tests.integration.workflow.service_answers import inject


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
    def counts(self) -> tuple[int, int]:
        """Reports and values on the service."""
        return len(self.resources("DiagnosticReport")), len(self.resources("Observation"))

    @property
    def tasks(self) -> list[str]:
        return sorted(str(each["status"]) for each in self.scenario.world.all_tasks())

    async def report(self, order: LabOrder, *, lines: int = 99, value: str = "13.20", **fields: Any) -> None:
        """A message of the laboratory: two values, the second of which is always the same."""
        self.messages += 1
        glucose = haemoglobin("5.1", id="glucose", code=Coding(system="http://loinc.org", code="2345-7"))
        given: dict[str, Any] = {"report_id": f"R{order.key}", "lines": tuple(line.key for line in order.lines[:lines])}
        given |= {"observations": (haemoglobin(value), glucose), "order": order.key}
        inbox = StoreInbox(self.scenario.agent.store, self.scenario.world.clock, "folder")
        assert await inbox.accept(f"message {self.messages}", self.scenario.report(**{**given, **fields}))

    async def settle(self) -> None:
        for _ in range(3):
            await self.scenario.reconcile(drain=False)
            await self.scenario.recheck()

    async def alerts(self, condition: ConditionId) -> list[Alert]:
        await self.scenario.is_told(condition)
        return [each for each in self.scenario.open_alerts().values() if each.condition is condition]

    async def told_counts(self) -> list[int | None]:
        """How many orders the alerts of a restored service are about."""
        return [each.count for each in await self.alerts(ConditionId.EXCHANGE_RESTORED)]

    async def expect_all_done(self, orders: int = 1) -> None:
        """Every order has its report, and nothing was analysed twice."""
        assert (self.without_report, set(self.tasks), self.counts) == ([], {"completed"}, (orders, 2 * orders))
        assert (len(self.scenario.handed_over), self.scenario.told_lis) == (orders, [])
        assert await self.scenario.state() is OrderState.CLOSED


Finish = Callable[..., Awaitable[Clinic]]


@pytest.fixture
def finish(make_scenario: MakeScenario, monkeypatch: pytest.MonkeyPatch) -> Finish:
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
        await scenario.drain()
        assert clinic.counts[0] == orders
        return clinic

    return run


async def test_lost_reports_are_sent_again(finish: Finish) -> None:
    """That is told for a day."""
    clinic = await finish(2)
    clinic.restore()
    assert set(clinic.tasks) == {"requested"}
    await clinic.settle()
    await clinic.expect_all_done(2)
    assert (await clinic.alerts(ConditionId.LINES_HELD), await clinic.told_counts()) == ([], [2])
    clinic.scenario.world.clock.advance(24 * 3600)
    await clinic.scenario.reconcile(drain=False)
    assert await clinic.told_counts() == []


async def test_line_lost_in_open_order_ends_again(finish: Finish) -> None:
    clinic = await finish(lines=1)
    clinic.restore()
    await clinic.settle()
    assert sorted(await clinic.scenario.line_states()) == [LineState.ACCEPTED, LineState.COMPLETED]
    assert (clinic.tasks, clinic.without_report) == (["completed", "requested", "requested"], [])
    assert await clinic.alerts(ConditionId.LINES_HELD) == []


@parametrize_first("value, found_first", [("14.00", True), ("14.00", False), ("13.20", True), ("13.20", False)], 2)
async def test_report_sent_after_restore_is_whole_there(finish: Finish, value: str, found_first: bool) -> None:
    """The same report, or a version 2 that changes one of two values, before the Tasks are seen or at the same time."""
    clinic = await finish()
    clinic.restore()
    if found_first:
        await clinic.scenario.agent.poll.run()
    await clinic.report(clinic.scenario.world.lis.submitted[0], value=value)
    await clinic.scenario.drain()
    await clinic.settle()
    await clinic.expect_all_done()
    values = {Decimal(str(each["valueQuantity"]["value"])) for each in clinic.resources("Observation")}
    assert values == {Decimal(value), Decimal("5.1")}


async def test_line_accepted_by_hand_after_restore_waits_for_report(finish: Finish) -> None:
    """Put back while its report was there, it was held; then the report was lost, and an operator did not look."""
    clinic = await finish()
    scenario = clinic.scenario
    scenario.force("requested")
    await scenario.recheck()
    assert await scenario.line_states() == [LineState.HELD] * 2
    assert await clinic.alerts(ConditionId.LINES_HELD)
    assert await clinic.told_counts() == []
    clinic.restore()
    for line in await scenario.lines():
        await scenario.accept_line(line.key)
    await clinic.report(scenario.world.lis.submitted[0])
    await scenario.drain()
    await clinic.settle()
    await clinic.expect_all_done()


@pytest.mark.parametrize("lines", [1, 99])
@pytest.mark.slow
async def test_service_backed_up_before_tasks_ended_is_completed_again(
    make_scenario: MakeScenario, monkeypatch: pytest.MonkeyPatch, lines: int
) -> None:
    """The backup was made between the upload of the report and the end of its Tasks."""
    scenario = make_scenario(2)
    clinic = Clinic(scenario)
    await scenario.process_all()
    await clinic.report(scenario.world.lis.submitted[0], lines=lines)
    scenario.world.clock.advance(1)
    for kind in (JobKind.MATCH_REPORT, JobKind.DELIVER_REPORT):
        await scenario.agent.run_jobs(kind)
    clinic.restore = scenario.world.back_up_service()
    assert (clinic.counts[0], set(clinic.tasks)) == (1, {"requested"})
    await scenario.drain()
    ended = clinic.tasks
    clinic.restore()
    clinic.watch(monkeypatch)
    scenario.world.clock.advance(300)
    await clinic.settle()
    assert (clinic.tasks, clinic.without_report, clinic.counts) == (ended, [], (1, 2))
    assert (await clinic.alerts(ConditionId.LINES_HELD), await clinic.told_counts()) == ([], [1])


@pytest.mark.slow
async def test_report_lost_before_its_task_is_set_goes_first(
    make_scenario: MakeScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service fails between the report and the Tasks, and comes back without the report."""
    scenario = make_scenario(2)
    clinic = Clinic(scenario)
    await scenario.process_all()
    clinic.restore = scenario.world.back_up_service()
    await clinic.report(scenario.world.lis.submitted[0])

    async def fail(*_: object, **__: object) -> None:
        raise ServiceUnavailable("the service is down")

    with monkeypatch.context() as down:
        down.setattr(scenario.agent.exchange, "update", fail)
        for _ in range(3):
            await scenario.agent.run_jobs(JobKind.MATCH_REPORT, JobKind.DELIVER_REPORT, JobKind.UPDATE_LINE_TASK)
    assert clinic.counts[0] == 1
    clinic.restore()
    clinic.watch(monkeypatch)
    await scenario.world.drain(scenario.agent, until=timedelta(minutes=10))
    await clinic.settle()
    await clinic.expect_all_done()


@pytest.mark.slow
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
    inject(scenario.world, kind="status", status=503, route="GET /fhir/Task/*")
    for _ in range(3):
        await scenario.agent.run_jobs(JobKind.MATCH_REPORT, JobKind.DELIVER_REPORT, JobKind.UPDATE_LINE_TASK)
    inject(scenario.world, route="GET /fhir/DiagnosticReport/*", **answer)
    await scenario.world.drain(scenario.agent, until=timedelta(minutes=10))
    assert faults.fired
    faults.activate(FaultPlan())
    await scenario.world.drain(scenario.agent, until=timedelta(minutes=10))
    await clinic.expect_all_done()


async def test_id_given_to_another_resource_counts_as_lost(finish: Finish, monkeypatch: pytest.MonkeyPatch) -> None:
    clinic = await finish()
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
    await clinic.expect_all_done()


@pytest.mark.parametrize("what", ["order", "span"])
@pytest.mark.slow
async def test_operator_has_lost_results_uploaded_again(finish: Finish, what: str) -> None:
    """The reports are gone, and the Tasks are as we left them: nothing shows it."""
    clinic = await finish(2)
    scenario, now = clinic.scenario, clinic.scenario.world.clock.now()
    clinic.restore()
    scenario.force("completed", *(task["id"] for task in scenario.world.all_tasks()))
    await clinic.settle()
    assert clinic.counts[0] == 0
    chosen = scenario.key if what == "order" else SentSpan(now - timedelta(hours=1), now)
    number = await upload_again(scenario.world.store, chosen, by="eve", note="restored", now=scenario.world.clock.now())
    await clinic.settle()
    assert number == clinic.counts[0] == (1 if what == "order" else 2)
    assert (set(clinic.tasks), await scenario.state()) == ({"completed"}, OrderState.CLOSED)


@pytest.mark.slow
async def test_results_that_are_there_are_not_written_again(finish: Finish) -> None:
    clinic = await finish()
    before = clinic.resources("DiagnosticReport") + clinic.resources("Observation")
    now = clinic.scenario.world.clock.now()
    await upload_again(clinic.scenario.world.store, clinic.scenario.key, by="eve", note="restored", now=now)
    await clinic.settle()
    assert clinic.resources("DiagnosticReport") + clinic.resources("Observation") == before
    assert await clinic.told_counts() == []
