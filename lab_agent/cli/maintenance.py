"""`lab-agent login`, `db …` and `rules`: the sign-in by a person, the database, and the rules for orders."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from lab_agent import bootstrap
from lab_agent.cli.context import ConfigOption, JsonOption
from lab_agent.cli.output import Row, print_json, print_line, print_list
from lab_agent.errors import AuthenticationRequired, StoreError
from lab_agent.exchange.browser_login import BrowserLogin, callback_server, finish_login, start_login
from lab_agent.rules.engine import RULES
from lab_agent.rules.rule import Rule
from lab_agent.settings.introspection import mask_url_password
from lab_agent.settings.root import Settings, load_settings
from lab_agent.store.key_rotation import KeyRotation
from lab_agent.store.key_rotation import rotate_keys as rotate_store_keys
from lab_agent.store.schema import upgrade as upgrade_schema

db_app = typer.Typer(help="The database.", no_args_is_help=True)


@db_app.callback()
def db_callback() -> None:
    """The database."""


@db_app.command()
def upgrade(config: ConfigOption = None) -> None:
    """Create the database, or upgrade its schema. May be repeated; no data is lost."""
    settings = load_settings(config)
    upgrade_schema(settings.store.url)
    print_line(f"{mask_url_password(settings.store.url)} has the current schema.")


@db_app.command("rotate-keys")
def rotate_keys(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Re-encrypt all stored data with the first of `store.encryption_keys`, and say when the older keys can be removed.

    It works in batches while the programs run. It may be interrupted and repeated: data under the newest key is skipped.
    """
    done = asyncio.run(_rotate_keys(load_settings(config)))
    if as_json:
        print_json(done)
    else:
        print_line(f"Re-encrypted with the newest key: {done.reencrypted}.")
    if done.unreadable:
        raise StoreError(
            f"{done.unreadable} values cannot be decrypted with any key of `store.encryption_keys` and stay as they are; "
            "add the key that they were encrypted with, and run this again."
        )
    if done.added_meanwhile:
        raise StoreError(
            f"{done.added_meanwhile} values were written with an older key in the meantime: keep it, restart every program with "
            "the newest key as its first, and run this again."
        )
    if not as_json:
        print_line(
            "Nothing that is stored needs an older key. Once every program runs with the newest key as its first, "
            "the others can be removed from `store.encryption_keys`."
        )


async def _rotate_keys(settings: Settings) -> KeyRotation:
    store = bootstrap.open_store(settings)
    try:
        return await rotate_store_keys(store)
    finally:
        await store.close()


def login(
    config: ConfigOption = None,
    paste: Annotated[bool, typer.Option("--paste", help="Paste the callback address instead of listening for it.")] = False,
    wait: Annotated[float, typer.Option("--wait", min=1, metavar="SECONDS", help="How long to wait for the callback.")] = 600,
) -> None:
    """Sign in at the exchange service with a browser: open the printed address; the callback is received here or pasted."""
    asyncio.run(_log_in(load_settings(config), paste=paste, wait=wait))


async def _log_in(settings: Settings, *, paste: bool, wait: float) -> None:
    attempt = start_login(settings.exchange.oauth)
    async with bootstrap.open_components(settings) as parts:
        callback = await (
            _prompt_for_callback(attempt) if paste or not attempt.has_local_callback else _wait_for_callback(attempt, wait)
        )
        await finish_login(callback, attempt, parts.authenticator)
    print_line("Signed in. The agent renews the sign-in from now on.")


async def _wait_for_callback(attempt: BrowserLogin, wait: float) -> str:
    async with callback_server(attempt) as callback:
        print_line(f"Open this address in a browser and sign in:\n\n{attempt.authorization_url}\n")
        print_line(f"Waiting for the callback at {attempt.redirect_uri}")
        try:
            async with asyncio.timeout(wait):
                return await callback
        except TimeoutError as exc:
            hint = "run `lab-agent login` again, with --paste where the browser is on another machine"
            raise AuthenticationRequired(f"no callback arrived; {hint}") from exc


async def _prompt_for_callback(attempt: BrowserLogin) -> str:
    print_line(f"Open this address in a browser and sign in:\n\n{attempt.authorization_url}\n")
    print_line(f"The browser ends up at an address that begins with {attempt.redirect_uri} (the page itself may fail to load).")
    return str(await asyncio.to_thread(typer.prompt, "Paste that complete address"))


def list_rules(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """List the rules for orders: severity, allowed severities, source in the interface, and message."""
    configured = _configured_severities(config)
    print_list([_rule_row(rule, configured.get(rule.id)) for rule in RULES], as_json=as_json, empty_text="No rules.")


def _configured_severities(config: Path | None) -> dict[str, str]:
    """The severities set in the settings, if a settings file is given."""
    return dict(load_settings(config).rules.severities) if config else {}


def _rule_row(rule: Rule, configured_severity: str | None) -> Row:
    return {
        "rule": rule.id,
        "severity": configured_severity or rule.severity,
        "own_severity": rule.severity,
        "allowed": sorted(rule.allowed_severities),
        "source": rule.section,
        "message": rule.message,
    }
