"""`lab-agent adapters`: the laboratory systems of the settings, and the kinds of adapter that are installed."""

from __future__ import annotations

from importlib.metadata import entry_points

import typer

from lab_agent import bootstrap
from lab_agent.cli.options import ConfigOption, JsonOption
from lab_agent.cli.shown import print_error, print_list
from lab_agent.lis.registry import ENTRY_POINT_GROUP
from lab_agent.settings.root import load_settings


def list_adapters(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """List the laboratory systems that the settings name, and whether their adapters could be loaded."""
    settings = load_settings(config)
    statuses = bootstrap.build_adapters(settings).statuses
    rows = [
        {
            "name": status.name,
            "adapter": status.kind,
            "default": status.name == settings.lis.default,
            "loaded": status.is_loaded,
            "package": status.source,
            "repeats_are_harmless": status.idempotent,
            "reason": status.reason,
        }
        for status in statuses
    ]
    print_list(rows, as_json=as_json, empty_text="The settings name no laboratory system.")
    if not as_json:
        kinds = sorted({door.name for door in entry_points(group=ENTRY_POINT_GROUP)})
        print_error(f"Installed kinds: {', '.join(kinds) or 'none'}.")
    if not all(status.is_loaded for status in statuses):
        raise typer.Exit(1)
