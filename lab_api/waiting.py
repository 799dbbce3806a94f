"""How lab-api begins while its database is away: every request is told to come again, and `/readyz` says what is wrong."""

from __future__ import annotations

import asyncio
import socket

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lab_agent.settings.groups import StoreSettings
from lab_agent.shared import exact_json, web_server
from lab_agent.store.opening import open_store
from lab_agent.store_wait import StoreWait, keep_watchdog
from lab_api.errors import EXCEPTION_HANDLERS, ApiError, service_unavailable
from lab_api.observation import condition_to_json, render_health

_DRAIN_SECONDS = 1.0
_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]


async def wait_for_store(settings: StoreSettings, prefix: str, sock: socket.socket, stop: asyncio.Event) -> bool:
    """Wait until the database can be read; whether it can: False if `stop` came first. Raises `CryptoError`, `StoreError`."""

    async def open_once() -> None:
        store = await asyncio.to_thread(open_store, settings)
        try:
            await store.verify()
        finally:
            await store.close()

    waiting = StoreWait(open_once)

    async def serve() -> None:
        async with asyncio.TaskGroup() as tasks:
            app = _create_app(waiting, prefix)
            tasks.create_task(web_server.serve(app, sock.dup(), drain=_DRAIN_SECONDS), name="server")
            tasks.create_task(keep_watchdog(), name="watchdog")

    return await waiting.wait(stop, serve)


def _create_app(waiting: StoreWait, prefix: str) -> Starlette:
    async def healthz(_: Request) -> Response:
        return render_health()

    async def readyz(_: Request) -> Response:
        body = {"status": "not ready", "service": "lab-api", **condition_to_json(waiting.find_condition())}
        return Response(exact_json.dumps(body), 503, media_type="application/json")

    async def refuse(_: Request) -> Response:
        raise service_unavailable("service")

    routes = [
        *(Route(path, healthz) for path in sorted({"/healthz", f"{prefix}/healthz"})),
        Route("/readyz", readyz),
        Route("/{path:path}", refuse, methods=_METHODS),
    ]
    return Starlette(routes=routes, exception_handlers={ApiError: EXCEPTION_HANDLERS[ApiError]})
