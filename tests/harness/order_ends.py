"""Many orders of one world, from the clinic to their last report, and what became of each: the same beside any service."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import Any

from lab_agent.lis.lab_messages import LabReport, ReportedObservation, ReportStatus
from lab_agent.lis.lab_order import LabOrder
from lab_agent.operations.schedule import PollInterval, PollTask
from lab_agent.queue.outages import OutageTracker
from lab_agent.queue.service_hold import ServiceHold
from lab_agent.results.mapping_tables import LOINC
from lab_agent.results.result_inbox import StoreInbox
from lab_agent.settings.exchange import OAuthSettings
from lab_agent.shared.errors import Failure
from lab_agent.shared.ids import OrderKey
from lab_agent.shared.metrics import Metrics
from lab_agent.shared.state_machines import OrderState
from lab_agent.shared.values import Coding, Quantity
from lab_agent.store.unit_of_work import UnitOfWork
from tests.harness.orders import BASE, procedure_requests, templates
from tests.harness.world import SimulatedAgent, World

SIGN_IN = OAuthSettings.model_validate(
    {
        "grant": "password",
        "auth_url": BASE,
        "client_id": "lab-agent",
        "client_secret": "demo-laboratory-secret",
        "username": "laboratory",
        "password": "demo-laboratory-password",
    }
)
_SPOILED_EVERY = 5
_GLUCOSE = Coding(system=LOINC, code="2345-7", display="Glucose")
_AT_ONCE = 20
_TURN = 5.0
"""Seconds of the world's clock between two looks for work."""
_POLL_EVERY = 12


@dataclass(frozen=True, slots=True)
class OrderEnd:
    """What the clinic, the laboratory system and the store say of one order in the end, without the ids that chance gives."""

    status: str
    lines: tuple[tuple[str, str, int], ...]
    """Item, status and number of reasons of each line Task."""
    reports: tuple[tuple[str, str, str, str], ...]
    """Item, status, and code and value of the observation of each report, each as often as it is there."""
    at_laboratory: int
    state: str
    waiting: tuple[str, ...]
    """States of its jobs that have not ended."""


@dataclass
class OrderRun:
    """Orders of a world that one agent takes to their ends, whatever the service does meanwhile."""

    world: World
    reported: set[OrderKey] = field(default_factory=set)
    turns: int = 0

    def place(self, count: int, *, lines: int | None = None) -> None:
        """Place orders; of every fifth with several lines one is for an item that nobody has, unless they are to have so many
        `lines`.
        """
        found = templates(self.world.clock.now().replace(minute=0, second=0))
        if lines is not None:
            found = tuple(each for each in found if len(procedure_requests(each.bundle)) == lines)
        for number in range(count):
            template = found[number % len(found)]
            last = len(procedure_requests(template.bundle)) - 1
            spoiled = last if number % _SPOILED_EVERY == 1 and lines is None and last else None
            self.world.place_order(template, spoil=spoiled, relabel=True)

    async def run(self, agent: SimulatedAgent, *, until: timedelta) -> bool:
        """Let the agent work until every order is closed, at most for so long by the world's clock; whether they are."""
        end = self.world.clock.now() + until
        while self.world.clock.now() < end:
            await self.take_turn(agent)
            if len(self.reported) and await self.are_closed():
                return True
        return False

    async def take_turn(self, agent: SimulatedAgent) -> None:
        """What a worker does within some seconds; the laboratory system reports what it has got meanwhile."""
        if self.turns % _POLL_EVERY == 0:
            for look in (agent.poll.run, agent.reconcile.run):
                with suppress(Failure):  # told by the worker, which looks again
                    await look()
        self.turns += 1
        await self.report()
        if not await agent.run_jobs(limit=_AT_ONCE):
            self.world.clock.advance(_TURN)

    async def report(self) -> None:
        """Report each order that the laboratory system has and has not reported: a report of every line."""
        inbox = StoreInbox(self.world.store, self.world.clock, "folder")
        for order in [each for each in self.world.lis.submitted if each.key not in self.reported]:
            self.reported.add(order.key)
            for number, report in enumerate(self.make_reports(order)):
                await inbox.accept(f"{order.key}-{number}", report)

    def make_reports(self, order: LabOrder) -> Iterable[LabReport]:
        """A final report of each line, with a value that follows from its item; its zeros are to arrive."""
        now = self.world.clock.now()
        for number, line in enumerate(order.lines):  # several may be for the same item
            value = Decimal(sum(map(ord, line.item)) * 10).scaleb(-2)
            observation = ReportedObservation(id=line.item, code=_GLUCOSE, value_quantity=Quantity(value=value, unit="mmol/L"))
            yield LabReport(
                report_id=f"{order.key}-{number}",
                status=ReportStatus.FINAL,
                order=order.key,
                lines=(line.key,),
                effective=now,
                issued=now,
                observations=(observation,),
            )

    @property
    def keys(self) -> list[OrderKey]:
        return [self.world.order_key_of(each) for each in self.world.placed]

    async def are_closed(self) -> bool:
        store, tasks, keys = self.world.store, self.world.placed, self.keys

        def look(uow: UnitOfWork) -> bool:
            if len(uow.orders.existing(tasks)) < len(tasks):
                return False
            return all(
                uow.orders.get_for_update(key).state is OrderState.CLOSED and not uow.jobs.list_for_order(key, open_only=True)
                for key in keys
            )

        return await store.transact(look)

    async def ends(self) -> list[OrderEnd]:
        """What became of each order, in the order in which they were placed."""
        reports = self._reports_by_request()
        submitted = Counter(each.key for each in self.world.lis.submitted)
        return [await self._end_of(task, reports, submitted[self.world.order_key_of(task)]) for task in self.world.placed]

    async def _end_of(self, task: str, reports: dict[str, list[tuple[str, str, str]]], at_laboratory: int) -> OrderEnd:
        world, lines, told = self.world, list[tuple[str, str, int]](), list[tuple[str, str, str, str]]()
        for line in world.line_tasks(task):
            item = world.item_of(line)
            lines.append((item, str(line["status"]), len(line.get("output", ()))))
            told += [(item, *each) for each in reports.get(_id_of(line["basedOn"][0]), ())]
        known = task in await world.store.transact(lambda uow: uow.orders.existing([task]))
        state = (await world.stored_order(task))[0].state.value if known else "unseen"
        waiting = tuple(sorted(each.state.value for each in await world.jobs(task)))
        status = str(world.get_task(task)["status"])
        return OrderEnd(status, tuple(sorted(lines)), tuple(sorted(told)), at_laboratory, state, waiting)

    def _reports_by_request(self) -> dict[str, list[tuple[str, str, str]]]:
        """Status, code and value of what is reported of each ProcedureRequest; the value as it is on the wire."""
        observations = {each["id"]: each for each in self.world.resources("Observation")}
        found: dict[str, list[tuple[str, str, str]]] = {}
        for report in self.world.resources("DiagnosticReport"):
            for reference in report["result"]:
                seen = observations[_id_of(reference)]
                told = (str(report["status"]), str(seen["code"]["coding"][0]["code"]), str(seen["valueQuantity"]["value"]))
                for request in report["basedOn"]:
                    found.setdefault(_id_of(request), []).append(told)
        return found


class TimedPoll:
    """The worker's poll with the world's own time, beside its jobs."""

    def __init__(self, world: World, agent: SimulatedAgent) -> None:
        self._world, self._agent = world, agent
        self._due = world.clock.now()
        self.waits: list[float] = []
        hold = ServiceHold(agent.exchange, world.store, world.settings.worker.probe_longest)
        outages = OutageTracker(world.store, world.clock, self._probe, hold=hold)
        agent.runner.outages = outages
        self._task = PollTask(
            poll=agent.poll,
            outages=outages,
            store=world.store,
            clock=world.clock,
            metrics=Metrics(),
            interval=PollInterval(world.settings.worker.poll_interval, world.settings.worker.poll_longest),
            reschedule=self._reschedule,
        )

    async def work(self, run: OrderRun, *, seconds: float, reporting: bool = True) -> None:
        """Work for so long; `reporting`: the laboratory system, too."""
        end = self._world.clock.now() + timedelta(seconds=seconds)
        while True:
            if self._world.clock.now() >= self._due:
                await self._task.run()
            if reporting:
                await run.report()
            while await self._agent.run_jobs(limit=20):
                pass
            if self._world.clock.now() >= end:
                return
            self._world.clock.advance(5)

    async def _probe(self) -> bool:
        with suppress(Failure):
            await self._agent.exchange.check()
            return True
        return False

    def _reschedule(self, wait: float) -> None:
        self.waits.append(wait)
        self._due = self._world.clock.now() + timedelta(seconds=wait)


def _id_of(reference: dict[str, Any]) -> str:
    return str(reference["reference"]).rsplit("/", 1)[-1]
