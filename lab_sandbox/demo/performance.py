"""One performance of the demo, from an empty folder to the verdict."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from lab_sandbox.config import Counterparty
from lab_sandbox.demo.cast import PASSWORD, USER, bring_up
from lab_sandbox.demo.ledger import Ledger
from lab_sandbox.demo.lis.run import local_now
from lab_sandbox.demo.match_desk import MatchDesk
from lab_sandbox.demo.programs import Troupe
from lab_sandbox.demo.record import Record
from lab_sandbox.demo.screen import Screen
from lab_sandbox.demo.story import tell
from lab_sandbox.demo.trouble import DemoError
from lab_sandbox.demo.workplace import Workplace, fresh_workplace
from lab_sandbox.partner.account import Account
from lab_sandbox.partner.client import partner_client
from lab_sandbox.partner.clinic import Clinic
from lab_sandbox.partner.failures import PartnerError
from lab_sandbox.partner.labels import Labels
from lab_sandbox.partner.plain_json import Json

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """How the demo shall run.

    `config` is the settings folder; `once` ends after the story; `patience` is how many seconds one step of the laboratory may
    take; `other_ports` leaves the ports of the settings to others; `lis` is how the laboratory system is connected.
    """

    config: Path
    once: bool = False
    patience: float = 60.0
    other_ports: bool = False
    lis: str = "folder"


@dataclass(slots=True)
class Verdict:
    """How it went: the orders as the partner saw them at the end, and the checks."""

    ledger: Ledger
    orders: dict[str, Json] = field(default_factory=dict)
    told: bool = False
    trouble: str | None = None

    @property
    def ok(self) -> bool:
        """Whether the story was told to its end and every check held."""
        return self.told and self.trouble is None and self.ledger.ok

    def as_json(self) -> Json:
        """The demo's last line."""
        line: Json = {"ok": self.ok, "orders": self.orders, "checks": [check.as_json() for check in self.ledger.checks]}
        return line if self.trouble is None else {**line, "trouble": self.trouble}


async def perform(wishes: Wishes, screen: Screen, verdict: Verdict) -> None:
    """Fills in the verdict; stays up afterwards, unless it shall end, until it is cancelled or a program ends."""
    place: Workplace | None = None
    try:
        place = fresh_workplace(wishes.config, other_ports=wishes.other_ports, lis=wishes.lis)
        async with Troupe(place.folder, place.logs) as troupe:
            await bring_up(troupe, place, screen)
            verdict.orders = await _unless_one_dies(troupe, _story(place, screen, verdict.ledger, wishes.patience))
            verdict.told = True
            if not wishes.once:
                _show_places(screen, place)
                raise (await troupe.first_death()).died()
    except DemoError as exc:
        verdict.trouble = str(exc)
        screen.trouble(str(exc), exc.tail)
    except PartnerError as exc:
        verdict.trouble = f"the clinic could not go on: {exc}"
        screen.trouble(verdict.trouble)
    finally:
        if place is not None:
            _leave(place, screen, keep=not verdict.ok)


async def _story(place: Workplace, screen: Screen, ledger: Ledger, patience: float) -> dict[str, Json]:
    async with partner_client(account(place), grant="code") as client:
        screen.step("the clinic has signed in through the authorization site")
        clinic = Clinic(client, Labels(first=7_000_001), local_now, local_now().strftime("%y%m%d%H%M%S"))
        orders = await tell(clinic, Record(place.lis), ledger, screen, patience)
        if place.way.kind == "folder":
            await MatchDesk(place, client, ledger, screen, patience).show()
        return orders


async def _unless_one_dies(troupe: Troupe, story: Coroutine[Any, Any, T]) -> T:
    telling, death = asyncio.create_task(story), asyncio.create_task(troupe.first_death())
    try:
        await asyncio.wait((telling, death), return_when=asyncio.FIRST_COMPLETED)
        if telling.done():
            return telling.result()
        raise death.result().died()
    finally:
        for task in (telling, death):
            task.cancel()
        await asyncio.gather(telling, death, return_exceptions=True)


def account(place: Workplace) -> Account:
    """The partner of the first contract, as the service's own settings register it."""
    service = place.service.settled()
    contract = service.contracts[0]
    partner = service.counterparty(contract.partner)
    if partner is None or not partner.redirect_uris:
        raise DemoError(f"{place.service_settings}: the partner of contract {contract.code} has no callback address")
    return Account(
        base_url=service.base_url,
        auth_url=service.auth_url,
        login=_given(partner, "login"),
        password=_given(partner, "password"),
        client_id=_given(partner, "client_id"),
        client_secret=_given(partner, "client_secret"),
        redirect_uri=partner.redirect_uris[0],
        guid=partner.guid,
        laboratory=contract.laboratory,
        contract=contract.code,
        lab_codes_url=service.lab_codes_url.rstrip("/"),
        second_labels_system=service.second_labels_system,
    )


def _given(partner: Counterparty, name: str) -> str:
    value: str | None = getattr(partner, name)
    if value is None:
        raise DemoError(f"the service's settings give the partner {partner.name} no {name}")
    return value


def _show_places(screen: Screen, place: Workplace) -> None:
    screen.heading("Everything stays up until Ctrl-C")
    screen.places(
        {
            "exchange service": place.service_url,
            "laboratory API": f"{place.api_url}/docs",
            "status page": f"{place.status_url}  (name {USER}, password {PASSWORD})",
            "orders for the LIS": str(place.orders),
            "results of the LIS": str(place.results),
            "settings": str(place.folder / "config"),
            "logs": str(place.logs),
        }
    )


def _leave(place: Workplace, screen: Screen, *, keep: bool) -> None:
    if keep:
        screen.step(f"settings, journal and logs are kept in {place.folder}")
    else:
        shutil.rmtree(place.folder, ignore_errors=True)
