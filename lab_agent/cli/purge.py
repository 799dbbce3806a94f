"""`lab-agent purge`: removes what has been kept long enough, as the agent does by itself; or counts it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import typer

from lab_agent import result_bootstrap
from lab_agent.cli.context import ByOption, CommandContext, ConfigOption, JsonOption, run_with_store
from lab_agent.cli.group_actions import YesOption
from lab_agent.cli.output import Row, print_fields, print_json, print_line, print_list
from lab_agent.operations.retention import MIN_KEPT_CATALOGUES, RetentionPurger, purge_times
from lab_agent.settings.groups import RetentionSettings
from lab_agent.shared.errors import StoreError
from lab_agent.store.retention_preview import PurgePreview, preview_purge
from lab_agent.store.space import DatabaseSpace, read_space
from lab_agent.store.unit_of_work import Store

_SETTINGS = {
    "identities": ("identity_days",),
    "service_messages": ("identity_days",),
    "reported_patients": ("identity_days",),
    "documents": ("document_days",),
    "refused_contents": ("refused_days",),
    "refused_messages": ("failure_days",),
    "orders": ("journal_days", "failure_days"),
    "baskets": ("label_days",),
    "catalogues": ("catalogue_days",),
    "audit": ("audit_days",),
}
"""The settings that say how long each class is kept: the longest counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Purgeable:
    """What would go, and the room of the database."""

    classes: tuple[PurgePreview, ...]
    space: DatabaseSpace


def purge(
    config: ConfigOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say how much of what would go. Nothing is changed.")] = False,
    by: ByOption = None,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Remove what has been kept long enough (`retention`), and give its room back to the disk. --dry-run only counts it.

    The running agent does the same by itself every hour. Unfinished work is never removed.
    """
    found = run_with_store(config, _preview)
    if dry_run and as_json:
        print_json(found)
        return
    if not as_json:
        _print_preview(found, run_with_store(config, _settings))
    if dry_run or not any(each.number for each in found.classes):
        return
    if not yes:
        if not sys.stdin.isatty():
            raise typer.BadParameter("this removes it for good; add --yes if you are sure", param_hint="--yes")
        typer.confirm("Remove it?", abort=True)
    removed = run_with_store(config, _purge, by)
    if as_json:
        print_json(removed)
    else:
        print_line("Removed: " + (", ".join(f"{count} {name}" for name, count in removed.items() if count) or "nothing") + ".")


async def _settings(context: CommandContext) -> RetentionSettings:
    return context.settings.retention


async def _preview(context: CommandContext) -> Purgeable:
    store, now = _sql_store(context), context.now
    times, horizon = purge_times(context.settings.retention, now), result_bootstrap.build_version_horizon(context.settings)
    needed = await store.run_read_only(lambda uow: horizon.since(uow, now))
    before = min(times.catalogues, needed)
    classes = await store.read(
        lambda connection: preview_purge(connection, times, catalogues_before=before, keep_catalogues=MIN_KEPT_CATALOGUES)
    )
    return Purgeable(classes=classes, space=await store.read(read_space))


async def _purge(context: CommandContext) -> Mapping[str, int]:
    horizon = result_bootstrap.build_version_horizon(context.settings)
    purger = RetentionPurger(context.store, result_bootstrap.SystemClock(), context.settings.retention, horizon.since)
    return await purger.purge()


def _sql_store(context: CommandContext) -> Store:
    if not isinstance(context.store, Store):
        raise StoreError("This command needs a database.")
    return context.store


def _print_preview(found: Purgeable, settings: RetentionSettings) -> None:
    rows: list[Row] = [
        {
            "what": each.name,
            "kept_days": max(getattr(settings, name) for name in _SETTINGS[each.name]),
            "would_go": each.number,
            "oldest": each.oldest,
        }
        for each in found.classes
    ]
    print_list(rows, as_json=False, empty_text="")
    print_fields({"database": found.space.size, "free_in_it": found.space.free}, as_json=False)
    if found.space.gives_back is False:
        print_line("This database keeps its free room for itself: `lab-agent db compact` changes that.")
