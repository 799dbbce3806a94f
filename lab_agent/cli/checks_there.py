"""Checks of the exchange service: is it there, does it accept our sign-in, does it know our contracts."""

from __future__ import annotations

from lab_agent import bootstrap
from lab_agent.cli.checks import Line, Verdict, wrong
from lab_agent.errors import Failure, LabAgentError, ServiceUnavailable, SignInNeeded, StoreError
from lab_agent.ports.exchange import Exchange
from lab_agent.settings import Settings


async def check_there(settings: Settings, *, offline: bool) -> list[Line]:
    """Check it all, or say that it was left out."""
    if offline:
        return [Line(what, Verdict.SKIPPED, "--offline") for what in ("exchange", "sign-in", "contracts there")]
    try:
        async with bootstrap.connect(settings) as parts:
            return await _service(settings, parts.exchange)
    except StoreError:
        return [Line("exchange", Verdict.SKIPPED, "the sign-in is kept in the store, which is not ready")]
    except LabAgentError as exc:
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
