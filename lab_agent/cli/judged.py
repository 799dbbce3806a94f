"""`lab-agent orders judge`: what each rule says of one order, and why."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer

from lab_agent import bootstrap
from lab_agent.cli.options import AsJson, Config
from lab_agent.cli.shown import heading, say, show_json, show_list, show_one
from lab_agent.domain.ids import OrderKey
from lab_agent.rules.judge import RULES
from lab_agent.settings.root import Settings, load_settings
from lab_agent.steps.judging import Judged
from lab_agent.steps.rejudge import judge_anew, rejudge
from lab_agent.steps.verdict import held_because, verdict_of

Fetch = Annotated[bool, typer.Option("--fetch", help="Fetch the order from the service anew, instead of judging it as kept.")]
_SECTIONS = {rule.id: rule.section for rule in RULES}


def judge(
    order: Annotated[str, typer.Argument(metavar="ORDER", help="Key of the order, as `orders list` shows it.")],
    config: Config = None,
    fetch: Fetch = False,
    as_json: AsJson = False,
) -> None:
    """Judge an order once more: what each rule says, where, and why. Nothing is written anywhere."""
    settings = load_settings(config)
    judged = asyncio.run(_judged(settings, OrderKey(order), fetch=fetch))
    told = _told(order, judged, settings, "service" if fetch else "journal")
    if as_json:
        show_json(told)
        return
    findings = told.pop("findings")
    show_one({**told, "silent": f"{len(told['silent'])} of {len(RULES)} rules found nothing"}, as_json=False)
    heading("Findings")
    show_list(findings, as_json=False, nothing="No rule has anything to say.")
    say("")


async def _judged(settings: Settings, key: OrderKey, *, fetch: bool) -> Judged:
    async with bootstrap.connect(settings) as parts:
        await parts.catalogues.refresh()
        judging = bootstrap.judging(parts)
        if fetch:
            return await judge_anew(parts.exchange, settings.exchange.base_url, parts.store, judging, key)
        return await rejudge(parts.store, judging, key)


def _told(order: str, judged: Judged, settings: Settings, source: str) -> dict[str, Any]:
    verdict = verdict_of(judged, cancel_whole_order=settings.worker.on_line_error == "cancel_order")
    found = judged.judgement.findings()
    spoken = {each.rule for each in found}
    return {
        "order": order,
        "judged_from": source,
        "contract": judged.contract,
        "held_because": held_because(judged),
        "accepted": list(verdict.accepted),
        "refused": sorted(verdict.refused),
        "ended_by_others": sorted(verdict.ended),
        "findings": [
            {
                "rule": each.rule,
                "severity": each.severity,
                "line": each.line,
                "where": each.where,
                "message": each.message,
                "source": _SECTIONS[each.rule],
            }
            for each in found
        ],
        "silent": [rule.id for rule in RULES if rule.id not in spoken],
    }
