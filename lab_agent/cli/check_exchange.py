"""Checks of the exchange service: reachable, signed in, its links, the contracts."""

from __future__ import annotations

from lab_agent.cli.check_result import CheckResult, CheckStatus, failed_checks
from lab_agent.errors import AuthenticationRequired, Failure, ServiceUnavailable
from lab_agent.ports.exchange import Exchange
from lab_agent.settings.root import Settings

_ETAG_HINT = (
    "the versions in the resources are used; have the gateway leave ETag alone, so that resources without one can be updated"
)
_LINKS_HINT = "set `exchange.base_url` to the address that the service knows itself by, or correct the proxy before it"
SKIPPED = tuple(CheckResult(what, CheckStatus.SKIPPED, "--offline") for what in ("exchange", "sign-in", "service contracts"))


async def check_service(settings: Settings, exchange: Exchange) -> list[CheckResult]:
    """Check the service, the sign-in and the contracts."""
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
