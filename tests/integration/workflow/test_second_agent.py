"""Two agents of one laboratory by mistake, each with a database and a laboratory system of its own: both tell it, and hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from lab_agent.conditions.ids import ConditionId
from lab_agent.domain.lab_order import LabOrder
from lab_agent.domain.records import Alert
from lab_agent.domain.restoration import RestoreSign
from lab_agent.domain.state_machines import LineState
from lab_agent.workflow.restored_store import load_restoration, note_reconciled, note_restoration, release_restoration
from tests.integration.workflow.conftest import Scenario, pick_template
from tests.integration.workflow.test_restored_service import Clinic
from tests.integration.workflow.test_restored_store import write

MakeScenario = Callable[..., Scenario]


@dataclass
class Site:
    """What one of the agents has of its own."""

    data: Any
    submitted: list[LabOrder] = field(default_factory=list)


@dataclass
class TwoAgents:
    """One service, on which the agents "old" and "new" work in turn."""

    scenario: Scenario
    clinic: Clinic
    sites: dict[str, Site]
    present: str = "old"

    @classmethod
    def of(cls, scenario: Scenario) -> TwoAgents:
        data = scenario.world.store._data  # type: ignore[attr-defined]
        return cls(scenario, Clinic(scenario), {"old": Site(data), "new": Site(data.copy())})

    def use(self, name: str) -> None:
        """Let this one work."""
        world, left = self.scenario.world, self.sites[self.present]
        left.data, left.submitted = world.store._data, world.lis.submitted  # type: ignore[attr-defined]
        self.present = name
        world.store._data, world.lis.submitted = self.sites[name].data, self.sites[name].submitted  # type: ignore[attr-defined]

    async def hand_over(self, *names: str) -> None:
        for name in names:
            self.use(name)
            await self.scenario.process_all()

    async def report(self, name: str, **fields: Any) -> None:
        """The laboratory system of one of them has the result of its first order."""
        self.use(name)
        self.clinic.messages += 100
        await self.clinic.report(self.scenario.world.lis.submitted[0], **fields)
        await self.scenario.world.drain(self.scenario.agent)

    async def told(self, name: str) -> list[Alert]:
        self.use(name)
        await self.scenario.agent.reconcile.run()
        await self.scenario.world.drain(self.scenario.agent)
        return await self.clinic.alerts(ConditionId.AGENT_SECOND_AGENT)


@pytest.fixture
def two(make_scenario: MakeScenario) -> TwoAgents:
    return TwoAgents.of(make_scenario(2))


async def test_report_of_another_agent_is_told_and_holds(two: TwoAgents) -> None:
    """Each has done what the other one has, too; whoever comes second sees it, and what is new is handed over no more."""
    await two.hand_over("old", "new")
    await two.report("old")
    (told,) = await two.told("new")
    assert "last changed at 2026-" in told.detail
    assert "runs on" in told.detail
    assert await two.clinic.alerts(ConditionId.STORE_RESTORED) == []
    assert {line.state for line in await two.scenario.lines()} == {LineState.COMPLETED}
    assert two.scenario.world.lis.cancelled == []
    before = len(two.scenario.world.lis.submitted)
    two.scenario.world.place_order(pick_template(two.scenario.world, 2), relabel=True)
    await two.scenario.process_all()
    assert len(two.scenario.world.lis.submitted) == before


async def test_both_agents_tell_of_each_other(two: TwoAgents) -> None:
    two.scenario.world.place_order(pick_template(two.scenario.world, 2), relabel=True)
    await two.hand_over("old", "new")
    await two.report("old")
    two.use("new")
    two.scenario.world.lis.submitted.reverse()
    first, second = two.scenario.world.lis.submitted
    if first.key == two.sites["old"].submitted[0].key:
        two.scenario.world.lis.submitted = [second, first]
    await two.report("new")
    assert await two.told("new")
    assert await two.told("old")


@pytest.mark.parametrize("report_id", ["R-same", "R-other"])
async def test_agent_that_reports_what_was_reported_tells(two: TwoAgents, report_id: str) -> None:
    """Both laboratory systems have the result: their reports have one id, or each its own."""
    await two.hand_over("old", "new")
    await two.report("old", report_id="R-same")
    await two.report("new", report_id=report_id)
    assert await two.clinic.alerts(ConditionId.AGENT_SECOND_AGENT)
    assert two.scenario.status() == "completed"


async def test_rejection_by_another_agent_is_told(make_scenario: MakeScenario) -> None:
    """Both reject the order, in the same words: whoever comes second finds them."""
    two = TwoAgents.of(make_scenario(2, spoil=0))
    for name in ("old", "new"):
        two.use(name)
        await two.scenario.assess()
    await two.hand_over("old")
    assert "cancelled" in two.scenario.statuses()
    assert await two.clinic.alerts(ConditionId.AGENT_SECOND_AGENT) == []
    await two.hand_over("new")
    assert await two.clinic.alerts(ConditionId.AGENT_SECOND_AGENT)


async def test_order_that_another_agent_works_on_is_not_handed_over(two: TwoAgents) -> None:
    """A line of it has a report of ours when this agent first sees it, or when it is about to hand it over."""
    await two.hand_over("old")
    await two.report("old", lines=1)
    await two.hand_over("new")
    assert two.scenario.world.lis.submitted == []
    assert await two.clinic.alerts(ConditionId.AGENT_SECOND_AGENT)


async def test_released_agent_asks_before_each_handover(two: TwoAgents) -> None:
    await two.hand_over("old")
    await two.report("old", lines=1)
    await two.hand_over("new")
    now = two.scenario.world.clock.now()
    await write(two.scenario, lambda uow: note_reconciled(uow, now))
    await write(two.scenario, lambda uow: release_restoration(uow, now, "anna"))
    assert await two.clinic.alerts(ConditionId.AGENT_SECOND_AGENT) == []
    two.scenario.world.clock.advance(60)
    await two.scenario.world.drain(two.scenario.agent)
    assert len(two.scenario.world.lis.submitted) == 1, "this laboratory system does not have it"
    assert await two.clinic.alerts(ConditionId.AGENT_SECOND_AGENT) == []


@pytest.mark.parametrize("sign", [RestoreSign.COMMAND, RestoreSign.OLDER_THAN_MARK, RestoreSign.OTHER_DATABASE])
async def test_known_restore_is_no_second_agent(two: TwoAgents, sign: RestoreSign) -> None:
    await two.hand_over("old", "new")
    await two.report("old")
    two.use("new")
    now = two.scenario.world.clock.now()
    await write(two.scenario, lambda uow: note_restoration(uow, sign, now))
    assert await two.told("new") == []
    assert await two.clinic.alerts(ConditionId.STORE_RESTORED)


async def test_mark_that_shows_a_restore_ends_the_suspicion(two: TwoAgents) -> None:
    await two.hand_over("old", "new")
    await two.report("old")
    assert await two.told("new")
    await write(two.scenario, lambda uow: note_restoration(uow, RestoreSign.OLDER_THAN_MARK, two.scenario.world.clock.now()))
    assert await two.clinic.alerts(ConditionId.AGENT_SECOND_AGENT) == []
    restored = await two.scenario.world.store.run(load_restoration)
    assert restored is not None
    assert restored.sign is RestoreSign.OLDER_THAN_MARK


async def test_task_completed_by_the_service_is_no_second_agent(two: TwoAgents) -> None:
    """A service may complete the Tasks of what is reported by itself."""
    await two.hand_over("old")
    await two.clinic.report(two.scenario.world.lis.submitted[0])
    create = two.scenario.agent.exchange.create

    async def complete_too(kind: str, *given: Any, **named: Any) -> Any:
        saved = await create(kind, *given, **named)
        if kind == "DiagnosticReport":
            for task in two.scenario.line_tasks:
                two.scenario.world.end_task(task, "completed")
        return saved

    two.scenario.agent.exchange.create = complete_too  # type: ignore[method-assign]
    assert await two.told("old") == []
    assert two.scenario.status() == "completed"
