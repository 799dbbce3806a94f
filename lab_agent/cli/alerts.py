"""`lab-agent alert …`: what is wrong now, and what was. Sending a test is in `alert_sending`."""

from __future__ import annotations

from typing import Annotated

import typer

from lab_agent.cli.columns import ListColumns, choose_columns
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
from lab_agent.cli.output import Row, print_fields, print_list, print_remaining
from lab_agent.conditions.model import AlertKey, OpenCondition
from lab_agent.domain.notifications import Notification
from lab_agent.domain.records import Alert
from lab_agent.errors import InputError
from lab_agent.monitoring.report import list_conditions, to_open_condition
from lab_agent.ports.read_models import DEFAULT_PAGE_SIZE, Page

_ACTIONS = {
    "test": CommandSource(
        "lab_agent.cli.alert_sending:send_test",
        "Send a test through each notification channel, and say what happened. Exit code 1 if one fails.",
    )
}
app = typer.Typer(help="What is wrong now, and whether notifications arrive.", no_args_is_help=True, cls=lazy_group(_ACTIONS))

_CONDITION_COLUMNS = ("alert", "severity", "what", "since", "to_do", "affected")
_ALERT_COLUMNS = ("alert", "severity", "opened", "closed", "what", "detail")


@app.command("list")
def list_alerts(
    config: ConfigOption = None,
    include_ended: Annotated[bool, typer.Option("--all", help="Include alerts that have ended, newest first.")] = False,
    limit: LimitOption = DEFAULT_PAGE_SIZE,
    offset: OffsetOption = 0,
    columns: ColumnsOption = None,
    wide: WideOption = False,
    as_json: JsonOption = False,
) -> None:
    """List what is wrong now, worst first: since when, what waits because of it, and what to do."""
    chosen = choose_columns(_ALERT_COLUMNS if include_ended else _CONDITION_COLUMNS, columns, wide=wide)
    if include_ended:
        _list_all(config, limit, offset, chosen, as_json=as_json)
        return

    async def work(context: CommandContext) -> tuple[OpenCondition, ...]:
        found = await context.store.run_read_only(lambda uow: uow.alerts.all_open())
        return list_conditions(found, await context.queries.affected_numbers())

    rows = [_condition_row(each) for each in run_with_store(config, work)]
    print_list(rows[offset : offset + limit], as_json=as_json, columns=chosen, empty_text="No alert is open.")


@app.command("show")
def show_alert(
    key: Annotated[str, typer.Argument(metavar="KEY", help="The alert, as `alert list` shows it.")],
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show one open alert: cause, since when, what it affects, what to do, and which channels have told it."""
    wanted = _parse_key(key)

    async def work(context: CommandContext) -> Row | None:
        open_alerts, told = await context.store.run_read_only(lambda uow: (uow.alerts.all_open(), uow.notifications.all()))
        numbers = await context.queries.affected_numbers()
        found = next((to_open_condition(each, numbers) for each in open_alerts if each.key == wanted), None)
        return None if found is None else _condition_fields(found, [each for each in told if each.key == wanted])

    fields = run_with_store(config, work)
    if fields is None:
        raise InputError(f"No alert {key} is open; `lab-agent alert list --all` shows those that have ended.")
    print_fields(fields, as_json=as_json)


def _list_all(config: ConfigOption, limit: int, offset: int, chosen: ListColumns, *, as_json: bool) -> None:
    async def work(context: CommandContext) -> Page[Alert]:
        return await context.queries.alerts(limit=limit, offset=offset)

    page = run_with_store(config, work)
    print_list([_alert_row(each) for each in page.items], as_json=as_json, columns=chosen, empty_text="No alert was ever opened.")
    print_remaining(page)


def _parse_key(text: str) -> AlertKey:
    try:
        return AlertKey.parse(text)
    except ValueError as exc:
        raise InputError(f"There is no condition {text.partition('/')[0]!r}; `lab-agent alert list` shows the keys.") from exc


def _condition_row(each: OpenCondition) -> Row:
    return {
        "alert": str(each.key),
        "severity": each.condition.severity,
        "since": each.since,
        "what": each.title,
        "affected": ", ".join(map(str, each.affected)),
        "to_do": each.mend,
    }


def _condition_fields(each: OpenCondition, told: list[Notification]) -> Row:
    return {
        "alert": str(each.key),
        "severity": each.condition.severity,
        "what": each.title,
        "cause": each.cause,
        "since": each.since,
        "affects": each.condition.affects,
        "affected": ", ".join(map(str, each.affected)),
        "to_do": each.mend,
        "command": each.command,
        "page": each.page,
        "told_by": [one.channel for one in told if one.told_at is not None],
        "to_be_told_by": [one.channel for one in told if one.told_at is None],
    }


def _alert_row(each: Alert) -> Row:
    condition = to_open_condition(each)
    return {
        "alert": str(each.key),
        "severity": condition.condition.severity,
        "opened": each.opened_at,
        "closed": each.closed_at,
        "what": condition.title,
        "detail": each.detail,
    }
