"""An installation whose programs are killed while orders come, and the look from all sides at what has become of them."""

from __future__ import annotations

import asyncio
import itertools
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from sqlalchemy import text

from lab_agent.store.engine import open_engine
from lab_sandbox.demo.checks import CheckList, LisRecord
from lab_sandbox.demo.lis.messages import STAGES
from lab_sandbox.demo.lis.simulator import RECEIVED_FOLDER, SENT_FOLDER
from lab_sandbox.demo.lis.transport_files import write_atomically
from lab_sandbox.demo.result_comparison import OrderFindings, compare_results
from lab_sandbox.demo.scenarios import STAGED_ITEM
from lab_sandbox.demo.toml_edit import set_values
from lab_sandbox.demo.workspace import create_workspace
from lab_sandbox.partner.clinic import PlacedLine, PlacedOrder, reference_id
from lab_sandbox.partner.errors import decode
from lab_sandbox.partner.result_reader import download_documents, read_order_status, read_reports
from tests.harness import forked_programs
from tests.harness.clock import DEADLINE, wait_until, wait_until_ended
from tests.harness.crashing_agent import CRASH_POINTS
from tests.harness.forked_programs import ForkedProgram
from tests.harness.installation import ProcessHarness, open_installation
from tests.harness.killed_clinic import WANTED, Journal, expected_items, expected_scenario, requisition, write_reference
from tests.harness.killed_lis import REPEATS
from tests.harness.orders import UNKNOWN_ITEM
from tests.harness.paths import ROOT
from tests.harness.proof import Figures

WORST_POINTS = ("before commit report", "after submit", "after create Observation", "after commit report")
"""The crash points that even the shortest run reaches, before it kills at random."""
_BAD_DAY = ROOT / "config" / "bad-day.toml"
_WAIT, _NO_WAIT = "retry_after = 1", "retry_after = 0"
"""What a service asks for on a bad day, and on a hurried one."""
QUICK_RETRIES = {"backoff_first": 0.1, "backoff_longest": 0.5}
"""On a bad day nearly half of the requests fail."""
_PATIENCE, _LONG_PATIENCE = 6.0, 25.0
"""Seconds that a crash point has, to be reached, and one of the worst; then the agent is killed where it is."""
_LONGEST_PAUSE = 1.5
_STALLED = 30.0
"""Seconds without any change after which what has not ended is lost."""
_START_EVERY = 20.0
"""Seconds between two starts at the end: what a bad day holds is looked at ever more rarely, and at each start."""
_AT_ONCE = 6
_ENDED = frozenset({"completed", "cancelled"})
_CLOSED_JOBS = frozenset({"done", "obsolete"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Combination:
    """What is killed: how the laboratory system is connected, the database, and whether the service has a bad day."""

    lis: str
    database: str
    bad_day: bool

    def __str__(self) -> str:
        return f"{self.lis}-{self.database}-{'bad' if self.bad_day else 'good'}"


@dataclass(frozen=True, slots=True)
class Kill:
    """Which program is killed next: the agent at a crash point, or any of them at a random moment."""

    program: str
    crash_point: str | None = None


@dataclass
class KilledProgram:
    name: str
    module: str
    words: tuple[str, ...]
    folder: Path
    log: Path
    process: ForkedProgram | None = None

    def start(self, *words: str) -> None:
        with self.log.open("ab") as file:
            self.process = forked_programs.start(self.module, *self.words, *words, cwd=self.folder, stdout=file, stderr=file)

    async def kill(self) -> None:
        """SIGKILL, wherever it is. Fails if it had ended by itself."""
        assert self.process is not None
        self.process.kill()
        assert await self.wait_killed(DEADLINE)

    async def wait_killed(self, patience: float) -> bool:
        """Whether its crash point has killed it in time."""
        assert self.process is not None
        try:
            code = await asyncio.to_thread(self.process.wait, patience)
        except subprocess.TimeoutExpired:
            return False
        assert code == -signal.SIGKILL, f"the {self.name} ended by itself with {code}:\n{self.log.read_text()[-4000:]}"
        return True

    async def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            await asyncio.to_thread(self.process.wait, DEADLINE)


async def wait_answering(address: str) -> None:
    async with httpx.AsyncClient(trust_env=False, timeout=DEADLINE) as http:

        async def answers() -> bool:
            try:
                return (await http.get(address)).status_code == 200
            except httpx.TransportError:
                return False

        await wait_until(answers, address)


class KilledInstallation:
    """All programs but the service, which is the world around them: they are killed, and started again at once."""

    def __init__(self, harness: ProcessHarness, url: str, seed: str) -> None:
        self.harness, self.workspace, self.seed = harness, harness.workspace, seed
        self._rng = random.Random(seed)
        self._url = url
        workspace = self.workspace
        self._clinic_folder = workspace.folder / "clinic"
        self._clinic_folder.mkdir()
        self.journal = Journal(self._clinic_folder)
        folders = (str(workspace.orders), str(workspace.results), str(workspace.lis))
        clinic = (str(workspace.service_settings), str(self._clinic_folder), seed)
        self.agent = self._program("agent", "tests.harness.crashing_agent", str(workspace.agent_settings))
        self.api = self._program("api", "lab_api.cli", "run", "--config", str(workspace.agent_settings))
        self.lis = self._program("lis", "tests.harness.killed_lis", *folders, *workspace.connection.simulator_options[1::2])
        self.clinic = self._program("clinic", "tests.harness.killed_clinic", *clinic)
        self._by_name = {each.name: each for each in (self.agent, self.api, self.lis, self.clinic)}
        self.wanted = 0
        self._start_again_at = 0.0

    def _program(self, name: str, module: str, *words: str) -> KilledProgram:
        return KilledProgram(name, module, words, self.workspace.folder, self.workspace.logs / f"{name}.log")

    def want_orders(self, more: int) -> None:
        self.wanted += more
        write_atomically(self._clinic_folder, WANTED, str(self.wanted).encode())

    async def begin(self) -> None:
        """Start everything but the agent, and keep what the API answers while nothing is killed."""
        self.api.start()
        await wait_answering(f"{self.workspace.api_url}/readyz")
        await write_reference(self.harness.client, self._clinic_folder)
        self.want_orders(2)
        for program in (self.lis, self.clinic):
            program.start()

    def plan(self, kills: int) -> list[Kill]:
        """So many kills: the worst crash points between the other programs, then whatever the seed gives."""
        drawn = self._rng.sample(CRASH_POINTS, len(CRASH_POINTS))
        points = itertools.cycle(drawn)
        first = zip(WORST_POINTS, ("lis", "api", "clinic", "agent"), strict=True)
        planned = [kill for point, other in first for kill in (Kill("agent", point), Kill(other))]
        others = [Kill(self._rng.choice(("agent", "agent", "agent", "api", "lis", "clinic"))) for _ in range(kills)]
        planned += [Kill("agent", next(points)) if number % 3 == 0 else kill for number, kill in enumerate(others)]
        return planned[:kills]

    async def kill_in_turn(self, kills: int, figures: Figures) -> Counter[str]:
        """Kill as planned, with one more order for each kill; how often which program was killed."""
        killed = Counter[str]()
        planned = self.plan(kills)
        self._start_agent(planned)
        for number, kill in enumerate(planned, 1):
            self.want_orders(1)
            program = self._by_name[kill.program]
            patience = _LONG_PATIENCE if number <= 2 * len(WORST_POINTS) else _PATIENCE
            at_point = kill.crash_point is not None and await program.wait_killed(patience)
            if not at_point:
                await asyncio.sleep(self._rng.uniform(0, _LONGEST_PAUSE))
                await program.kill()
            killed[f"{program.name} at a crash point" if at_point else program.name] += 1
            if program is self.agent:
                self._start_agent(planned[number:])
            else:
                program.start()
            figures.progress(number, kills)
        return killed

    def _start_agent(self, planned: Sequence[Kill]) -> None:
        """Start the agent with the crash point that is to kill it next."""
        point = next((kill.crash_point for kill in planned if kill.program == "agent"), None)
        self.agent.start(*([point] if point else []))

    async def wait_until_ended(self) -> None:
        self._start_again_at = time.monotonic() + _START_EVERY
        await wait_until_ended(self._look_twice, _STALLED)

    async def _look_twice(self) -> str:
        """What has not ended yet; an order on its way to the service is nowhere, and has arrived a second later."""
        for program in self._by_name.values():
            assert program.process is None or program.process.poll() is None, f"seed {self.seed}: the {program.name} has ended"
        if time.monotonic() > self._start_again_at:
            await self.agent.kill()
            self._start_agent(())
            self._start_again_at = time.monotonic() + _START_EVERY
        if unfinished := await self._unfinished():
            return f"seed {self.seed}: {unfinished}"
        await asyncio.sleep(1)
        return await self._unfinished()

    async def _unfinished(self) -> str:
        """What has not ended yet, in words; empty if all has.

        It is looked for in the direction in which it moves: what has left a place already is seen at the next one.
        """
        begun = [line for line in self.journal.read() if "begun" in line]
        tasks = Counter(task["status"] for task in await self.harness.search("task") if task["status"] not in _ENDED)
        found = {
            "orders to place": self.wanted - len(begun),
            "Tasks": dict(tasks),
            "stages": self._missing_stages(),
            "files": [each.name for of in (self.workspace.results, self.workspace.orders) for each in sorted(of.glob("*.json"))],
            "jobs": await asyncio.to_thread(self._open_jobs),
        }
        return ", ".join(f"{name}: {what}" for name, what in found.items() if what)

    def _missing_stages(self) -> int:
        """How many versions of reports the laboratory system has still to send."""
        sent = {file.name for file in (self.workspace.lis / SENT_FOLDER).glob("*.json")}
        orders = (decode(file.read_bytes()) for file in (self.workspace.lis / RECEIVED_FOLDER).glob("*.json"))
        lines = [f"{order['key']}-{line['key']}" for order in orders for line in order["lines"] if line["item"] == STAGED_ITEM]
        return sum(f"{line}-{version}.json" not in sent for line in lines for version in range(1, len(STAGES) + 1))

    def _open_jobs(self) -> dict[str, int]:
        found = self._ask("SELECT kind || ':' || state, count(*) FROM jobs GROUP BY kind, state")
        return {name: number for name, number in found if name.partition(":")[2] not in _CLOSED_JOBS}

    def _ask(self, statement: str) -> list[tuple[Any, ...]]:
        engine = open_engine(self._url, connections=1)
        try:
            with engine.connect() as connection:
                return [tuple(row) for row in connection.execute(text(statement))]
        finally:
            engine.dispose()

    async def check(self, figures: Figures) -> None:
        orders = await self._placed_orders()
        self._check_journal(orders)
        for number, found in orders.items():
            assert len({line.procedure_request for line in found.lines}) == len(found.lines), self._say(number, "lines twice")
            assert sorted(line.item for line in found.lines) == expected_items(number), self._say(number, "other lines")
        await self._check_uniqueness(orders)
        waiting = self._ask("SELECT key, state, reason FROM reports WHERE state NOT IN ('delivered', 'superseded')")
        assert not waiting, f"seed {self.seed}: results that wait for nothing: {waiting}"
        checks = CheckList(lambda _check: None)
        limit = asyncio.Semaphore(_AT_ONCE)

        async def check_one(number: int, order: PlacedOrder) -> int:
            async with limit:
                return await self._check_results(number, order, checks)

        values = sum(await asyncio.gather(*(check_one(number, order) for number, order in orders.items())))
        failed = [f"{each.name}: {each.detail}" for each in checks.checks if not each.ok]
        assert not failed, f"seed {self.seed}: {failed[:5]}"
        self._check_lis(orders)
        await wait_until(lambda: not self._open_jobs(), "every job at its end: a result may just be sent again")
        assert not (refused := self._ask("SELECT reason FROM refused_messages")), f"seed {self.seed}: {refused}"
        answers = sum(line["answers"] for line in self.journal.read() if "asked" in line)
        figures.add(orders=len(orders), values_compared=values, API_answers_compared=answers, lost=0, twice=0)

    async def _placed_orders(self) -> dict[int, PlacedOrder]:
        """The orders on the service, whether or not the clinic knows of them, by number."""
        requests = {each["id"]: each for each in await self.harness.search("ProcedureRequest")}
        tops = Counter[str]()
        lines: dict[str, list[tuple[str, PlacedLine]]] = {}
        for task in await self.harness.search("task"):
            if not task.get("basedOn"):
                tops[task["id"]] += 1
                continue
            request = requests[reference_id(task["basedOn"][0]["reference"])]
            coding, own = request["code"]["coding"][0], request["identifier"][0]["value"]
            line = PlacedLine(coding["code"], own, request["id"], task["id"])
            lines.setdefault(request["requisition"]["value"], []).append((reference_id(task["partOf"][0]["reference"]), line))
        orders: dict[int, PlacedOrder] = {}
        for name, found in lines.items():
            (top,) = {top for top, _ in found}
            number = int(name.rpartition("-")[2])
            assert name == requisition(self.seed, number)
            orders[number] = PlacedOrder(name, top, tuple(line for _, line in found), "", ())
        assert set(tops) == {order.order_task for order in orders.values()}, f"seed {self.seed}: Tasks without an order"
        return orders

    def _check_journal(self, orders: Collection[int]) -> None:
        """What the clinic was told to be placed is there, and every answer of the API was right."""
        lines = self.journal.read()
        lost = {line["placed"] for line in lines if "placed" in line} - set(orders)
        assert not lost, f"seed {self.seed}: the service lost the orders {lost}"
        wrong = [line for line in lines if line.get("wrong")]
        assert not wrong, f"seed {self.seed}: the API gave other answers: {wrong}"

    async def _check_uniqueness(self, orders: Collection[int]) -> None:
        for kind in ("DiagnosticReport", "Observation"):
            identifiers = Counter(each["identifier"][0]["value"] for each in await self.harness.search(kind))
            twice = {name: times for name, times in identifiers.items() if times > 1}
            assert not twice, f"seed {self.seed}: {kind} twice: {twice}"
        expected = sum(_expected_reports(number) for number in orders)
        reports = await self.harness.search("DiagnosticReport")
        assert len(reports) == expected, f"seed {self.seed}: {len(reports)} reports instead of {expected}"

    async def _check_results(self, number: int, order: PlacedOrder, checks: CheckList) -> int:
        """Compare one order with the laboratory's record; how many values that has."""
        client, scenario = self.harness.client, expected_scenario(number)
        recorded = LisRecord(self.workspace.lis).latest_reports(order.requisition)
        status, found = await asyncio.gather(read_order_status(client, order), read_reports(client, order))
        files = await asyncio.gather(*(download_documents(client, report) for report in found))
        compare_results(scenario, order, OrderFindings(status, found, files), recorded, checks)
        checks.record(
            f"{scenario.name}: the last version of a report in stages",
            any(one["status"] == "amended" for report in found for one in report.observations) is scenario.staged,
        )
        return sum(len(report.observations) for report in recorded)

    def _check_lis(self, orders: Mapping[int, PlacedOrder]) -> None:
        """The laboratory system has every order once, with the lines that are for it."""
        again = sorted(file.name for file in (self.workspace.lis / REPEATS).iterdir())
        assert not again, f"seed {self.seed}: handed over again: {again}"
        received = Counter[str]()
        for file in (self.workspace.lis / RECEIVED_FOLDER).glob("*.json"):
            order = decode(file.read_bytes())
            name = order["requisition"]["value"]
            received[name] += 1
            known = sorted(item for item in expected_items(int(name.rpartition("-")[2])) if item != UNKNOWN_ITEM)
            assert sorted(line["item"] for line in order["lines"]) == known, self._say(name, "other lines at the laboratory")
        assert received == Counter(order.requisition for order in orders.values()), f"seed {self.seed}: {received}"
        if self.workspace.connection.kind == "folder":
            assert not list((self.workspace.results / "failed").iterdir()), f"seed {self.seed}: failed files"

    def _say(self, order: object, what: str) -> str:
        return f"seed {self.seed}, order {order}: {what}"

    async def close(self) -> None:
        for program in self._by_name.values():
            await program.stop()


def _expected_reports(number: int) -> int:
    """One of each line with a result, and one document about the whole order."""
    kind = expected_scenario(number)
    return sum(item not in kind.unknown_items | kind.rejected_items for item in expected_items(number)) + 1


@asynccontextmanager
async def open_killed_installation(
    combination: Combination, seed: str, postgres_url: Callable[[], str], *, hurried: bool
) -> AsyncIterator[KilledInstallation]:
    """An installation of this kind, begun, and closed at the end. `hurried`: on a bad day the service never asks to wait."""
    workspace = create_workspace(ROOT / "config", other_ports=True, lis=combination.lis)
    if combination.bad_day:
        faults = workspace.folder / "faults.toml"
        plan = _BAD_DAY.read_text()
        assert _WAIT in plan
        faults.write_text(plan.replace(_WAIT, _NO_WAIT) if hurried else plan)
        set_values(workspace.service_settings, "", {"faults": str(faults)})
    url = f"sqlite:///{workspace.folder / workspace.agent_config['store']['url'].removeprefix('sqlite:///')}"
    set_values(workspace.agent_settings, "worker", QUICK_RETRIES)
    if combination.database == "postgresql":
        url = postgres_url()
        set_values(workspace.agent_settings, "store", {"url": url})
    async with open_installation(workspace) as harness:
        installation = KilledInstallation(harness, url, seed)
        try:
            await installation.begin()
            yield installation
        finally:
            await installation.close()
