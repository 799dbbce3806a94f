"""The commands `lab-sandbox demo`, and `stand-in-lis` and `microbiology-lis`, the laboratory systems that the demo starts."""

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
from lab_sandbox.demo.lis.microbiology import run_microbiology_system
from lab_sandbox.demo.lis.simulator import SimulatorFolders, run_simulator
from lab_sandbox.demo.runner import DemoOptions, DemoResult, run_demo
from lab_sandbox.demo.workspace import CONNECTION_KINDS, build_transport
from lab_sandbox.partner.errors import encode


def add_commands(app: typer.Typer) -> None:
    """Adds the demo's commands to the command line."""
    app.command()(demo)
    app.command("stand-in-lis")(run_lis_simulator)
    app.command("microbiology-lis")(run_microbiology)


def demo(
    once: Annotated[
        bool, typer.Option("--once", help="Stop after the daily flow; exit code 0 only if every check passed.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as the last line of stdout, and progress on stderr.")
    ] = False,
    config_dir: Annotated[Path, typer.Option(help="Folder with the demo's settings and catalogue.")] = Path("config"),
    patience: Annotated[float, typer.Option(help="Seconds to wait for each step of the laboratory.")] = 60.0,
    other_ports: Annotated[bool, typer.Option("--other-ports", help="Use other free ports than those of the settings.")] = False,
    lis: Annotated[str, typer.Option(help=f"How the LIS is connected: {', '.join(CONNECTION_KINDS)}.")] = "folder",
    strict: Annotated[
        bool,
        typer.Option("--strict/--plain", help="The exchange service as an STU3 server, or as the document writes it."),
    ] = True,
    faults: Annotated[Path | None, typer.Option(help="TOML file with a fault plan of the exchange service.")] = None,
) -> None:
    """Run the daily flow through all programs on this machine, and check what the clinic gets."""
    console = DemoConsole(Console(stderr=as_json))
    result = DemoResult(CheckList(console.check))
    options = DemoOptions(
        config=config_dir,
        exit_after_run=once,
        step_timeout=patience,
        other_ports=other_ports,
        lis=lis,
        strict=strict,
        faults=faults,
    )
    asyncio.run(_run_until_stopped(options, console, result))
    checks = result.check_list.checks
    passed = sum(check.ok for check in checks)
    console.heading(f"{passed} of {len(checks)} checks passed" + ("" if result.ok else ": the demo FAILED"))
    if as_json:
        typer.echo(encode(result.as_json()))
    raise typer.Exit(0 if result.ok else 1)


def run_lis_simulator(
    orders: Annotated[Path, typer.Option(help="Folder that orders are read from.")],
    results: Annotated[Path, typer.Option(help="Folder that results are written to.")],
    own: Annotated[Path, typer.Option(help="Folder for its own state: received orders, copies of sent messages.")],
    staged: Annotated[list[str] | None, typer.Option(help="Item code reported in three versions; may be repeated.")] = None,
    refused: Annotated[list[str] | None, typer.Option(help="Item code whose sample is rejected; may be repeated.")] = None,
    interval: Annotated[float, typer.Option(min=0.01, help="Seconds between rounds.")] = 0.2,
    stage_patience: Annotated[float, typer.Option(help="Seconds after which a stage continues by itself.")] = 600.0,
    by: Annotated[list[str] | None, typer.Option(help="Another transport than the two folders, and its arguments.")] = None,
) -> None:
    """Run the LIS simulator: it takes orders from one folder and writes made-up results to another.

    `--by http --by PORT --by AGENT` exchanges them over HTTP, `--by hl7v2 --by PORT --by AGENTPORT` over HL7 v2,
    `--by sql --by DATABASE --by DDL` through staging tables.
    """
    behaviour = SimulatorBehaviour(frozenset(staged or ()), frozenset(refused or ()), use_value_fallbacks="hl7v2" in (by or ()))
    folders = SimulatorFolders(orders, results, own)
    run_simulator(
        folders,
        behaviour,
        lambda: build_transport(by or (), folders),
        interval=interval,
        stage_timeout=stage_patience,
        print_line=typer.echo,
    )


def run_microbiology(
    own: Annotated[Path, typer.Option(help="Folder for its own state: received orders, copies of sent messages.")],
    port: Annotated[int, typer.Option(help="Port on which it takes orders.")],
    agent_port: Annotated[int, typer.Option(help="Port on which the agent takes results.")],
    growth: Annotated[float, typer.Option(help="Seconds between the preliminary and the final report of a culture.")] = 1.0,
    interval: Annotated[float, typer.Option(min=0.01, help="Seconds between rounds.")] = 0.2,
) -> None:
    """Run a laboratory system of microbiology: it takes orders over HL7 v2 and reports cultures with two isolates."""
    run_microbiology_system(own, port, agent_port, growth=growth, interval=interval, print_line=typer.echo)


async def _run_until_stopped(options: DemoOptions, console: DemoConsole, result: DemoResult) -> None:
    """Runs the demo to its end, or until SIGINT, SIGTERM or SIGHUP."""
    task = asyncio.create_task(run_demo(options, console, result))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task
