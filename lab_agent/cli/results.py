"""`lab-agent results …`: what laboratory systems have reported, and where each report stands."""

from __future__ import annotations

from typing import Annotated

import typer

from lab_agent import exact_json
from lab_agent.cli.opened import Opened, with_store
from lab_agent.cli.options import AsJson, Config, Limit, Offset
from lab_agent.cli.shown import Row, heading, more, plain, show_exact, show_list, show_one
from lab_agent.domain.ids import ReportKey
from lab_agent.domain.journal import ReportRecord
from lab_agent.domain.lifecycle import ReportState
from lab_agent.errors import StoreError
from lab_agent.ports.views import PAGE, Page, ReportSummary

app = typer.Typer(help="Results: what laboratory systems have reported.", no_args_is_help=True)


@app.command("list")
def list_(
    config: Config = None,
    state: Annotated[list[ReportState] | None, typer.Option("--state", help="Only results in this state.")] = None,
    limit: Limit = PAGE,
    offset: Offset = 0,
    as_json: AsJson = False,
) -> None:
    """List results, newest first."""

    async def work(opened: Opened) -> Page[ReportSummary]:
        return await opened.views.reports(states=state or (), limit=limit, offset=offset)

    page = with_store(config, work)
    show_list([_row(report) for report in page.items], as_json=as_json, nothing="No results.", full=page.items)
    more(len(page.items), page.total, offset)


@app.command()
def show(
    result: Annotated[str, typer.Argument(metavar="RESULT", help="Key of the result, as `results list` shows it.")],
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Show one result with its content."""

    async def work(opened: Opened) -> ReportRecord | None:
        return await opened.views.report(ReportKey(result))

    report = with_store(config, work)
    if report is None:
        raise StoreError(f"There is no result {result}; `lab-agent results list` shows them.")
    fields = plain(report)
    content = exact_json.loads(report.body)
    if as_json:
        show_exact({**fields, "content": content})
        return
    show_one(fields, as_json=False)
    heading("Content")
    show_exact(content)


def _row(report: ReportSummary) -> Row:
    return {
        "result": report.key,
        "from": report.source,
        "report": report.report_id,
        "version": report.version,
        "state": report.state,
        "order": report.order,
        "received": report.received_at,
        "reason": report.reason,
    }
