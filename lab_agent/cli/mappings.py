"""`lab-agent mappings …`: are the tables right, do they say all that results use, and the release of what they now say."""

from __future__ import annotations

from typing import Annotated

import typer

from lab_agent.catalogue_service.versions import load_active_catalogue
from lab_agent.cli.context import ByOption, CommandContext, ConfigOption, JsonOption, operator_name, run_with_store
from lab_agent.cli.output import Row, print_json, print_line, print_list
from lab_agent.cli.results import build_matcher, result_row
from lab_agent.domain.ids import ReportKey
from lab_agent.domain.lab_messages import LabReport
from lab_agent.errors import CatalogueError
from lab_agent.mappings.loader import load_mapping_tables
from lab_agent.mappings.tables import MappingTables
from lab_agent.mappings.translator import MappingGap, find_gaps
from lab_agent.serialization import load_stored_message
from lab_agent.workflow import operator_results
from lab_agent.workflow.operator_results import ResultDecision

app = typer.Typer(help="Mapping tables: the laboratory's codes, units and answers in the exchange's words.", no_args_is_help=True)
_PAGE_SIZE = 200


@app.command()
def check(
    config: ConfigOption = None,
    last: Annotated[int, typer.Option("--last", min=1, help="How many of the newest results to look at.")] = 1000,
    as_json: JsonOption = False,
) -> None:
    """Check the tables, and name what past results use and they lack. Exit code 1 if something is lacking or wrong."""

    async def work(context: CommandContext) -> tuple[MappingTables, list[str], tuple[MappingGap, ...]]:
        folder = context.settings.results.mappings
        tables = MappingTables() if folder is None else load_mapping_tables(folder)
        return tables, await _unmapped_catalogue_codes(context, tables), find_gaps(await _newest_reports(context, last), tables)

    tables, unused, found = run_with_store(config, work)
    if as_json:
        print_json({"lacking": [_gap_row(each) for each in found], "catalogue": unused})
    else:
        print_line(_describe_sizes(tables))
        print_list([_gap_row(each) for each in found], as_json=False, empty_text="Past results use nothing that the tables lack.")
        if unused:
            print_line(f"Codes of the catalogue that are no local code of codes.csv: {', '.join(unused)}")
    if found:
        raise typer.Exit(1)


@app.command()
def release(
    config: ConfigOption = None,
    preview: Annotated[bool, typer.Option("--preview", help="Only say what would become of each result.")] = False,
    by: ByOption = None,
    as_json: JsonOption = False,
) -> None:
    """Release every result that was held for a code, unit or answer that the tables say by now."""

    async def work(context: CommandContext) -> list[Row]:
        if preview:
            would = await operator_results.preview_mapping_release(context.store, await build_matcher(context), now=context.now)
            return [result_row(report) for report in would]
        decided: tuple[ResultDecision, ...] = await operator_results.release_mapped_results(
            context.store, await build_matcher(context), by=operator_name(by), now=context.now
        )
        return [result_row(each.report) for each in decided]

    print_list(run_with_store(config, work), as_json=as_json, empty_text="No result is unmapped.")


async def _newest_reports(context: CommandContext, limit: int) -> list[tuple[ReportKey, LabReport]]:
    """The newest reports with their content, newest first."""
    found: list[tuple[ReportKey, LabReport]] = []
    for offset in range(0, limit, _PAGE_SIZE):
        page = await context.queries.reports(limit=min(_PAGE_SIZE, limit - offset), offset=offset)
        for summary in page.items:
            record = await context.queries.report(summary.key)
            message = load_stored_message(record.body) if record else None
            if isinstance(message, LabReport):
                found.append((summary.key, message))
        if not page.has_more:
            break
    return found


async def _unmapped_catalogue_codes(context: CommandContext, tables: MappingTables) -> list[str]:
    """Laboratory codes of the catalogue in force that no row knows: a LIS that reports by the test's code will miss them."""
    try:
        catalogue = None if tables.codes is None else await load_active_catalogue(context.store)
    except CatalogueError:
        catalogue = None
    if catalogue is None or tables.codes is None:
        return []
    local = {code for _, code in tables.codes}
    items = (item for each in catalogue.contracts.values() for item in each.items.values())
    return sorted({item.lab_id for item in items if item.lab_id} - local)


def _gap_row(gap: MappingGap) -> Row:
    each = gap.missing
    return {"lacking": each.kind, "value": each.value, "of": each.observation, "results": gap.reports, "example": gap.example}


def _describe_sizes(tables: MappingTables) -> str:
    named = {"codes": tables.codes, "units": tables.units, "answers": tables.answers}
    return "; ".join(f"{name}: {'no table' if table is None else f'{len(table)} rows'}" for name, table in named.items())
