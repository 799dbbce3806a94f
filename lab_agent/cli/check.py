"""`lab-agent check`: says line by line what was tried, and how to mend what is wrong."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from lab_agent.cli.checks import Line, Verdict
from lab_agent.cli.checks_here import check_here
from lab_agent.cli.checks_there import check_there
from lab_agent.cli.options import AsJson, Config
from lab_agent.cli.shown import console, heading, say, show_json
from lab_agent.errors import SettingsError
from lab_agent.settings.masked import lines as setting_lines
from lab_agent.settings.root import Settings, load_settings

_STYLES = {Verdict.OK: "green", Verdict.TODO: "yellow", Verdict.WRONG: "bold red", Verdict.SKIPPED: "dim"}


def check(
    config: Config = None,
    offline: Annotated[bool, typer.Option("--offline", help="Leave out everything that needs the network.")] = False,
    show: Annotated[bool, typer.Option("--settings", help="Print all settings first, secrets masked.")] = False,
    as_json: AsJson = False,
) -> None:
    """Try the settings, the store, the catalogue, the adapters, the service, the sign-in. Exit code 1 if something is wrong."""
    settings, found = _settings(config)
    if settings and show and not as_json:
        _print_settings(settings)
    if settings:
        found += asyncio.run(_everything(settings, offline=offline))
    if as_json:
        show_json(found)
    else:
        _print(found)
    if any(line.verdict is Verdict.WRONG for line in found):
        raise typer.Exit(1)


def _settings(config: Path | None) -> tuple[Settings | None, list[Line]]:
    try:
        return load_settings(config), [Line("settings", Verdict.OK, str(config or "from the environment"))]
    except SettingsError as exc:
        return None, [Line("settings", Verdict.WRONG, f"{each.where}: {each.what}", each.mend) for each in exc.problems]


async def _everything(settings: Settings, *, offline: bool) -> list[Line]:
    found = await check_here(settings, offline=offline)
    return found + await check_there(settings, offline=offline)


def _print(found: list[Line]) -> None:
    page = console()
    width = max(len(line.what) for line in found) + 2
    for line in found:
        page.print(f"{line.verdict.value:<9}", style=_STYLES[line.verdict], end="")
        page.print(f"{line.what:<{width}}{line.detail}" + (f" — {line.mend}" if line.mend else ""), soft_wrap=True)
    wrong = sum(line.verdict is Verdict.WRONG for line in found)
    say(f"\n{wrong} of {len(found)} wrong." if wrong else "\nNothing is wrong.")


def _print_settings(settings: Settings) -> None:
    heading("Settings")
    for key, value in setting_lines(settings):
        say(f"{key} = {value}")
    heading("Checks")
