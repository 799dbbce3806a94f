"""Fault injection: every call of an agent to its store, the service and the LIS may be slow, fail, or be its last."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from random import Random
from typing import Any, TypeVar

import httpx

from lab_agent.lis.lab_messages import LabMessage
from lab_agent.lis.lab_order import LabOrder
from lab_agent.lis.laboratory_system import Inbox, SubmitResult
from lab_agent.shared.errors import LisOutcomeUnknown, LisRejected, LisUnavailable
from lab_agent.shared.ids import LineKey, OrderKey
from lab_agent.store.unit_of_work import Store, UnitOfWork

T = TypeVar("T")


class SimulatedCrash(BaseException):
    """The process is gone: nothing that it would have done next happens."""


@dataclass
class PlannedFault:
    """A fault of one `kind`, after it could have happened so many times."""

    kind: str
    after: int


@dataclass
class FaultInjector:
    """The faults of one agent process. `crashes` and `faults` are probabilities at each checkpoint; a dead process stays dead.

    Others are planned: the crash at a certain checkpoint, the fault of a certain request, and the request at which the process is
    stopped until `thaw`.
    """

    rng: Random
    crashes: float = 0.0
    faults: float = 0.0
    dead: bool = False
    crash_after: int | None = None
    """Checkpoints until it crashes."""
    freeze_after: int | None = None
    """Requests to the service until it is stopped before one."""
    planned: list[PlannedFault] = field(default_factory=list)
    _stopped: asyncio.Event | None = None

    @property
    def frozen(self) -> bool:
        """Whether it is stopped; nobody gives it anything to do meanwhile."""
        return self._stopped is not None

    def thaw(self) -> None:
        """Let it go on where it was stopped."""
        if self._stopped is not None:
            self._stopped.set()
            self._stopped = None

    async def checkpoint(self, name: str) -> None:
        """Let others go first; then, perhaps, crash."""
        for _ in range(self.rng.randrange(4)):
            await asyncio.sleep(0)
        await self._maybe_freeze(name)
        if self.crash_after is not None:
            self.crash_after -= 1
        self.dead = self.dead or (self.crash_after or 0) < 0 or self.rng.random() < self.crashes
        if self.dead:
            raise SimulatedCrash(name)

    def draw_fault(self, *kinds: str) -> str | None:
        """One of the kinds, perhaps."""
        for fault in self.planned:
            if fault.kind in kinds:
                fault.after -= 1
                if fault.after < 0:
                    self.planned.remove(fault)
                    return fault.kind
                break
        return self.rng.choice(kinds) if self.rng.random() < self.faults else None

    async def _maybe_freeze(self, name: str) -> None:
        if self.freeze_after is None or self.dead or not name.startswith(("before GET", "before POST", "before PUT")):
            return
        self.freeze_after -= 1
        if self.freeze_after < 0:
            self.freeze_after, self._stopped = None, asyncio.Event()
            await self._stopped.wait()


@dataclass
class ServiceLink:
    """What lies between all agents and the service: its outage, as the fault of every request, and who notes what is sent."""

    outage: str | None = None
    note: Callable[[str], None] = lambda _: None


class FaultyStore:
    """A store; the process may crash before and after every unit of work."""

    def __init__(self, store: Store, injector: FaultInjector) -> None:
        self._store = store
        self._injector = injector
        self.health = store.health

    async def transact(self, work: Callable[[UnitOfWork], T]) -> T:
        await self._injector.checkpoint("before the store")
        result = await self._store.transact(work)
        await self._injector.checkpoint("after the store")
        return result

    async def run_read_only(self, work: Callable[[UnitOfWork], T]) -> T:
        await self._injector.checkpoint("before reading the store")
        return await self._store.run_read_only(work)


class FaultyTransport(httpx.AsyncBaseTransport):
    """The network: requests and answers are lost, the service fails or is busy, and a part-of answer is incomplete at first.

    Now and then the service ignores `part-of`: it answers with `all_tasks`.
    """

    def __init__(
        self,
        app: Any,
        injector: FaultInjector,
        truncated: set[str],
        all_tasks: Callable[[], list[dict[str, Any]]] = list,
        link: ServiceLink | None = None,
    ) -> None:
        self._all_tasks = all_tasks
        self._link = link or ServiceLink()
        self._inner = httpx.ASGITransport(app)
        self._injector = injector
        self._truncated = truncated

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        name = f"{request.method} {request.url.path}"
        await self._injector.checkpoint(f"before {name}")
        fault = self._link.outage or self._injector.draw_fault("refused", "500", "503", "lost", "lost")
        self._link.note(f"{name}?{request.url.query.decode()} {fault} {sha256(request.content).hexdigest()}")
        if fault == "refused":
            raise httpx.ConnectError("nobody there")
        if fault in {"500", "503"}:
            body = {"resourceType": "OperationOutcome", "issue": [{"severity": "error", "code": "x", "diagnostics": "x"}]}
            return httpx.Response(int(fault), json=body, headers={"Retry-After": "30"} if fault == "503" else {})
        response = await self._inner.handle_async_request(request)
        content = await response.aread()
        await self._injector.checkpoint(f"after {name}")
        if fault == "lost":
            raise httpx.ReadError("no answer")
        if "part-of" in request.url.params:
            content = self._maybe_truncate(str(request.url.params["part-of"]), content)
        headers = {key: value for key, value in response.headers.items() if key.lower() != "content-length"}
        return httpx.Response(response.status_code, headers=headers, content=content)

    def _maybe_truncate(self, order: str, content: bytes) -> bytes:
        if self._injector.draw_fault("lenient", "exact", "exact", "exact") == "lenient":
            return json.dumps({**json.loads(content), "entry": [{"resource": task} for task in self._all_tasks()]}).encode()
        if order in self._truncated or not self._injector.draw_fault("short"):
            return content
        self._truncated.add(order)
        bundle = json.loads(content)
        bundle["entry"] = bundle.get("entry", [])[1:]
        return json.dumps(bundle).encode()

    async def aclose(self) -> None:
        await self._inner.aclose()


@dataclass
class SimulatedLis:
    """The laboratory system itself: it outlives every agent, and a second submission is a second order in it."""

    can_confirm: bool = True
    """Whether it can say what it received."""
    is_down: bool = False
    rejects: bool = False
    answer: SubmitResult = field(default_factory=SubmitResult)
    """The numbers that it gives every order."""
    prepared: dict[OrderKey, LabOrder] = field(default_factory=dict)
    submitted: list[LabOrder] = field(default_factory=list)
    names_first_line_only: bool = False
    """It accepts an order, and its answer names only the first line."""
    cancelled: list[tuple[OrderKey, tuple[LineKey, ...]]] = field(default_factory=list)
    give_numbers: Callable[[LabOrder], SubmitResult] | None = None
    """Gives each order numbers of its own, in place of `answer`."""
    outbox: dict[str, LabMessage] = field(default_factory=dict)
    """What it reports, until that is acknowledged."""
    name_message: Callable[[str, LabMessage], str] = lambda name, _: name
    """What its adapter takes for the name of a message in the outbox."""
    acknowledged: list[str] = field(default_factory=list)

    def has_received(self, key: OrderKey) -> bool:
        return any(order.key == key for order in self.submitted)

    def cancel_count(self, line: LineKey) -> int:
        """How often a line was cancelled in it."""
        return sum(line in lines for _, lines in self.cancelled)


class FaultyLis:
    """The adapter of one agent (a `Lis`)."""

    idempotent = False

    def __init__(self, lis: SimulatedLis, injector: FaultInjector, inbox: Inbox) -> None:
        self._lis = lis
        self._injector = injector
        self._inbox = inbox

    async def start(self, inbox: Inbox) -> None:
        """Nothing to open."""

    async def stop(self) -> None:
        """Nothing to close."""

    async def check(self) -> None:
        await self._call("check")

    async def prepare(self, order: LabOrder) -> None:
        await self._call("prepare")
        self._lis.prepared[order.key] = order

    async def submit(self, order: LabOrder) -> SubmitResult:
        await self._call("submit")
        if self._lis.rejects:
            raise LisRejected("the laboratory system does not know the test")
        self._lis.submitted.append(order)
        await self._injector.checkpoint("after submit")
        if self._injector.draw_fault("lost", "unanswered"):
            raise LisOutcomeUnknown
        unnamed = order.lines[1:] if self._lis.names_first_line_only else ()
        answer = self._lis.give_numbers(order) if self._lis.give_numbers else self._lis.answer
        return replace(answer, unnamed_lines=tuple(line.key for line in unnamed))

    async def was_received(self, key: OrderKey) -> bool | None:
        await self._call("was_received")
        return self._lis.has_received(key) if self._lis.can_confirm else None

    async def cancel(self, order: OrderKey, lines: tuple[LineKey, ...], reason: str) -> None:
        assert reason
        await self._call("cancel")
        self._lis.cancelled.append((order, lines))
        await self._injector.checkpoint("after cancel")
        if self._injector.draw_fault("lost", "unanswered"):
            raise LisOutcomeUnknown

    async def collect(self) -> int:
        await self._call("collect")
        new = 0
        for name, message in tuple(self._lis.outbox.items()):
            known_as = self._lis.name_message(name, message)
            new += await self._inbox.accept(known_as, message)
            await self._injector.checkpoint("before acknowledging")
            if self._lis.outbox.pop(name, None) is not None:
                self._lis.acknowledged.append(known_as)
        return new

    async def _call(self, name: str) -> None:
        await self._injector.checkpoint(f"before {name}")
        if self._lis.is_down or self._injector.draw_fault("away"):
            raise LisUnavailable("the laboratory system is away")


class SimulatedAdapterSource:
    """An `AdapterSource` of simulated laboratory systems, by the names of their adapters."""

    def __init__(self, systems: Mapping[str, FaultyLis]) -> None:
        self._systems = systems

    def get(self, name: str | None = None) -> FaultyLis:
        return self._systems[name or "folder"]

    def running(self) -> Any:
        return iter(self._systems.items())
