"""Routes, errors and the request log as one plain ASGI application, without a layer that a route does not need.

A handler is given a request, and returns what sends the response. Its errors become an OperationOutcome (`errors`), and each
request is one line of the log: route, status, time and client; never a query string or a body.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from time import perf_counter

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lab_agent.logs import get_logger
from lab_api.errors import method_not_allowed, not_found, to_response

_log = get_logger(__name__)

Handler = Callable[[Request], Awaitable[ASGIApp]]
Methods = Mapping[str, Handler]
"""The handlers of a path by method; HEAD is answered as GET is, and the server leaves the body out."""

HEALTH_PATHS = ("/healthz", "/readyz")


class Router:
    """Sends each request to the handler of its path and method.

    A path of the table is taken literally; one that ends in `}` has its last segment as a parameter: `/documents/{address}`.
    """

    def __init__(self, table: Mapping[str, Methods]) -> None:
        self._literal = {path: _with_head(methods) for path, methods in table.items() if not path.endswith("}")}
        parts = [(path.partition("{"), path, methods) for path, methods in table.items() if path.endswith("}")]
        self._with_parameter = [(head, name[:-1], path, _with_head(methods)) for (head, _, name), path, methods in parts]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request. An error that is nobody's is answered with 500, and raised for the server to log."""
        if scope["type"] != "http":
            raise NotImplementedError(f"{scope['type']} is not served")
        started, request, status = perf_counter(), Request(scope, receive, send), 500

        async def send_noting_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        path, methods = self._find(scope)
        try:
            await self._respond(request, methods, send_noting_status)
        finally:
            log = _log.debug if path in HEALTH_PATHS else _log.info
            elapsed, source = round(perf_counter() - started, 4), scope.get("state", {}).get("client")
            log("request", action="api.request", method=scope["method"], path=path, status=status, elapsed=elapsed, source=source)

    def _find(self, scope: Scope) -> tuple[str, Methods | None]:
        """The route's path and handlers; "unknown" and None where there is none."""
        path: str = scope["path"]
        if (methods := self._literal.get(path)) is not None:
            return path, methods
        for head, name, template, methods in self._with_parameter:
            value = path.removeprefix(head)
            if path.startswith(head) and value and "/" not in value:
                scope["path_params"] = {name: value}
                return template, methods
        return "unknown", None

    async def _respond(self, request: Request, methods: Methods | None, send: Send) -> None:
        handler = None if methods is None else methods.get(request.method)
        unexpected: Exception | None = None
        try:
            if handler is not None:
                response = await handler(request)
            else:
                response = not_found() if methods is None else method_not_allowed(request.method, methods)
        except Exception as exc:  # noqa: BLE001 - whatever it is, the client is told; what is not ours is raised again below
            response, known = to_response(exc)
            unexpected = None if known else exc
        await response(request.scope, request.receive, send)
        if unexpected:
            raise unexpected


def _with_head(methods: Methods) -> Methods:
    return {**methods, "HEAD": methods["GET"]} if "GET" in methods else methods
