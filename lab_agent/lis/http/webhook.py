"""Our endpoint for results: a message is verified, parsed and committed, and only then answered with 2xx (law 1)."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import structlog
from fastapi import FastAPI, Request, Response

from lab_agent.lis.http.openapi import openapi_document
from lab_agent.lis.http.request_body import BodyReader, BodyRefusal, BodyRefusedError
from lab_agent.lis.http.settings import HttpSettings
from lab_agent.lis.http.signatures import InvalidSignature, SignatureCheck, read_signature_headers
from lab_agent.lis.laboratory_system import Inbox
from lab_agent.lis.operator_alerts import OperatorAlerts, Trouble
from lab_agent.lis.raw_messages import message_id
from lab_agent.lis.serialization import load_message
from lab_agent.shared import exact_json
from lab_agent.shared.errors import DataInvalidError, LabAgentError

log = structlog.get_logger(__name__)
_RETRY_AFTER_SECONDS = "10"


@dataclass(slots=True)
class ResultWebhook:
    """Handles the messages that the LIS posts to us."""

    settings: HttpSettings
    name: str
    inbox: Inbox
    alerts: OperatorAlerts
    bodies: BodyReader = field(init=False)
    _turned_away: int = 0

    def __post_init__(self) -> None:
        settings = self.settings
        self.bodies = BodyReader(
            settings.max_message_bytes, settings.max_unfinished_bytes, settings.body_timeout, settings.body_idle_timeout
        )

    async def receive(self, request: Request) -> Response:
        """Answer 200 (stored, now or before), 400, 401, 408, 413, 422 with every invalid field, or 503 (try again later).

        What the headers say is checked first: a message that is not signed, is of another time, or too large, is not read.
        """
        address = request.client.host if request.client else ""
        try:
            headers = read_signature_headers(request.headers, now=datetime.now(UTC), tolerance=self.settings.replay_window)
            signature = headers.begin(self.settings.incoming_secrets)
            async with self.bodies.read(request, address, signature.update) as body:
                self._verify(signature, address)
                async with self.bodies.load(body) as content:
                    return await self._store(headers.idempotency_key, content)
        except InvalidSignature as exc:
            await self._tell(address, str(exc))
            return _error_response(401, "invalid_signature", str(exc))
        except BodyRefusedError as exc:
            if exc.refusal is not BodyRefusal.INCOMPLETE:
                await self._tell(address, str(exc))
            return _refused_body_response(exc)

    def _verify(self, signature: SignatureCheck, address: str) -> None:
        try:
            signature.verify()
        except InvalidSignature:
            self.bodies.note_signature(address, is_right=False)
            raise
        self.bodies.note_signature(address, is_right=True)

    async def _tell(self, address: str, reason: str) -> None:
        """Tell the operators: the sender may be the LIS itself, and nobody there may look at our answers."""
        self._turned_away += 1
        text = f"{self._turned_away} since the start; the last came from {address}: {reason}"
        try:
            await self.alerts.report(Trouble.TURNED_AWAY, text)
        except LabAgentError as exc:
            log.error("alert not stored", action="webhook_alert_not_stored", adapter=self.name, error=type(exc).__name__)  # noqa: TRY400

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
