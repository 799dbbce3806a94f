"""`lab-agent login`: the sign-in at the service that needs a person, once."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from lab_agent import bootstrap
from lab_agent.cli.options import ConfigOption
from lab_agent.cli.shown import print_line
from lab_agent.errors import AuthenticationRequired
from lab_agent.exchange import login as signing_in
from lab_agent.settings.root import Settings, load_settings


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
            mend = "run `lab-agent login` again, with --paste where the browser is on another machine"
            raise AuthenticationRequired(f"no callback came; {mend}") from exc


async def _prompt_for_callback(login_attempt: signing_in.BrowserLogin) -> str:
    print_line(f"Open this address in a browser and sign in:\n\n{login_attempt.authorization_url}\n")
    print_line(
        f"The browser ends at an address that begins with {login_attempt.redirect_uri} (the page itself may fail to load)."
    )
    return str(await asyncio.to_thread(typer.prompt, "Paste that whole address"))
