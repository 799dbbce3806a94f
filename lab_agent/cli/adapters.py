"""`lab-agent adapter list`: the configured laboratory systems, and the installed adapters."""

from __future__ import annotations

from importlib.metadata import entry_points

import typer

from lab_agent import bootstrap
from lab_agent.cli.columns import choose_columns
from lab_agent.cli.context import ColumnsOption, ConfigOption, JsonOption, WideOption
from lab_agent.cli.output import print_error, print_list
from lab_agent.lis.registry import ENTRY_POINT_GROUP
from lab_agent.settings.root import load_settings

_COLUMNS = ("name", "loaded", "reason", "adapter", "default", "package", "repeats_are_harmless")


def list_adapters(
    config: ConfigOption = None, columns: ColumnsOption = None, wide: WideOption = False, as_json: JsonOption = False
) -> None:
    """List the configured laboratory systems, and whether their adapters were loaded."""
    chosen = choose_columns(_COLUMNS, columns, wide=wide)
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
    print_list(rows, as_json=as_json, columns=chosen, empty_text="No laboratory system is configured.")
    if not as_json:
        kinds = sorted({entry.name for entry in entry_points(group=ENTRY_POINT_GROUP)})
        print_error(f"Installed adapters: {', '.join(kinds) or 'none'}.")
    if not all(status.is_loaded for status in statuses):
        raise typer.Exit(1)
