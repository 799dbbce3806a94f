"""`lab-agent mappings …`: whether the mapping tables are valid and complete, and the release of results held for a gap."""

from __future__ import annotations

from typing import Annotated

import typer

from lab_agent.catalogue.versions import load_active_catalogue
from lab_agent.cli.columns import choose_columns
from lab_agent.cli.context import (
    ByOption,
    ColumnsOption,
    CommandContext,
    ConfigOption,
    JsonOption,
    WideOption,
    operator_name,
    run_with_store,
)
from lab_agent.cli.output import Row, print_json, print_line, print_list
from lab_agent.cli.result_actions import build_matcher
from lab_agent.cli.results import RESULT_COLUMNS, result_row
from lab_agent.lis.lab_messages import LabReport
from lab_agent.lis.serialization import load_stored_message
from lab_agent.results import result_actions
from lab_agent.results.code_translation import MappingGap, find_gaps
from lab_agent.results.mapping_loader import load_mapping_tables
from lab_agent.results.mapping_tables import MappingTables
from lab_agent.results.result_actions import ResultDecision
from lab_agent.shared.errors import CatalogueError
from lab_agent.shared.ids import ReportKey

app = typer.Typer(help="Mapping tables from the laboratory's codes, units and answers to the exchange's.", no_args_is_help=True)
_PAGE_SIZE = 200


@app.command()
def check(
    config: ConfigOption = None,
    last: Annotated[int, typer.Option("--last", min=1, help="Number of the newest results to examine.")] = 1000,
    as_json: JsonOption = False,
) -> None:
    """Check the tables, and list what past results use but the tables lack. Exit code 1 if something is missing or wrong."""

    async def work(context: CommandContext) -> tuple[MappingTables, list[str], tuple[MappingGap, ...]]:
        folder = context.settings.results.mappings
        tables = MappingTables() if folder is None else load_mapping_tables(folder)
        return tables, await _unmapped_catalogue_codes(context, tables), find_gaps(await _newest_reports(context, last), tables)

    tables, unused, found = run_with_store(config, work)
    if as_json:
        print_json({"lacking": [_gap_row(each) for each in found], "catalogue": unused})
    else:
        print_line(_describe_sizes(tables))
        print_list([_gap_row(each) for each in found], as_json=False, empty_text="The tables cover all past results.")
        if unused:
            print_line(f"Catalogue codes that are missing in codes.csv: {', '.join(unused)}")
    if found:
        raise typer.Exit(1)


@app.command()
def release(
    config: ConfigOption = None,
    preview: Annotated[bool, typer.Option("--preview", help="Only show what would happen to each result.")] = False,
    by: ByOption = None,
    columns: ColumnsOption = None,
    wide: WideOption = False,
    as_json: JsonOption = False,
) -> None:
    """Release all results that were held for a code, unit or answer which the tables contain now."""
    chosen = choose_columns(RESULT_COLUMNS, columns, wide=wide)

    async def work(context: CommandContext) -> list[Row]:
        if preview:
            matcher = await build_matcher(context)
            previewed = await result_actions.preview_mapping_release(context.store, matcher, now=context.now)
            return [result_row(report) for report in previewed]
        decided: tuple[ResultDecision, ...] = await result_actions.release_mapped_results(
            context.store, await build_matcher(context), by=operator_name(by), now=context.now
        )
        return [result_row(each.report) for each in decided]

    print_list(run_with_store(config, work), as_json=as_json, columns=chosen, empty_text="No result is unmapped.")


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
    """Laboratory codes of the active catalogue that no row maps: results that use them would be held."""
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
