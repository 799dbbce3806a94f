"""Our endpoint for results: a message is verified, parsed and committed, and only then answered with 2xx (law 1)."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import structlog
from fastapi import FastAPI, Request, Response

from lab_agent import exact_json
from lab_agent.errors import DataInvalidError, LabAgentError
from lab_agent.lis.http.openapi import openapi_document
from lab_agent.lis.http.request_body import BodyReader, BodyRefusal, BodyRefusedError
from lab_agent.lis.http.settings import HttpSettings
from lab_agent.lis.http.signatures import InvalidSignature, SignatureHeaders, read_signature_headers
from lab_agent.lis.raw_messages import message_id
from lab_agent.ports.lis import Inbox
from lab_agent.serialization import load_message

log = structlog.get_logger(__name__)
_RETRY_AFTER_SECONDS = "10"


@dataclass(slots=True)
class ResultWebhook:
    """Handles the messages that the LIS posts to us."""

    settings: HttpSettings
    name: str
    inbox: Inbox
    bodies: BodyReader = field(init=False)
    _invalid_signature_logged: bool = False
    _busy_logged: bool = False

    def __post_init__(self) -> None:
        settings = self.settings
        self.bodies = BodyReader(
            settings.max_message_bytes, settings.max_unfinished_bytes, settings.body_timeout, settings.body_idle_timeout
        )

    async def receive(self, request: Request) -> Response:
        """Answer 200 (stored, now or before), 400, 401, 408, 413, 422 with every invalid field, or 503 (try again later).

        What the headers say is checked first: a message that is not signed, or too large, is not read.
        """
        try:
            signature = self._read_signature(request.headers)
            async with self.bodies.read(request) as body:
                await self._verify(signature, body)
                return await self._store(signature.idempotency_key, body)
        except InvalidSignature as exc:
            return self._invalid_signature_response(exc)
        except BodyRefusedError as exc:
            self._log_once_while_busy(exc)
            return _refused_body_response(exc)

    def _log_once_while_busy(self, error: BodyRefusedError) -> None:
        """A series of messages that did not fit is logged once."""
        if error.refusal is BodyRefusal.BUSY and not self._busy_logged:
            limit = self.settings.max_unfinished_bytes
            log.warning("too many messages at once", action="webhook_busy", adapter=self.name, max_unfinished_bytes=limit)
            self._busy_logged = True

    async def _store(self, idempotency_key: str, body: bytes) -> Response:
        name = message_id(idempotency_key, body)
        try:
            message = await asyncio.to_thread(load_message, body, time_zone=self.settings.zone)
            new = await self.inbox.accept(name, message)
        except DataInvalidError as exc:
            return await self._reject(name, body, exc)
        except LabAgentError as exc:
            return self._retry_later_response(exc)
        return _json_response(200, {"kept": "now" if new else "before"})

    def _retry_later_response(self, error: LabAgentError) -> Response:
        log.warning("message not stored", action="webhook_not_stored", adapter=self.name, error=type(error).__name__)
        return _error_response(503, "retry_later", "not stored; send it again later", {"Retry-After": _RETRY_AFTER_SECONDS})

    def _read_signature(self, headers: Mapping[str, str]) -> SignatureHeaders:
        return read_signature_headers(headers, now=datetime.now(UTC), tolerance=self.settings.replay_window)

    async def _verify(self, signature: SignatureHeaders, body: bytes) -> None:
        await asyncio.to_thread(signature.verify, body, self.settings.incoming_secrets)
        self._invalid_signature_logged = self._busy_logged = False

    def _invalid_signature_response(self, error: InvalidSignature) -> Response:
        """Answer 401. A series of invalid signatures is logged once."""
        if not self._invalid_signature_logged:
            log.warning("message signature invalid", action="webhook_signature_invalid", adapter=self.name, reason=str(error))
        self._invalid_signature_logged = True
        return _error_response(401, "invalid_signature", str(error))

    async def _reject(self, name: str, body: bytes, error: DataInvalidError) -> Response:
        """Reject a message. The operators are alerted first; if that cannot be stored, the LIS is asked to send it again."""
        try:
            await self.inbox.reject(name, str(error.problems[0]), raw=body)
        except LabAgentError as exc:
            return self._retry_later_response(exc)
        log.warning("message rejected", action="webhook_rejected", adapter=self.name)
        if self.settings.refused_folder is not None:
            await asyncio.to_thread(_save_rejected, self.settings.refused_folder, body, error)
        problems = [{"where": one.where, "what": one.what, "hint": one.hint} for one in error.problems]
        return _json_response(422, {"code": "invalid_message", "problems": problems})


def make_app(webhook: ResultWebhook) -> FastAPI:
    """Make the application: messages, a health check, and the OpenAPI description of both directions."""
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


def _refused_body_response(error: BodyRefusedError) -> Response:
    """Answer to a body that was not read to its end: the connection of a sender who stopped in the middle is closed."""
    status, code = error.refusal.value
    headers = {
        BodyRefusal.BUSY: {"Retry-After": _RETRY_AFTER_SECONDS},
        BodyRefusal.TIMEOUT: {"Connection": "close"},
    }
    return _error_response(status, code, str(error), headers.get(error.refusal))


def _save_rejected(folder: Path, body: bytes, error: DataInvalidError) -> None:
    """Store the raw bytes, once however often they come. A full disk must not change the answer to the LIS."""
    stem = hashlib.sha256(body).hexdigest()[:32]
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (folder / f"{stem}.message").open("xb") as file:
            file.write(body)
        (folder / f"{stem}.reason.txt").write_text("\n".join(map(str, error.problems)) + "\n", encoding="utf-8")
    except FileExistsError:
        return
    except OSError as exc:
        log.error("rejected message not stored", action="webhook_rejected_not_stored", error=type(exc).__name__)  # noqa: TRY400


def _error_response(status: int, code: str, text: str, headers: dict[str, str] | None = None) -> Response:
    return _json_response(status, {"code": code, "text": text}, headers)


def _json_response(status: int, tree: object, headers: dict[str, str] | None = None) -> Response:
    return Response(exact_json.dumps(tree), status_code=status, headers=headers, media_type="application/json")
