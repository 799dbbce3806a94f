"""`lab-agent orders …`: what became of orders."""

from __future__ import annotations

from typing import Annotated

import typer

from lab_agent.cli.judged import judge
from lab_agent.cli.opened import Opened, with_store
from lab_agent.cli.options import AsJson, By, Config, Limit, Offset, decider
from lab_agent.cli.shown import Row, heading, more, say, show_json, show_list, show_one
from lab_agent.domain.ids import LineKey, OrderKey
from lab_agent.domain.journal import Effect
from lab_agent.domain.lifecycle import OrderState
from lab_agent.errors import StoreError
from lab_agent.ports.views import PAGE, OrderDetail, OrderSummary, Page
from lab_agent.steps import desk, order_desk

app = typer.Typer(help="Orders: where each of them stands.", no_args_is_help=True)
_FIELDS = (
    "state",
    "reason",
    "task_id",
    "contract",
    "counterparty",
    "adapter",
    "accession",
    "seen_at",
    "changed_at",
    "expected_at",
)
Key = Annotated[str, typer.Argument(metavar="ORDER", help="Key of the order, as `orders list` shows it.")]

Line = Annotated[str, typer.Argument(metavar="LINE", help="Key of the line, as `orders show` lists it.")]
Reason = Annotated[str, typer.Option("--reason", help="What the clinic reads: what is wrong, and what to do.")]


@app.command("list")
def list_(
    config: Config = None,
    search: Annotated[str | None, typer.Option("--search", help="A key, Task id, requisition, accession or barcode.")] = None,
    state: Annotated[list[OrderState] | None, typer.Option("--state", help="Only orders in this state.")] = None,
    limit: Limit = PAGE,
    offset: Offset = 0,
    as_json: AsJson = False,
) -> None:
    """List orders, newest first."""

    async def work(opened: Opened) -> Page[OrderSummary]:
        return await opened.views.orders(search=search, states=state or (), limit=limit, offset=offset)

    page = with_store(config, work)
    show_list([_row(order) for order in page.items], as_json=as_json, nothing="No orders.", full=page.items)
    more(len(page.items), page.total, offset)


@app.command()
def show(order: Key, config: Config = None, as_json: AsJson = False) -> None:
    """Show one order: its lines, what is waiting, its results and its timeline."""

    async def work(opened: Opened) -> OrderDetail | None:
        return await opened.views.order(OrderKey(order))

    detail = with_store(config, work)
    if detail is None:
        raise StoreError(f"There is no order {order}; `lab-agent orders list --search` finds them.")
    if as_json:
        show_json(detail)
    else:
        _print(detail)


@app.command()
def retry(order: Key, config: Config = None, by: By = None, as_json: AsJson = False) -> None:
    """Do now whatever of an order waits; what may have happened already is looked at first."""

    async def work(opened: Opened) -> tuple[Effect, ...]:
        return await desk.retry_order(opened.store, OrderKey(order), by=decider(by), now=opened.now)

    effects = with_store(config, work)
    if as_json:
        show_json(effects)
    for effect in () if as_json else effects:
        say(f"effect {effect.id}: {desk.what_retry_does(effect.kind, effect.state)}")


@app.command()
def refuse(order: Key, reason: Reason, config: Config = None, by: By = None) -> None:
    """Refuse a held order for good: every line's Task is cancelled with your reason, which the clinic reads."""

    async def work(opened: Opened) -> None:
        service = opened.settings.exchange.base_url
        await order_desk.refuse_order(opened.store, service, OrderKey(order), reason, by=decider(by), now=opened.now)

    with_store(config, work)
    say(f"order {order} is refused; its Tasks follow")


@app.command("refuse-line")
def refuse_line(line: Line, reason: Reason, config: Config = None, by: By = None) -> None:
    """Refuse a held line (one that came after its order was judged): its Task is cancelled with your reason."""

    async def work(opened: Opened) -> None:
        await order_desk.refuse_line(opened.store, LineKey(line), reason, by=decider(by), now=opened.now)

    with_store(config, work)
    say(f"line {line} is refused; its Task follows")


@app.command("accept-line")
def accept_line(line: Line, config: Config = None, by: By = None) -> None:
    """Say that you entered a held line in the laboratory system by hand: its results are delivered like any other's."""

    async def work(opened: Opened) -> None:
        await order_desk.accept_line(opened.store, LineKey(line), by=decider(by), now=opened.now)

    with_store(config, work)
    say(f"line {line} is accepted; its results will be delivered")


app.command()(judge)


def _row(order: OrderSummary) -> Row:
    return {
        "order": order.key,
        "state": order.state,
        "contract": order.contract,
        "requisition": order.requisition and order.requisition.value,
        "accession": order.accession,
        "lines": f"{order.ended_lines}/{order.lines}",
        "waiting": order.open_effects or None,
        "trouble": order.troubles or None,
        "seen": order.seen_at,
        "reason": order.reason,
    }


def _print(detail: OrderDetail) -> None:
    order = detail.order
    requisition = order.requisition and order.requisition.value
    fields = {"order": order.key, "requisition": requisition} | {name: getattr(order, name) for name in _FIELDS}
    show_one(fields, as_json=False)
    tables: dict[str, list[Row]] = {
        "Lines": [
            {"line": each.key, "item": each.item, "state": each.state, "accession": each.accession, "output": each.outputs}
            for each in detail.lines
        ],
        "Labels": [{"barcode": each.barcode, "line": each.line} for each in detail.labels],
        "Results": [
            {"result": each.key, "report": each.report_id, "version": each.version, "state": each.state, "reason": each.reason}
            for each in detail.reports
        ],
        "Effects": [
            {"effect": each.id, "kind": each.kind, "state": each.state, "attempts": each.attempts, "reason": each.reason}
            for each in detail.effects
        ],
        "Timeline": [{"at": each.at, "what": each.text, "by": each.by} for each in detail.events],
    }
    for title, rows in tables.items():
        if rows:
            heading(title)
            show_list(rows, as_json=False, nothing="")
