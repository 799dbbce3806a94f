"""Taking an address, serving and ending."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import httpx
import pytest

from lab_agent.shared import web_server
from lab_agent.shared.errors import SettingsError
from tests.harness.clock import DEADLINE


async def test_answer_does_not_wait_for_the_clients_acknowledgement():
    accepted = asyncio.get_running_loop().create_future()
    server = await asyncio.start_server(
        lambda _, writer: accepted.set_result(writer), sock=web_server.listen("127.0.0.1", 0, settings_group="status")
    )
    async with server:
        _, client = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer = await asyncio.wait_for(accepted, DEADLINE)
        assert writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
        for each in (client, writer):
            each.close()
            await each.wait_closed()


def test_address_that_cannot_be_taken_names_the_setting():
    """One in use, and one that is not of this machine."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]
        with pytest.raises(SettingsError, match=f"^Cannot listen on 127.0.0.1:{port}: address already in use — ") as caught:
            web_server.listen("127.0.0.1", port, settings_group="status")
    assert caught.value.problems[0].where == "status.port"
    for host in ("no-such-host.invalid", "203.0.113.7"):
        with pytest.raises(SettingsError, match=rf"^Cannot listen on {host}:0: .+ — .*api.host"):
            web_server.listen(host, 0, settings_group="api")


async def test_running_request_finishes_before_shutdown():
    started, go = asyncio.Event(), asyncio.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        started.set()
        await go.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"late"})

    sock = web_server.listen("127.0.0.1", 0, settings_group="status")
    address = f"http://127.0.0.1:{sock.getsockname()[1]}/"
    server = asyncio.create_task(web_server.serve(slow, sock, drain=10))
    async with httpx.AsyncClient(timeout=DEADLINE) as client:
        asked = asyncio.create_task(client.get(address))
        await asyncio.wait_for(started.wait(), DEADLINE)
        server.cancel()
        await asyncio.sleep(0)
        assert not server.done()
        go.set()
        assert (await asked).text == "late"
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(server, DEADLINE)
        with pytest.raises(httpx.ConnectError):
            await client.get(address)
