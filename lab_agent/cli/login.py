"""`lab-agent login`: the sign-in at the exchange service by a person."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from lab_agent import bootstrap
from lab_agent.cli.context import ConfigOption
from lab_agent.cli.output import print_line
from lab_agent.exchange.browser_login import BrowserLogin, callback_server, finish_login, start_login
from lab_agent.settings.root import Settings, load_settings
from lab_agent.shared.errors import AuthenticationRequired


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
