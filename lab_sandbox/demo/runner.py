"""One performance of the demo, from an empty folder to the verdict.

The daily flow, told point by point as the interface document lists it, from the partner's side alone.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from lab_sandbox.config import Counterparty
from lab_sandbox.demo.checks import CheckList, LisRecord
from lab_sandbox.demo.console import DemoConsole
from lab_sandbox.demo.errors import DemoError
from lab_sandbox.demo.lis.simulator import local_now
from lab_sandbox.demo.ordering import OrderPlacement
from lab_sandbox.demo.processes import STATUS_PASSWORD, STATUS_USER, ProcessGroup, start_all
from lab_sandbox.demo.scenario_mapping import MappingScenario
from lab_sandbox.demo.verification import ResultVerification
from lab_sandbox.demo.workspace import Workspace, create_workspace
from lab_sandbox.partner.account import PartnerAccount
from lab_sandbox.partner.client import open_partner_client
from lab_sandbox.partner.clinic import Clinic
from lab_sandbox.partner.errors import Json, PartnerError
from lab_sandbox.partner.order_bundle import LabelSequence


async def run_daily_flow(
    clinic: Clinic, lis_record: LisRecord, check_list: CheckList, console: DemoConsole, timeout: float
) -> dict[str, Json]:
    """All eight points; gives each order as the partner sees it at the end.

    `patience` is how many seconds anything may take that the laboratory's side does.
    """
    ordered = await OrderPlacement(clinic, check_list, console).run()
    return await ResultVerification(clinic.client, lis_record, check_list, console, timeout).run(ordered)


T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """How the demo shall run.

    `config` is the settings folder; `once` ends after the story; `patience` is how many seconds one step of the laboratory may
    take; `other_ports` leaves the ports of the settings to others; `lis` is how the laboratory system is connected.
    """

    config: Path
    exit_after_run: bool = False
    step_timeout: float = 60.0
    other_ports: bool = False
    lis: str = "folder"


@dataclass(slots=True)
class DemoResult:
    """How it went: the orders as the partner saw them at the end, and the checks."""

    check_list: CheckList
    orders: dict[str, Json] = field(default_factory=dict)
    completed: bool = False
    error: str | None = None

    @property
    def ok(self) -> bool:
        """Whether the story was told to its end and every check held."""
        return self.completed and self.error is None and self.check_list.ok

    def as_json(self) -> Json:
        """The demo's last line."""
        line: Json = {"ok": self.ok, "orders": self.orders, "checks": [check.as_json() for check in self.check_list.checks]}
        return line if self.error is None else {**line, "trouble": self.error}


async def run_demo(options: DemoOptions, console: DemoConsole, result: DemoResult) -> None:
    """Fills in the verdict; stays up afterwards, unless it shall end, until it is cancelled or a program ends."""
    place: Workspace | None = None
    try:
        place = create_workspace(options.config, other_ports=options.other_ports, lis=options.lis)
        async with ProcessGroup(place.folder, place.logs) as troupe:
            await start_all(troupe, place, console)
            result.orders = await _cancel_if_program_exits(
                troupe, _run_scenarios(place, console, result.check_list, options.step_timeout)
            )
            result.completed = True
            if not options.exit_after_run:
                _print_addresses(console, place)
                raise (await troupe.wait_for_first_exit()).exit_error()
    except DemoError as exc:
        result.error = str(exc)
        console.error(str(exc), exc.log_tail)
    except PartnerError as exc:
        result.error = f"the clinic could not go on: {exc}"
        console.error(result.error)
    finally:
        if place is not None:
            _clean_up(place, console, keep=not result.ok)


async def _run_scenarios(workspace: Workspace, console: DemoConsole, check_list: CheckList, timeout: float) -> dict[str, Json]:
    async with open_partner_client(build_account(workspace), grant="code") as client:
        console.step("the clinic has signed in through the authorization site")
        clinic = Clinic(client, LabelSequence(first=7_000_001), local_now, local_now().strftime("%y%m%d%H%M%S"))
        orders = await run_daily_flow(clinic, LisRecord(workspace.lis), check_list, console, timeout)
        if workspace.connection.kind == "folder":
            await MappingScenario(workspace, client, check_list, console, timeout).run()
        return orders


async def _cancel_if_program_exits(processes: ProcessGroup, work: Coroutine[Any, Any, T]) -> T:
    telling, death = asyncio.create_task(work), asyncio.create_task(processes.wait_for_first_exit())
    try:
        await asyncio.wait((telling, death), return_when=asyncio.FIRST_COMPLETED)
        if telling.done():
            return telling.result()
        raise death.result().exit_error()
    finally:
        for task in (telling, death):
            task.cancel()
        await asyncio.gather(telling, death, return_exceptions=True)


def build_account(workspace: Workspace) -> PartnerAccount:
    """The partner of the first contract, as the service's own settings register it."""
    service = workspace.service_config.resolve_addresses()
    contract = service.contracts[0]
    partner = service.counterparty(contract.partner)
    if partner is None or not partner.redirect_uris:
        raise DemoError(f"{workspace.service_settings}: the partner of contract {contract.code} has no callback address")
    return PartnerAccount(
        base_url=service.base_url,
        auth_url=service.auth_url,
        login=_require_field(partner, "login"),
        password=_require_field(partner, "password"),
        client_id=_require_field(partner, "client_id"),
        client_secret=_require_field(partner, "client_secret"),
        redirect_uri=partner.redirect_uris[0],
        guid=partner.guid,
        laboratory=contract.laboratory,
        contract=contract.code,
        lab_codes_url=service.lab_codes_url.rstrip("/"),
        second_labels_system=service.second_labels_system,
    )


def _require_field(partner: Counterparty, name: str) -> str:
    value: str | None = getattr(partner, name)
    if value is None:
        raise DemoError(f"the service's settings give the partner {partner.name} no {name}")
    return value


def _print_addresses(console: DemoConsole, workspace: Workspace) -> None:
    console.heading("Everything stays up until Ctrl-C")
    console.addresses(
        {
            "exchange service": workspace.service_url,
            "laboratory API": f"{workspace.api_url}/docs",
            "status page": f"{workspace.status_url}  (name {STATUS_USER}, password {STATUS_PASSWORD})",
            "orders for the LIS": str(workspace.orders),
            "results of the LIS": str(workspace.results),
            "settings": str(workspace.folder / "config"),
            "logs": str(workspace.logs),
        }
    )


def _clean_up(workspace: Workspace, console: DemoConsole, *, keep: bool) -> None:
    if keep:
        console.step(f"settings, journal and logs are kept in {workspace.folder}")
    else:
        shutil.rmtree(workspace.folder, ignore_errors=True)
