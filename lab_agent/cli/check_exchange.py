"""Checks of the exchange service: reachable, signed in, its links, the contracts."""

from __future__ import annotations

from collections.abc import Sequence

from lab_agent.bootstrap import Components, build_own_reports
from lab_agent.cli.check_result import CheckResult, CheckStatus, failed_checks
from lab_agent.exchange.service import Exchange, Json
from lab_agent.results.own_reports import last_change
from lab_agent.shared.errors import AuthenticationRequired, Failure, ServiceUnavailable
from lab_agent.shared.ids import ResourceId, order_key, work_order_key

_ETAG_HINT = (
    "the versions in the resources are used; have the gateway leave ETag alone, so that resources without one can be updated"
)
_LINKS_HINT = "set `exchange.base_url` to the address that the service knows itself by, or correct the proxy before it"
SKIPPED = tuple(CheckResult(what, CheckStatus.SKIPPED, "--offline") for what in ("exchange", "sign-in", "service contracts"))


_MAX_NEW_ORDERS = 50
"""How many orders are looked at that the database does not know."""
_OTHER_AGENT_HINT = "stop the agent that did it, or bring its database along (docs/install.md, moving to another machine)"


async def check_service(parts: Components) -> list[CheckResult]:
    """Check the service, the sign-in and the contracts, and that no other agent works there."""
    settings, exchange = parts.settings, parts.exchange
    address = settings.exchange.base_url
    try:
        await exchange.check()
    except ServiceUnavailable as exc:
        return [*failed_checks("exchange", exc), CheckResult("sign-in", CheckStatus.SKIPPED, "the service could not be reached")]
    except AuthenticationRequired as exc:
        return [CheckResult("exchange", CheckStatus.OK, address), *failed_checks("sign-in", exc)]
    except Failure as exc:
        return failed_checks("exchange", exc)
    reached = [
        CheckResult("exchange", CheckStatus.OK, address),
        CheckResult("sign-in", CheckStatus.OK, settings.exchange.oauth.grant),
    ]
    reached += await _check_links(exchange)
    reached += await _check_etags(exchange)
    reached += await _check_other_agent(parts)
    return reached + [await _check_contract(exchange, code) for code in settings.exchange.contracts]


async def _check_links(exchange: Exchange) -> list[CheckResult]:
    """Check that the links of the service lead to the address at which we reach it; nothing to say where they do."""
    try:
        foreign = await exchange.foreign_links()
    except Failure as exc:
        return failed_checks("service links", exc)
    if "next" in foreign:
        what = f"its `next` links lead to {foreign['next']}: new orders beyond the first page cannot be fetched"
        return [CheckResult("service links", CheckStatus.WRONG, what, _LINKS_HINT)]
    if foreign:
        names = ", ".join(f"{relation} to {origin}" for relation, origin in sorted(foreign.items()))
        what = f"its links lead elsewhere ({names}), and its `next` links may"
        return [CheckResult("service links", CheckStatus.TODO, what, _LINKS_HINT)]
    return []


async def _check_etags(exchange: Exchange) -> list[CheckResult]:
    """Check that ETags are the versions of their resources; nothing to say where they are, or where there is nothing to read."""
    try:
        altered = await exchange.altered_etag()
    except Failure as exc:
        return failed_checks("service ETags", exc)
    if altered is None:
        return []
    what = f"a gateway before the service alters its ETags, as one that compresses answers does: {altered}"
    return [CheckResult("service ETags", CheckStatus.TODO, what, _ETAG_HINT)]


async def _check_other_agent(parts: Components) -> list[CheckResult]:
    """Check that no order that the database does not know has a report of ours already; nothing to say where none has.

    The agent that did it may still run, with a database of its own: each order would go to the laboratory twice.
    """
    adapters = {parts.settings.lis.default, *(each.adapter for each in parts.settings.lis.routes)}
    try:
        tasks = [ResourceId(str(each.get("id"))) for each in await parts.exchange.requested_order_tasks()]
        known = await parts.store.run_read_only(lambda uow: uow.orders.existing(tasks))
        found = await _find_report(parts, [each for each in tasks if each not in known][:_MAX_NEW_ORDERS], sorted(adapters))
    except Failure as exc:
        return failed_checks("other agents", exc)
    if found is None:
        return []
    task, report = found
    what = f"order-level Task {task} has a report of ours that this database does not know, {last_change(report)}"
    return [CheckResult("other agents", CheckStatus.WRONG, what, _OTHER_AGENT_HINT)]


async def _find_report(parts: Components, tasks: Sequence[ResourceId], adapters: Sequence[str]) -> tuple[ResourceId, Json] | None:
    own_reports, base_url = build_own_reports(parts), parts.settings.exchange.base_url
    for task in tasks:
        keys = [work_order_key(order_key(base_url, task), each) for each in adapters]
        if reports := await own_reports.find(keys):
            return task, reports[0]
    return None


async def _check_contract(exchange: Exchange, code: str) -> CheckResult:
    what = f"contract {code}"
    try:
        ids = await exchange.contract_ids(code)
    except Failure as exc:
        return CheckResult(what, CheckStatus.WRONG, str(exc))
    if not ids:
        return CheckResult(
            what,
            CheckStatus.WRONG,
            "the service has no such contract, or does not show it",
            "correct its code, or ask the service for access to it",
        )
    return CheckResult(what, CheckStatus.OK, f"contract/{', contract/'.join(ids)}")
