"""A process that shares a sign-in: it makes so many calls at once as its pipe says, and tells how those ended that failed."""

from __future__ import annotations

import asyncio
import os
from multiprocessing.connection import Connection

from lab_agent.bootstrap import SystemClock
from lab_agent.exchange.authenticator import Authenticator
from lab_agent.exchange.client import ExchangeClient, http_options
from lab_agent.settings.exchange import ExchangeSettings
from lab_agent.shared.http_client import HttpClient
from lab_agent.shared.ids import ResourceId
from lab_agent.store.crypto import Cipher
from lab_agent.store.unit_of_work import Store

AT_ONCE = 64


def make_settings(base_url: str) -> ExchangeSettings:
    """Settings of a sign-in that a person has made."""
    return ExchangeSettings.model_validate(
        {
            "base_url": base_url,
            "allow_plain_http": True,
            "lab_codes_url": "http://codes.lab.example",
            "laboratory": "lab",
            "max_concurrency": AT_ONCE,
            "oauth": {
                "grant": "authorization_code",
                "auth_url": base_url.rstrip("/"),
                "client_id": "lab-agent",
                "client_secret": "secret",
                "redirect_uri": "http://127.0.0.1:8485/callback",
            },
        }
    )


def call_together(pipe: Connection, base_url: str, database: str, key: str) -> None:
    """Call until the number is none."""
    asyncio.run(_run(pipe, base_url, database, key))


async def _run(pipe: Connection, base_url: str, database: str, key: str) -> None:
    settings, store = make_settings(base_url), Store(database, Cipher(key))
    async with HttpClient(http_options(settings)) as http:
        tokens = Authenticator(settings.oauth, http, store, SystemClock(), f"caller-{os.getpid()}")
        exchange = ExchangeClient(settings, http, tokens)
        while count := await asyncio.to_thread(pipe.recv):
            calls = (exchange.read("Task", ResourceId("1")) for _ in range(count))
            ended = await asyncio.gather(*calls, return_exceptions=True)
            pipe.send([str(each) for each in ended if isinstance(each, BaseException)])
        await tokens.aclose()
    await store.close()
