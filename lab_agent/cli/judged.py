"""`lab-agent orders judge`: what each rule says of one order, and why."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer

from lab_agent import bootstrap
from lab_agent.cli.options import ConfigOption, JsonOption
from lab_agent.cli.shown import print_fields, print_heading, print_json, print_line, print_list
from lab_agent.domain.ids import OrderKey
from lab_agent.rules.judge import RULES
from lab_agent.settings.root import Settings, load_settings
from lab_agent.steps.judging import AssessedOrder
from lab_agent.steps.rejudge import fetch_and_assess, reassess
from lab_agent.steps.verdict import decide_lines, order_hold_reason

FetchOption = Annotated[
    bool, typer.Option("--fetch", help="Fetch the order from the service anew, instead of judging it as kept.")
]
_RULE_SECTIONS = {rule.id: rule.section for rule in RULES}


def judge(
    order: Annotated[str, typer.Argument(metavar="ORDER", help="Key of the order, as `orders list` shows it.")],
    config: ConfigOption = None,
    fetch: FetchOption = False,
    as_json: JsonOption = False,
) -> None:
    """Judge an order once more: what each rule says, where, and why. Nothing is written anywhere."""
    settings = load_settings(config)
    judged = asyncio.run(_assess_order(settings, OrderKey(order), fetch=fetch))
    told = _assessment_fields(order, judged, settings, "service" if fetch else "journal")
    if as_json:
        print_json(told)
        return
    findings = told.pop("findings")
    print_fields({**told, "silent": f"{len(told['silent'])} of {len(RULES)} rules found nothing"}, as_json=False)
    print_heading("Findings")
    print_list(findings, as_json=False, empty_text="No rule has anything to say.")
    print_line("")


async def _assess_order(settings: Settings, key: OrderKey, *, fetch: bool) -> AssessedOrder:
    async with bootstrap.open_components(settings) as parts:
        await parts.catalogue_cache.refresh()
        judging = bootstrap.build_assessor(parts)
        if fetch:
            return await fetch_and_assess(parts.exchange, settings.exchange.base_url, parts.store, judging, key)
        return await reassess(parts.store, judging, key)


def _assessment_fields(order: str, assessed: AssessedOrder, settings: Settings, source: str) -> dict[str, Any]:
    verdict = decide_lines(assessed, cancel_whole_order=settings.worker.on_line_error == "cancel_order")
    found = assessed.assessment.findings()
    spoken = {each.rule for each in found}
    return {
        "order": order,
        "judged_from": source,
        "contract": assessed.contract,
        "held_because": order_hold_reason(assessed),
        "accepted": list(verdict.accepted),
        "rejected": sorted(verdict.rejected),
        "ended_by_others": sorted(verdict.ended),
        "findings": [
            {
                "rule": each.rule,
                "severity": each.severity,
                "line": each.line,
                "where": each.where,
                "message": each.message,
                "source": _RULE_SECTIONS[each.rule],
            }
            for each in found
        ],
        "silent": [rule.id for rule in RULES if rule.id not in spoken],
    }
