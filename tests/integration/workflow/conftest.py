"""The workflow in use: the real service in one process, a laboratory system in memory, and a clock that a test moves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import httpx
import pytest

from lab_agent import exact_json
from lab_agent.conditions.ids import ConditionId
from lab_agent.conditions.model import AlertKey
from lab_agent.domain.job_records import Job, JobKind
from lab_agent.domain.records import Event, LineRecord, OrderRecord
from lab_agent.ports.repositories import UnitOfWork
from lab_agent.workflow.attention_alerts import AttentionAlerts
from tests.harness.orders import OrderTemplate, procedure_requests, templates
from tests.harness.world import SimulatedAgent, World


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits within one call are not waited for."""
    monkeypatch.setattr("lab_agent.exchange.requests.backoff_delay", lambda *_: 0.0)


@dataclass
class Scenario:
    """A world with one worker in it, and one order that was placed."""

    world: World
    agent: SimulatedAgent
    task: str

    async def process_all(self) -> None:
        """The order is found, and everything that is due is done."""
        await self.agent.poll.run()
        await self.world.drain(self.agent)

    async def assess(self) -> None:
        """The order is found and assessed, and nothing else is done."""
        await self.agent.poll.run()
        for _ in range(4):
            await self.agent.run_jobs(JobKind.FETCH_ORDER)
            self.world.clock.advance(6)

    async def order_record(self) -> OrderRecord:
        return (await self.world.stored_order(self.task))[0]

    async def lines(self) -> tuple[LineRecord, ...]:
        return (await self.world.stored_order(self.task))[1]

    async def jobs(self, **options: Any) -> tuple[Job, ...]:
        return await self.world.jobs(self.task, **options)

    async def report_all(self) -> None:
        """The laboratory reports every line that it has, finally."""
        for order in self.world.lis.submitted:
            for line in order.lines:
                await self.world.end_line(self.world.store, line.key)

    async def is_alert_open(self, key: AlertKey) -> bool:
        """Whether an alert of that name is open."""
        return await self.world.store.run(lambda uow: uow.alerts.close(key, now=self.world.clock.now()))

    async def is_told(self, condition: ConditionId) -> bool:
        """Whether an alert of this condition is open once the attention task has run."""
        await AttentionAlerts(self.world.store, self.world.clock, timedelta(minutes=30)).run()
        return bool(await self.world.store.run(lambda uow: uow.alerts.open_of({condition})))

    async def events(self) -> list[Event]:
        key = self.world.order_key_of(self.task)
        found: list[Event] = await self.world.store.run(lambda uow: [e for e in _events(uow) if e.order == key])
        return found

    async def reported_rules(self, *actions: str) -> set[str]:
        """The rules that the timeline names, with these severities; by default those that reject."""
        return {event.text.partition(":")[0] for event in await self.events() if event.action in (actions or ("refuse",))}

    @property
    def line_tasks(self) -> list[str]:
        return [str(task["id"]) for task in self.world.line_tasks(self.task)]

    def status(self, task: str | None = None) -> str:
        return str(self.world.get_task(task or self.task)["status"])

    def statuses(self) -> list[str]:
        return [self.status(task) for task in self.line_tasks]

    def outputs(self, task: str) -> list[str]:
        return [one["valueString"] for one in self.world.get_task(task).get("output", ())]


def _events(uow: UnitOfWork) -> list[Event]:
    return list(uow.events._data.events)  # type: ignore[attr-defined]


def alter(scenario: Scenario, kind: str, change: Callable[[dict[str, Any]], None]) -> None:
    """Let the service give resources of one type changed, as a partner or a proxy before it may write them."""
    transport = scenario.agent._http._transport  # type: ignore[attr-defined]
    handle = transport.handle_async_request

    async def changed(request: httpx.Request) -> httpx.Response:
        answer = await handle(request)
        if request.method != "GET" or f"/{kind.lower()}" not in request.url.path.lower() or answer.status_code != 200:
            return answer
        body = exact_json.loads(await answer.aread())
        for resource in [each["resource"] for each in body["entry"]] if "entry" in body else [body]:
            change(resource)
        kept = {name: value for name, value in answer.headers.items() if name in {"etag", "content-type"}}
        return httpx.Response(200, headers=kept, content=exact_json.dumps(body))

    transport.handle_async_request = changed


def pick_template(world: World, lines: int) -> OrderTemplate:
    """A valid order of so many lines."""
    found = templates(world.clock.now().replace(minute=0, second=0))
    return next(one for one in found if len(procedure_requests(one.bundle)) == lines)


@pytest.fixture
def make_scenario() -> Callable[..., Scenario]:
    def make(lines: int = 2, *, spoil: int | None = None, rules: dict[str, Any] | None = None, **worker: Any) -> Scenario:
        world = World("scenario", rules=rules, **worker)
        task = world.place_order(pick_template(world, lines), spoil=spoil)
        return Scenario(world, world.agent(), task)

    return make
