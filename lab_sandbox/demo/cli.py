"""The demo's commands of `lab-sandbox`: `demo`, and the stand-in laboratory system that it starts."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from lab_sandbox.demo.checks import CheckList
from lab_sandbox.demo.console import DemoConsole
from lab_sandbox.demo.lis.messages import SimulatorBehaviour
from lab_sandbox.demo.lis.simulator import SimulatorFolders, run_simulator
from lab_sandbox.demo.runner import DemoOptions, DemoResult, run_demo
from lab_sandbox.demo.workspace import CONNECTION_KINDS, build_transport
from lab_sandbox.partner.errors import encode


def add_commands(app: typer.Typer) -> None:
    """Puts them into the command line."""
    app.command()(demo)
    app.command("stand-in-lis")(run_lis_simulator)


def demo(
    once: Annotated[bool, typer.Option("--once", help="End after the story; exit code 0 only if every check held.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The verdict as the last line of stdout, progress on stderr.")] = False,
    config_dir: Annotated[Path, typer.Option(help="The folder with the demo's settings and catalogue.")] = Path("config"),
    patience: Annotated[float, typer.Option(help="Seconds that one step of the laboratory may take.")] = 60.0,
    other_ports: Annotated[bool, typer.Option("--other-ports", help="Leave the ports of the settings to others.")] = False,
    lis: Annotated[str, typer.Option(help=f"How the laboratory system is connected: {', '.join(CONNECTION_KINDS)}.")] = "folder",
) -> None:
    """Run the daily flow through all programs on this machine, and check what the partner sees."""
    screen = DemoConsole(Console(stderr=as_json))
    verdict = DemoResult(CheckList(screen.check))
    wishes = DemoOptions(config=config_dir, exit_after_run=once, step_timeout=patience, other_ports=other_ports, lis=lis)
    asyncio.run(_run_until_stopped(wishes, screen, verdict))
    held = sum(check.ok for check in verdict.check_list.checks)
    screen.heading(f"{held} of {len(verdict.check_list.checks)} checks held" + ("" if verdict.ok else ": the demo FAILED"))
    if as_json:
        typer.echo(encode(verdict.as_json()))
    raise typer.Exit(0 if verdict.ok else 1)


def run_lis_simulator(
    orders: Annotated[Path, typer.Option(help="The folder that orders appear in.")],
    results: Annotated[Path, typer.Option(help="The folder that results go to.")],
    own: Annotated[Path, typer.Option(help="Its own folder: orders taken, copies of what it wrote.")],
    staged: Annotated[list[str] | None, typer.Option(help="Item codes that are reported in three versions.")] = None,
    refused: Annotated[list[str] | None, typer.Option(help="Item codes whose samples are refused.")] = None,
    interval: Annotated[float, typer.Option(min=0.01, help="Seconds between two rounds.")] = 0.2,
    stage_patience: Annotated[float, typer.Option(help="Seconds after which a stage goes on by itself.")] = 600.0,
    by: Annotated[
        list[str] | None, typer.Option(help="Another way to the agent than the two folders, and what it needs.")
    ] = None,
) -> None:
    """Run the stand-in laboratory system: it takes orders from one folder and drops made-up results into another.

    `--by http --by PORT --by AGENT` carries what lies in them by HTTP, `--by hl7v2 --by PORT --by AGENTPORT` by HL7 v2,
    `--by sql --by DATABASE --by DDL` by staging tables.
    """
    habits = SimulatorBehaviour(frozenset(staged or ()), frozenset(refused or ()), use_value_fallbacks="hl7v2" in (by or ()))
    folders = SimulatorFolders(orders, results, own)
    run_simulator(
        folders,
        habits,
        lambda: build_transport(by or (), folders),
        interval=interval,
        stage_timeout=stage_patience,
        print_line=typer.echo,
    )


async def _run_until_stopped(options: DemoOptions, console: DemoConsole, result: DemoResult) -> None:
    """Performs until its end, or until SIGINT, SIGTERM or SIGHUP."""
    performance = asyncio.create_task(run_demo(options, console, result))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, performance.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await performance
