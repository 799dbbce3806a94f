"""`lab-agent login`: the sign-in at the service that needs a person, once.

`lab-agent db …`: the database's schema.

`lab-agent rules`: every rule that an order is judged by, with the severity that it has here.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from lab_agent import bootstrap
from lab_agent.cli.context import ConfigOption, JsonOption
from lab_agent.cli.output import Row, print_line, print_list
from lab_agent.errors import AuthenticationRequired
from lab_agent.exchange import browser_login as signing_in
from lab_agent.rules.engine import RULES
from lab_agent.rules.rule import Rule
from lab_agent.settings.introspection import mask_url_password
from lab_agent.settings.root import Settings, load_settings
from lab_agent.store.schema import upgrade as upgrade_schema

db_app = typer.Typer(help="The database.", no_args_is_help=True)


@db_app.callback()
def db_callback() -> None:
    """The database."""


@db_app.command()
def upgrade(config: ConfigOption = None) -> None:
    """Make the database, or bring it to this program's schema. Harmless when repeated; nothing is lost."""
    settings = load_settings(config)
    upgrade_schema(settings.store.url)
    print_line(f"{mask_url_password(settings.store.url)} has the schema of this program.")


def login(
    config: ConfigOption = None,
    paste: Annotated[bool, typer.Option("--paste", help="Paste the callback address instead of listening for it.")] = False,
    wait: Annotated[float, typer.Option("--wait", min=1, metavar="SECONDS", help="How long to listen for the callback.")] = 600,
) -> None:
    """Sign in at the exchange service with a browser: open the address that is printed; the callback comes here or is pasted."""
    asyncio.run(_log_in(load_settings(config), paste=paste, wait=wait))


async def _log_in(settings: Settings, *, paste: bool, wait: float) -> None:
    sign_in = signing_in.start_login(settings.exchange.oauth)
    async with bootstrap.open_components(settings) as parts:
        callback = await (
            _prompt_for_callback(sign_in) if paste or not sign_in.has_local_callback else _wait_for_callback(sign_in, wait)
        )
        await signing_in.finish_login(callback, sign_in, parts.authenticator)
    print_line("Signed in. The agent keeps the sign-in fresh from now on.")


async def _wait_for_callback(login_attempt: signing_in.BrowserLogin, wait: float) -> str:
    async with signing_in.callback_server(login_attempt) as callback:
        print_line(f"Open this address in a browser and sign in:\n\n{login_attempt.authorization_url}\n")
        print_line(f"Waiting for the callback at {login_attempt.redirect_uri}")
        try:
            async with asyncio.timeout(wait):
                return await callback
        except TimeoutError as exc:
            hint = "run `lab-agent login` again, with --paste where the browser is on another machine"
            raise AuthenticationRequired(f"no callback came; {hint}") from exc


async def _prompt_for_callback(login_attempt: signing_in.BrowserLogin) -> str:
    print_line(f"Open this address in a browser and sign in:\n\n{login_attempt.authorization_url}\n")
    print_line(
        f"The browser ends at an address that begins with {login_attempt.redirect_uri} (the page itself may fail to load)."
    )
    return str(await asyncio.to_thread(typer.prompt, "Paste that whole address"))


def list_rules(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """List the rules: what each does here, what settings may make of it, where it comes from, and what it says."""
    here = _configured_severities(config)
    print_list([_rule_row(rule, here.get(rule.id)) for rule in RULES], as_json=as_json, empty_text="No rules.")


def _configured_severities(config: Path | None) -> dict[str, str]:
    """The settings' own severities; without settings, every rule has its own."""
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
