"""`lab-agent adapters`: the laboratory systems of the settings, and the kinds of adapter that are installed."""

from __future__ import annotations

from importlib.metadata import entry_points

import typer

from lab_agent import bootstrap
from lab_agent.cli.options import AsJson, Config
from lab_agent.cli.shown import complain, show_list
from lab_agent.lis.registry import GROUP
from lab_agent.settings.root import load_settings


def adapters(config: Config = None, as_json: AsJson = False) -> None:
    """List the laboratory systems that the settings name, and whether their adapters could be loaded."""
    settings = load_settings(config)
    statuses = bootstrap.adapters(settings).statuses
    rows = [
        {
            "name": status.name,
            "adapter": status.kind,
            "default": status.name == settings.lis.default,
            "loaded": status.loaded,
            "package": status.source,
            "repeats_are_harmless": status.idempotent,
            "reason": status.reason,
        }
        for status in statuses
    ]
    show_list(rows, as_json=as_json, nothing="The settings name no laboratory system.")
    if not as_json:
        kinds = sorted({door.name for door in entry_points(group=GROUP)})
        complain(f"Installed kinds: {', '.join(kinds) or 'none'}.")
    if not all(status.loaded for status in statuses):
        raise typer.Exit(1)
