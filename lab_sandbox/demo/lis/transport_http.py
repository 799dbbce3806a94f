"""The LIS simulator over HTTP: receives signed orders on a port of its own, and posts signed results until they are accepted."""

from __future__ import annotations

import hashlib
import hmac
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx
from typing_extensions import override

from lab_sandbox.demo.http_server import start_server
from lab_sandbox.demo.lis.simulator import (
    LisTransport,
    SimulatorFolders,
    outgoing_messages,
    remove_sent_message,
    write_cancellation,
)
from lab_sandbox.demo.lis.transport_files import write_atomically
from lab_sandbox.partner.errors import decode, encode

AGENT_SECRET, LIS_SECRET = "demo-secret-of-the-agent", "demo-secret-of-the-lis"
_SIGNATURE_WINDOW = 300.0


def signature(secret: str, stamp: str, name: str, body: bytes) -> str:
    """HMAC-SHA256 over timestamp, name and body, as docs/adapters-http.md defines it."""
    return "v1=" + hmac.new(secret.encode(), f"{stamp}.{name}.".encode() + body, hashlib.sha256).hexdigest()


class HttpTransport(LisTransport):
    """Listens on `port`, and posts to the agent's endpoint at `agent_url`."""

    def __init__(self, folders: SimulatorFolders, port: int, agent_url: str) -> None:
        self._folders = folders
        self._agent_url = agent_url
        self._log_lines: list[str] = []
        self._lock = threading.Lock()
        self._client = httpx.Client(timeout=10.0, trust_env=False)
        self._server = start_server(port, self.receive, self._look_up)

    @override
    def run_once(self) -> Iterator[str]:
        """Logs what was received, and posts results in order; one that is not accepted holds back the rest."""
        while self._log_lines:
            yield self._log_lines.pop(0)
        for file, message in outgoing_messages(self._folders.results):
            status = self._post(file.name, encode(message))
            if status != 200:
                yield f"{file.name}: not accepted ({status})"
                return
            remove_sent_message(file)
            yield f"posted {file.name}"

    @override
    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._client.close()

    def _look_up(self, path: str) -> int:
        return 200 if path == "/health" or self.has_order(Path(path).name) else 404

    def has_order(self, key: str) -> bool:
        """Whether an order with this key was received before."""
        return any((folder / f"{key}.json").exists() for folder in (self._folders.orders, self._folders.received_orders))

    def receive(self, path: str, headers: Mapping[str, str], body: bytes) -> int:
        """Stores what the agent posted; gives the HTTP status."""
        stamp, name = headers.get("Lab-Timestamp", ""), headers.get("Idempotency-Key", "")
        genuine = hmac.compare_digest(signature(AGENT_SECRET, stamp, name, body), headers.get("Lab-Signature", ""))
        if not genuine or abs(time.time() - int(stamp)) > _SIGNATURE_WINDOW:
            return 401
        with self._lock:
            return self._store_message(path, name, body)

    def _store_message(self, path: str, name: str, body: bytes) -> int:
        match path.strip("/"):
            case "cancellations":
                write_cancellation(self._folders.orders, decode(body))
            case "orders" if self.has_order(name):
                return 409
            case "orders":
                write_atomically(self._folders.orders, f"{Path(name).name}.json", body)
            case _:
                return 404
        self._log_lines.append(f"received {path.strip('/')}")
        return 200

    def _post(self, name: str, body: bytes) -> int | str:
        stamp = str(int(time.time()))
        headers = {"Lab-Timestamp": stamp, "Idempotency-Key": name, "Lab-Signature": signature(LIS_SECRET, stamp, name, body)}
        try:
            return self._client.post(f"{self._agent_url}/messages", content=body, headers=headers).status_code
        except httpx.TransportError as exc:
            return type(exc).__name__
