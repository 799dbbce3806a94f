"""`lab-agent catalogue …` and `lab-agent preanalytics explain`: the laboratory's tables, from a spreadsheet into the store and
back, and why a basket needs the tubes it needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from lab_agent.catalogue import basket as baskets
from lab_agent.catalogue import preanalytics
from lab_agent.catalogue.basket import decode_basket
from lab_agent.catalogue.catalogue_fallback import load_newest_readable
from lab_agent.catalogue.label_allocation import check_contracts
from lab_agent.catalogue.model import Catalogue
from lab_agent.catalogue.preanalytics import explain_preanalytics as explain_plan
from lab_agent.catalogue.settings_check import find_route_problems
from lab_agent.catalogue.spreadsheet import csv_files
from lab_agent.catalogue.spreadsheet.diff import Change, diff_tables
from lab_agent.catalogue.spreadsheet.parser import build_catalogue
from lab_agent.catalogue.spreadsheet.schema import SHEETS, SheetTable
from lab_agent.catalogue.versions import activate, load_active_catalogue, load_active_tables, unpack_tables
from lab_agent.cli.context import ByOption, CommandContext, ConfigOption, JsonOption, operator_name, run_with_store
from lab_agent.cli.output import print_error, print_json, print_line, print_raw
from lab_agent.operations.audit_log import record
from lab_agent.settings.root import load_settings
from lab_agent.shared.errors import CatalogueError, DataInvalidError, Problem
from lab_agent.shared.shipped_files import shipped_path
from lab_agent.store.audit_records import AuditAction, AuditEntry

catalogue_app = typer.Typer(help="The laboratory's catalogue: tests, tubes, questions, turnaround times.", no_args_is_help=True)
SourceArgument = Annotated[Path, typer.Argument(metavar="SOURCE", help="An .xlsx workbook, or a folder of CSV files.")]
TargetArgument = Annotated[Path, typer.Argument(metavar="TARGET", help="The .xlsx workbook or folder of CSV files to write.")]
ForceOption = Annotated[bool, typer.Option("--force", help="Overwrite existing files.")]
_MAX_CHANGES_PRINTED = 200


@dataclass(frozen=True, slots=True)
class CatalogueComparison:
    """The tables of a source, their catalogue, and what they change; `changes` is None if all is new, with the `reason`.

    `is_active` says whether this version is active already.
    """

    tables: dict[str, SheetTable]
    catalogue: Catalogue
    changes: tuple[Change, ...] | None
    reason: str = ""
    is_active: bool = False


@catalogue_app.command()
def template(
    target: TargetArgument,
    sample: Annotated[bool, typer.Option("--sample", help="Include sample data: 36 tests under two contracts.")] = False,
    force: ForceOption = False,
) -> None:
    """Write an empty workbook with headings, explanations and drop-down lists (or a folder of CSV files with headings)."""
    _write_tables(
        target,
        csv_files.read_tables(shipped_path("config/catalogue"))
        if sample
        else {sheet.name: SheetTable(sheet.name) for sheet in SHEETS},
        force=force,
    )
    print_line(f"{target} was written. Fill it in, then run: `lab-agent catalogue check {target}`")


@catalogue_app.command()
def check(source: SourceArgument, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Report every mistake in a catalogue, and whether its contracts match the settings. Exit code 1 if there is a mistake."""
    catalogue = csv_files.load_catalogue(source)
    notes = _notes(catalogue, config)
    if as_json:
        offers = {code: len(contract.items) for code, contract in catalogue.contracts.items()}
        print_json({"version": catalogue.version, "contracts": offers, "notes": notes})
        return
    print_line(f"{source} is valid, version {catalogue.version}: {_describe_contracts(catalogue)}")
    for note in notes:
        print_line(f"note: {note}")


@catalogue_app.command("import")
def import_catalogue(
    source: SourceArgument,
    config: ConfigOption = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    by: ByOption = None,
) -> None:
    """Show what a catalogue changes, and activate it. It is served within seconds; an invalid one changes nothing.

    What was imported so is replaced by the next import alone: the folder of the settings (`api.catalogue`) does so no more.
    """
    new = _compare(source, config)
    tables, catalogue = new.tables, new.catalogue
    if not new.is_active:
        _print_changes(new)
        for note in _notes(catalogue, config):
            print_line(f"note: {note}")
        if not yes:
            typer.confirm(f"Activate {source}?", abort=True)

    async def work(context: CommandContext) -> bool:
        origin = str(source.absolute())
        return await activate(context.store, tables, origin=origin, by=operator_name(by), now=context.now)

    run_with_store(config, work)
    if new.is_active:
        print_line(f"{source} is active already. From now on it is replaced by an import alone, and by no folder.")
        return
    print_line(f"Version {catalogue.version} is active: {_describe_contracts(catalogue)}")


@catalogue_app.command()
def diff(source: SourceArgument, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Show what a catalogue would change, row by row. Nothing is changed."""
    new = _compare(source, config)
    if not as_json:
        _print_changes(new)
        return
    if new.changes is None:
        print_error(new.reason)
    print_json([] if new.changes is None else new.changes)


@catalogue_app.command()
def export(target: TargetArgument, config: ConfigOption = None, force: ForceOption = False, by: ByOption = None) -> None:
    """Write the active catalogue as a workbook or a folder of CSV files; importing it again changes nothing.

    If it is unreadable, the newest readable version is written instead, with a note.
    """
    tables = run_with_store(config, _tables_to_export, by)
    if tables is None:
        raise CatalogueError((Problem("store", "has no catalogue yet", "run `lab-agent catalogue import SOURCE`"),))
    _write_tables(target, tables, force=force)
    print_line(f"{target} was written, version {csv_files.content_version(tables)}")


def _compare(source: Path, config: Path | None) -> CatalogueComparison:
    """Read a source, and compare it with the active catalogue. Raises `CatalogueError` for the source alone."""
    tables = csv_files.read_tables(source)
    catalogue = build_catalogue(tables, csv_files.content_version(tables))

    async def work(context: CommandContext) -> dict[str, SheetTable] | None:
        return await load_active_tables(context.store)

    try:
        old = run_with_store(config, work)
    except CatalogueError:
        return CatalogueComparison(tables, catalogue, None, "The active catalogue is unreadable: everything counts as new.")
    if old is None:
        return CatalogueComparison(tables, catalogue, None, "There is no active catalogue yet: everything is new.")
    return CatalogueComparison(
        tables, catalogue, diff_tables(old, tables), is_active=csv_files.content_version(old) == catalogue.version
    )


async def _tables_to_export(context: CommandContext) -> dict[str, SheetTable] | None:
    await record(context.store, AuditEntry(at=context.now, action=AuditAction.CATALOGUE_EXPORTED))
    try:
        return await load_active_tables(context.store)
    except CatalogueError:
        found = await load_newest_readable(context.store)
        if found is None:
            return None
    since = found.stored.since.astimezone().isoformat(" ", "minutes")
    print_error(f"The active catalogue is unreadable; this is an older version, {found.stored.version}, active from {since}.")
    return unpack_tables(found.stored.content)


def _print_changes(comparison: CatalogueComparison) -> None:
    found = comparison.changes
    if found is None:
        print_line(comparison.reason)
        return
    for change in found[:_MAX_CHANGES_PRINTED]:
        print_line(str(change))
    if len(found) > _MAX_CHANGES_PRINTED:
        print_line(f"… and {len(found) - _MAX_CHANGES_PRINTED} more; `lab-agent catalogue diff --json` shows all")
    kinds = [change.kind for change in found]
    print_line(f"{kinds.count('new')} rows are new, {kinds.count('gone')} gone, {kinds.count('changed')} changed.")


def _notes(catalogue: Catalogue, config: Path | None) -> list[str]:
    """Notes on what is valid but noteworthy; the contracts are compared only if settings are given."""
    items = {item.id: item for contract in catalogue.contracts.values() for item in contract.items.values()}
    bare = sorted(key for key, item in items.items() if not item.requirements)
    notes = [f"no biomaterial, and therefore no tube, for {', '.join(bare)}"] if bare else []
    if config is None:
        return notes
    settings = load_settings(config)
    problems = check_contracts(catalogue, settings.exchange.contracts, settings.api)
    return notes + [str(each) for each in (*problems, *find_route_problems(catalogue, settings.lis.routes))]


def _describe_contracts(catalogue: Catalogue) -> str:
    return ", ".join(f"{code} ({len(contract.items)} items)" for code, contract in catalogue.contracts.items())


def _write_tables(target: Path, tables: Mapping[str, SheetTable], *, force: bool) -> None:
    workbook = target.suffix.lower() == ".xlsx"
    there = target.exists() if workbook else target.is_dir() and any(target.iterdir())
    if there and not force:
        raise DataInvalidError((Problem(str(target), "already exists", "choose another target, or add --force"),))
    if workbook:
        target.parent.mkdir(parents=True, exist_ok=True)
        from lab_agent.catalogue.spreadsheet.xlsx_writer import write_workbook  # noqa: PLC0415 - its library is slow to import

        write_workbook(target, tables)
    else:
        csv_files.write_csv_folder(target, tables)


preanalytics_app = typer.Typer(help="The tubes of a basket.", no_args_is_help=True)


@preanalytics_app.callback()
def preanalytics_callback() -> None:
    """The tubes of a basket."""


@preanalytics_app.command()
def explain(
    basket: Annotated[Path, typer.Argument(metavar="BASKET", help="A pre-analytics request in JSON.")],
    config: ConfigOption = None,
    source: Annotated[
        Path | None, typer.Option("--catalogue", help="A workbook or folder to use instead of the active catalogue.")
    ] = None,
) -> None:
    """Explain which tests share which tube, and why fewer tubes are impossible. No label is allocated."""
    settings = load_settings(config).api
    body = _read_basket_file(basket, settings.max_body)
    catalogue = run_with_store(config, _require_active_catalogue) if source is None else csv_files.load_catalogue(source)
    request = baskets.read_basket(body, catalogue.contracts, settings.max_basket)
    for line in explain_plan(preanalytics.calculate(catalogue, request.lines)):
        print_raw(line)


def _read_basket_file(basket: Path, limit: int) -> Any:
    try:
        content = basket.read_bytes()
    except OSError as exc:
        raise DataInvalidError((Problem(str(basket), f"cannot be read: {exc.strerror}", "name a readable file"),)) from exc
    if len(content) > limit:
        raise DataInvalidError((Problem(str(basket), f"is larger than {limit} bytes", "send a smaller request"),))
    return decode_basket(content)


async def _require_active_catalogue(context: CommandContext) -> Catalogue:
    catalogue = await load_active_catalogue(context.store)
    if catalogue is None:
        hint = "run `lab-agent catalogue import SOURCE`, or name one with --catalogue"
        raise CatalogueError((Problem("store", "has no catalogue yet", hint),))
    return catalogue
