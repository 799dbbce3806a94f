"""`lab-agent catalogue …`: the laboratory's tables, from a spreadsheet into the store and back."""

from __future__ import annotations

import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from lab_agent.catalogue import load
from lab_agent.catalogue.assemble import assemble
from lab_agent.catalogue.diff import Change, changes
from lab_agent.catalogue.items import Catalogue
from lab_agent.catalogue.sheets import SHEETS, Table
from lab_agent.catalogues.agreed import check_contracts
from lab_agent.catalogues.fallback import newest_readable
from lab_agent.catalogues.keeping import put_in_force, tables_in_force
from lab_agent.catalogues.packed import unpack
from lab_agent.cli.opened import Opened, with_store
from lab_agent.cli.options import AsJson, By, Config, decider
from lab_agent.cli.shown import complain, say, show_json
from lab_agent.errors import CatalogueError, DataInvalidError, Problem
from lab_agent.settings.root import load_settings

app = typer.Typer(help="What the laboratory offers: nomenclature, tubes, questions, times.", no_args_is_help=True)
Source = Annotated[Path, typer.Argument(metavar="SOURCE", help="An .xlsx workbook, or a folder of CSV files.")]
Target = Annotated[Path, typer.Argument(metavar="TARGET", help="The .xlsx workbook, or the folder of CSV files, to be written.")]
Force = Annotated[bool, typer.Option("--force", help="Replace what is there.")]
_SHOWN = 200
_SAMPLES = (Path(__file__).parents[2] / "config" / "catalogue", Path(sysconfig.get_path("data")) / "share/lab-agent/catalogue")


@dataclass(frozen=True, slots=True)
class Compared:
    """The tables of a source, their catalogue, and what they change; `found` is None where all is new, for the reason `why`.

    `in_force` says whether they are in force already: that is a matter of the version alone.
    """

    tables: dict[str, Table]
    catalogue: Catalogue
    found: tuple[Change, ...] | None
    why: str = ""
    in_force: bool = False


@app.command()
def template(
    target: Target,
    sample: Annotated[bool, typer.Option("--sample", help="With the sample: 36 realistic tests under two contracts.")] = False,
    force: Force = False,
) -> None:
    """Write an empty workbook with headings, explanations and lists to choose from (or a folder of CSV files with headings)."""
    _write(target, load.read(_sample()) if sample else {sheet.name: Table(sheet.name) for sheet in SHEETS}, force=force)
    say(f"{target} is written; fill it, then try it: lab-agent catalogue check {target}")


@app.command()
def check(source: Source, config: Config = None, as_json: AsJson = False) -> None:
    """Find every mistake of a catalogue, and whether its contracts are those of the settings. Exit code 1 for a mistake."""
    catalogue = load.load(source)
    notes = _notes(catalogue, config)
    if as_json:
        offers = {code: len(contract.items) for code, contract in catalogue.contracts.items()}
        show_json({"version": catalogue.version, "contracts": offers, "notes": notes})
        return
    say(f"{source} is valid, version {catalogue.version}: {_offers(catalogue)}")
    for note in notes:
        say(f"note: {note}")


@app.command("import")
def import_(
    source: Source,
    config: Config = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    by: By = None,
) -> None:
    """Show what a catalogue changes, and put it in force. It is served within seconds; a wrong one changes nothing."""
    new = _compared(source, config)
    tables, catalogue = new.tables, new.catalogue
    if new.in_force:
        say(f"{source} is in force already; nothing to do.")
        return
    _show(new)
    for note in _notes(catalogue, config):
        say(f"note: {note}")
    if not yes:
        typer.confirm(f"Put {source} in force?", abort=True)

    async def work(opened: Opened) -> bool:
        named, who = opened.settings.api.catalogue, decider(by)
        return await put_in_force(opened.store, tables, origin=str(source), by=who, now=opened.now, over=named)

    with_store(config, work)
    say(f"Version {catalogue.version} is in force: {_offers(catalogue)}")


@app.command()
def diff(source: Source, config: Config = None, as_json: AsJson = False) -> None:
    """Show what a catalogue would change, row by row. Nothing is changed."""
    new = _compared(source, config)
    if not as_json:
        _show(new)
        return
    if new.found is None:
        complain(new.why)
    show_json([] if new.found is None else new.found)


@app.command()
def export(target: Target, config: Config = None, force: Force = False) -> None:
    """Write the catalogue in force, as a workbook or as a folder of CSV files; importing it again changes nothing.

    Where it cannot be read, the newest one that can be is written, and that is said.
    """
    tables = with_store(config, _to_export)
    if tables is None:
        raise CatalogueError((Problem("store", "holds no catalogue yet", "import one: lab-agent catalogue import SOURCE"),))
    _write(target, tables, force=force)
    say(f"{target} is written, version {load.version(tables)}")


def _sample() -> Path:
    """The sample's folder: in the sources that this runs from, or where the package has put it."""
    return next((place for place in _SAMPLES if place.is_dir()), _SAMPLES[-1])


def _compared(source: Path, config: Path | None) -> Compared:
    """Read a source, and compare it with what is in force. Raises `CatalogueError` for the source alone."""
    tables = load.read(source)
    catalogue = assemble(tables, load.version(tables))

    async def work(opened: Opened) -> dict[str, Table] | None:
        return await tables_in_force(opened.store)

    try:
        old = with_store(config, work)
    except CatalogueError:
        return Compared(tables, catalogue, None, "The catalogue in force cannot be read; everything counts as new.")
    if old is None:
        return Compared(tables, catalogue, None, "There is no catalogue in force yet: everything is new.")
    return Compared(tables, catalogue, changes(old, tables), in_force=load.version(old) == catalogue.version)


async def _to_export(opened: Opened) -> dict[str, Table] | None:
    try:
        return await tables_in_force(opened.store)
    except CatalogueError:
        found = await newest_readable(opened.store)
        if found is None:
            return None
    since = found.kept.since.astimezone().isoformat(" ", "minutes")
    complain(f"The catalogue in force cannot be read; this is an older one, version {found.kept.version}, in force from {since}.")
    return unpack(found.kept.content)


def _show(new: Compared) -> None:
    found = new.found
    if found is None:
        say(new.why)
        return
    for change in found[:_SHOWN]:
        say(str(change))
    if len(found) > _SHOWN:
        say(f"… and {len(found) - _SHOWN} more; `lab-agent catalogue diff --json` shows all")
    kinds = [change.kind for change in found]
    say(f"{kinds.count('new')} rows are new, {kinds.count('gone')} gone, {kinds.count('changed')} changed.")


def _notes(catalogue: Catalogue, config: Path | None) -> list[str]:
    """What is allowed and worth knowing; the settings' contracts only where there are settings."""
    items = {item.id: item for contract in catalogue.contracts.values() for item in contract.items.values()}
    bare = sorted(key for key, item in items.items() if not item.requirements)
    notes = [f"no biomaterial, and so no tube, for {', '.join(bare)}"] if bare else []
    if config is None:
        return notes
    settings = load_settings(config)
    return notes + [str(each) for each in check_contracts(catalogue, settings.exchange.contracts, settings.api)]


def _offers(catalogue: Catalogue) -> str:
    return ", ".join(f"{code} ({len(contract.items)} items)" for code, contract in catalogue.contracts.items())


def _write(target: Path, tables: Mapping[str, Table], *, force: bool) -> None:
    workbook = target.suffix.lower() == ".xlsx"
    there = target.exists() if workbook else target.is_dir() and any(target.iterdir())
    if there and not force:
        raise DataInvalidError((Problem(str(target), "is there already", "name another, or add --force"),))
    if workbook:
        target.parent.mkdir(parents=True, exist_ok=True)
        from lab_agent.catalogue.workbook_write import write as write_workbook  # noqa: PLC0415 - its library takes a while

        write_workbook(target, tables)
    else:
        load.write(target, tables)
