"""A status page over a real store on SQLite, with something of everything in it, and visitors of each role."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import httpx
import pytest
from fastapi import FastAPI
from playwright.async_api import Browser, async_playwright

from lab_agent import result_bootstrap
from lab_agent.lis.registry import AdapterRegistry
from lab_agent.operations.accounts import Accounts, Role
from lab_agent.orders.records import OrderRecord
from lab_agent.orders.rejection_breaker import RejectionBreaker
from lab_agent.queue.job_records import Job, JobKind, NewJob
from lab_agent.results.records import ReportRecord
from lab_agent.results.refused_message_actions import RefusedMessageDesk
from lab_agent.rules.catalogue_history import CatalogueHistory
from lab_agent.settings.status import StatusSettings
from lab_agent.shared import web_server
from lab_agent.shared.conditions.model import AlertKey, ConditionId
from lab_agent.shared.errors import StoreError
from lab_agent.shared.ids import JobId, LineKey, OrderKey, ReportKey, ResourceId
from lab_agent.shared.label_pools import LabelPool
from lab_agent.shared.metrics import Metrics
from lab_agent.shared.state_machines import JobState, LineState, OrderState, ReportState, WorkOrderState
from lab_agent.shared.values import Identifier
from lab_agent.status.app import create_app
from lab_agent.status.context import AdapterStatus, ConnectionDesk, StatusContext
from lab_agent.store.audit_origin import find_origin
from lab_agent.store.audit_records import AuditAction, AuditChannel
from lab_agent.store.audit_verification import iterate_records
from lab_agent.store.crypto import Cipher, Passwords, new_key
from lab_agent.store.event_records import Alert, Event
from lab_agent.store.queries import Queries
from lab_agent.store.read_models import LAST_POLL_KEY
from lab_agent.store.unit_of_work import Store, UnitOfWork
from tests.harness.browser import ARGS, CHROMIUM
from tests.harness.clock import VirtualClock
from tests.harness.databases import create_database
from tests.harness.results import make_settings
from tests.harness.status_pages import CLINIC, HOSTILE, make_line, save_order

NOW = datetime(2026, 3, 1, 3, 0, tzinfo=UTC)
PASSWORD = "a long password"
SECRETS = ("Petrova", "Anna", "1961-04-12")
"""Identification data in the vault; no page may show it."""
GOOD, HELD, UNCERTAIN = OrderKey("R0000000000GOOD"), OrderKey("R0000000000HELD"), OrderKey("R00000000DOUBT")
BASE = "http://127.0.0.1:8481"


@dataclass
class StatusPages:
    """The application with its parts; and visitors."""

    context: StatusContext
    clock: VirtualClock
    missing: list[str]
    clients: list[httpx.AsyncClient] = field(default_factory=list)
    _app: FastAPI | None = None
    """What all clients share until `context` is another one: its routes are worked out at their first request."""

    def new_client(self, address: str = "127.0.0.1", **options: Any) -> httpx.AsyncClient:
        """Somebody with a browser at an address, not signed in."""
        if self._app is None or self._app.state.context is not self.context:
            self._app = create_app(self.context)
        transport = httpx.ASGITransport(self._app, raise_app_exceptions=True, client=(address, 123))
        client = httpx.AsyncClient(transport=transport, base_url=BASE, **options)
        self.clients.append(client)
        return client

    async def signed_in_client(self, role: Role) -> httpx.AsyncClient:
        client = self.new_client()
        answer = await client.post("/sign-in", data={"name": role.value, "password": PASSWORD})
        assert answer.status_code == 303
        return client

    async def read(self, path: str, role: Role = Role.VIEWER) -> str:
        """What somebody of that role is shown there."""
        return (await (await self.signed_in_client(role)).get(path)).text

    async def write(self, work: Callable[[UnitOfWork], Any]) -> Any:
        def committed(uow: UnitOfWork) -> Any:
            return work(uow)

        return await self.context.store.transact(committed)

    async def records(self, *actions: AuditAction) -> list[Any]:
        """The audit; of these actions, where some are named."""
        found = await self.context.store.read(lambda connection: tuple(iterate_records(connection)))
        return [each for each in found if not actions or each.action in actions]

    async def get_job(self, kind: JobKind, order: OrderKey | None = None) -> Job:
        """The one job of that kind (and order)."""
        found = (await self.context.queries.jobs(kinds=[kind])).items
        (one,) = [each for each in found if order in (None, each.order)]
        return one

    async def job_state(self, job: JobId) -> JobState:
        found = await self.context.queries.job(job)
        assert found is not None
        return found.state


def form_token(html: str) -> str:
    """The form token of a page."""
    found = re.search(r'name="csrf_token" value="([^"]+)"', html)
    assert found is not None
    return found[1]


async def post(client: httpx.AsyncClient, path: str, page: str = "/account", **fields: str) -> httpx.Response:
    """Send a form with the token of a page."""
    token = form_token((await client.get(page)).text)
    return await client.post(path, data={"csrf_token": token, **fields})


def offer_catalogue(pages: StatusPages, catalogue: Any) -> None:
    """Have the pages use this catalogue, and label pools of which one runs low."""
    history = CatalogueHistory.from_catalogue(catalogue)
    pool = LabelPool(name="tubes", pattern="#######", first=1, last=1000, warn_below=2000)
    pages.context = replace(pages.context, catalogue=lambda: history, label_pools=(pool,))


async def assess_nothing(key: OrderKey) -> Any:
    raise StoreError(f"order {key} was never fetched completely")


@pytest.fixture
async def pages(tmp_path: Path) -> AsyncIterator[StatusPages]:
    """The page over an empty store with one user for each role; the user's name is the role's."""
    cipher, clock, missing = Cipher(new_key()), VirtualClock(NOW), list[str]()
    store = Store(create_database(tmp_path / "lab.db"), cipher, origin=find_origin(AuditChannel.AGENT))
    accounts = Accounts(store, Passwords(time_cost=1, memory_cost=8, parallelism=1))
    for role in Role:
        await accounts.add(role.value, PASSWORD, role, now=NOW - timedelta(days=1))
    context = StatusContext(
        settings=StatusSettings(),
        store=store,
        queries=Queries(store),
        accounts=accounts,
        cipher=cipher,
        metrics=Metrics(),
        clock=clock,
        adapters=[
            AdapterStatus(name="folder", kind="folder", loaded=True),
            AdapterStatus(name="hl7", kind="mllp", loaded=False, reason="lis.hl7: no installed package offers an adapter mllp"),
        ],
        mode="normal",
        create_matcher=partial(result_bootstrap.build_manual_matcher, make_settings(), lambda: None),
        assess_order=assess_nothing,
        refused_messages=RefusedMessageDesk(store, clock, AdapterRegistry("folder", ())),
        missing_tasks=lambda: missing,
        catalogue=lambda: None,
        connection=ConnectionDesk(
            base_url="http://127.0.0.1/",
            grant="code",
            scopes=("offline_access",),
            **{name: AsyncMock() for name in ("check", "refresh", "forget")},
        ),
        check_adapter=AsyncMock(),
        observed_conditions=tuple,
    )
    made = StatusPages(context, clock, missing)
    yield made
    for client in made.clients:
        await client.aclose()
    await store.close()


@pytest.fixture
async def seeded(pages: StatusPages) -> StatusPages:
    """The page over a store with something of everything."""
    await pages.write(_add_orders)
    await pages.write(_add_jobs)
    await pages.write(_add_reports_and_alerts)
    return pages


def _add_orders(uow: UnitOfWork) -> None:
    states = (
        (GOOD, OrderState.HANDED_OVER, {}),
        (HELD, OrderState.HELD, {"reason": f"contract C-900 is unknown {HOSTILE}", "hold_cause": "order.contract-known"}),
        (UNCERTAIN, OrderState.FETCHED, {}),
    )
    for number, (key, state, held) in enumerate(states):
        seen = NOW - timedelta(hours=5 - number)
        changed = seen + timedelta(minutes=2)
        value = HOSTILE if key == HELD else f"2603-{number}"
        order = OrderRecord(
            key=key,
            task_id=ResourceId(f"task-{number}"),
            state=state,
            seen_at=seen,
            changed_at=changed,
            requisition=Identifier(system="http://clinic.example/orders", value=value),
            patient_reference=f"patient/{number}",
            expected_at=NOW - timedelta(minutes=10),
            held_since=changed if held else None,
            **CLINIC,
            **held,
        )
        told = f"Item 020.014 needs EDTA blood, serum was sent. {HOSTILE}"
        rejected = {"item": "020.014", "adapter": None, "state": LineState.REJECTED, "outputs": (told,)}
        lines = [make_line(key, f"L{number}0", seen, item="010.001"), make_line(key, f"L{number}1", seen, **rejected)]
        part = WorkOrderState.ACCEPTED if state is OrderState.FETCHED else WorkOrderState.HANDED_OVER
        save_order(uow, order, lines, accession=f"26-000{number}", barcode=f"70000{number}", part=part)
        uow.vault.save_identity(key, " ".join(SECRETS).encode(), at=seen)
        uow.events.add(Event(order=key, at=seen, action="order_seen", text="seen on the service"))
        uow.events.add(Event(order=key, at=changed, action="assessed", text=f"assessed: {state.value}"))


def _add_jobs(uow: UnitOfWork) -> None:
    due, at = NOW - timedelta(hours=1), NOW - timedelta(minutes=50)
    wanted: dict[JobKind, tuple[OrderKey, Callable[[Job], Job] | None]] = {
        JobKind.FETCH_ORDER: (HELD, None),
        JobKind.SUBMIT_ORDER: (UNCERTAIN, lambda job: job.needs_review(at, "the laboratory system did not answer")),
        JobKind.DELIVER_REPORT: (GOOD, lambda job: job.dead_letter(at, f"the service rejected the report (422) {HOSTILE}")),
        JobKind.UPDATE_LINE_TASK: (GOOD, lambda job: job.dead_letter(at, "the Task was changed three times")),
        JobKind.UPDATE_ORDER_TASK: (GOOD, lambda job: job.complete(at)),
    }
    for kind, (order, end) in wanted.items():
        names = {"dedup_key": f"{kind}", "ordering_key": f"{kind}"}
        subject = "L00" if kind in {JobKind.DELIVER_REPORT, JobKind.UPDATE_LINE_TASK} else str(order)
        payload = {"adapter": "folder", "reopened": 0} if kind is JobKind.SUBMIT_ORDER else {}
        moment = due if end else NOW + timedelta(minutes=5)
        uow.jobs.add(NewJob(kind=kind, **names, target=subject, order=order, payload=payload, due_at=moment))
    for job in uow.jobs.claim({frozenset(JobKind): 99}, owner="w", now=due, lease=timedelta(minutes=9)):
        _, end = wanted[job.kind]
        assert end is not None
        uow.jobs.save(end(replace(job, started=True)))


def _add_reports_and_alerts(uow: UnitOfWork) -> None:
    lost = {"state": ReportState.UNMATCHED, "reason": f"no order has the barcode {HOSTILE}"}
    known = {"state": ReportState.DELIVERED, "order": GOOD, "lines": (LineKey("L00"),)}
    for number, fields in enumerate((known, lost)):
        name = {"source": "folder", "message": f"m{number}.json", "report_id": f"rep-{number}", "version": 1, "body": b"{}"}
        times = {"issued": NOW - timedelta(hours=2), "received_at": NOW - timedelta(hours=2)}
        uow.reports.add(ReportRecord(key=ReportKey(f"P{number}"), changed_at=NOW - timedelta(hours=1), **name, **times, **fields))
    catch = RejectionBreaker(limit=2, window=timedelta(hours=1))
    catch.record_rejections(uow, ["line.specimen"], GOOD, NOW - timedelta(minutes=9))
    catch.record_rejections(uow, ["line.specimen"], HELD, NOW - timedelta(minutes=8))
    assert catch.tripped(uow, ["line.specimen"], NOW - timedelta(minutes=7)) == "line.specimen"
    for condition, subject, detail, since in (
        (ConditionId.LIS_UNAVAILABLE, "folder", f"gone {HOSTILE}", NOW),
        (ConditionId.EXCHANGE_UNAVAILABLE, "", "connection refused", NOW - timedelta(hours=9)),
    ):
        uow.alerts.open(Alert(condition=condition, subject=subject, detail=detail, since=since, opened_at=since))
    uow.alerts.close(AlertKey(ConditionId.EXCHANGE_UNAVAILABLE), now=NOW - timedelta(hours=8))
    uow.key_values.set(LAST_POLL_KEY, (NOW - timedelta(seconds=12)).isoformat())


@asynccontextmanager
async def served(pages: StatusPages, configure: Callable[[str], object] = str) -> AsyncIterator[str]:
    """The pages at an address of this machine, which `configure` is told before they are served."""
    sock = web_server.listen("127.0.0.1", 0, settings_group="status")
    base = f"http://127.0.0.1:{sock.getsockname()[1]}"
    configure(base)
    app = create_app(pages.context)
    task = asyncio.create_task(web_server.serve(app, sock, drain=2, on_stop=app.state.change_feed.close))
    try:
        yield base
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=ARGS)
        yield browser
        await browser.close()
