"""`lab-agent results …`: what laboratory systems have reported, where each report stands, and the match desk."""

from __future__ import annotations

from typing import Annotated

import typer

from lab_agent import bootstrap, exact_json
from lab_agent.cli.opened import Opened, with_store
from lab_agent.cli.options import AsJson, By, Config, Limit, Offset, decider
from lab_agent.cli.shown import Row, heading, more, plain, say, show_exact, show_json, show_list, show_one
from lab_agent.domain.ids import LineKey, OrderKey, ReportKey
from lab_agent.domain.journal import Event, ReportRecord
from lab_agent.domain.lifecycle import WAITING_REPORTS, ReportState
from lab_agent.errors import StoreError
from lab_agent.ports.views import PAGE, Page, ReportSummary
from lab_agent.steps import result_desk
from lab_agent.steps.match import Matcher
from lab_agent.steps.result_desk import Decided

app = typer.Typer(help="Results: what laboratory systems have reported.", no_args_is_help=True)
Key = Annotated[str, typer.Argument(metavar="RESULT", help="Key of the result, as `results list` shows it.")]
Note = Annotated[str, typer.Option("--note", help="Why; it is kept in the result's history, and in the timeline of its order.")]


@app.command("list")
def list_(
    config: Config = None,
    state: Annotated[list[ReportState] | None, typer.Option("--state", help="Only results in this state.")] = None,
    waiting: Annotated[bool, typer.Option("--waiting", help="Only results that wait for a person.")] = False,
    limit: Limit = PAGE,
    offset: Offset = 0,
    as_json: AsJson = False,
) -> None:
    """List results, newest first."""
    states = [*(state or ()), *(sorted(WAITING_REPORTS) if waiting else ())]

    async def work(opened: Opened) -> Page[ReportSummary]:
        return await opened.views.reports(states=states, limit=limit, offset=offset)

    page = with_store(config, work)
    show_list([row(report) for report in page.items], as_json=as_json, nothing="No results.", full=page.items)
    more(len(page.items), page.total, offset)


@app.command()
def show(result: Key, config: Config = None, as_json: AsJson = False) -> None:
    """Show one result with its history and its content."""

    async def work(opened: Opened) -> tuple[ReportRecord | None, tuple[Event, ...]]:
        return await opened.views.report(ReportKey(result)), await opened.views.history(ReportKey(result))

    report, history = with_store(config, work)
    if report is None:
        raise StoreError(f"There is no result {result}; `lab-agent results list` shows them.")
    fields = {**plain(report), "next": result_desk.what_to_do(report.state, report.reason)}
    content = exact_json.loads(report.body)
    if as_json:
        show_exact({**fields, "history": plain(history), "content": content})
        return
    show_one(fields, as_json=False)
    if history:
        heading("History")
        show_list([{"at": each.at, "what": each.text, "by": each.by} for each in history], as_json=False, nothing="")
    heading("Content")
    show_exact(content)


@app.command()
def match(
    result: Key,
    order: Annotated[str, typer.Argument(metavar="ORDER", help="Key of the order that it belongs to.")],
    note: Note,
    line: Annotated[
        list[str] | None, typer.Option("--line", help="Key of a line that it is about; else all of the order.")
    ] = None,
    config: Config = None,
    by: By = None,
    as_json: AsJson = False,
) -> None:
    """Say which order a waiting result belongs to. It is delivered then, if nothing else keeps it."""
    lines = tuple(LineKey(each) for each in line or ())

    async def work(opened: Opened) -> Decided:
        return await result_desk.match_result(
            opened.store,
            await matcher(opened),
            ReportKey(result),
            OrderKey(order),
            lines=lines,
            by=decider(by),
            note=note,
            now=opened.now,
        )

    _answer(with_store(config, work), as_json=as_json)


@app.command()
def release(result: Key, note: Note, config: Config = None, by: By = None, as_json: AsJson = False) -> None:
    """Send a waiting result all the same, as far as it has a legal form. Exit code 1 if it still waits."""

    async def work(opened: Opened) -> Decided:
        return await result_desk.release_result(
            opened.store, await matcher(opened), ReportKey(result), by=decider(by), note=note, now=opened.now
        )

    _answer(with_store(config, work), as_json=as_json)


@app.command()
def dismiss(result: Key, note: Note, config: Config = None, by: By = None, as_json: AsJson = False) -> None:
    """Leave a waiting result for good."""

    async def work(opened: Opened) -> Decided:
        return await result_desk.dismiss_result(opened.store, ReportKey(result), by=decider(by), note=note, now=opened.now)

    _answer(with_store(config, work), as_json=as_json)


@app.command()
def refused(
    config: Config = None,
    seen: Annotated[
        str | None, typer.Option("--seen", metavar="ADAPTER", help="You have looked: end this adapter's alert.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say how many messages laboratory systems sent that could not be understood, since somebody looked last."""

    async def work(opened: Opened) -> dict[str, int]:
        if seen is not None and not await result_desk.refused_seen(opened.store, seen, now=opened.now):
            raise StoreError(f"There is no open alert about refused results of {seen}.")
        return await result_desk.refused(opened.store, opened.settings.lis.tables)

    counted = with_store(config, work)
    rows = [{"adapter": name, "refused": number} for name, number in counted.items()]
    show_list(rows, as_json=as_json, nothing="No results were refused since somebody looked last.")


async def matcher(opened: Opened) -> Matcher:
    """What matches results here, with the mapping tables and the catalogue as they are now."""
    return bootstrap.desk_matcher(opened.settings, await bootstrap.desk_catalogues(opened.settings, opened.store))


def row(report: ReportRecord | ReportSummary) -> Row:
    """A result in a list."""
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


def _answer(decided: Decided, *, as_json: bool) -> None:
    report = decided.report
    if as_json:
        show_json(report)
    else:
        say(f"result {report.key} is {report.state.value} now" + (f": {report.reason}" if report.reason else ""))
    if not decided.moved:
        raise typer.Exit(1)
