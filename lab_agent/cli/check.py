"""`lab-agent check`: says line by line what was tried, and how to mend what is wrong.

Checks of the exchange service: is it there, does it accept our sign-in, does it know our contracts.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from lab_agent import bootstrap
from lab_agent.cli.check_local import check_local
from lab_agent.cli.check_result import CheckResult, CheckStatus, failed_checks
from lab_agent.cli.context import ConfigOption, JsonOption
from lab_agent.cli.output import console, print_heading, print_json, print_line
from lab_agent.errors import AuthenticationRequired, CryptoError, Failure, ServiceUnavailable, SettingsError, StoreError
from lab_agent.ports.exchange import Exchange
from lab_agent.ports.repositories import Store
from lab_agent.settings.introspection import iter_masked_values as setting_lines
from lab_agent.settings.root import Settings, load_settings
from tests.fakes.memory_store import MemoryStore


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


_STATUS_STYLES = {CheckStatus.OK: "green", CheckStatus.TODO: "yellow", CheckStatus.WRONG: "bold red", CheckStatus.SKIPPED: "dim"}


def check(
    config: ConfigOption = None,
    offline: Annotated[bool, typer.Option("--offline", help="Leave out everything that needs the network.")] = False,
    show_settings: Annotated[bool, typer.Option("--settings", help="Print all settings first, secrets masked.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Try the settings, the store, the catalogue, the adapters, the service, the sign-in. Exit code 1 if something is wrong."""
    settings, found = _check_settings(config)
    if settings and show_settings and not as_json:
        _print_settings(settings)
    if settings:
        found += asyncio.run(_run_checks(settings, offline=offline))
    if as_json:
        print_json(found)
    else:
        _print_results(found)
    if any(line.status is CheckStatus.WRONG for line in found):
        raise typer.Exit(1)


def _check_settings(config: Path | None) -> tuple[Settings | None, list[CheckResult]]:
    try:
        return load_settings(config), [CheckResult("settings", CheckStatus.OK, str(config or "from the environment"))]
    except SettingsError as exc:
        return None, [
            CheckResult("settings", CheckStatus.WRONG, f"{each.where}: {each.what}", each.hint) for each in exc.problems
        ]


async def _run_checks(settings: Settings, *, offline: bool) -> list[CheckResult]:
    found = await check_local(settings, offline=offline)
    return found + await check_exchange(settings, offline=offline)


def _print_results(results: list[CheckResult]) -> None:
    page = console()
    width = max(len(line.name) for line in results) + 2
    for line in results:
        page.print(f"{line.status.value:<9}", style=_STATUS_STYLES[line.status], end="")
        page.print(f"{line.name:<{width}}{line.detail}" + (f" — {line.hint}" if line.hint else ""), soft_wrap=True)
    wrong = sum(line.status is CheckStatus.WRONG for line in results)
    print_line(f"\n{wrong} of {len(results)} wrong." if wrong else "\nNothing is wrong.")


def _print_settings(settings: Settings) -> None:
    print_heading("Settings")
    for key, value in setting_lines(settings):
        print_line(f"{key} = {value}")
    print_heading("Checks")
