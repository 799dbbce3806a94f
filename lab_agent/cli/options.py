"""Options that many commands share."""

from __future__ import annotations

import getpass
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from lab_agent.settings.sources import CONFIG_VARIABLE


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(version("lab-agent"))
        raise typer.Exit


VersionOption = Annotated[
    bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version of this program, and stop.")
]
ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", "-c", envvar=CONFIG_VARIABLE, show_envvar=True, metavar="PATH", help="The settings file (TOML)."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
LimitOption = Annotated[int, typer.Option("--limit", min=1, max=10_000, help="How many to show at most.")]
OffsetOption = Annotated[int, typer.Option("--offset", min=0, help="How many to leave out before them.")]
ByOption = Annotated[str | None, typer.Option("--by", metavar="NAME", help="Who decides; by default the user of this machine.")]


def operator_name(by: str | None) -> str:
    """Who decides: as given, else the user of this machine."""
    try:
        return by or getpass.getuser()
    except (KeyError, OSError):
        return "command line"
