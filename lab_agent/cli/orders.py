"""`lab-agent orders …`: the state of orders, what the rules say of them, and the decisions of operators."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer

from lab_agent import bootstrap
from lab_agent.cli.context import (
    ByOption,
    CommandContext,
    ConfigOption,
    JsonOption,
    LimitOption,
    OffsetOption,
    operator_name,
    run_with_store,
)
from lab_agent.cli.output import Row, print_fields, print_heading, print_json, print_line, print_list, print_remaining
from lab_agent.domain.ids import LineKey, OrderKey
from lab_agent.domain.state_machines import OrderState
from lab_agent.errors import InputError, StoreError, did_you_mean
from lab_agent.ports.queries import DEFAULT_PAGE_SIZE, OrderDetail, OrderSummary, Page
from lab_agent.rules.engine import RULES
from lab_agent.settings.root import Settings, load_settings
from lab_agent.workflow import operator_jobs, operator_orders
from lab_agent.workflow.order_assessment import AssessedOrder, fetch_and_assess, reassess
from lab_agent.workflow.order_decision import decide_lines, order_hold_reason

app = typer.Typer(help="Orders and their state.", no_args_is_help=True)
_ORDER_FIELDS = (
    "state",
    "reason",
    "task_id",
    "contract",
    "counterparty",
    "seen_at",
    "changed_at",
    "expected_at",
)
OrderArgument = Annotated[str, typer.Argument(metavar="ORDER", help="Key of the order, as `orders list` shows it.")]
LineArgument = Annotated[str, typer.Argument(metavar="LINE", help="Key of the line, as `orders show` lists it.")]
ReasonOption = Annotated[str, typer.Option("--reason", help="What the clinic reads: what is wrong, and what to do.")]
NoteOption = Annotated[str, typer.Option("--note", help="What you found out; the timeline of the order keeps it.")]
FetchOption = Annotated[
    bool, typer.Option("--fetch", help="Fetch the order from the service again, instead of using the stored one.")
]
AdapterOption = Annotated[
    str | None,
    typer.Option(
        "--adapter", metavar="NAME", help="The laboratory system in which you entered it, where the order is at several."
    ),
]
_RULE_SECTIONS = {rule.id: rule.section for rule in RULES}


@app.command("list")
def list_orders(
    config: ConfigOption = None,
    search: Annotated[
        str | None, typer.Option("--search", help="Key, Task id, requisition, accession number or barcode.")
    ] = None,
    state: Annotated[list[OrderState] | None, typer.Option("--state", help="Only orders in this state.")] = None,
    limit: LimitOption = DEFAULT_PAGE_SIZE,
    offset: OffsetOption = 0,
    as_json: JsonOption = False,
) -> None:
    """List orders, newest first."""

    async def work(context: CommandContext) -> Page[OrderSummary]:
        return await context.queries.orders(search=search, states=state or (), limit=limit, offset=offset)

    page = run_with_store(config, work)
    print_list([_order_row(order) for order in page.items], as_json=as_json, empty_text="No orders.", json_rows=page.items)
    print_remaining(page)


@app.command()
def show(order: OrderArgument, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Show one order: its lines, results, jobs and timeline."""

    async def work(context: CommandContext) -> OrderDetail | None:
        return await context.queries.order(OrderKey(order))

    detail = run_with_store(config, work)
    if detail is None:
        raise StoreError(f"No order {order}; search with `lab-agent orders list --search`.")
    if as_json:
        print_json(detail)
    else:
        _print_detail(detail)


@app.command()
def retry(order: OrderArgument, config: ConfigOption = None, by: ByOption = None, as_json: JsonOption = False) -> None:
    """Run the waiting jobs of an order now; what may have happened already is verified first."""

    async def work(context: CommandContext) -> operator_jobs.RetriedOrder:
        return await operator_jobs.retry_order(context.store, OrderKey(order), by=operator_name(by), now=context.now)

    retried = run_with_store(config, work)
    if as_json:
        print_json(retried.jobs)
        return
    for job in retried.jobs:
        print_line(f"job {job.id}: {operator_jobs.describe_retry(job.kind, job.state, job.payload.get('adapter'))}")
    for job in retried.unverified:
        print_line(f"job {job.id} is left alone: {operator_jobs.describe_unverified(job)}")


@app.command()
def refuse(order: OrderArgument, reason: ReasonOption, config: ConfigOption = None, by: ByOption = None) -> None:
    """Reject a held order for good: the Task of every line is cancelled with your reason, which the clinic reads."""

    async def work(context: CommandContext) -> None:
        service = context.settings.exchange.base_url
        await operator_orders.reject_order(context.store, service, OrderKey(order), reason, by=operator_name(by), now=context.now)

    run_with_store(config, work)
    print_line(f"order {order} is rejected; its Tasks are being updated")


@app.command()
def release(order: OrderArgument, note: NoteOption, config: ConfigOption = None, by: ByOption = None) -> None:
    """Release a held order that you have checked: its barcode is in use elsewhere, or a time is ahead of the clock.

    Only what was found now is released: if the partner edits the order before its handover, it may be held again. An order that
    is held for another reason goes on by itself once its cause is corrected.
    """
    assessed = asyncio.run(_assess_order(load_settings(config), OrderKey(order), fetch=False))

    async def work(context: CommandContext) -> frozenset[str]:
        return await operator_orders.release_order(
            context.store, OrderKey(order), assessed.assessment.holds, note, by=operator_name(by), now=context.now
        )

    released = run_with_store(config, work)
    print_line(f"order {order} is released in spite of {', '.join(sorted(released))}; it is being assessed again")


@app.command("refuse-line")
def refuse_line(line: LineArgument, reason: ReasonOption, config: ConfigOption = None, by: ByOption = None) -> None:
    """Reject a held line (added, or requested again, after its order was assessed): its Task is cancelled with your reason."""

    async def work(context: CommandContext) -> None:
        await operator_orders.reject_line(context.store, LineKey(line), reason, by=operator_name(by), now=context.now)

    run_with_store(config, work)
    print_line(f"line {line} is rejected; its Task is being updated")


@app.command("accept-line")
def accept_line(line: LineArgument, adapter: AdapterOption = None, config: ConfigOption = None, by: ByOption = None) -> None:
    """Confirm that you entered a held line in the laboratory system by hand; its results are delivered as usual."""

    async def work(context: CommandContext) -> None:
        _check_adapter(adapter, context.settings)
        await operator_orders.accept_line(context.store, LineKey(line), adapter=adapter, by=operator_name(by), now=context.now)

    run_with_store(config, work)
    print_line(f"line {line} is accepted; its results will be delivered")


@app.command()
def judge(
    order: OrderArgument,
    config: ConfigOption = None,
    fetch: FetchOption = False,
    as_json: JsonOption = False,
) -> None:
    """Apply the rules to an order again, and show what each one says and why. Nothing is changed."""
    settings = load_settings(config)
    assessed = asyncio.run(_assess_order(settings, OrderKey(order), fetch=fetch))
    fields = _assessment_fields(order, assessed, settings, "service" if fetch else "store")
    if as_json:
        print_json(fields)
        return
    findings = fields.pop("findings")
    routed = ", ".join(f"{line} to {adapter}" for line, adapter in fields["routed_to"].items())
    silent = f"{len(fields['silent'])} of {len(RULES)} rules found nothing"
    print_fields({**fields, "routed_to": routed, "silent": silent}, as_json=False)
    print_heading("Findings")
    print_list(findings, as_json=False, empty_text="No rule found anything.")
    print_line("")


async def _assess_order(settings: Settings, key: OrderKey, *, fetch: bool) -> AssessedOrder:
    async with bootstrap.open_components(settings) as parts:
        await parts.catalogue_cache.refresh()
        assessor = bootstrap.build_assessor(parts)
        if fetch:
            return await fetch_and_assess(parts.exchange, settings.exchange.base_url, parts.store, assessor, key)
        return await reassess(parts.store, assessor, key)


def _check_adapter(adapter: str | None, settings: Settings) -> None:
    """Raise `InputError` for a laboratory system that the settings do not have."""
    names = list(settings.lis.tables)
    if adapter is not None and adapter not in names:
        hint = did_you_mean(adapter, names) or f"there are {', '.join(names)}"
        raise InputError(f"Nothing was changed: there is no table [lis.{adapter}]; {hint}")


def _assessment_fields(order: str, assessed: AssessedOrder, settings: Settings, source: str) -> dict[str, Any]:
    decision = decide_lines(assessed, cancel_whole_order=settings.worker.on_line_error == "cancel_order")
    router = bootstrap.build_decision_policy(settings).router
    findings = assessed.assessment.findings()
    rules_with_findings = {each.rule for each in findings}
    return {
        "order": order,
        "judged_from": source,
        "contract": assessed.contract,
        "held_because": order_hold_reason(assessed) or router.hold_reason(assessed, decision.accepted),
        "accepted": list(decision.accepted),
        "routed_to": router.route(assessed, decision.accepted),
        "rejected": sorted(decision.rejected),
        "ended_by_others": sorted(decision.ended),
        "findings": [
            {
                "rule": each.rule,
                "severity": each.severity,
                "line": each.line,
                "where": each.where,
                "message": each.message,
                "source": _RULE_SECTIONS[each.rule],
            }
            for each in findings
        ],
        "silent": [rule.id for rule in RULES if rule.id not in rules_with_findings],
    }


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
        "reason": order.reason,
    }


def _print_detail(detail: OrderDetail) -> None:
    order = detail.order
    requisition = order.requisition and order.requisition.value
    fields = {"order": order.key, "requisition": requisition} | {name: getattr(order, name) for name in _ORDER_FIELDS}
    print_fields(fields, as_json=False)
    tables: dict[str, list[Row]] = {
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
        "Timeline": [{"at": each.at, "what": each.text, "by": each.by} for each in detail.events],
    }
    for title, rows in tables.items():
        if rows:
            print_heading(title)
            print_list(rows, as_json=False, empty_text="")
