"""`lab-agent results …`: what laboratory systems have reported. What operators decide about a result is in `result_actions`."""

from __future__ import annotations

from typing import Annotated

import typer

from lab_agent.cli.columns import choose_columns
from lab_agent.cli.context import (
    ColumnsOption,
    CommandContext,
    ConfigOption,
    JsonOption,
    LimitOption,
    OffsetOption,
    WideOption,
    run_with_store,
)
from lab_agent.cli.lazy_commands import CommandSource, lazy_group
from lab_agent.cli.output import Row, print_list, print_remaining
from lab_agent.results.records import HoldReason, ReportRecord
from lab_agent.shared.state_machines import REPORTS_NEEDING_OPERATOR, ReportState
from lab_agent.store.read_models import DEFAULT_PAGE_SIZE, Page, ReportSummary

_ACTIONS = {
    "show": CommandSource("lab_agent.cli.result_actions:show", "Show one result with its history and content."),
    "match": CommandSource(
        "lab_agent.cli.result_actions:match",
        "Assign a waiting result to an order. It is delivered then, unless something else holds it.",
    ),
    "release": CommandSource(
        "lab_agent.cli.result_actions:release",
        "Deliver a waiting result anyway, or all that wait for a cause, if it is formally valid. Exit code 1 if it still waits.",
    ),
    "dismiss": CommandSource(
        "lab_agent.cli.result_actions:dismiss", "Dismiss a waiting result, or all that wait for a cause: it is never delivered."
    ),
    "upload-again": CommandSource(
        "lab_agent.cli.result_actions:upload_again",
        "Look for delivered results of an order, or of a time, on the service, and upload again what is missing there.",
    ),
    "orphans": CommandSource(
        "lab_agent.cli.result_actions:orphans",
        "List documents that the service may hold without a report, because the reply to their upload was lost; newest first.",
    ),
    "refused": CommandSource(
        "lab_agent.cli.refused:app", "Messages of laboratory systems that were refused because they could not be read."
    ),
}
app = typer.Typer(help="Results that laboratory systems have reported.", no_args_is_help=True, cls=lazy_group(_ACTIONS))
RESULT_COLUMNS = ("result", "state", "cause", "reason", "order", "received", "from", "report", "version")


@app.command("list")
def list_results(  # noqa: PLR0913, PLR0917 - each is an option of the command
    config: ConfigOption = None,
    state: Annotated[list[ReportState] | None, typer.Option("--state", help="Only results in this state.")] = None,
    only_waiting: Annotated[bool, typer.Option("--waiting", help="Only results that wait for an operator.")] = False,
    cause: Annotated[HoldReason | None, typer.Option("--cause", help="Only results that are held for this reason.")] = None,
    limit: LimitOption = DEFAULT_PAGE_SIZE,
    offset: OffsetOption = 0,
    columns: ColumnsOption = None,
    wide: WideOption = False,
    as_json: JsonOption = False,
) -> None:
    """List results, newest first; those that wait for an operator alone, longest waiting first."""
    chosen = choose_columns(RESULT_COLUMNS, columns, wide=wide)
    states = [*(state or ()), *(sorted(REPORTS_NEEDING_OPERATOR) if only_waiting else ())]

    async def work(context: CommandContext) -> Page[ReportSummary]:
        return await context.queries.reports(states=states, hold_reason=cause, limit=limit, offset=offset)

    page = run_with_store(config, work)
    print_list(
        [result_row(report) for report in page.items],
        as_json=as_json,
        columns=chosen,
        empty_text="No results.",
    )
    print_remaining(page)


def result_row(report: ReportRecord | ReportSummary) -> Row:
    """A row of a list of results."""
    return {
        "result": report.key,
        "from": report.source,
        "report": report.report_id,
        "version": report.version,
        "state": report.state,
        "order": report.order,
        "received": report.received_at,
        "cause": report.hold_reason,
        "reason": report.reason,
    }
