"""`lab-agent login`: the sign-in at the service that needs a person, once."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from lab_agent import bootstrap
from lab_agent.cli.options import Config
from lab_agent.cli.shown import say
from lab_agent.errors import SignInNeeded
from lab_agent.exchange import login as signing_in
from lab_agent.settings.root import Settings, load_settings


def login(
    config: Config = None,
    paste: Annotated[bool, typer.Option("--paste", help="Paste the callback address instead of listening for it.")] = False,
    wait: Annotated[float, typer.Option("--wait", min=1, metavar="SECONDS", help="How long to listen for the callback.")] = 600,
) -> None:
    """Sign in at the exchange service with a browser: open the address that is printed; the callback comes here or is pasted."""
    asyncio.run(_sign_in(load_settings(config), paste=paste, wait=wait))


async def _sign_in(settings: Settings, *, paste: bool, wait: float) -> None:
    sign_in = signing_in.begin(settings.exchange.oauth)
    async with bootstrap.connect(settings) as parts:
        callback = await (_pasted(sign_in) if paste or not sign_in.listens_here else _received(sign_in, wait))
        await signing_in.finish(callback, sign_in, parts.authenticator)
    say("Signed in. The agent keeps the sign-in fresh from now on.")


async def _received(sign_in: signing_in.SignIn, wait: float) -> str:
    async with signing_in.listening(sign_in) as callback:
        say(f"Open this address in a browser and sign in:\n\n{sign_in.address}\n")
        say(f"Waiting for the callback at {sign_in.redirect_uri}")
        try:
            async with asyncio.timeout(wait):
                return await callback
        except TimeoutError as exc:
            mend = "run `lab-agent login` again, with --paste where the browser is on another machine"
            raise SignInNeeded(f"no callback came; {mend}") from exc


async def _pasted(sign_in: signing_in.SignIn) -> str:
    say(f"Open this address in a browser and sign in:\n\n{sign_in.address}\n")
    say(f"The browser ends at an address that begins with {sign_in.redirect_uri} (the page itself may fail to load).")
    return str(await asyncio.to_thread(typer.prompt, "Paste that whole address"))
