"""The request log: method, path, status and faults of each request, never its query or body."""

import sys
import time

import structlog
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.typing import Processor

from lab_sandbox.faults.middleware import FAULTS_KEY
from lab_sandbox.http_helpers import FHIR_MEDIA_TYPE


def log_to_stderr() -> None:
    """Logs to standard error; standard output has only the line with the address."""
    processors: list[Processor] = [
        structlog.processors.TimeStamper(fmt="iso"),
        structlog.processors.LogfmtRenderer(key_order=["timestamp", "action"]),
    ]
    # sys.stderr is looked up for each line: a test may replace it and close the earlier one.
    structlog.configure(processors=processors, logger_factory=lambda *_: structlog.PrintLogger(sys.stderr))


class FhirMediaTypeMiddleware:
    """Gives every JSON response of the FHIR part STU3's media type, as a strict service does.

    A Binary is left alone: it may be a JSON document.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes the request on, and changes the header of its response."""

        async def send_as_fhir(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                if headers.get("content-type") == "application/json":
                    headers["content-type"] = FHIR_MEDIA_TYPE
            await send(message)

        is_document = scope["type"] == "http" and scope["method"] == "GET" and scope["path"].startswith("/fhir/Binary/")
        is_fhir = scope["type"] == "http" and scope["path"].startswith("/fhir") and not is_document
        await self._app(scope, receive, send_as_fhir if is_fhir else send)


class RequestLogMiddleware:
    """Logs each request and its status; `status=None`: no response was sent."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._log = structlog.get_logger("lab_sandbox")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes the request on, and logs it afterwards."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status: int | None = None

        async def send_and_note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        started = time.perf_counter()
        try:
            await self._app(scope, receive, send_and_note)
        finally:
            self._log.info(
                "request", action="request", method=scope["method"], path=scope["path"], status=status,
                milliseconds=round((time.perf_counter() - started) * 1000, 1), faults=scope.get(FAULTS_KEY, []),
            )  # fmt: skip
