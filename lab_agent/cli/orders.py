"""`lab-agent orders …`: the state of orders. What operators decide about them is in `order_actions`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from operator import itemgetter
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
from lab_agent.cli.output import Row, print_fields, print_heading, print_json, print_list, print_remaining
from lab_agent.operations.audit_log import note_look
from lab_agent.queue.job_records import ServiceMessage
from lab_agent.shared.errors import StoreError
from lab_agent.shared.ids import JobId, OrderKey
from lab_agent.shared.state_machines import OrderState
from lab_agent.store.audit_records import AuditAction
from lab_agent.store.read_models import DEFAULT_PAGE_SIZE, OrderDetail, OrderSummary, Page

_ACTIONS = {
    "retry": CommandSource(
        "lab_agent.cli.order_actions:retry",
        "Run the waiting jobs of an order now, or assess all orders now that are held for a cause.",
    ),
    "refuse": CommandSource(
        "lab_agent.cli.order_actions:refuse",
        "Reject a held order for good: the Task of every line is cancelled with your reason, which the clinic reads.",
    ),
    "release": CommandSource(
        "lab_agent.cli.order_actions:release",
        "Release a held order that you have checked, or all held for one cause, like a time ahead of the clock.",
    ),
    "refuse-line": CommandSource(
        "lab_agent.cli.order_actions:refuse_line",
        "Reject a held line (added, or requested again, after its order was assessed): its Task is cancelled with your reason.",
    ),
    "accept-line": CommandSource(
        "lab_agent.cli.order_actions:accept_line",
        "Confirm that you entered a held line in the laboratory system by hand; its results are delivered as usual.",
    ),
    "judge": CommandSource(
        "lab_agent.cli.order_actions:judge",
        "Apply the rules to an order again, and show what each one says and why. Nothing is changed.",
    ),
}
app = typer.Typer(help="Orders and their state.", no_args_is_help=True, cls=lazy_group(_ACTIONS))
_ORDER_FIELDS = (
    "state",
    "reason",
    "hold_cause",
    "held_since",
    "task_id",
    "contract",
    "counterparty",
    "seen_at",
    "changed_at",
    "expected_at",
)
_Messages = Mapping[JobId, tuple[ServiceMessage, ...]]
OrderArgument = Annotated[str, typer.Argument(metavar="ORDER", help="Key of the order, as `orders list` shows it.")]
OptionalOrderArgument = Annotated[
    str | None, typer.Argument(metavar="[ORDER]", help="Key of the order, as `orders list` shows it.")
]
_COLUMNS = (
    "order",
    "state",
    "cause",
    "reason",
    "attention",
    "seen",
    "requisition",
    "lines",
    "lis",
    "accession",
    "held_since",
    "contract",
    "waiting",
    "task",
)


@app.command("list")
def list_orders(  # noqa: PLR0913, PLR0917 - each is an option of the command
    config: ConfigOption = None,
    search: Annotated[
        str | None, typer.Option("--search", help="Key, Task id, requisition, accession number or barcode.")
    ] = None,
    state: Annotated[list[OrderState] | None, typer.Option("--state", help="Only orders in this state.")] = None,
    cause: Annotated[str | None, typer.Option("--cause", help="Only orders that are held for this cause.")] = None,
    limit: LimitOption = DEFAULT_PAGE_SIZE,
    offset: OffsetOption = 0,
    columns: ColumnsOption = None,
    wide: WideOption = False,
    as_json: JsonOption = False,
) -> None:
    """List orders, newest first; held ones alone, longest held first."""
    chosen = choose_columns(_COLUMNS, columns, wide=wide)

    async def work(context: CommandContext) -> Page[OrderSummary]:
        return await context.queries.orders(search=search, states=state or (), cause=cause, limit=limit, offset=offset)

    page = run_with_store(config, work)
    print_list(
        [_order_row(order) for order in page.items],
        as_json=as_json,
        columns=chosen,
        empty_text="No orders.",
    )
    print_remaining(page)


@app.command()
def show(order: OrderArgument, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Show one order: its lines, results, jobs and timeline, with what the service said.

    The service's own words may name a patient: they are kept encrypted, and purged with the order's identification data.
    """

    async def work(context: CommandContext) -> tuple[OrderDetail, _Messages]:
        detail = await context.queries.order(OrderKey(order))
        if detail is None:
            raise StoreError(f"No order {order}; search with `lab-agent orders list --search`.")
        said = await context.store.run_read_only(lambda uow: uow.vault.service_messages(detail.order.key))
        if said:
            await note_look(context.store, AuditAction.SERVICE_WORDS_SHOWN, detail.order.key, by=None, now=context.now)
        return detail, said

    detail, messages = run_with_store(config, work)
    fields, tables = _order_fields(detail), _order_tables(detail, {} if as_json else messages)
    if as_json:
        print_json({**fields} | {title.lower().replace(" ", "_"): rows for title, rows in tables.items()})
        return
    print_fields(fields, as_json=False)
    for title, rows in tables.items():
        if rows:
            print_heading(title)
            print_list(rows, as_json=False, empty_text="")


def _order_row(order: OrderSummary) -> Row:
    return {
        "order": order.key,
        "state": order.state,
        "contract": order.contract,
        "requisition": order.requisition and order.requisition.value,
        "accession": ", ".join(part.accession for part in order.work_orders if part.accession) or None,
        "lis": ", ".join(part.adapter for part in order.work_orders) or None,
        "lines": f"{order.ended_lines}/{order.lines}",
        "waiting": order.open_jobs or None,
        "attention": order.attention_count or None,
        "seen": order.seen_at,
        "held_since": order.held_since,
        "cause": order.hold_cause,
        "reason": order.reason,
        "task": order.task_id,
    }


def _timeline_rows(detail: OrderDetail, messages: _Messages) -> list[Row]:
    """The events of an order, and what the service said to attempts at its jobs, oldest first."""
    rows: list[tuple[datetime, Row]] = [(each.at, {"at": each.at, "what": each.text, "by": each.by}) for each in detail.events]
    order = detail.order
    if order.state is OrderState.HELD and order.held_since is not None:
        what = (
            f"still held since {order.held_since:%Y-%m-%d %H:%M:%S} UTC; read {detail.times_read} times in all, last at this time"
        )
        rows.append((order.changed_at, {"at": order.changed_at, "what": what, "by": None}))
    for job, said in messages.items():
        for each in said:
            what = f"job {job}, attempt {each.attempt}: {each.answer}. The service said: {each.text}"
            rows.append((each.at, {"at": each.at, "what": what, "by": None}))
    return [row for _, row in sorted(rows, key=itemgetter(0))]


def _order_fields(detail: OrderDetail) -> Row:
    order = detail.order
    requisition = order.requisition and order.requisition.value
    return {"order": order.key, "requisition": requisition} | {name: getattr(order, name) for name in _ORDER_FIELDS}


def _order_tables(detail: OrderDetail, messages: _Messages) -> dict[str, list[Row]]:
    return {
        "Laboratory systems": [
            {
                "lis": each.adapter,
                "state": each.state,
                "accession": each.accession,
                "lines": detail.progress_of(each),
                "changed": each.changed_at,
                "reason": each.reason,
            }
            for each in detail.work_orders
        ],
        "Lines": [
            {
                "line": each.key,
                "item": each.item,
                "state": each.state,
                "lis": each.adapter,
                "accession": each.accession,
                "output": each.outputs,
            }
            for each in detail.lines
        ],
        "Labels": [{"barcode": each.barcode, "line": each.line} for each in detail.labels],
        "Results": [
            {
                "result": each.key,
                "lis": each.source,
                "report": each.report_id,
                "version": each.version,
                "state": each.state,
                "reason": each.reason,
            }
            for each in detail.reports
        ],
        "Jobs": [
            {
                "job": each.id,
                "kind": each.kind,
                "lis": each.payload.get("adapter"),
                "state": each.state,
                "attempts": each.attempts,
                "reason": each.reason,
            }
            for each in detail.jobs
        ],
        "Timeline": _timeline_rows(detail, messages),
    }
