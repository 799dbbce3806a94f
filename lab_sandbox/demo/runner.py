"""One run of the demo, from an empty folder to the result.

The daily flow follows the points of the interface document, and is checked from the partner's side alone.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Coroutine, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from lab_sandbox.demo.checks import CheckList, LisRecord
from lab_sandbox.demo.console import DemoConsole
from lab_sandbox.demo.errors import DemoError
from lab_sandbox.demo.http_server import received_notifications
from lab_sandbox.demo.lis.simulator import local_now
from lab_sandbox.demo.ordering import OrderPlacement
from lab_sandbox.demo.processes import STATUS_PASSWORD, STATUS_USER, ProcessGroup, start_all
from lab_sandbox.demo.scenario_mapping import MappingScenario
from lab_sandbox.demo.scenario_microbiology import MicrobiologyScenario
from lab_sandbox.demo.verification import ResultVerification
from lab_sandbox.demo.workspace import Workspace, create_workspace
from lab_sandbox.partner.account import PartnerAccount
from lab_sandbox.partner.account_file import sandbox_account
from lab_sandbox.partner.client import open_partner_client
from lab_sandbox.partner.clinic import Clinic
from lab_sandbox.partner.errors import Json, PartnerError
from lab_sandbox.partner.order_bundle import LabelSequence


async def run_daily_flow(
    clinic: Clinic,
    lis_record: LisRecord,
    check_list: CheckList,
    console: DemoConsole,
    timeout: float,
    notifications: Sequence[Json] | None = None,
) -> dict[str, Json]:
    """All eight points; gives each order as the partner sees it at the end.

    `timeout`: seconds to wait for each step of the laboratory. `notifications`: what comes to the clinic's address.
    """
    placed = await OrderPlacement(clinic, check_list, console).run()
    return await ResultVerification(clinic.client, lis_record, check_list, console, timeout, notifications).run(placed)


T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """How the demo runs.

    `config` is the settings folder; `step_timeout` the seconds to wait for each step of the laboratory; `other_ports` chooses
    other free ports than those of the settings; `lis` is how the LIS is connected; `strict` and `faults` are the service's.
    """

    config: Path
    exit_after_run: bool = False
    step_timeout: float = 60.0
    other_ports: bool = False
    lis: str = "folder"
    strict: bool = True
    faults: Path | None = None


@dataclass(slots=True)
class DemoResult:
    """The result: the orders as the partner saw them at the end, and the checks."""

    check_list: CheckList
    orders: dict[str, Json] = field(default_factory=dict)
    completed: bool = False
    error: str | None = None

    @property
    def ok(self) -> bool:
        """Whether the daily flow was completed and every check passed."""
        return self.completed and self.error is None and self.check_list.ok

    def as_json(self) -> Json:
        """The demo's last line."""
        line: Json = {"ok": self.ok, "orders": self.orders, "checks": [check.as_json() for check in self.check_list.checks]}
        return line if self.error is None else {**line, "error": self.error}


async def run_demo(options: DemoOptions, console: DemoConsole, result: DemoResult) -> None:
    """Fills in the result; then stays up until it is cancelled or a program exits, unless `exit_after_run` is set."""
    workspace: Workspace | None = None
    try:
        workspace = create_workspace(
            options.config,
            other_ports=options.other_ports,
            lis=options.lis,
            strict=options.strict,
            faults=options.faults,
        )
        async with ProcessGroup(workspace.folder, workspace.logs) as processes:
            async with console.without_silence():
                await start_all(processes, workspace, console)
                console.step(f"watch the orders on the status page: {_status_page(workspace)}")
                result.orders = await _cancel_if_program_exits(
                    processes, _run_scenarios(workspace, console, result.check_list, options.step_timeout)
                )
            result.completed = True
            if options.exit_after_run:
                console.step(f"make demo without ONCE=1 keeps the programs, and the status page: {_status_page(workspace)}")
            else:
                _print_addresses(console, workspace)
                raise (await processes.wait_for_first_exit()).exit_error()
    except DemoError as exc:
        result.error = str(exc)
        console.error(str(exc), exc.log_tail)
    except PartnerError as exc:
        result.error = f"The clinic could not continue: {exc}"
        console.error(result.error)
    finally:
        if workspace is not None:
            _clean_up(workspace, console, keep=not result.ok)


async def _run_scenarios(workspace: Workspace, console: DemoConsole, check_list: CheckList, timeout: float) -> dict[str, Json]:
    port = workspace.notification_port
    with received_notifications(port) if port else nullcontext() as notifications:
        return await _run_as_clinic(workspace, console, check_list, timeout, notifications)


async def _run_as_clinic(
    workspace: Workspace, console: DemoConsole, check_list: CheckList, timeout: float, notifications: Sequence[Json] | None
) -> dict[str, Json]:
    async with open_partner_client(build_account(workspace), grant="code") as client:
        console.step("the clinic has signed in on the authorization site")
        clinic = Clinic(client, LabelSequence(first=7_000_001), local_now, local_now().strftime("%y%m%d%H%M%S"))
        orders = await run_daily_flow(clinic, LisRecord(workspace.lis), check_list, console, timeout, notifications)
        if workspace.connection.kind == "folder":
            await MappingScenario(workspace, client, check_list, console, timeout).run()
        if workspace.connection.microbiology_ports:
            await MicrobiologyScenario(workspace, clinic, check_list, console, timeout).run()
        return orders


async def _cancel_if_program_exits(processes: ProcessGroup, work: Coroutine[Any, Any, T]) -> T:
    flow, first_exit = asyncio.create_task(work), asyncio.create_task(processes.wait_for_first_exit())
    try:
        await asyncio.wait((flow, first_exit), return_when=asyncio.FIRST_COMPLETED)
        if flow.done():
            return flow.result()
        raise first_exit.result().exit_error()
    finally:
        for task in (flow, first_exit):
            task.cancel()
        await asyncio.gather(flow, first_exit, return_exceptions=True)


def build_account(workspace: Workspace) -> PartnerAccount:
    """The partner of the first contract, as registered in the service's settings."""
    try:
        return sandbox_account(workspace.service_config)
    except PartnerError as exc:
        raise DemoError(f"{workspace.service_settings}: {exc}") from exc


def _status_page(workspace: Workspace) -> str:
    return f"{workspace.status_url}  (user {STATUS_USER}, password {STATUS_PASSWORD})"


def _print_addresses(console: DemoConsole, workspace: Workspace) -> None:
    console.heading("All programs keep running until Ctrl-C")
    console.addresses(
        {
            "status page": _status_page(workspace),
            "exchange service": workspace.service_url,
            "laboratory API": f"{workspace.api_url}/docs",
            "orders for the LIS": str(workspace.orders),
            "results of the LIS": str(workspace.results),
            "settings": str(workspace.folder / "config"),
            "logs": str(workspace.logs),
        }
    )


def _clean_up(workspace: Workspace, console: DemoConsole, *, keep: bool) -> None:
    if keep:
        console.step(f"settings, database and logs are kept in {workspace.folder}")
    else:
        shutil.rmtree(workspace.folder, ignore_errors=True)
