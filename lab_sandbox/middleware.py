"""A line for each request, for whoever watches an adapter at work: method, path and status, never a query or a body."""

import sys
import time

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.typing import Processor

from lab_sandbox.faults.middleware import FAULTS_KEY


def log_to_stderr() -> None:
    """Standard output is for the line with the address; the log goes beside it."""
    processors: list[Processor] = [
        structlog.processors.TimeStamper(fmt="iso"),
        structlog.processors.LogfmtRenderer(key_order=["timestamp", "action"]),
    ]
    # Standard error is looked up for each line: whoever replaced it may have closed the one of now by then.
    structlog.configure(processors=processors, logger_factory=lambda *_: structlog.PrintLogger(sys.stderr))


class RequestLogMiddleware:
    """Logs what came and how it was answered; `status=None` is an answer that never left."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._log = structlog.get_logger("lab_sandbox")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes the request on and logs it when it is over."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status: int | None = None

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        started = time.perf_counter()
        try:
            await self._app(scope, receive, noting)
        finally:
            self._log.info(
                "request", action="request", method=scope["method"], path=scope["path"], status=status,
                milliseconds=round((time.perf_counter() - started) * 1000, 1), faults=scope.get(FAULTS_KEY, []),
            )  # fmt: skip
