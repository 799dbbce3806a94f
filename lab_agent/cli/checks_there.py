"""Checks of the exchange service: is it there, does it accept our sign-in, does it know our contracts."""

from __future__ import annotations

from lab_agent import bootstrap
from lab_agent.cli.checks import CheckResult, CheckStatus, failed_checks
from lab_agent.errors import AuthenticationRequired, CryptoError, Failure, ServiceUnavailable, SettingsError, StoreError
from lab_agent.ports.exchange import Exchange
from lab_agent.ports.store import Store
from lab_agent.settings.root import Settings
from lab_agent.store.memory import MemoryStore


async def check_exchange(settings: Settings, *, offline: bool) -> list[CheckResult]:
    """Check it all, or say that it was left out."""
    if offline:
        return [CheckResult(what, CheckStatus.SKIPPED, "--offline") for what in ("exchange", "sign-in", "contracts there")]
    try:
        return await _connect_and_check(settings, None)
    except StoreError:  # said already; the service can be asked all the same, with a sign-in that nobody keeps
        return await _connect_and_check(settings, MemoryStore())


async def _connect_and_check(settings: Settings, store: Store | None) -> list[CheckResult]:
    try:
        async with bootstrap.open_components(settings, store=store) as parts:
            return await _check_service(settings, parts.exchange)
    except (CryptoError, SettingsError) as exc:
        return failed_checks("exchange", exc)


async def _check_service(settings: Settings, exchange: Exchange) -> list[CheckResult]:
    address = settings.exchange.base_url
    try:
        await exchange.check()
    except ServiceUnavailable as exc:
        return [*failed_checks("exchange", exc), CheckResult("sign-in", CheckStatus.SKIPPED, "the service was not reached")]
    except AuthenticationRequired as exc:
        return [CheckResult("exchange", CheckStatus.OK, address), *failed_checks("sign-in", exc)]
    except Failure as exc:
        return failed_checks("exchange", exc)
    reached = [
        CheckResult("exchange", CheckStatus.OK, address),
        CheckResult("sign-in", CheckStatus.OK, settings.exchange.oauth.grant),
    ]
    return reached + [await _check_contract(exchange, code) for code in settings.exchange.contracts]


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
            "the service shows no such contract",
            "mend its code, or ask the service for the right to see it",
        )
    return CheckResult(what, CheckStatus.OK, f"contract/{', contract/'.join(ids)}")
