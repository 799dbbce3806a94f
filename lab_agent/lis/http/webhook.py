"""Our own endpoint: a message is genuine, of bearable size, read, committed, and only then answered with 2xx (law 1)."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import structlog
from fastapi import FastAPI, Request, Response
from starlette.requests import ClientDisconnect

from lab_agent import exact_json
from lab_agent.errors import DataInvalidError, LabAgentError
from lab_agent.lis.http.openapi import openapi_document
from lab_agent.lis.http.settings import HttpSettings
from lab_agent.lis.http.signatures import InvalidSignature, verify_signature
from lab_agent.ports.lis import Inbox
from lab_agent.serialization import load_message

log = structlog.get_logger(__name__)
_RETRY_AFTER_SECONDS = "10"


@dataclass(slots=True)
class ResultWebhook:
    """What becomes of a message that was posted to us."""

    settings: HttpSettings
    name: str
    inbox: Inbox
    _forgery_logged: bool = False

    async def receive(self, request: Request) -> Response:
        """Answer 200 (kept, now or before), 400, 401, 413, 422 with every bad field, or 503 (again later)."""
        try:
            body = await _read_body(request, self.settings.max_message_bytes)
        except ClientDisconnect:
            return _error_response(400, "broken_off", "the message ended before its end")
        if body is None:
            return _error_response(413, "too_large", f"a message has up to {self.settings.max_message_bytes} bytes")
        try:
            name = self._verify(request.headers, body)
        except InvalidSignature as exc:
            return _error_response(401, "not_genuine", str(exc))
        try:
            message = await asyncio.to_thread(load_message, body, time_zone=self.settings.zone)
            new = await self.inbox.accept(f"{name}:{hashlib.sha256(body).hexdigest()[:16]}", message)
        except DataInvalidError as exc:
            return await self._reject(name, body, exc)
        except LabAgentError as exc:
            return self._retry_later_response(exc)
        return _json_response(200, {"kept": "now" if new else "before"})

    def _retry_later_response(self, error: LabAgentError) -> Response:
        log.warning("message not kept", action="webhook_not_stored", adapter=self.name, error=type(error).__name__)
        return _error_response(503, "again_later", "it could not be kept; send it again", {"Retry-After": _RETRY_AFTER_SECONDS})

    def _verify(self, headers: Mapping[str, str], body: bytes) -> str:
        """Give the message's name; a row of forgeries is logged once."""
        settings = self.settings
        try:
            name = verify_signature(
                headers, body, secrets=settings.incoming_secrets, now=datetime.now(UTC), tolerance=settings.replay_window
            )
        except InvalidSignature as exc:
            if not self._forgery_logged:
                log.warning("message not genuine", action="webhook_signature_invalid", adapter=self.name, reason=str(exc))
            self._forgery_logged = True
            raise
        self._forgery_logged = False
        return name

    async def _reject(self, name: str, body: bytes, error: DataInvalidError) -> Response:
        """Refuse a message; told first, so that nobody waits in the dark. Where that cannot be kept, it is to come again."""
        try:
            await self.inbox.refused(name, str(error.problems[0]))
        except LabAgentError as exc:
            return self._retry_later_response(exc)
        log.warning("message refused", action="webhook_rejected", adapter=self.name)
        if self.settings.refused_folder is not None:
            await asyncio.to_thread(_save_rejected, self.settings.refused_folder, body, error)
        problems = [{"where": one.where, "what": one.what, "mend": one.hint} for one in error.problems]
        return _json_response(422, {"code": "not_understood", "problems": problems})


def make_app(webhook: ResultWebhook) -> FastAPI:
    """Make the application: messages, a sign of life, and the description of both directions."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    prefix = webhook.settings.prefix

    async def openapi() -> Response:
        return _json_response(200, openapi_document(webhook.settings))

    async def alive() -> Response:
        return _json_response(200, {"status": "listening"})

    app.add_api_route(f"{prefix}/messages", webhook.receive, methods=["POST"], response_model=None)
    app.add_api_route(f"{prefix}/health", alive, methods=["GET"], response_model=None)
    app.add_api_route(f"{prefix}/openapi.json", openapi, methods=["GET"], response_model=None)
    return app


async def _read_body(request: Request, limit: int) -> bytes | None:
    """Read the body; None as soon as it is larger than the limit, whatever the sender says of its length."""
    told = request.headers.get("content-length", "0")
    if told.isdecimal() and int(told[:15]) > limit:
        return None
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            return None
    return bytes(body)


def _save_rejected(folder: Path, body: bytes, error: DataInvalidError) -> None:
    """Keep the bytes as they came, once however often they come; a full disk must not turn a refusal into something else."""
    stem = hashlib.sha256(body).hexdigest()[:32]
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (folder / f"{stem}.message").open("xb") as file:
            file.write(body)
        (folder / f"{stem}.reason.txt").write_text("\n".join(map(str, error.problems)) + "\n", encoding="utf-8")
    except FileExistsError:
        return
    except OSError as exc:
        log.error("refused message not kept", action="webhook_rejected_not_stored", error=type(exc).__name__)  # noqa: TRY400


def _error_response(status: int, code: str, text: str, headers: dict[str, str] | None = None) -> Response:
    return _json_response(status, {"code": code, "text": text}, headers)


def _json_response(status: int, tree: object, headers: dict[str, str] | None = None) -> Response:
    return Response(exact_json.dumps(tree), status_code=status, headers=headers, media_type="application/json")
