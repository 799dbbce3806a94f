"""An order of which two laboratory systems have a part each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lab_agent.orders import job_actions
from lab_agent.orders.records import LineRecord
from lab_agent.queue.job_records import JobKind
from lab_agent.results import result_actions
from lab_agent.shared.state_machines import LineState, WorkOrderState
from lab_agent.store.unit_of_work import Store
from tests.harness.fault_injection import SimulatedLis
from tests.harness.orders import procedure_requests
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

    @property
    def counts(self) -> tuple[int, int]:
        """How many orders each of them has got."""
        return len(self.chemistry.submitted), len(self.microbiology.submitted)

    async def work_orders(self) -> dict[str, WorkOrderState]:
        return {
            each.adapter: each.state for each in await self.world.store.transact(lambda uow: uow.orders.work_orders(self.key))
        }

    async def lines_at(self, adapter: str) -> list[LineRecord]:
        return [line for line in await self.lines() if line.adapter == adapter]

    async def states_at(self, adapter: str) -> set[LineState]:
        return {line.state for line in await self.lines_at(adapter)}

    async def wait(self, minutes: int = 30) -> None:
        """Let time go by, and everything happen that is due."""
        await self.drain(*[300] * (minutes // 5))

    async def dismiss_dead_letter(self) -> None:
        """An operator dismisses it, and everything follows."""
        dead, now = await self.dead_letter(), self.world.clock.now()
        await job_actions.dismiss_job(self.world.store, dead.id, now=now, **NOTE)
        await self.drain()

    async def match_to(self, report: Any, line: LineRecord) -> Any:
        """An operator matches a report to a line, and everything follows; the report then."""
        matcher, store = self.agent.runner.handlers[JobKind.MATCH_REPORT].matcher, self.world.store  # type: ignore[attr-defined]
        now = self.world.clock.now()
        await result_actions.match_result(store, matcher, report.key, line.order, lines=(line.key,), now=now, **NOTE)
        await self.drain()
        return await store.transact(lambda uow: uow.reports.get_for_update(report.key))

    def reports_on_service(self) -> list[Any]:
        return list(self.world.service.store.find("DiagnosticReport", [], lambda _: True, limit=9))


def make_laboratory(*, lines_elsewhere: int = 1, store: Store | None = None, **worker: Any) -> Laboratory:
    template = pick_template(World("scenario"), 3)
    items = [each["code"]["coding"][0]["code"] for each in procedure_requests(template.bundle)[-lines_elsewhere:]]
    world = World("scenario", routes=[{"items": items, "adapter": MICROBIOLOGY}], store=store, **worker)
    return Laboratory(world, world.agent(), world.place_order(template))
