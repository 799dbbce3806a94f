"""`lab-agent rehearse`: a day of made-up orders through this installation, with nothing leaving the machine."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from lab_agent.cli import command_log
from lab_agent.cli.context import ConfigOption, JsonOption
from lab_agent.cli.output import print_error, print_fields, print_heading, print_json, print_line
from lab_agent.cli.progress import progress_bar
from lab_agent.rehearsal.day import RehearsalPlan
from lab_agent.rehearsal.day import rehearse as run_day
from lab_agent.rehearsal.findings import DayNumbers, Finding, RehearsedDay
from lab_agent.results.mapping_loader import load_mapping_tables
from lab_agent.settings.root import load_settings
from lab_agent.shared.errors import InputError

_MOST_ITEMS = 8


def rehearse(
    config: ConfigOption = None,
    orders: Annotated[int, typer.Option("--orders", min=1, max=5000, help="How many orders.")] = 200,
    contract: Annotated[
        list[str] | None, typer.Option("--contract", help="Orders of this contract only; may be given again. Default: all.")
    ] = None,
    catalogue: Annotated[
        Path | None,
        typer.Option("--catalogue", metavar="SOURCE", help="Folder or workbook to take instead of the active catalogue."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", metavar="FOLDER", help="New folder for what the adapters would send.")
    ] = None,
    seed: Annotated[str | None, typer.Option("--seed", help="Makes the orders repeatable. Default: others each time.")] = None,
    show_log: Annotated[bool, typer.Option("--log", help="Show the errors that the agent would log.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Run a day of made-up orders through settings, catalogue, rules, mappings and adapters; nothing leaves the machine.

    Says what would go wrong; exit code 1 if anything would. The database of the installation is only read: for its catalogue.
    """
    settings = load_settings(config, requires_login=False)
    if settings.results.mappings is not None:
        load_mapping_tables(settings.results.mappings)  # an error in them is the first thing to mend
    if output is not None:
        _create_folder(output)
    drawn = seed or secrets.token_hex(4)
    plan = RehearsalPlan(orders=orders, seed=drawn, contracts=tuple(contract or ()), catalogue=catalogue, output=output)
    with nullcontext() if show_log else command_log.silenced(), progress_bar("rehearsing", as_json=as_json) as tell:
        day = asyncio.run(run_day(settings, plan, tell))
    if as_json:
        print_json(
            {"seed": drawn, "catalogue": day.catalogue, "numbers": day.numbers, "findings": day.findings, "notes": day.notes}
        )
    else:
        _print_day(day, drawn)
    if day.findings:
        raise typer.Exit(1)


def _create_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True)
    except FileExistsError as exc:
        raise InputError(f"--output {path}: exists already; name a new folder") from exc
    except OSError as exc:
        raise InputError(f"--output {path}: cannot be created ({exc.strerror})") from exc


def _print_day(day: RehearsedDay, seed: str) -> None:
    print_fields({"catalogue": day.catalogue, **_describe_numbers(day.numbers)}, as_json=False)
    if day.findings:
        print_heading("What would go wrong")
        for finding in day.findings:
            _print_finding(finding)
    if day.notes:
        print_heading("To look at")
        for note in day.notes:
            print_line(f"  {note}")
    count = len(day.findings)
    what = "Nothing would go wrong." if not count else f"{count} thing{'s' if count > 1 else ''} would go wrong."
    print_line(f"\n{what} Nothing has left this machine.")
    print_error(f"The same orders again: --seed {seed}")


def _describe_numbers(numbers: DayNumbers) -> dict[str, str]:
    uploads = ", ".join(f"{count} {kind}" for kind, count in numbers.uploads.items() if count)
    rate = numbers.orders / numbers.seconds if numbers.seconds else 0.0
    return {
        "orders": f"{numbers.orders}, {numbers.completed} of them completed",
        **{f"handed to {name}": _describe_handover(numbers, name) for name in numbers.handed_over},
        "results": f"{numbers.results}",
        "uploads": uploads or "none",
        "labels of pools": f"{numbers.labels}",
        "time": f"{numbers.seconds:.1f} s, {rate:.0f} orders a second",
    }


def _describe_handover(numbers: DayNumbers, name: str) -> str:
    messages = numbers.messages[name]
    written = "not written" if messages is None else f"{messages} messages, files or sets of rows"
    return f"{numbers.handed_over[name]} ({written})"


def _print_finding(finding: Finding) -> None:
    items = ", ".join(finding.items[:_MOST_ITEMS]) + (" …" if len(finding.items) > _MOST_ITEMS else "")
    print_line(f"  {finding.count} × {finding.text}")
    for reason in finding.reasons:
        print_line(f"      {reason}")
    if items:
        print_line(f"      Tests: {items}")
    if finding.mend:
        print_line(f"      {finding.mend}")
