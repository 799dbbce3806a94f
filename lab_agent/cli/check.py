"""`lab-agent check`: tries everything that the agent needs, line by line, and says how to correct what is wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from lab_agent import bootstrap
from lab_agent.cli.check_local import check_local
from lab_agent.cli.check_result import CheckResult, CheckStatus, failed_checks
from lab_agent.cli.context import ConfigOption, JsonOption
from lab_agent.cli.output import console, print_heading, print_json, print_line
from lab_agent.crypto import Cipher, new_key
from lab_agent.domain.text import escape_unprintable
from lab_agent.errors import AuthenticationRequired, CryptoError, Failure, ServiceUnavailable, SettingsError, StoreError
from lab_agent.ports.exchange import Exchange
from lab_agent.ports.repositories import Store
from lab_agent.settings.introspection import iter_masked_values
from lab_agent.settings.root import Settings, load_settings
from lab_agent.store.schema import upgrade as upgrade_schema
from lab_agent.store.unit_of_work import SqlStore

_STATUS_STYLES = {CheckStatus.OK: "green", CheckStatus.TODO: "yellow", CheckStatus.WRONG: "bold red", CheckStatus.SKIPPED: "dim"}
_LINKS_HINT = "set `exchange.base_url` to the address that the service knows itself by, or correct the proxy before it"


def check(
    config: ConfigOption = None,
    offline: Annotated[bool, typer.Option("--offline", help="Skip everything that needs the network.")] = False,
    show_settings: Annotated[bool, typer.Option("--settings", help="Print all settings first, with secrets masked.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Check settings, store, catalogue, adapters, service and sign-in. Exit code 1 if something is wrong."""
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
    return found + await _check_exchange(settings, offline=offline)


def _print_results(results: list[CheckResult]) -> None:
    page = console()
    width = max(len(line.name) for line in results) + 2
    for line in results:
        page.print(f"{line.status.value:<9}", style=_STATUS_STYLES[line.status], end="")
        text = f"{line.name:<{width}}{line.detail}" + (f" — {line.hint}" if line.hint else "")
        page.print(escape_unprintable(text), soft_wrap=True)
    wrong = sum(line.status is CheckStatus.WRONG for line in results)
    print_line(f"\n{wrong} of {len(results)} wrong." if wrong else "\nNothing is wrong.")


def _print_settings(settings: Settings) -> None:
    print_heading("Settings")
    for key, value in iter_masked_values(settings):
        print_line(f"{key} = {value}")
    print_heading("Checks")


async def _check_exchange(settings: Settings, *, offline: bool) -> list[CheckResult]:
    """Check the service, the sign-in and the contracts."""
    if offline:
        return [CheckResult(what, CheckStatus.SKIPPED, "--offline") for what in ("exchange", "sign-in", "service contracts")]
    try:
        return await _connect_and_check(settings, None)
    except StoreError:  # reported already; the service can be checked anyway, with a sign-in that is not kept
        async with _temporary_store() as store:
            return await _connect_and_check(settings, store)


@asynccontextmanager
async def _temporary_store() -> AsyncIterator[SqlStore]:
    with TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/check.db"
        upgrade_schema(url)
        store = SqlStore(url, Cipher(new_key()))
        try:
            yield store
        finally:
            await store.close()


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
