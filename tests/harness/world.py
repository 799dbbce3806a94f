"""A world in one process: the real service over ASGI, a laboratory system, a store, and agents that may die.

Time and chance come from its clock and its seed alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
import re
import sqlite3
import uuid
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from lab_agent import bootstrap
from lab_agent.bootstrap import Components
from lab_agent.exchange.authenticator import Authenticator
from lab_agent.exchange.client import ExchangeClient, http_options
from lab_agent.orders.ended_orders import EndedOrderChecker
from lab_agent.orders.line_lifecycle import advance_order, cancel_lines, complete_lines
from lab_agent.orders.polling import OrderPoller
from lab_agent.orders.records import LineRecord, OrderRecord
from lab_agent.queue.job_records import Job, JobKind
from lab_agent.queue.job_runner import JobRunner
from lab_agent.queue.outages import OutageTracker
from lab_agent.queue.retry import Backoff
from lab_agent.results.mapping_loader import MappingCache
from lab_agent.results.result_inbox import StoreInbox
from lab_agent.rules.catalogue_history import CatalogueHistory
from lab_agent.settings.exchange import OAuthSettings
from lab_agent.shared import exact_json
from lab_agent.shared.errors import Failure, LabAgentError
from lab_agent.shared.http_client import HttpClient
from lab_agent.shared.ids import LineKey, OrderKey, order_key
from lab_agent.shared.metrics import Metrics
from lab_agent.store.unit_of_work import Store, UnitOfWork
from lab_sandbox import order_creation, resources, search_results, updates
from lab_sandbox.app import create_app
from lab_sandbox.config import RuleSettings, SandboxConfig
from lab_sandbox.references import Ref
from lab_sandbox.resource_store import StoredResource
from lab_sandbox.service import Service
from tests.fakes.exchange_service import service_reachable
from tests.harness.clock import VirtualClock
from tests.harness.databases import InlineStore
from tests.harness.fault_injection import (
    FaultInjector,
    FaultyLis,
    FaultyStore,
    FaultyTransport,
    ServiceLink,
    SimulatedAdapterSource,
    SimulatedCrash,
    SimulatedLis,
)
from tests.harness.jobs import claim_jobs
from tests.harness.orders import BASE, UNKNOWN_ITEM, OrderTemplate, catalogue, procedure_requests
from tests.harness.settings import SERVICE_TOKENS, make_settings

TERMINAL_STATUSES = {"completed", "cancelled", "failed", "rejected", "entered-in-error"}


@dataclass
class StubCatalogues:
    """A source of the sample catalogue, which may be unavailable."""

    available: bool = True

    def view(self) -> CatalogueHistory | None:
        return CatalogueHistory.from_catalogue(catalogue()) if self.available else None


@dataclass(frozen=True, slots=True)
class CheckingPoller(OrderPoller):
    """A poll, and the check of ended orders after it; the worker runs both at intervals of their own."""

    ended_orders: EndedOrderChecker

    async def run(self) -> int:
        return await OrderPoller.run(self) + await self.ended_orders.run()


class SimulatedAgent:
    """One process of the agent, wired as the composition root wires it."""

    def __init__(self, world: World, name: str, injector: FaultInjector) -> None:
        self.injector = injector
        self.name = name
        self.store = FaultyStore(world.store, injector)
        self.adapters = SimulatedAdapterSource(
            {each: FaultyLis(lis, injector, StoreInbox(self.store, world.clock, each)) for each, lis in world.systems.items()}
        )
        self._http = HttpClient(
            http_options(world.settings.exchange),
            transport=FaultyTransport(world.app, injector, world.truncated_orders, world.all_tasks, world.link),
        )
        authenticator = Authenticator(world.settings.exchange.oauth, self._http, self.store, world.clock, name)
        self.exchange = ExchangeClient(world.settings.exchange, self._http, authenticator)
        self.components = components = Components(
            settings=world.settings,
            clock=world.clock,
            store=self.store,
            queries=None,
            exchange=self.exchange,
            authenticator=authenticator,
            adapters=self.adapters,  # type: ignore[arg-type]  # only the source of adapters is used
            catalogue_cache=world.catalogues,  # type: ignore[arg-type]  # only its view is used
            mapping_cache=MappingCache(world.settings.results.mappings),
            metrics=Metrics(),
            owner=name,
        )
        self.matcher = bootstrap.build_matcher(world.settings, components.mapping_cache, world.catalogues.view)
        self.assessor = bootstrap.build_assessor(components)
        ended = bootstrap.build_ended_orders(components)
        self.poll = CheckingPoller(self.exchange, self.store, world.clock, world.settings.exchange.base_url, ended)
        self.reconcile = bootstrap.build_reconciler(components)
        self.outages = OutageTracker(self.store, world.clock, service_reachable)
        self.runner = JobRunner(
            store=self.store,
            clock=world.clock,
            handlers=bootstrap.build_handlers(components, self.adapters),
            outages=self.outages,
            owner=name,
            lease=timedelta(seconds=world.settings.worker.lease),
            backoff=Backoff(world.settings.worker.backoff_first, world.settings.worker.backoff_longest),
            random=injector.rng.random,
            on_attempt=lambda kind, state: None,
        )
        self.running: set[asyncio.Task[None]] = set()

    async def run_jobs(self, *kinds: JobKind, limit: int = 4) -> int:
        jobs = await claim_jobs(self.runner, kinds or tuple(self.runner.handlers), limit)
        await asyncio.gather(*(self.runner.run(job) for job in jobs))
        return len(jobs)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        """Run something in the background; failures of remote systems and crashes are part of the simulation."""

        async def guarded() -> None:
            with contextlib.suppress(Failure, LabAgentError, SimulatedCrash):
                await work

        task = asyncio.create_task(guarded())
        self.running.add(task)
        task.add_done_callback(self.running.discard)

    async def wait_idle(self) -> None:
        while self.running:
            await asyncio.wait(self.running)


class World:
    """The partner, the service and the laboratory, and what they did."""

    def __init__(
        self,
        seed: object,
        *,
        store: Store | None = None,
        rules: dict[str, Any] | None = None,
        routes: Sequence[dict[str, Any]] = (),
        oauth: OAuthSettings | None = None,
        **worker: Any,
    ) -> None:
        """`routes` are those of `[[lis.routes]]`: each of their adapters is a laboratory system beside `lis`, the default one.

        `oauth`: how the agents sign in; by default each call has login and password.
        """
        self.rng = Random(repr(seed))
        self.clock = VirtualClock()
        self.settings = make_settings(worker=worker, results={"documents": "none"}, lis={"routes": routes})
        if oauth is not None:
            exchange = self.settings.exchange.model_copy(update={"oauth": oauth})
            self.settings = self.settings.model_copy(update={"exchange": exchange})
        config = SandboxConfig(base_url=BASE, rules=RuleSettings(history_limit=100, **(rules or {})), tokens=SERVICE_TOKENS)
        self.app = create_app(config, clock=self.clock.now)
        self.service: Service = self.app.state.service
        self.clinic, self.laboratory = config.counterparties[0], config.counterparties[1]
        self.store: Store = store or InlineStore()
        self.lis = SimulatedLis()
        self.systems = {"folder": self.lis, **{route["adapter"]: SimulatedLis() for route in routes}}
        self.catalogues = StubCatalogues()
        self.link = ServiceLink()
        self.truncated_orders: set[str] = set()
        self.edits: dict[str, list[str]] = {}
        self.ended_by_partner: dict[str, str] = {}
        self.placed: list[str] = []
        self.labels: dict[str, list[str]] = {}
        """The barcodes that an order was given anew, by its Task."""

    def agent(self, name: str = "worker", **chances: float) -> SimulatedAgent:
        return SimulatedAgent(self, name, FaultInjector(Random(self.rng.random()), **chances))

    def back_up_service(self) -> Callable[[], None]:
        """Take a backup of the service; gives what restores it, so that what was done there since never was."""
        store, kept = self.service.store, sqlite3.connect(":memory:", check_same_thread=False)
        store._db.backup(kept)

        def restore() -> None:
            kept.backup(store._db)
            store._load_interned_texts()

        return restore

    # --- the partner

    def place_order(
        self,
        template: OrderTemplate,
        *,
        spoil: int | None = None,
        relabel: bool = False,
        patient: str | None = None,
        labels: Sequence[str] = (),
    ) -> str:
        """Place an order; the id of its order-level Task. The line number `spoil` is for an unknown item.

        With `relabel`, its tubes have other barcodes than those of the template: first `labels`, then new ones.
        """
        patient = patient or updates.create(self.service, "Patient", copy.deepcopy(template.patient), self.clinic).ref.id
        bundle = json.loads(_to_text(template.bundle).replace("patient/PATIENT", _to_text(f"patient/{patient}")[1:-1]))
        if spoil is not None:
            procedure_requests(bundle)[spoil]["code"]["coding"][0]["code"] = UNKNOWN_ITEM
        used = _replace_labels(bundle, self.rng, labels) if relabel else []
        kept = self.service.orders.create(bundle, self.clinic)
        self.placed.append(next(one.ref.id for one in kept if one.ref.type == "Task" and "partOf" not in json.loads(one.body)))
        self.labels[self.placed[-1]] = used
        return self.placed[-1]

    def _find(self, kind: str, reference: str) -> StoredResource:
        """What the service has of a resource, by its id (which may have a slash) or what refers to it, relative or whole."""
        resource_id = re.split(rf"(?:^|/){kind}/", reference, flags=re.IGNORECASE)[-1]
        kept = self.service.resources.find(Ref(kind, resource_id))
        assert kept is not None
        return kept

    def _request_of(self, line_task: dict[str, Any]) -> dict[str, Any]:
        return dict(json.loads(self._find("ProcedureRequest", line_task["basedOn"][0]["reference"]).body))

    def get_task(self, task_id: str) -> dict[str, Any]:
        return dict(json.loads(self._find("Task", task_id).body))

    def resources(self, kind: str) -> list[dict[str, Any]]:
        """All resources of a kind, with their numbers digit for digit."""
        found = self.service.store.find(kind, [], lambda _: True, limit=100_000)
        return [dict(exact_json.loads(each.body)) for each in found]

    def all_tasks(self) -> list[dict[str, Any]]:
        return [
            self.get_task(task) for order in self.placed for task in (order, *(each["id"] for each in self.line_tasks(order)))
        ]

    def line_tasks(self, order_task: str) -> list[dict[str, Any]]:
        found = self.service.store.find("Task", [("part-of", [Ref("Task", order_task).key()])], lambda _: True, limit=100)
        return [json.loads(one.body) for one in found]

    def subject_of(self, line_task: dict[str, Any]) -> str:
        return str(self._request_of(line_task)["subject"]["reference"])

    def item_of(self, line_task: dict[str, Any]) -> str:
        return str(self._request_of(line_task)["code"]["coding"][0]["code"])

    def update_task(self, task_id: str, **fields: Any) -> None:
        kept = self._find("Task", task_id)
        updates.update(self.service, kept.ref, json.loads(kept.body) | fields, self.clinic, kept.etag())

    def force_task(self, task_id: str, **fields: Any) -> None:
        """A Task is changed in whatever state it is: not every service keeps a partner from taking back an end."""
        self._replace("Task", task_id, **fields)
        self.ended_by_partner.pop(task_id, None)

    def add_late_line(self, order_task: str) -> str:
        """The partner adds one more Task to an order, for what its first line orders; the id of the Task."""
        first = self.line_tasks(order_task)[0]
        body = {key: value for key, value in self._request_of(first).items() if key not in {"id", "meta"}}
        made = self.service.resources.create("ProcedureRequest", body, self.clinic, self._laboratory_grants("read")).ref.id
        return self._create_task(first | {"basedOn": [{"reference": f"procedurerequest/{made}"}]})

    def mend_item(self, line_task: str, template: OrderTemplate) -> None:
        """The partner corrects what a line orders: what the first line of the template does."""
        request = self.get_task(line_task)["basedOn"][0]["reference"]
        self._replace("ProcedureRequest", request, code=procedure_requests(template.bundle)[0]["code"])

    def order_again(self, order_task: str) -> str:
        """The partner makes new Tasks about the same ProcedureRequests; the id of the new order-level Task."""
        order = self._create_task(self.get_task(order_task))
        for line in self.line_tasks(order_task):
            self._create_task(line | {"partOf": [{"reference": f"task/{order}"}]})
        return order

    def _create_task(self, body: dict[str, Any]) -> str:
        new = {key: value for key, value in body.items() if key not in {"id", "meta", "output", "note"}} | {"status": "requested"}
        return self.service.resources.create("Task", new, self.clinic, self._laboratory_grants("read", "updatebody")).ref.id

    def _replace(self, kind: str, reference: str, **fields: Any) -> None:
        kept = self._find(kind, reference)
        rights = ("read", "updatebody") if kind == "Task" else ("read",)
        self.service.resources.replace(kept, json.loads(kept.body) | fields, self._laboratory_grants(*rights))

    def _laboratory_grants(self, *rights: str) -> set[tuple[str, str]]:
        return {(right, self.laboratory.guid) for right in rights}

    def edit_task(self, task_id: str) -> None:
        text = uuid.UUID(int=self.rng.getrandbits(128)).hex
        self.update_task(task_id, note=[*self.get_task(task_id).get("note", []), {"text": text}])
        self.edits.setdefault(task_id, []).append(text)

    def end_task(self, task_id: str, status: str = "cancelled") -> bool:
        """The partner ends a Task, if it is open."""
        if self.get_task(task_id)["status"] in TERMINAL_STATUSES:
            return False
        self.update_task(task_id, status=status)
        self.ended_by_partner[task_id] = status
        return True

    def status_history(self, task_id: str) -> list[str]:
        kept = self._find("Task", task_id)
        return [str(json.loads(body)["status"]) for body in reversed(self.service.store.versions(kept))]

    # --- the laboratory

    async def end_line(self, store: Store, line: LineKey, rejection: str | None = None) -> None:
        """A line ends: with its final report on the service, or rejected by the laboratory."""
        now = self.clock.now()

        def write(uow: UnitOfWork) -> None:
            found = uow.orders.line(line)
            assert found is not None
            uow.orders.get_for_update(found.order)
            if rejection is None:
                complete_lines(uow, found.order, [line], now)
            else:
                cancel_lines(uow, found.order, {line: rejection}, now)
            advance_order(uow, found.order, now)

        await store.transact(write)

    # --- what can be seen from outside

    def order_key_of(self, order_task: str) -> OrderKey:
        return order_key(self.settings.exchange.base_url, order_task)  # type: ignore[arg-type]

    async def stored_order(self, order_task: str) -> tuple[OrderRecord, tuple[LineRecord, ...]]:
        key = self.order_key_of(order_task)
        return await self.store.transact(lambda uow: (uow.orders.get_for_update(key), uow.orders.lines(key)))

    async def jobs(self, order_task: str, *, open_only: bool = True) -> tuple[Job, ...]:
        key = self.order_key_of(order_task)
        return await self.store.transact(lambda uow: uow.jobs.list_for_order(key, open_only=open_only))

    async def drain(self, agent: SimulatedAgent, *, rounds: int = 60, until: timedelta | None = None) -> None:
        """Let one agent do everything that is due now or, within `until`, later."""
        end = self.clock.now() + (until or timedelta(seconds=30))
        for _ in range(rounds):
            if await agent.run_jobs(limit=20):
                continue
            if self.clock.now() >= end:
                return
            self.clock.advance(5)


@contextlib.contextmanager
def repeatable_process(seed: object) -> Iterator[None]:
    """The ids that the service gives in this process come from the seed, meanwhile, and no call waits by the machine's clock.

    What a call would wait for is left to the outbox, whose waits pass by the world's own clock.
    """
    rng = Random(repr(seed))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lab_agent.exchange.requests.backoff_delay", lambda *_: 0.0)
        patch.setattr("lab_agent.exchange.requests._MAX_RETRY_WAIT", 0.0)
        patch.setattr("httpx._transports.asgi.is_running_trio", lambda: False)  # it looks for a package at each request
        for module in (resources, order_creation, search_results):
            patch.setattr(module, "uuid4", lambda: _LargeId(int=rng.getrandbits(128), version=4))
        yield


class _LargeId(uuid.UUID):
    """An id in large letters: FHIR tells them from small ones."""

    def __str__(self) -> str:
        return super().__str__().upper()


def _to_text(value: Any) -> str:
    return exact_json.dumps(value).decode()


def _replace_labels(bundle: dict[str, Any], rng: Random, labels: Sequence[str] = ()) -> list[str]:
    """Give the tubes of an order other barcodes: first these, then new ones; all of them, in the order of the tubes."""
    wanted, used = iter(labels), []
    for entry in bundle["entry"]:
        for container in entry["resource"].get("container", ()):
            for identifier in container["identifier"]:
                if identifier["system"].endswith("/labels"):
                    identifier["value"] = next(wanted, None) or str(rng.randrange(10**9, 10**10))
                    used.append(identifier["value"])
    return used
