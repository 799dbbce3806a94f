"""`lab-agent outbox causes`: what fails or waits, by cause. The status page lists the same groups."""

from __future__ import annotations

from lab_agent.cli.columns import choose_columns
from lab_agent.cli.context import ColumnsOption, CommandContext, ConfigOption, JsonOption, WideOption, run_with_store
from lab_agent.cli.output import Row, print_list
from lab_agent.monitoring.cause_groups import CauseGroup, read_groups

_EXAMPLES = 3
_COLUMNS = ("cause", "number", "since", "what", "condition", "waiting", "lis", "examples")


def list_causes(
    config: ConfigOption = None, columns: ColumnsOption = None, wide: WideOption = False, as_json: JsonOption = False
) -> None:
    """List what jobs fail of, what holds orders, lines and results, and what was refused: number, age, cause."""
    chosen = choose_columns(_COLUMNS, columns, wide=wide)
    rows = run_with_store(config, load_cause_rows)
    print_list(rows, as_json=as_json, columns=chosen, empty_text="Nothing waits or fails.")


async def load_cause_rows(context: CommandContext) -> list[Row]:
    """A row for each cause that something fails or waits for, the longest waiting first."""
    groups = await context.store.run_read_only(lambda uow: read_groups(uow, context.now))
    return [await _row(context, each) for each in groups]


async def _row(context: CommandContext, group: CauseGroup) -> Row:
    oldest = await context.queries.needs_attention(cause=group.key, limit=_EXAMPLES)
    return {
        "condition": group.key.condition,
        "cause": group.code,
        "lis": group.system or None,
        "number": group.count,
        "waiting": group.waiting,
        "since": group.told.since,
        "what": group.told.title,
        "examples": ", ".join(each.ref for each in oldest.items),
    }
