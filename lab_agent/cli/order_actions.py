"""`lab-agent orders …`: what operators decide about an order, and what the rules say of it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any

import typer

from lab_agent import bootstrap
from lab_agent.cli.context import ByOption, CommandContext, ConfigOption, JsonOption, operator_name, run_with_store
from lab_agent.cli.group_actions import AllOf, CauseOption, GroupCommand, YesOption, choose
from lab_agent.cli.orders import OptionalOrderArgument, OrderArgument
from lab_agent.cli.outbox import job_row
from lab_agent.cli.output import print_fields, print_heading, print_json, print_line, print_list
from lab_agent.orders import held_group_actions, job_actions, order_actions
from lab_agent.orders.group_actions import ActionOutcome
from lab_agent.orders.order_assessment import AssessedOrder, fetch_and_assess, reassess
from lab_agent.orders.order_decision import decide_lines, find_order_hold
from lab_agent.rules.engine import RULES
from lab_agent.settings.root import Settings, load_settings
from lab_agent.shared.errors import InputError, did_you_mean
from lab_agent.shared.ids import LineKey, OrderKey

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


def retry(
    order: OptionalOrderArgument = None,
    cause: CauseOption = None,
    yes: YesOption = False,
    config: ConfigOption = None,
    by: ByOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run the waiting jobs of an order now, or assess all orders now that are held for a cause.

    What may have happened already is verified first.
    """
    chosen = choose(order, cause, "the key of an order")
    if isinstance(chosen, AllOf):
        _assess_group(chosen.cause, config, operator_name(by), GroupCommand(yes, as_json))
        return

    async def work(context: CommandContext) -> job_actions.RetriedOrder:
        return await job_actions.retry_order(context.store, OrderKey(chosen), by=operator_name(by), now=context.now)

    retried = run_with_store(config, work)
    if as_json:
        print_json([job_row(job) for job in retried.jobs])
        return
    for job in retried.jobs:
        print_line(f"job {job.id}: {job_actions.describe_retry(job.kind, job.state, job.payload.get('adapter'))}")
    for job in retried.unverified:
        print_line(f"job {job.id} is left alone: {job_actions.describe_unverified(job)}")


def refuse(order: OrderArgument, reason: ReasonOption, config: ConfigOption = None, by: ByOption = None) -> None:
    """Reject a held order for good: the Task of every line is cancelled with your reason, which the clinic reads."""

    async def work(context: CommandContext) -> None:
        service = context.settings.exchange.base_url
        await order_actions.reject_order(context.store, service, OrderKey(order), reason, by=operator_name(by), now=context.now)

    run_with_store(config, work)
    print_line(f"order {order} is rejected; its Tasks are being updated")


def release(
    note: NoteOption,
    order: OptionalOrderArgument = None,
    cause: CauseOption = None,
    yes: YesOption = False,
    config: ConfigOption = None,
    by: ByOption = None,
    as_json: JsonOption = False,
) -> None:
    """Release a held order that you have checked, or all held for one cause, like a time ahead of the clock.

    Only what was found now is released: if the partner edits the order before its handover, it may be held again. An order that
    is held for another reason goes on by itself once its cause is corrected.
    """
    chosen = choose(order, cause, "the key of an order")
    if isinstance(chosen, AllOf):
        group = GroupCommand(yes, as_json)
        group.print(asyncio.run(_release_group(load_settings(config), chosen.cause, note, operator_name(by), group)))
        return
    assessed = asyncio.run(_assess_order(load_settings(config), OrderKey(chosen), fetch=False))

    async def release_one(context: CommandContext) -> frozenset[str]:
        return await order_actions.release_order(
            context.store, OrderKey(chosen), assessed.assessment.holds, note, by=operator_name(by), now=context.now
        )

    released = run_with_store(config, release_one)
    print_line(f"order {order} is released in spite of {', '.join(sorted(released))}; it is being assessed again")


def refuse_line(line: LineArgument, reason: ReasonOption, config: ConfigOption = None, by: ByOption = None) -> None:
    """Reject a held line (added, or requested again, after its order was assessed): its Task is cancelled with your reason."""

    async def work(context: CommandContext) -> None:
        await order_actions.reject_line(context.store, LineKey(line), reason, by=operator_name(by), now=context.now)

    run_with_store(config, work)
    print_line(f"line {line} is rejected; its Task is being updated")


def accept_line(line: LineArgument, adapter: AdapterOption = None, config: ConfigOption = None, by: ByOption = None) -> None:
    """Confirm that you entered a held line in the laboratory system by hand; its results are delivered as usual."""

    async def work(context: CommandContext) -> None:
        _check_adapter(adapter, context.settings)
        await order_actions.accept_line(context.store, LineKey(line), adapter=adapter, by=operator_name(by), now=context.now)

    run_with_store(config, work)
    print_line(f"line {line} is accepted; its results will be delivered")


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


def _assess_group(cause: str, config: Path | None, by: str, group: GroupCommand) -> None:
    async def work(context: CommandContext) -> ActionOutcome | None:
        return await group.decide(
            held_group_actions.preview_assessment(context.store, cause),
            lambda: held_group_actions.assess_held_orders(context.store, cause, by=by, now=context.now),
        )

    group.print(run_with_store(config, work))


async def _release_group(settings: Settings, cause: str, note: str, by: str, group: GroupCommand) -> ActionOutcome | None:
    async with bootstrap.open_components(settings) as parts:
        store = parts.store

        async def release_all() -> ActionOutcome:
            await parts.catalogue_cache.refresh()
            assessor = bootstrap.build_assessor(parts)
            return await held_group_actions.release_held_orders(
                store, cause, lambda key: reassess(store, assessor, key), by=by, note=note, now=parts.clock.now()
            )

        return await group.decide(held_group_actions.preview_order_release(store, cause), release_all)


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
    router, hold = bootstrap.build_decision_policy(settings).router, find_order_hold(assessed)
    findings = assessed.assessment.findings()
    rules_with_findings = {each.rule for each in findings}
    return {
        "order": order,
        "judged_from": source,
        "contract": assessed.contract,
        "held_because": hold.text if hold else router.hold_reason(assessed, decision.accepted),
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
