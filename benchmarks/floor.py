"""What the calls alone cost: requests with httpx on its aiohttp transport, nothing parsed."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

import httpx
from httpx_aiohttp import AiohttpTransport

from benchmarks.child_process import announce, cpu_seconds, serve_commands
from benchmarks.sample_order import ORDER_MARK
from benchmarks.stub_service import number_of

PARALLEL_ORDERS = 8
"""As many as the agent's `worker.concurrency`, which is also its `exchange.max_concurrency`."""
_HEADERS = {"Authorization": "Bearer stub", "Accept": "application/fhir+json"}


async def _run(base_url: str) -> None:
    async with httpx.AsyncClient(base_url=base_url, transport=AiohttpTransport(), headers=_HEADERS) as client:

        async def run_command(command: dict[str, Any]) -> dict[str, Any]:
            before = cpu_seconds()
            await _send_for_orders(client, command["requests"], command["first"], command["count"])
            return {"cpu": cpu_seconds() - before}

        announce({"ready": True})
        await serve_commands(run_command)


async def _send_for_orders(client: httpx.AsyncClient, requests: Sequence[dict[str, Any]], first: int, count: int) -> None:
    """Send `requests` for each order; those of one order one after the other."""
    waiting = iter(range(first, first + count))

    async def work() -> None:
        for order in waiting:
            number = number_of(order)
            for each in requests:
                target, body = each["target"].replace(ORDER_MARK, number), each["body"].replace(ORDER_MARK, number)
                headers = {name: value.replace(ORDER_MARK, number) for name, value in each["headers"].items()}
                answer = await client.request(each["method"], target, content=body.encode() or None, headers=headers)
                if answer.status_code >= 300:
                    raise RuntimeError(f"{each['method']} {target} was answered with {answer.status_code}")

    await asyncio.gather(*(work() for _ in range(PARALLEL_ORDERS)))


if __name__ == "__main__":
    asyncio.run(_run(sys.argv[1]))
