"""The workflow in use: the real service in one process, a laboratory system in memory, and a clock that a test moves."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import count
from typing import Any

import httpx
import pytest

from lab_agent.lis.lab_messages import LabMessage, LabReport
from lab_agent.operations.attention_alerts import AttentionAlerts
from lab_agent.orders import order_actions
from lab_agent.orders.records import LineRecord, OrderRecord
from lab_agent.queue.job_records import Job, JobKind
from lab_agent.results.records import ReportRecord
from lab_agent.results.result_inbox import StoreInbox
from lab_agent.shared import exact_json
from lab_agent.shared.conditions.model import AlertKey, ConditionId
from lab_agent.shared.ids import LineKey, OrderKey, report_key
from lab_agent.shared.state_machines import JobState, LineState, OrderState
from lab_agent.store.event_records import Alert, Event
from lab_agent.store.unit_of_work import UnitOfWork
from lab_sandbox.partner.order_generator import OrderPlan
from tests.harness.orders import UNKNOWN_ITEM, OrderTemplate, find_template, procedure_requests, templates
from tests.harness.results import haemoglobin, make_report
from tests.harness.world import SimulatedAgent, World
from tests.integration.workflow.service_answers import change_answers

MakeScenario = Callable[..., "Scenario"]
_NUMBERS = count(1)
"""Of the messages that are received."""
Change = Callable[[dict[str, Any]], None]


def parametrize_first(names: str, rows: Iterable[Any], quick: int = 1) -> pytest.MarkDecorator:
    """All of these rows, of which only the first ones are run by `make test`."""
    given = [row if isinstance(row, tuple) else (row,) for row in rows]
    return pytest.mark.parametrize(
        names, [pytest.param(*row, marks=pytest.mark.slow if number >= quick else ()) for number, row in enumerate(given)]
    )


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

    # --- what the worker does

    async def process_all(self) -> None:
        """The order is found, and everything that is due is done."""
        await self.agent.poll.run()
        await self.drain()

    async def assess(self) -> None:
        """The order is found and assessed, and nothing else is done."""
        await self.agent.poll.run()
        for _ in range(4):
            await self.agent.run_jobs(JobKind.FETCH_ORDER)
            self.world.clock.advance(6)

    async def drain(self, *later: float) -> None:
        """Everything is done that is due now; then after so many seconds, and so on."""
        for seconds in later or (0,):
            self.world.clock.advance(seconds)
            await self.world.drain(self.agent)

    async def reconcile(self, times: int = 1, *, drain: bool = True) -> None:
        """Tasks are compared, and what follows from it is done."""
        for _ in range(times):
            await self.agent.reconcile.run()
            if drain:
                await self.drain()

    async def recheck(self, seconds: float = 301) -> None:
        """Time enough for the poll to believe its search, and for everything that follows."""
        self.world.clock.advance(seconds)
        await self.process_all()

    async def work_for(self, seconds: float) -> None:
        """Do twice a minute what is due."""
        for _ in range(int(seconds / 30)):
            await self.agent.run_jobs(limit=20)
            self.world.clock.advance(30)

    def restart(self, part: str = "", **changes: Any) -> None:
        """A new process of the agent, with these settings of one part."""
        if part:
            settings = getattr(self.world.settings, part).model_copy(update=changes)
            self.world.settings = self.world.settings.model_copy(update={part: settings})
        self.agent = self.world.agent("restarted")

    async def write(self, work: Callable[[UnitOfWork], object]) -> None:
        """Change what is stored."""

        def whole(uow: UnitOfWork) -> None:
            work(uow)

        await self.world.store.transact(whole)

    # --- what others do

    async def report_all(self) -> None:
        """The laboratory reports every line that it has, finally."""
        for order in self.world.lis.submitted:
            for line in order.lines:
                await self.world.end_line(self.world.store, line.key)

    async def finish(self) -> None:
        """That, and everything that follows."""
        await self.report_all()
        await self.drain()

    def end(self, *tasks: str, status: str = "cancelled") -> None:
        """The partner ends these Tasks, or all of the order."""
        for task in tasks or self.tasks:
            self.world.end_task(task, status)

    def force(self, status: str, *tasks: str) -> None:
        """These Tasks, or all of the order, get a status whatever they have."""
        for task in tasks or self.tasks:
            self.world.force_task(task, status=status)

    def order_anew(self, *, relabel: bool = False, **patient: str) -> str:
        """The same order once more, with the same tubes and a Patient created anew, in whom `patient` differs."""
        again = pick_template(self.world, len(self.line_tasks))
        return self.world.place_order(replace(again, patient={**again.patient, **patient}), relabel=relabel)

    async def accept_line(self, line: LineKey, adapter: str | None = None) -> None:
        await order_actions.accept_line(self.world.store, line, adapter=adapter, by="eve", now=self.world.clock.now())

    async def reject_line(self, line: LineKey, note: str = "order it anew") -> None:
        """An operator rejects it, and everything follows."""
        await order_actions.reject_line(self.world.store, line, note, by="eve", now=self.world.clock.now())
        await self.drain()

    async def reject_order(self, note: str = "order it anew") -> None:
        """An operator rejects the order, and everything follows."""
        now, service = self.world.clock.now(), self.world.settings.exchange.base_url
        await order_actions.reject_order(self.world.store, service, self.key, note, by="eve", now=now)
        await self.drain()

    async def receive(self, message: LabMessage, adapter: str = "folder") -> ReportRecord:
        """A message of a laboratory system comes in, and everything follows."""
        name = f"m{next(_NUMBERS)}"
        await StoreInbox(self.world.store, self.world.clock, adapter).accept(name, message)
        await self.drain()
        return await self.world.store.transact(lambda uow: uow.reports.get_for_update(report_key(adapter, name)))

    def report(self, **fields: Any) -> LabReport:
        """A final report of the order."""
        now = self.world.clock.now()
        return make_report(haemoglobin("13.2"), **{"order": self.key, "effective": now, "issued": now, **fields})

    # --- what there is then

    @property
    def key(self) -> OrderKey:
        return self.world.order_key_of(self.task)

    async def order_record(self) -> OrderRecord:
        return (await self.world.stored_order(self.task))[0]

    async def state(self) -> OrderState:
        return (await self.order_record()).state

    async def lines(self) -> tuple[LineRecord, ...]:
        return (await self.world.stored_order(self.task))[1]

    async def line_states(self) -> list[LineState]:
        return [line.state for line in await self.lines()]

    async def jobs(self, **options: Any) -> tuple[Job, ...]:
        return await self.world.jobs(self.task, **options)

    async def dead_letter(self) -> Job:
        """The one job that waits for a person."""
        (job,) = [job for job in await self.jobs() if job.state is JobState.DEAD_LETTER]
        return job

    def open_alerts(self) -> dict[AlertKey, Alert]:
        return {each.key: each for each in self.world.store.records(Alert) if each.closed_at is None}  # type: ignore[attr-defined]

    async def is_told(self, condition: ConditionId) -> bool:
        """Whether an alert of this condition is open once the attention task has run."""
        await AttentionAlerts(self.world.store, self.world.clock, timedelta(minutes=30)).run()
        return bool(await self.world.store.transact(lambda uow: uow.alerts.open_of({condition})))

    def events(self) -> list[Event]:
        return [each for each in self.world.store.records(Event) if each.order == self.key]  # type: ignore[attr-defined]

    def told(self, *actions: str) -> list[str]:
        """Texts of the timeline, of these actions."""
        return [each.text for each in self.events() if not actions or each.action in actions]

    def reported_rules(self, *actions: str) -> set[str]:
        """The rules that the timeline names, with these severities; by default those that reject."""
        return {text.partition(":")[0] for text in self.told(*(actions or ("refuse",)))}

    @property
    def line_tasks(self) -> list[str]:
        return [str(task["id"]) for task in self.world.line_tasks(self.task)]

    @property
    def tasks(self) -> list[str]:
        return [*self.line_tasks, self.task]

    def status(self, task: str | None = None) -> str:
        return str(self.world.get_task(task or self.task)["status"])

    def statuses(self) -> list[str]:
        return [self.status(task) for task in self.line_tasks]

    def outputs(self, task: str) -> list[str]:
        return [one["valueString"] for one in self.world.get_task(task).get("output", ())]

    def bad_and_good(self) -> tuple[list[str], list[str]]:
        """The line Tasks that order what no catalogue has, and the others."""
        tasks = self.world.line_tasks(self.task)
        bad = [str(task["id"]) for task in tasks if self.world.item_of(task) == UNKNOWN_ITEM]
        return bad, [task for task in self.line_tasks if task not in bad]

    @property
    def handed_over(self) -> list[int]:
        """How many lines each order has that the laboratory system got."""
        return [len(order.lines) for order in self.world.lis.submitted]

    @property
    def told_lis(self) -> list[tuple[LineKey, ...]]:
        """The lines of each withdrawal that the laboratory system was told of."""
        return [lines for _, lines in self.world.lis.cancelled]


def alter(scenario: Scenario, kind: str, change: Change) -> None:
    """Let the service give resources of one type changed, as a partner or a proxy before it may write them."""

    def applies(request: httpx.Request) -> bool:
        return request.method == "GET" and f"/{kind.lower()}" in request.url.path.lower()

    def changed(_: httpx.Request, answer: httpx.Response) -> httpx.Response:
        if answer.status_code != httpx.codes.OK:
            return answer
        body = exact_json.loads(answer.content)
        for resource in [each["resource"] for each in body["entry"]] if "entry" in body else [body]:
            change(resource)
        kept = {name: value for name, value in answer.headers.items() if name in {"etag", "content-type"}}
        return httpx.Response(200, headers=kept, content=exact_json.dumps(body))

    change_answers(scenario, applies, changed)


def listen(scenario: Scenario) -> list[httpx.Request]:
    """Every request of the agent from now on, as it comes."""
    seen: list[httpx.Request] = []

    def note(request: httpx.Request) -> bool:
        seen.append(request)
        return False

    change_answers(scenario, note, lambda _, answer: answer)
    return seen


def pick_template(world: World, lines: int) -> OrderTemplate:
    """A valid order of so many lines."""
    found = templates(world.clock.now().replace(minute=0, second=0))
    return next(one for one in found if len(procedure_requests(one.bundle)) == lines)


@pytest.fixture
def make_scenario() -> MakeScenario:
    def make(lines: int = 2, *, spoil: int | None = None, rules: dict[str, Any] | None = None, **worker: Any) -> Scenario:
        world = World("scenario", rules=rules, **worker)
        task = world.place_order(pick_template(world, lines), spoil=spoil)
        return Scenario(world, world.agent(), task)

    return make


def place_plan(fits: Callable[[OrderPlan], bool], change: Change = lambda _: None, **options: Any) -> Scenario:
    """A world with the first order whose plan fits, its bundle changed before it is placed."""
    world = World("plan", **options)
    template = find_template(world.clock.now().replace(minute=0, second=0), fits)
    bundle = copy.deepcopy(template.bundle)
    change(bundle)
    return Scenario(world, world.agent(), world.place_order(replace(template, bundle=bundle)))
