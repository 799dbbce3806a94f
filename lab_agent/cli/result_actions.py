"""`lab-agent results …`: one result, and what operators decide about it; and documents that were left without a report."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from lab_agent import result_bootstrap
from lab_agent.cli.columns import choose_columns
from lab_agent.cli.context import (
    ByOption,
    ColumnsOption,
    CommandContext,
    ConfigOption,
    JsonOption,
    LimitOption,
    OffsetOption,
    WideOption,
    operator_name,
    run_with_store,
)
from lab_agent.cli.group_actions import AllOf, CauseOption, GroupCommand, YesOption, choose
from lab_agent.cli.output import (
    print_exact_json,
    print_fields,
    print_heading,
    print_json,
    print_line,
    print_list,
    print_remaining,
    to_plain,
)
from lab_agent.operations.audit_log import note_look
from lab_agent.orders import held_group_actions
from lab_agent.orders.group_actions import ActionOutcome, GroupAction
from lab_agent.orders.held_group_actions import ResultGroup
from lab_agent.results import result_actions
from lab_agent.results.hold_reasons import what_to_do
from lab_agent.results.records import ReportRecord
from lab_agent.results.result_actions import ResultDecision, SentSpan
from lab_agent.results.result_history import kept_names
from lab_agent.results.result_matching import ReportMatcher
from lab_agent.shared import exact_json
from lab_agent.shared.errors import InputError, StoreError
from lab_agent.shared.ids import LineKey, OrderKey, ReportKey
from lab_agent.store.audit_records import AuditAction
from lab_agent.store.event_records import Event
from lab_agent.store.read_models import DEFAULT_PAGE_SIZE, Page

ResultArgument = Annotated[str, typer.Argument(metavar="RESULT", help="Key of the result, as `results list` shows it.")]
OptionalResultArgument = Annotated[
    str | None, typer.Argument(metavar="[RESULT]", help="Key of the result, as `results list` shows it.")
]
NoteOption = Annotated[
    str, typer.Option("--note", help="Your reason; it appears in the result's history and the order's timeline.")
]


def show(result: ResultArgument, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Show one result with its history and content."""

    async def work(context: CommandContext) -> tuple[ReportRecord | None, tuple[Event, ...]]:
        report = await context.queries.report(ReportKey(result))
        if report is not None:
            await note_look(context.store, AuditAction.RESULT_SHOWN, report.key, by=None, now=context.now)
        return report, await context.queries.report_events(ReportKey(result))

    report, history = run_with_store(config, work)
    if report is None:
        raise StoreError(f"There is no result {result}; `lab-agent results list` shows them.")
    kept = kept_names(report)
    fields = {**to_plain(replace(report, outgoing_body=b"")), "next": what_to_do(report.state, report.hold_reason)}
    fields |= {"keeps": list(kept)} if kept else {}
    content = exact_json.loads(report.body)
    if as_json:
        print_exact_json({**fields, "history": to_plain(history), "content": content})
        return
    print_fields(fields, as_json=False)
    if history:
        print_heading("History")
        print_list([{"at": each.at, "what": each.text, "by": each.by} for each in history], as_json=False, empty_text="")
    print_heading("Content")
    print_exact_json(content)


def match(
    result: ResultArgument,
    order: Annotated[str, typer.Argument(metavar="ORDER", help="Key of the order it belongs to.")],
    note: NoteOption,
    line: Annotated[
        list[str] | None,
        typer.Option("--line", help="Key of a line it is about; may be repeated. Default: all."),
    ] = None,
    config: ConfigOption = None,
    by: ByOption = None,
    as_json: JsonOption = False,
) -> None:
    """Assign a waiting result to an order. It is delivered then, unless something else holds it."""
    lines = tuple(LineKey(each) for each in line or ())

    async def work(context: CommandContext) -> ResultDecision:
        return await result_actions.match_result(
            context.store,
            await build_matcher(context),
            ReportKey(result),
            OrderKey(order),
            lines=lines,
            by=operator_name(by),
            note=note,
            now=context.now,
        )

    _print_decision(run_with_store(config, work), as_json=as_json)


def release(
    note: NoteOption,
    result: OptionalResultArgument = None,
    cause: CauseOption = None,
    yes: YesOption = False,
    config: ConfigOption = None,
    by: ByOption = None,
    as_json: JsonOption = False,
) -> None:
    """Deliver a waiting result anyway, or all that wait for a cause, if it is formally valid. Exit code 1 if it still waits."""
    chosen = choose(result, cause, "the key of a result")
    if isinstance(chosen, AllOf):
        _decide_group(chosen, GroupAction.RELEASE, note, config, operator_name(by), GroupCommand(yes, as_json))
        return

    async def work(context: CommandContext) -> ResultDecision:
        return await result_actions.release_result(
            context.store, await build_matcher(context), ReportKey(chosen), by=operator_name(by), note=note, now=context.now
        )

    _print_decision(run_with_store(config, work), as_json=as_json)


def dismiss(
    note: NoteOption,
    result: OptionalResultArgument = None,
    cause: CauseOption = None,
    yes: YesOption = False,
    config: ConfigOption = None,
    by: ByOption = None,
    as_json: JsonOption = False,
) -> None:
    """Dismiss a waiting result, or all that wait for a cause: it is never delivered."""
    chosen = choose(result, cause, "the key of a result")
    if isinstance(chosen, AllOf):
        _decide_group(chosen, GroupAction.DISMISS, note, config, operator_name(by), GroupCommand(yes, as_json))
        return

    async def work(context: CommandContext) -> ResultDecision:
        return await result_actions.dismiss_result(
            context.store, ReportKey(chosen), by=operator_name(by), note=note, now=context.now
        )

    _print_decision(run_with_store(config, work), as_json=as_json)


def _decide_group(chosen: AllOf, action: GroupAction, note: str, config: Path | None, by: str, command: GroupCommand) -> None:
    group = ResultGroup.parse(chosen.cause)

    async def work(context: CommandContext) -> ActionOutcome | None:
        store, now = context.store, context.now

        async def decide_all() -> ActionOutcome:
            if action is GroupAction.DISMISS:
                return await held_group_actions.dismiss_results(store, group, by=by, note=note, now=now)
            matcher = await build_matcher(context)
            return await held_group_actions.release_results(store, group, matcher, by=by, note=note, now=now)

        return await command.decide(held_group_actions.preview_results(store, group, action), decide_all)

    command.print(run_with_store(config, work))


def upload_again(
    note: NoteOption,
    order: Annotated[str | None, typer.Argument(metavar="[ORDER]", help="Key of the order, as `orders list` shows it.")] = None,
    since: Annotated[
        datetime | None,
        typer.Option("--since", metavar="TIME", help="Instead of an order: all that was delivered since then (UTC)."),
    ] = None,
    until: Annotated[datetime | None, typer.Option("--until", metavar="TIME", help="With --since: not what came later.")] = None,
    config: ConfigOption = None,
    by: ByOption = None,
    as_json: JsonOption = False,
) -> None:
    """Look for delivered results of an order, or of a time, on the service, and upload again what is missing there.

    For a service that was restored from a backup. What is there already is not written twice, and lines end once more with their
    results where their Tasks were put back.
    """
    if (order is None) is (since is None) or (until is not None and since is None):
        raise InputError("Give either the key of an order, or --since. Nothing was changed.")

    async def work(context: CommandContext) -> int:
        end = context.now if until is None else until.replace(tzinfo=UTC)
        what = OrderKey(order or "") if since is None else SentSpan(since.replace(tzinfo=UTC), end)
        return await result_actions.upload_again(context.store, what, by=operator_name(by), note=note, now=context.now)

    number = run_with_store(config, work)
    if as_json:
        print_json({"results": number})
    else:
        print_line(f"{number} result{'' if number == 1 else 's'} to be looked for, and uploaded again where missing")


_ORPHAN_COLUMNS = ("order", "result", "noticed", "what")


def orphans(
    config: ConfigOption = None,
    limit: LimitOption = DEFAULT_PAGE_SIZE,
    offset: OffsetOption = 0,
    columns: ColumnsOption = None,
    wide: WideOption = False,
    as_json: JsonOption = False,
) -> None:
    """List documents that the service may hold without a report, because the reply to their upload was lost; newest first.

    Each is uploaded again for its report, so the clinic needs none of these copies. Ask whoever runs the service to delete them.
    """
    chosen = choose_columns(_ORPHAN_COLUMNS, columns, wide=wide)

    async def work(context: CommandContext) -> Page[Event]:
        return await context.queries.orphaned_documents(limit=limit, offset=offset)

    page = run_with_store(config, work)
    rows = [{"noticed": each.at, "order": each.order, "result": each.report, "what": each.text} for each in page.items]
    print_list(rows, as_json=as_json, columns=chosen, empty_text="No document was left without a report.")
    print_remaining(page)


async def build_matcher(context: CommandContext) -> ReportMatcher:
    """The matcher of this installation, with the current mapping tables and catalogue."""
    return result_bootstrap.build_manual_matcher(
        context.settings, await result_bootstrap.load_catalogues(context.settings, context.store)
    )


def _print_decision(decision: ResultDecision, *, as_json: bool) -> None:
    report = decision.report
    if as_json:
        print_json(report)
    else:
        print_line(f"result {report.key} is {report.state.value} now" + (f": {report.reason}" if report.reason else ""))
    if not decision.moved:
        raise typer.Exit(1)
