"""Checks of the exchange service: is it there, does it accept our sign-in, does it know our contracts."""

from __future__ import annotations

from lab_agent import bootstrap
from lab_agent.cli.checks import Line, Verdict, wrong
from lab_agent.errors import CryptoError, Failure, ServiceUnavailable, SettingsError, SignInNeeded, StoreError
from lab_agent.ports.exchange import Exchange
from lab_agent.ports.store import Store
from lab_agent.settings.root import Settings
from lab_agent.store.memory import MemoryStore


async def check_there(settings: Settings, *, offline: bool) -> list[Line]:
    """Check it all, or say that it was left out."""
    if offline:
        return [Line(what, Verdict.SKIPPED, "--offline") for what in ("exchange", "sign-in", "contracts there")]
    try:
        return await _ask(settings, None)
    except StoreError:  # said already; the service can be asked all the same, with a sign-in that nobody keeps
        return await _ask(settings, MemoryStore())


async def _ask(settings: Settings, store: Store | None) -> list[Line]:
    try:
        async with bootstrap.connect(settings, store=store) as parts:
            return await _service(settings, parts.exchange)
    except (CryptoError, SettingsError) as exc:
        return wrong("exchange", exc)


async def _service(settings: Settings, exchange: Exchange) -> list[Line]:
    address = settings.exchange.base_url
    try:
        await exchange.check()
    except ServiceUnavailable as exc:
        return [*wrong("exchange", exc), Line("sign-in", Verdict.SKIPPED, "the service was not reached")]
    except SignInNeeded as exc:
        return [Line("exchange", Verdict.OK, address), *wrong("sign-in", exc)]
    except Failure as exc:
        return wrong("exchange", exc)
    reached = [Line("exchange", Verdict.OK, address), Line("sign-in", Verdict.OK, settings.exchange.oauth.grant)]
    return reached + [await _contract(exchange, code) for code in settings.exchange.contracts]


async def _contract(exchange: Exchange, code: str) -> Line:
    what = f"contract {code}"
    try:
        ids = await exchange.contract_ids(code)
    except Failure as exc:
        return Line(what, Verdict.WRONG, str(exc))
    if not ids:
        return Line(
            what, Verdict.WRONG, "the service shows no such contract", "mend its code, or ask the service for the right to see it"
        )
    return Line(what, Verdict.OK, f"contract/{', contract/'.join(ids)}")
