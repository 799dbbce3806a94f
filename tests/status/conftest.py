"""A status page over a real store on SQLite, with something of everything in it, and visitors of each role."""

from __future__ import annotations

import re
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from lab_agent import bootstrap
from lab_agent.accounts import Accounts, Role
from lab_agent.crypto import Cipher, Passwords, new_key
from lab_agent.domain.ids import EffectId, LineKey, OrderKey, ReportKey, ResourceId
from lab_agent.domain.journal import (
    Alert,
    Effect,
    EffectKind,
    Event,
    LabelUse,
    LineRecord,
    NewEffect,
    OrderRecord,
    ReportRecord,
)
from lab_agent.domain.lifecycle import EffectState, LineState, OrderState, ReportState
from lab_agent.domain.values import Identifier
from lab_agent.metrics import Metrics
from lab_agent.ports.store import UnitOfWork
from lab_agent.ports.views import POLL_SUCCEEDED
from lab_agent.settings.status import StatusSettings
from lab_agent.status.app import create_app
from lab_agent.status.house import AdapterShown, House
from lab_agent.steps.catch import Catch
from lab_agent.store.migrate import upgrade
from lab_agent.store.unit_of_work import SqlStore
from lab_agent.store.views import SqlViews
from tests.results.bench import make_settings

NOW = datetime(2026, 3, 1, 3, 0, tzinfo=UTC)
PASSWORD = "a long password"
SECRETS = ("Petrova", "Anna", "1961-04-12")
"""Identification data in the vault; no page may show it."""
HOSTILE = "<script>alert('x')</script>"
GOOD, HELD, DOUBTFUL = OrderKey("R0000000000GOOD"), OrderKey("R0000000000HELD"), OrderKey("R00000000DOUBT")
BASE = "http://127.0.0.1:8481"


@dataclass
class Hands:
    """A clock that goes when it is told to."""

    at: datetime = NOW

    def now(self) -> datetime:
        return self.at

    def advance(self, **span: float) -> None:
        self.at += timedelta(**span)


@dataclass
class Page:
    """The application with its parts; and visitors."""

    house: House
    hands: Hands
    missing: list[str]
    clients: list[httpx.AsyncClient] = field(default_factory=list)

    def visitor(self, **options: Any) -> httpx.AsyncClient:
        """Somebody with a browser, not signed in."""
        transport = httpx.ASGITransport(create_app(self.house), raise_app_exceptions=True)
        client = httpx.AsyncClient(transport=transport, base_url=BASE, **options)
        self.clients.append(client)
        return client

    async def signed_in(self, role: Role) -> httpx.AsyncClient:
        client = self.visitor()
        answer = await client.post("/sign-in", data={"name": role.value, "password": PASSWORD})
        assert answer.status_code == 303
        return client

    async def write(self, work: Callable[[UnitOfWork], Any]) -> Any:
        def committed(uow: UnitOfWork) -> Any:
            result = work(uow)
            uow.commit()
            return result

        return await self.house.store.run(committed)

    async def effect(self, kind: EffectKind, order: OrderKey | None = None) -> Effect:
        """The one effect of that kind (and order)."""
        found = (await self.house.views.effects(kinds=[kind])).items
        (one,) = [each for each in found if order in (None, each.order)]
        return one

    async def state(self, effect: EffectId) -> EffectState:
        found = await self.house.views.effect(effect)
        assert found is not None
        return found.state


def token(html: str) -> str:
    """The form token of a page."""
    found = re.search(r'name="token" value="([^"]+)"', html)
    assert found is not None
    return found[1]


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("status") / "lab.db"
    upgrade(f"sqlite:///{path}")
    return path


@pytest.fixture
async def page(empty_database: Path, tmp_path: Path) -> AsyncIterator[Page]:
    """The page over an empty store with one user for each role; the user's name is the role's."""
    shutil.copy(empty_database, tmp_path / "lab.db")
    cipher, hands, missing = Cipher(new_key()), Hands(), list[str]()
    store = SqlStore(f"sqlite:///{tmp_path / 'lab.db'}", cipher)
    accounts = Accounts(store, Passwords(time_cost=1, memory_cost=8, parallelism=1))
    for role in Role:
        await accounts.add(role.value, PASSWORD, role, now=NOW - timedelta(days=1))
    house = House(
        settings=StatusSettings(),
        store=store,
        views=SqlViews(store),
        accounts=accounts,
        cipher=cipher,
        metrics=Metrics(),
        clock=hands,
        adapters=[
            AdapterShown(name="folder", kind="folder", loaded=True),
            AdapterShown(name="hl7", kind="mllp", loaded=False, reason="lis.hl7: no installed package offers an adapter mllp"),
        ],
        mode="normal",
        matcher=partial(bootstrap.desk_matcher, make_settings(), lambda: None),
        missing=lambda: missing,
        cannot_write=lambda: False,
    )
    made = Page(house, hands, missing)
    yield made
    for client in made.clients:
        await client.aclose()
    await store.close()


@pytest.fixture
async def seeded(page: Page) -> Page:
    """The page over a store with something of everything."""
    await page.write(_orders)
    await page.write(_effects)
    await page.write(_rest)
    return page


SignIn = Callable[[Role], Awaitable[httpx.AsyncClient]]


def _orders(uow: UnitOfWork) -> None:
    for number, (key, state, reason) in enumerate(
        (
            (GOOD, OrderState.HANDED_OVER, None),
            (HELD, OrderState.HELD, f"contract C-900 is not in our settings {HOSTILE}"),
            (DOUBTFUL, OrderState.FETCHED, None),
        )
    ):
        seen = NOW - timedelta(hours=5 - number)
        order = OrderRecord(
            key=key,
            task_id=ResourceId(f"task-{number}"),
            state=state,
            seen_at=seen,
            changed_at=seen + timedelta(minutes=2),
            contract="C-100",
            requisition=Identifier(system="http://clinic.example/orders", value=HOSTILE if key == HELD else f"2603-{number}"),
            counterparty="partner-guid",
            patient_reference=f"patient/{number}",
            adapter="folder",
            accession=f"26-000{number}",
            expected_at=NOW - timedelta(minutes=10),
            reason=reason,
        )
        uow.orders.add(order)
        uow.vault.put_identity(key, " ".join(SECRETS).encode(), at=seen)
        lines = [
            LineRecord(
                key=LineKey(f"L{number}{place}"),
                order=key,
                task_id=ResourceId(f"line-task-{number}{place}"),
                item=item,
                state=line_state,
                changed_at=seen,
                outputs=outputs,
            )
            for place, (item, line_state, outputs) in enumerate(
                (
                    ("010.001", LineState.ACCEPTED, ()),
                    ("020.014", LineState.REFUSED, (f"Item 020.014 needs EDTA blood, serum was sent. {HOSTILE}",)),
                )
            )
        ]
        for line in lines:
            uow.orders.add_line(line)
        uow.orders.set_labels(
            key,
            [
                LabelUse(
                    barcode=f"70000{number}{place}", order=key, line=line.key, specimen_id="s", patient_reference="patient/1"
                )
                for place, line in enumerate(lines)
            ],
        )
        uow.book.tell(Event(order=key, at=seen, action="order_seen", text="seen on the service"))
        uow.book.tell(Event(order=key, at=seen + timedelta(minutes=2), action="judged", text=f"judged: {state.value}"))


def _effects(uow: UnitOfWork) -> None:
    wanted = {
        EffectKind.LOOK: (HELD, None, "held; looked at again later"),
        EffectKind.HANDOVER: (DOUBTFUL, EffectState.REVIEW, "the laboratory system did not answer after the order was sent"),
        EffectKind.DELIVER: (GOOD, EffectState.PARKED, f"the service refused the report (422): unknown code {HOSTILE}"),
        EffectKind.LINE_TASK: (GOOD, EffectState.PARKED, "the Task was changed by somebody else three times"),
        EffectKind.ORDER_TASK: (GOOD, EffectState.DONE, None),
    }
    for kind, (order, state, _) in wanted.items():
        due = NOW - timedelta(hours=1) if state else NOW + timedelta(minutes=5)
        subject = str(order) if kind in {EffectKind.HANDOVER, EffectKind.LOOK, EffectKind.ORDER_TASK} else "L00"
        uow.effects.add(NewEffect(kind=kind, once=f"{kind}", lane=f"{kind}", subject=subject, order=order, due_at=due))
    claimed = uow.effects.claim(list(EffectKind), owner="w", now=NOW - timedelta(hours=1), lease=timedelta(minutes=9), limit=99)
    for effect in claimed:
        _, state, reason = wanted[effect.kind]
        at = NOW - timedelta(minutes=50)
        match state:
            case EffectState.PARKED:
                ended = replace(effect, begun=True).parked(at, str(reason))
            case EffectState.REVIEW:
                ended = replace(effect, begun=True).for_review(at, str(reason))
            case _:
                ended = effect.done(at)
        uow.effects.save(ended)


def _rest(uow: UnitOfWork) -> None:
    for number, (state, order, reason) in enumerate(
        ((ReportState.DELIVERED, GOOD, None), (ReportState.UNMATCHED, None, f"no order has the barcode {HOSTILE}"))
    ):
        uow.reports.add(
            ReportRecord(
                key=ReportKey(f"P{number}"),
                source="folder",
                message=f"m{number}.json",
                report_id=f"rep-{number}",
                version=1,
                issued=NOW - timedelta(hours=2),
                state=state,
                order=order,
                lines=(LineKey("L00"),) if order else (),
                reason=reason,
                received_at=NOW - timedelta(hours=2),
                changed_at=NOW - timedelta(hours=1),
                body=b"{}",
            )
        )
    catch = Catch(limit=2, window=timedelta(hours=1))
    catch.remember(uow.book, ["line.specimen"], GOOD, NOW - timedelta(minutes=9))
    catch.remember(uow.book, ["line.specimen"], HELD, NOW - timedelta(minutes=8))
    assert catch.stopped(uow.book, ["line.specimen"], NOW - timedelta(minutes=7)) == "line.specimen"
    uow.book.open_alert(Alert(key="lis.folder.away", text=f"laboratory system folder: gone {HOSTILE}", opened_at=NOW))
    uow.book.open_alert(Alert(key="exchange.away", text="the service does not answer", opened_at=NOW - timedelta(hours=9)))
    uow.book.close_alert("exchange.away", now=NOW - timedelta(hours=8))
    uow.book.note(POLL_SUCCEEDED, (NOW - timedelta(seconds=12)).isoformat())
