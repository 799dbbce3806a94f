"""A process that shares a sign-in: for each line of its input it makes so many calls at once, and says how many ended well.

`python -m tests.harness.signed_in_caller BASE_URL DATABASE KEY`
"""

from __future__ import annotations

import asyncio
import os
import sys
from datetime import UTC, datetime

import structlog

from lab_agent.bootstrap import SystemClock
from lab_agent.crypto import Cipher
from lab_agent.domain.ids import ResourceId
from lab_agent.errors import Failure
from lab_agent.exchange.authenticator import Authenticator
from lab_agent.exchange.client import ExchangeClient, http_options
from lab_agent.http_client import HttpClient
from lab_agent.settings.exchange import ExchangeSettings
from lab_agent.store.unit_of_work import SqlStore

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


async def _call(exchange: ExchangeClient) -> bool:
    try:
        await exchange.read("Task", ResourceId("1"))
    except Failure as failure:
        print(f"{datetime.now(UTC):%H:%M:%S} {failure}", file=sys.stderr)  # noqa: T201 - for who reads why it failed
        return False
    return True


async def _run(base_url: str, database: str, key: str) -> None:
    settings, store = make_settings(base_url), SqlStore(database, Cipher(key))
    async with HttpClient(http_options(settings)) as http:
        tokens = Authenticator(settings.oauth, http, store, SystemClock(), f"caller-{os.getpid()}")
        exchange = ExchangeClient(settings, http, tokens)
        print("ready", flush=True)  # noqa: T201
        while line := await asyncio.to_thread(sys.stdin.readline):
            ended = await asyncio.gather(*(_call(exchange) for _ in range(int(line))))
            print(sum(ended), flush=True)  # noqa: T201
        await tokens.aclose()
    await store.close()


if __name__ == "__main__":
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    asyncio.run(_run(*sys.argv[1:]))
