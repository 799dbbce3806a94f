"""Two agents of one laboratory by mistake, each with a database and a laboratory system of its own: both tell it, and hold."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from lab_agent.fhir.references import parse_reference
from lab_agent.lis.lab_messages import ReportStatus
from lab_agent.lis.lab_order import LabOrder
from lab_agent.orders.restored_store import load_restoration, note_reconciled, note_restoration, release_restoration
from lab_agent.results.records import UploadRecord
from lab_agent.shared.conditions.model import ConditionId
from lab_agent.shared.errors import OutcomeUnknown
from lab_agent.shared.state_machines import LineState, OrderState
from lab_agent.store.event_records import Alert
from lab_agent.store.restoration import RestoreSign
from tests.harness.databases import InlineStore
from tests.harness.world import SimulatedAgent, World
from tests.integration.workflow.conftest import MakeScenario, Scenario, parametrize_first, pick_template
from tests.integration.workflow.laboratories import make_laboratory
from tests.integration.workflow.service_answers import answer_with, change_answers
from tests.integration.workflow.test_restored_service import Clinic


@dataclass
class Site:
    """What one of the agents has of its own."""

    store: InlineStore
    agent: SimulatedAgent
    submitted: list[LabOrder] = field(default_factory=list)

    @classmethod
    def of(cls, world: World, name: str) -> Site:
        world.store = store = InlineStore()
        return cls(store, world.agent(name))


@dataclass
class TwoAgents:
    """One service, on which the agents "old" and "new" work in turn."""

    scenario: Scenario
    clinic: Clinic
    sites: dict[str, Site]

    @classmethod
    def of(cls, scenario: Scenario) -> TwoAgents:
        return cls(scenario, Clinic(scenario), {name: Site.of(scenario.world, name) for name in ("new", "old")})

    def use(self, name: str) -> None:
        """Let this one work."""
        site, world = self.sites[name], self.scenario.world
        world.store, self.scenario.agent, world.lis.submitted = site.store, site.agent, site.submitted

    async def hand_over(self, *names: str) -> None:
        for name in names:
            self.use(name)
            await self.scenario.process_all()

    async def report(self, name: str, number: int = 0, **fields: Any) -> None:
        """The laboratory system of one of them has the result of an order."""
        self.use(name)
        self.clinic.messages += 100
        await self.clinic.report(sorted(self.sites[name].submitted, key=lambda order: order.key)[number], **fields)
        await self.scenario.drain()

    async def told(self, name: str) -> list[Alert]:
        self.use(name)
        await self.scenario.reconcile()
        return await told(self.scenario)


async def told(scenario: Scenario) -> list[Alert]:
    return await Clinic(scenario).alerts(ConditionId.AGENT_SECOND_AGENT)


@pytest.fixture
def two(make_scenario: MakeScenario) -> TwoAgents:
    return TwoAgents.of(make_scenario(2))


async def test_report_of_another_agent_is_told_and_holds(two: TwoAgents) -> None:
    """Each has done what the other one has, too; whoever comes second sees it, and what is new is handed over no more."""
    await two.hand_over("old", "new")
    await two.report("old")
    (alert,) = await two.told("new")
    assert "last changed at 2026-" in str(alert.detail)
    assert "runs on" in str(alert.detail)
    assert await two.clinic.alerts(ConditionId.STORE_RESTORED) == []
    assert (set(await two.scenario.line_states()), two.scenario.told_lis) == ({LineState.COMPLETED}, [])
    before = two.scenario.handed_over
    two.scenario.world.place_order(pick_template(two.scenario.world, 2), relabel=True)
    await two.scenario.process_all()
    assert two.scenario.handed_over == before
    await two.scenario.write(lambda uow: note_restoration(uow, RestoreSign.OLDER_THAN_MARK, two.scenario.world.clock.now()))
    assert await told(two.scenario) == [], "a mark shows that it was restored"
    restored = await two.scenario.world.store.transact(load_restoration)
    assert restored is not None
    assert restored.sign is RestoreSign.OLDER_THAN_MARK


@pytest.mark.parametrize("report_id", ["R-same", "R-other"])
@pytest.mark.slow
async def test_agent_that_reports_what_was_reported_tells(two: TwoAgents, report_id: str) -> None:
    """Both laboratory systems have the result: their reports have one id, or each its own.

    That of the other order shows whether the service says of what it has created that it has.
    """
    two.scenario.world.place_order(pick_template(two.scenario.world, 1), relabel=True)
    await two.hand_over("old", "new")
    await two.report("new", 1)
    await two.report("old", report_id="R-same")
    await two.report("new", report_id=report_id)
    assert await told(two.scenario)
    assert "completed" in {each["status"] for each in two.scenario.world.all_tasks()}


@pytest.mark.slow
async def test_preliminary_report_that_another_made_final_is_told(two: TwoAgents) -> None:
    """Each has sent it while it was preliminary; whoever did not send the final one sees it."""
    await two.hand_over("old", "new")
    await two.report("old", report_id="R", status=ReportStatus.PRELIMINARY)
    two.use("new")
    for upload in two.sites["old"].store.records(UploadRecord):
        await two.scenario.write(lambda uow, upload=upload: uow.uploads.save(upload))  # type: ignore[misc]
    await two.report("old", report_id="R", status=ReportStatus.FINAL)
    assert await two.told("new")


@pytest.mark.slow
async def test_rejection_by_another_agent_is_told(make_scenario: MakeScenario) -> None:
    """Both reject the order, in the same words: whoever comes second finds them."""
    two = TwoAgents.of(make_scenario(2, spoil=0))
    for name in ("old", "new"):
        two.use(name)
        await two.scenario.assess()
    await two.hand_over("old")
    assert "cancelled" in two.scenario.statuses()
    assert await told(two.scenario) == []
    await two.hand_over("new")
    assert await told(two.scenario)


async def test_order_that_another_agent_works_on_is_not_handed_over(two: TwoAgents) -> None:
    """A line of it has a report of ours when this agent first sees it. Once that is released, it asks before each handover."""
    await two.hand_over("old")
    await two.report("old", lines=1)
    await two.hand_over("new")
    assert two.scenario.handed_over == []
    assert await told(two.scenario)
    now = two.scenario.world.clock.now()
    await two.scenario.write(lambda uow: (note_reconciled(uow, now), release_restoration(uow, now, "anna")))
    assert await told(two.scenario) == []
    await two.scenario.drain(60)
    assert len(two.scenario.handed_over) == 1, "this laboratory system does not have it"
    assert await told(two.scenario) == []


@parametrize_first("sign", [RestoreSign.COMMAND, RestoreSign.OLDER_THAN_MARK, RestoreSign.OTHER_DATABASE])
async def test_known_restore_is_no_second_agent(two: TwoAgents, sign: RestoreSign) -> None:
    await two.hand_over("old", "new")
    await two.report("old")
    two.use("new")
    await two.scenario.write(lambda uow: note_restoration(uow, sign, two.scenario.world.clock.now()))
    assert await two.told("new") == []
    assert await two.clinic.alerts(ConditionId.STORE_RESTORED)


# --- what is none


def let_service_complete(scenario: Scenario) -> None:
    """The service completes the Tasks of what is reported by itself."""
    exchange: Any = scenario.agent.exchange
    create, world = exchange.create, scenario.world

    async def complete_too(kind: str, body: Any, *given: Any, **named: Any) -> Any:
        saved = await create(kind, body, *given, **named)
        if kind == "DiagnosticReport":
            requests = {parse_reference(each["reference"], "") for each in body["basedOn"]}
            for task in world.line_tasks(scenario.task):
                if parse_reference(task["basedOn"][0]["reference"], "") in requests:
                    world.end_task(task["id"], "completed")
        return saved

    exchange.create = complete_too


async def expect_done_alone(scenario: Scenario) -> None:
    scenario.world.clock.advance(600)
    await scenario.reconcile()
    assert await told(scenario) == []
    assert (await scenario.state(), scenario.status(), scenario.told_lis) == (OrderState.CLOSED, "completed", [])


@pytest.mark.parametrize("compared", ["later", "meanwhile", "meanwhile, and the reply is lost"])
@pytest.mark.slow
async def test_task_completed_by_the_service_is_no_second_agent(make_scenario: MakeScenario, compared: str) -> None:
    """A service may complete the Tasks of what is reported by itself, before we know that it has the report."""
    scenario = make_scenario(2)
    await scenario.process_all()
    let_service_complete(scenario)
    exchange: Any = scenario.agent.exchange
    create = exchange.create

    async def compare_after(kind: str, *given: Any, **named: Any) -> Any:
        saved = await create(kind, *given, **named)
        if kind == "DiagnosticReport" and compared != "later":
            await scenario.reconcile(drain=False)
            if "lost" in compared:
                raise OutcomeUnknown("the reply was lost")
        return saved

    exchange.create = compare_after
    await Clinic(scenario).report(scenario.world.lis.submitted[0])
    await scenario.drain()
    await expect_done_alone(scenario)


@pytest.mark.slow
async def test_task_completed_by_hand_is_no_second_agent(make_scenario: MakeScenario) -> None:
    """The service refuses our updates of Tasks, and somebody completes them there."""
    scenario = make_scenario(2)
    await scenario.process_all()
    change_answers(scenario, lambda request: request.method == "PUT", answer_with(403))
    await Clinic(scenario).report(scenario.world.lis.submitted[0])
    await scenario.drain()
    scenario.force("completed")
    await scenario.reconcile()
    assert await told(scenario) == []


@pytest.mark.slow
async def test_part_handed_over_late_is_no_second_agent() -> None:
    """The service completed the Tasks of one part by itself while the laboratory system of the other one was away."""
    laboratory = make_laboratory()
    laboratory.microbiology.is_down = True
    await laboratory.process_all()
    let_service_complete(laboratory)
    await laboratory.receive(laboratory.report())
    assert sorted(laboratory.statuses()) == ["completed", "completed", "requested"]
    laboratory.microbiology.is_down = False
    await laboratory.wait()
    assert (await told(laboratory), laboratory.counts) == ([], (1, 1))


@pytest.mark.slow
async def test_rejection_put_back_and_cancelled_is_no_second_agent(make_scenario: MakeScenario) -> None:
    """The clinic puts a rejected line back and cancels it, with our sentences still in it, before we reject it once more."""
    scenario = make_scenario(1, spoil=0)
    await scenario.process_all()
    scenario.force("requested")
    scenario.world.clock.advance(301)
    await scenario.assess()
    scenario.end(scenario.line_tasks[0])
    await scenario.drain()
    assert await told(scenario) == []


@pytest.mark.slow
async def test_service_that_answers_200_is_no_second_agent(make_scenario: MakeScenario) -> None:
    """It never says that it has created anything."""
    scenario = make_scenario(2)

    def say_ok(_: httpx.Request, response: httpx.Response) -> httpx.Response:
        kept = {name: value for name, value in response.headers.items() if name in {"etag", "location", "content-type"}}
        status = 200 if response.status_code == httpx.codes.CREATED else response.status_code
        return httpx.Response(status, headers=kept, content=response.content)

    change_answers(scenario, lambda request: request.method == "POST", say_ok)
    await scenario.process_all()
    await Clinic(scenario).report(scenario.world.lis.submitted[0])
    await scenario.drain()
    await expect_done_alone(scenario)
