"""The agent's intake and delivery step by step, in one thread: started twice, it makes the same calls on the same files.

    python traced_agent.py TASK

TASK is JSON: `folder`, `service` (port on this machine), `now`, `start` (the how many-th one this is) and `until` (a state of the
order). It begins when a line comes on its standard input, so that a tracer can attach, and ends with exit code 0 when the order
is in that state and nothing is open: no job, no alert, no outage. What runs is what `lab-agent run` runs, one after the other;
its clock goes on only while nothing is due.
"""

from __future__ import annotations

import asyncio
import ctypes
import itertools
import json
import secrets
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx

from lab_agent.bootstrap import Components, build_adapters, build_reconciler
from lab_agent.exchange.authenticator import Authenticator
from lab_agent.exchange.client import ExchangeClient, http_options
from lab_agent.lis.folder import adapter as folder_adapter
from lab_agent.operations.restore_watch import RestoreWatch
from lab_agent.operations.schedule import Scheduler
from lab_agent.queue.job_records import JobKind
from lab_agent.queue.job_runner import JobRunner
from lab_agent.queue.outages import OutageTracker
from lab_agent.queue.store_watch import StoreWatch, record_outages
from lab_agent.results.result_inbox import StoreInbox
from lab_agent.settings.root import Settings
from lab_agent.shared.errors import Failure, StoreUnreachableError
from lab_agent.shared.http_client import HttpClient
from lab_agent.shared.metrics import Metrics
from lab_agent.shared.state_machines import OPEN_JOBS
from lab_agent.store import group_commit, unit_of_work
from lab_agent.store.agent_lock import AgentLock
from lab_agent.store.opening import open_store
from lab_agent.store.queries import Queries
from lab_agent.store.store_mark import open_mark
from lab_agent.store.unit_of_work import Store
from lab_agent.store_start import StoreStart
from lab_agent.worker_bootstrap import _build_scheduled_tasks, build_runner
from tests.fakes.exchange_service import service_reachable
from tests.harness.clock import VirtualClock
from tests.harness.jobs import claim_jobs
from tests.harness.settings import make_settings
from tests.harness.world import StubCatalogues

DATABASE, ORDERS, RESULTS = "lab.db", "orders", "results"
KEY = "NOSBV2oXhmVtRF4Ac8sQqtCUVgH7-0lBlfSZpXgp1EQ="
TASKS = ("poll", "collect", "attention")
"""What runs in each round, of what is scheduled."""
ENDED, UNFINISHED = 4, 3
"""Exit codes: it could not even begin; it never came to the end."""
ROUNDS = 60
SECONDS = 5.0
_SET_PTRACER, _ANY = 0x59616D61, ctypes.c_ulong(-1)


class OneThread(ThreadPoolExecutor):
    """All pools of the process in one thread, which is the only one to touch files."""

    _all = ThreadPoolExecutor(1)

    def submit(self, *call: Any, **more: Any) -> Future[Any]:
        return OneThread._all.submit(*call, **more)


class ToThisMachine(httpx.AsyncHTTPTransport):
    """Whatever the service is called, it listens on a port of this machine."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self._port = port

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        request.url = request.url.copy_with(scheme="http", host="127.0.0.1", port=self._port)
        return await super().handle_async_request(request)


def agent_settings(folder: Path) -> Settings:
    folders = {"orders": str(folder / ORDERS), "results": str(folder / RESULTS), "settle": 0}
    return make_settings(
        store={"url": f"sqlite:///{folder / DATABASE}", "encryption_keys": [KEY]},
        lis={"folder": folders},
        results={"documents": "none"},
        worker={"second_look_after": 0.01},
    )


class TracedAgent:
    """The parts, wired as the composition root wires them, and run in turn."""

    def __init__(self, settings: Settings, store: Store, http: HttpClient, clock: VirtualClock, start: int) -> None:
        owner = f"start-{start}"
        authenticator = Authenticator(settings.exchange.oauth, http, store, clock, owner)
        self.store = store
        self.clock = clock
        self.components = Components(
            settings=settings,
            clock=clock,
            store=store,
            queries=Queries(store),
            exchange=ExchangeClient(settings.exchange, http, authenticator),
            authenticator=authenticator,
            adapters=build_adapters(settings),
            catalogue_cache=StubCatalogues(),  # type: ignore[arg-type]  # only its view is used
            metrics=Metrics(),
            owner=owner,
        )
        self.outages = OutageTracker(store, clock, service_reachable)
        self.runner: JobRunner = build_runner(self.components, self.components.adapters, self.outages)
        self.scheduler = Scheduler(self.outages)
        scheduled = _build_scheduled_tasks(self.components, self.components.adapters, self.outages, self.scheduler)
        self.held: frozenset[JobKind] = frozenset()
        mark, reconciler = open_mark(settings.store), build_reconciler(self.components)
        self.restore_watch = RestoreWatch(store, clock, mark, self._hold, reconciler.run)
        self.tasks = {name: scheduled[name][1] for name in TASKS} | {"restore": self.restore_watch.look}
        for name, task in self.tasks.items():
            self.scheduler.every(1, name, task)  # never started: a task may only name the time of its next run
        self.store_watch = StoreWatch(store, clock, self._look)
        self.store.health.is_watched = True

    async def run(self, until: str) -> bool:
        """Work until the order is in this state and nothing is open; False if it never came to that."""
        await self.restore_watch.begin()
        for name, adapter in self.components.adapters.running():
            with suppress(Failure):
                await adapter.start(StoreInbox(self.store, self.clock, name))
        for _ in range(ROUNDS):
            await self.store_watch.look()
            for name, task in self.tasks.items():
                await self.scheduler._run_guarded(name, task, True)
            if await self._run_jobs():
                continue
            if await self._is_done(until):
                return True
            self.clock.advance(SECONDS)
        return False

    async def close(self) -> None:
        for _, adapter in self.components.adapters.running():
            await adapter.stop()
        await self.store.close()

    async def _run_jobs(self) -> int:
        ran = 0
        kinds = frozenset(self.runner.handlers) - self.held
        with suppress(StoreUnreachableError):
            while not self.outages.is_store_down and (jobs := await claim_jobs(self.runner, kinds, 1)):
                await self.runner.run(jobs[0])
                ran += 1
        return ran

    async def _is_done(self, until: str) -> bool:
        if self.store.health.outage is not None:
            return False
        with suppress(StoreUnreachableError):
            return await self.store.read(lambda connection: is_settled(connection.exec_driver_sql, until))
        return False

    def _hold(self, kinds: Any) -> None:
        self.held = frozenset(kinds)

    async def _look(self) -> None:
        """The database works again: the next round finds what is due."""


def is_settled(execute: Any, until: str) -> bool:
    """Whether the only order is in this state, with no job and no alert open."""
    states = [state for (state,) in execute("SELECT state FROM orders")]
    jobs = {state for (state,) in execute("SELECT state FROM jobs")}
    (open_alerts,) = execute("SELECT count(*) FROM alerts WHERE closed_at IS NULL").fetchone()
    return states == [until] and jobs.isdisjoint(OPEN_JOBS) and open_alerts == 0


async def live(task: dict[str, Any]) -> int:
    asyncio.get_running_loop().set_default_executor(OneThread())
    settings = agent_settings(Path(task["folder"]))
    clock = VirtualClock(datetime.fromisoformat(task["now"]))
    start = StoreStart(settings, AgentLock(settings.store.url))
    await start._waiting._open_in_the_end()
    try:
        store = await asyncio.to_thread(open_store, settings.store)
        if start.outages:
            await store.transact(lambda uow: record_outages(uow, start.outages, clock.now()))
    except StoreUnreachableError as exc:  # before anybody could wait for it: the daemon ends, and its supervisor starts it again
        print(exc, file=sys.stderr)  # noqa: T201
        return ENDED
    async with HttpClient(http_options(settings.exchange), transport=ToThisMachine(task["service"])) as http:
        agent = TracedAgent(settings, store, http, clock, task["start"])
        done = await agent.run(task["until"])
        await agent.close()
    start.lock.release()
    return 0 if done else UNFINISHED


def main() -> None:
    task = json.loads(sys.argv[1])
    numbers = itertools.count(1)
    secrets.token_hex = lambda size=8: f"{task['start']:02x}{next(numbers):06x}".rjust(2 * size, "0")  # names of files
    for module in (group_commit, unit_of_work, folder_adapter):
        module.ThreadPoolExecutor = OneThread  # type: ignore[attr-defined]
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SET_PTRACER, _ANY, 0, 0, 0)  # whoever started it may trace it, also where only parents may
    sys.stdin.readline()
    sys.exit(asyncio.run(live(task)))


if __name__ == "__main__":
    main()
