"""Small histories of orders and results: placed with the real agent, reported through a door, read as the clinic does."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from lab_agent.lis.laboratory_system import SubmitResult
from lab_agent.orders import order_actions
from lab_agent.orders.order_assessment import reassess
from lab_agent.results import result_actions
from lab_agent.results.records import ReportRecord
from lab_agent.results.result_inbox import StoreInbox
from lab_agent.shared.ids import ReportKey, line_key
from lab_agent.shared.state_machines import OrderState, ReportState
from lab_agent.store.crypto import Cipher, new_key
from lab_agent.store.unit_of_work import Store
from lab_sandbox import updates
from tests.harness.databases import create_database
from tests.harness.orders import ACCOUNT, BASE, order_template
from tests.harness.paths import ROOT
from tests.harness.result_doors import Door, ResultMessage, open_door
from tests.harness.world import SimulatedAgent, World

GLUCOSE, CREATININE, ALT = "002.001", "002.002", "002.003"
TUBE, SECOND_TUBE = "7700010018", "7700010029"
MRN = "http://clinic.example/mrn"
PATIENTS = {
    "anna": {"family": "Sample", "given": "Anna", "sex": "female", "birth_date": "1980-02-29", "id": "4711", "id_system": MRN},
    "bert": {"family": "Probe", "given": "Bert", "sex": "male", "birth_date": "1971-12-24", "id": "31415", "id_system": MRN},
}
TOLD = frozenset({ReportState.DELIVERED})
WAITS = frozenset({ReportState.HELD, ReportState.UNMATCHED})
SETTLED = TOLD | {ReportState.SUPERSEDED}
REPEATED: frozenset[ReportState] = frozenset()
"""It is known, and kept no second time."""


@dataclass(frozen=True)
class Place:
    """The clinic orders `tests` on one tube for a patient; `hours` later than what was before."""

    name: str
    tests: tuple[str, ...] = (GLUCOSE,)
    tube: str = TUBE
    patient: str = "anna"
    accession: str | None = None
    """The number that the laboratory system gives it."""
    hours: float = 0
    is_polled: bool = True


@dataclass(frozen=True)
class Poll:
    """The agent hears of the orders that were placed, and hands them over."""


@dataclass(frozen=True)
class Release:
    """An operator lets the last message go; it is delivered then."""


@dataclass(frozen=True)
class Look:
    """What the last message has come to by now, and the orders that are named with it, in its reason or beside it."""

    comes_to: frozenset[ReportState]
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Say:
    """A message of the laboratory system. `order` and `line_of` are names of orders here; `at` is its own time, of that day.

    `comes_to` are states that it may then be in; None if the case leaves that open.
    """

    value: str
    report: str = "B-4711"
    at: str = "13:15"
    comes_to: frozenset[ReportState] | None = TOLD
    collected_of: str = "A"
    """It was collected when the tube of that order was."""
    order: str | None = None
    line_of: str | None = None
    patient: Mapping[str, str] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    """Orders that have to be named with it, in its reason or beside it."""
    said: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of `ResultMessage`."""


@dataclass(frozen=True)
class Case:
    """What happens, and what the clinic then reads: the value of each order that has one."""

    steps: tuple[Place | Poll | Look | Release | Say, ...]
    reads: Mapping[str, str]
    day: datetime | None = None


@dataclass
class Laboratory:
    """A clinic, the service, the agent with its store on SQLite, and a laboratory system behind one adapter."""

    world: World
    agent: SimulatedAgent
    door: Door
    database: Path
    tasks: dict[str, str] = field(default_factory=dict)
    patients: dict[str, str] = field(default_factory=dict)
    numbers: dict[str, str | None] = field(default_factory=dict)
    collected: dict[str, datetime] = field(default_factory=dict)

    async def do(self, step: Place | Poll | Look | Release | Say) -> None:
        if isinstance(step, Place):
            await self._place(step)
        elif isinstance(step, Poll):
            await self._hand_over()
        elif isinstance(step, Look):
            self._look((await self.reports())[-1], step)
        elif isinstance(step, Release):
            await self._release((await self.reports())[-1])
        else:
            await self._say(step)

    async def _place(self, step: Place) -> None:
        self.world.clock.advance(hours=step.hours)
        template = order_template(now := self.world.clock.now(), *step.tests, barcode=step.tube)
        task = self.world.place_order(template, patient=self._patient(step.patient))
        self.tasks[step.name], self.collected[step.name] = task, now
        self.numbers[self.world.order_key_of(task)] = step.accession
        if step.is_polled:
            await self._hand_over()

    def _patient(self, name: str) -> str:
        if name not in self.patients:
            who = PATIENTS[name]
            body = {"resourceType": "Patient", "meta": ACCOUNT.security_meta("read"), "gender": who["sex"],
                    "name": [{"family": who["family"], "given": [who["given"], "M."]}], "birthDate": who["birth_date"],
                    "identifier": [{"system": MRN, "value": who["id"]}],
                    "telecom": [{"system": "phone", "value": "+15550000000", "use": "mobile"}]}  # fmt: skip
            self.patients[name] = updates.create(self.world.service, "Patient", body, self.world.clinic).ref.id
        return self.patients[name]

    async def _hand_over(self) -> None:
        """A person who has compared them releases what is held for a tube that another patient had before."""
        await self.agent.poll.run()
        await self.world.drain(self.agent)
        for task in self.tasks.values():
            record, _ = await self.world.stored_order(task)
            if record.state is OrderState.HELD:
                holds = (await reassess(self.world.store, self.agent.assessor, record.key)).assessment.holds
                now = self.world.clock.now()
                await order_actions.release_order(self.world.store, record.key, holds, "compared", by="eve", now=now)
                await self.world.drain(self.agent)
            record, _ = await self.world.stored_order(task)
            assert record.state in {OrderState.HANDED_OVER, OrderState.CLOSED}, record.reason

    async def _say(self, step: Say) -> None:
        now, before = self.world.clock.now(), len(await self.reports())
        hour, minute = map(int, step.at.split(":"))
        message = ResultMessage(
            report_id=step.report,
            value=step.value,
            patient=step.patient,
            order=self._key(step.order),
            line=self._line(step.line_of),
            **{
                "issued": now.replace(hour=hour, minute=minute, second=0),
                "effective": self.collected[step.collected_of],
                **step.said,
            },
        )
        await self.door.send(message)
        await self.world.drain(self.agent)
        found = await self.reports()
        if step.comes_to == REPEATED:
            assert len(found) == before, f"{step.value} was kept once more"
        elif step.comes_to is not None:
            assert len(found) == before + 1, f"{step.value} was taken for a repeat"
            self._look(found[-1], Look(step.comes_to, step.names))

    async def _release(self, report: ReportRecord) -> None:
        who: dict[str, Any] = {"by": "eve", "note": "it is the last one", "now": self.world.clock.now()}
        await result_actions.release_result(self.world.store, self.agent.matcher, report.key, **who)
        await self.world.drain(self.agent)
        self._look((await self.reports())[-1], Look(TOLD))

    def _look(self, report: ReportRecord, step: Look) -> None:
        assert report.state in step.comes_to, f"{report.message} is {report.state.value}: {report.reason}"
        told = f"{report.order} {report.reason}"
        unnamed = [name for name in step.names if str(self._key(name)) not in told]
        assert not unnamed, f"{told} does not name {unnamed}"

    def _key(self, name: str | None) -> str | None:
        return None if name is None else self.world.order_key_of(self.tasks[name])

    def _line(self, name: str | None) -> str | None:
        return None if name is None else line_key(BASE, self.world.line_tasks(self.tasks[name])[0]["id"])

    async def reports(self) -> list[ReportRecord]:
        with closing(sqlite3.connect(self.database)) as connection:
            keys = [ReportKey(key) for (key,) in connection.execute("SELECT key FROM reports ORDER BY sequence")]
        return await self.world.store.transact(lambda uow: [uow.reports.get_for_update(key) for key in keys])

    def read_by_clinic(self) -> dict[str, str]:
        """The values that the clinic reads, by the names of their orders."""
        owners = {line["basedOn"][0]["reference"].rpartition("/")[2]: name
                  for name, task in self.tasks.items() for line in self.world.line_tasks(task)}  # fmt: skip
        found: dict[str, str] = {}
        for report in self.world.resources("DiagnosticReport"):
            (name,) = {owners[based["reference"].rpartition("/")[2]] for based in report["basedOn"]}
            ids = {each["reference"].rpartition("/")[2] for each in report["result"]}
            for one in self.world.resources("Observation"):
                if one["id"] in ids:
                    assert name not in found, f"two values of {name}"
                    found[name] = str(one["valueQuantity"]["value"])
        return found


@asynccontextmanager
async def open_laboratory(adapter: str, folder: Path, day: datetime | None = None) -> AsyncIterator[Laboratory]:
    store = Store(create_database(folder / "agent.db"), Cipher(new_key()))
    world = World(adapter, store=store)
    world.clock.time = day or world.clock.time
    results = world.settings.results.model_copy(update={"mappings": ROOT / "config" / "mappings"})
    world.settings = world.settings.model_copy(update={"results": results})
    async with open_door(adapter, StoreInbox(store, world.clock, "folder"), folder / "lis") as door:
        laboratory = Laboratory(world, world.agent(), door, folder / "agent.db")
        world.lis.give_numbers = lambda order: SubmitResult(accession=laboratory.numbers[order.key])
        yield laboratory
    await store.close()


async def play(case: Case, adapter: str, folder: Path) -> None:
    async with open_laboratory(adapter, folder, case.day) as laboratory:
        for step in case.steps:
            await laboratory.do(step)
        assert laboratory.read_by_clinic() == dict(case.reads)
