"""`lab-agent check`: says line by line what was tried, and how to mend what is wrong."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from lab_agent.cli.checks import CheckResult, CheckStatus
from lab_agent.cli.checks_here import check_local
from lab_agent.cli.checks_there import check_exchange
from lab_agent.cli.options import ConfigOption, JsonOption
from lab_agent.cli.shown import console, print_heading, print_json, print_line
from lab_agent.errors import SettingsError
from lab_agent.settings.masked import iter_masked_values as setting_lines
from lab_agent.settings.root import Settings, load_settings

_STATUS_STYLES = {CheckStatus.OK: "green", CheckStatus.TODO: "yellow", CheckStatus.WRONG: "bold red", CheckStatus.SKIPPED: "dim"}


def check(
    config: ConfigOption = None,
    offline: Annotated[bool, typer.Option("--offline", help="Leave out everything that needs the network.")] = False,
    show_settings: Annotated[bool, typer.Option("--settings", help="Print all settings first, secrets masked.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Try the settings, the store, the catalogue, the adapters, the service, the sign-in. Exit code 1 if something is wrong."""
    settings, found = _check_settings(config)
    if settings and show_settings and not as_json:
        _print_settings(settings)
    if settings:
        found += asyncio.run(_run_checks(settings, offline=offline))
    if as_json:
        print_json(found)
    else:
        _print_results(found)
    if any(line.status is CheckStatus.WRONG for line in found):
        raise typer.Exit(1)


def _check_settings(config: Path | None) -> tuple[Settings | None, list[CheckResult]]:
    try:
        return load_settings(config), [CheckResult("settings", CheckStatus.OK, str(config or "from the environment"))]
    except SettingsError as exc:
        return None, [
            CheckResult("settings", CheckStatus.WRONG, f"{each.where}: {each.what}", each.hint) for each in exc.problems
        ]


async def _run_checks(settings: Settings, *, offline: bool) -> list[CheckResult]:
    found = await check_local(settings, offline=offline)
    return found + await check_exchange(settings, offline=offline)


def _print_results(results: list[CheckResult]) -> None:
    page = console()
    width = max(len(line.name) for line in results) + 2
    for line in results:
        page.print(f"{line.status.value:<9}", style=_STATUS_STYLES[line.status], end="")
        page.print(f"{line.name:<{width}}{line.detail}" + (f" — {line.hint}" if line.hint else ""), soft_wrap=True)
    wrong = sum(line.status is CheckStatus.WRONG for line in results)
    print_line(f"\n{wrong} of {len(results)} wrong." if wrong else "\nNothing is wrong.")


def _print_settings(settings: Settings) -> None:
    print_heading("Settings")
    for key, value in setting_lines(settings):
        print_line(f"{key} = {value}")
    print_heading("Checks")
