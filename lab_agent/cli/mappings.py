"""`lab-agent mappings …`: are the tables right, do they say all that results use, and the release of what they now say."""

from __future__ import annotations

from typing import Annotated

import typer

from lab_agent.catalogues.keeping import catalogue_in_force
from lab_agent.cli.opened import Opened, with_store
from lab_agent.cli.options import AsJson, By, Config, decider
from lab_agent.cli.results import matcher, row
from lab_agent.cli.shown import Row, say, show_json, show_list
from lab_agent.codec import load_kept
from lab_agent.domain.ids import ReportKey
from lab_agent.domain.results import LabReport
from lab_agent.errors import CatalogueError
from lab_agent.mappings.coverage import Gap, gaps
from lab_agent.mappings.load import load
from lab_agent.mappings.tables import Tables
from lab_agent.steps import result_desk
from lab_agent.steps.result_desk import Decided

app = typer.Typer(help="Mapping tables: the laboratory's codes, units and answers in the exchange's words.", no_args_is_help=True)
_PAGE = 200


@app.command()
def check(
    config: Config = None,
    last: Annotated[int, typer.Option("--last", min=1, help="How many of the newest results to look at.")] = 1000,
    as_json: AsJson = False,
) -> None:
    """Check the tables, and name what past results use and they lack. Exit code 1 if something is lacking or wrong."""

    async def work(opened: Opened) -> tuple[Tables, list[str], tuple[Gap, ...]]:
        folder = opened.settings.results.mappings
        tables = Tables() if folder is None else load(folder)
        return tables, await _unused(opened, tables), gaps(await _past(opened, last), tables)

    tables, unused, found = with_store(config, work)
    if as_json:
        show_json({"lacking": [_gap(each) for each in found], "catalogue": unused})
    else:
        say(_sizes(tables))
        show_list([_gap(each) for each in found], as_json=False, nothing="Past results use nothing that the tables lack.")
        if unused:
            say(f"Codes of the catalogue that are no local code of codes.csv: {', '.join(unused)}")
    if found:
        raise typer.Exit(1)


@app.command()
def release(
    config: Config = None,
    preview: Annotated[bool, typer.Option("--preview", help="Only say what would become of each result.")] = False,
    by: By = None,
    as_json: AsJson = False,
) -> None:
    """Release every result that was held for a code, unit or answer that the tables say by now."""

    async def work(opened: Opened) -> list[Row]:
        if preview:
            would = await result_desk.released_by_mappings(opened.store, await matcher(opened), now=opened.now)
            return [row(report) for report in would]
        decided: tuple[Decided, ...] = await result_desk.release_mapped(
            opened.store, await matcher(opened), by=decider(by), now=opened.now
        )
        return [row(each.report) for each in decided]

    show_list(with_store(config, work), as_json=as_json, nothing="No result is unmapped.")


async def _past(opened: Opened, last: int) -> list[tuple[ReportKey, LabReport]]:
    """The newest reports with their content, newest first."""
    found: list[tuple[ReportKey, LabReport]] = []
    for offset in range(0, last, _PAGE):
        page = await opened.views.reports(limit=min(_PAGE, last - offset), offset=offset)
        for summary in page.items:
            record = await opened.views.report(summary.key)
            message = load_kept(record.body) if record else None
            if isinstance(message, LabReport):
                found.append((summary.key, message))
        if not page.more:
            break
    return found


async def _unused(opened: Opened, tables: Tables) -> list[str]:
    """Laboratory codes of the catalogue in force that no row knows: a LIS that reports by the test's code will miss them."""
    try:
        catalogue = None if tables.codes is None else await catalogue_in_force(opened.store)
    except CatalogueError:
        catalogue = None
    if catalogue is None or tables.codes is None:
        return []
    local = {code for _, code in tables.codes}
    items = (item for each in catalogue.contracts.values() for item in each.items.values())
    return sorted({item.lab_id for item in items if item.lab_id} - local)


def _gap(gap: Gap) -> Row:
    each = gap.missing
    return {"lacking": each.sort, "value": each.value, "of": each.observation, "results": gap.reports, "example": gap.example}


def _sizes(tables: Tables) -> str:
    named = {"codes": tables.codes, "units": tables.units, "answers": tables.answers}
    return "; ".join(f"{name}: {'no table' if table is None else f'{len(table)} rows'}" for name, table in named.items())
