"""A service on this machine that lets in whoever shows its newest token, and counts how often it is asked for another one."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs

from tests.harness.canned_server import QuietHandler, serving

FIRST_ACCESS, FIRST_REFRESH = "access-0", "refresh-0"


@dataclass
class TokenService:
    """What it knows. A refresh token is good once; `reused` are those that were shown again."""

    generation: int = 0
    refused: int = 0
    reused: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    port: int = 0
    expired: bool = False

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def expire(self) -> None:
        with self.lock:
            self.expired = True

    def lets_in(self, header: str | None) -> bool:
        with self.lock:
            allowed = header == f"Bearer access-{self.generation}" and not self.expired
            self.refused += not allowed
            return allowed

    def renew(self, form: dict[str, list[str]]) -> dict[str, object] | None:
        """The next tokens; None to whoever has no right to them."""
        with self.lock:
            shown = form.get("refresh_token", [""])[0]
            if shown != f"refresh-{self.generation}":
                self.reused.append(shown)
                return None
            self.generation += 1
            self.expired = False
            number = self.generation
            return {"access_token": f"access-{number}", "refresh_token": f"refresh-{number}", "expires_in": 3600}


@contextmanager
def token_service() -> Iterator[TokenService]:
    service = TokenService()

    class Handler(QuietHandler, BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            allowed = service.lets_in(self.headers.get("Authorization"))
            self.answer_json(200 if allowed else 401, {"resourceType": "Task", "id": "1", "meta": {"versionId": "1"}})

        def do_POST(self) -> None:
            found = service.renew(parse_qs(self.read_body().decode()))
            self.answer_json(400 if found is None else 200, found or {"error": "invalid_grant"})

        def answer_json(self, status: int, body: object) -> None:
            self.answer(status, json.dumps(body).encode(), {"Content-Type": "application/json"})

    with serving(Handler) as service.port:
        yield service
