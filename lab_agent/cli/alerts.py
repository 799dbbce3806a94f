"""`lab-agent alert …`: one alert whole. What is wrong is in `status`; sending a test is in `alert_sending`."""

from __future__ import annotations

from typing import Annotated

import typer

from lab_agent.cli.context import CommandContext, ConfigOption, JsonOption, run_with_store
from lab_agent.cli.lazy_commands import CommandSource, lazy_group
from lab_agent.cli.output import Row, print_fields
from lab_agent.operations.report import to_open_condition
from lab_agent.shared.conditions.model import AlertKey, OpenCondition
from lab_agent.shared.errors import InputError
from lab_agent.store.notification_records import Notification

_ACTIONS = {
    "test": CommandSource(
        "lab_agent.cli.alert_sending:send_test",
        "Send a test through each notification channel, and say what happened. Exit code 1 if one fails.",
    )
}
app = typer.Typer(help="One alert whole, and whether notifications arrive.", no_args_is_help=True, cls=lazy_group(_ACTIONS))


@app.command("show")
def show_alert(
    key: Annotated[str, typer.Argument(metavar="KEY", help="The alert, as `lab-agent status` shows it.")],
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
        raise InputError(f"No alert {key} is open; those that have ended are on the status page.")
    print_fields(fields, as_json=as_json)


def _parse_key(text: str) -> AlertKey:
    try:
        return AlertKey.parse(text)
    except ValueError as exc:
        raise InputError(f"There is no condition {text.partition('/')[0]!r}; `lab-agent status` shows the keys.") from exc


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
