"""A LIS that speaks HTTP, in a thread: takes each order once by its name, and posts results until they are taken."""

import hashlib
import hmac
import http.client
import itertools
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

OURS, THEIRS = "the-secret-of-the-agent", "the-secret-of-the-lis"


def headers(secret: str, name: str, body: bytes, *, at: float | None = None) -> dict[str, str]:
    stamp = str(int(time.time() if at is None else at))
    digest = hmac.new(secret.encode(), f"{stamp}.{name}.".encode() + body, hashlib.sha256).hexdigest()
    return {"Lab-Timestamp": stamp, "Idempotency-Key": name, "Lab-Signature": f"v1={digest}", "Content-Type": "application/json"}


class HttpLis:
    """`answers` are (status, headers, body) to give instead of the usual answer, one after the other."""

    def __init__(self, agent_port: int) -> None:
        self.agent_port = agent_port
        self.orders: dict[str, Any] = {}
        self.posted: list[str] = []
        self.withdrawn: set[str] = set()
        self.answers: list[tuple[int, dict[str, str], bytes]] = []
        self.outbox: list[tuple[str, bytes]] = []
        self.forged = 0
        self._numbers = itertools.count(1)
        self._ended = threading.Event()
        self._changed = threading.Lock()
        lis = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                key = self.path.rsplit("/", 1)[-1]
                self.answer(200 if key in lis.orders or key == "health" else 404, {}, b"{}")

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self.answer(*lis.taken(self.path, self.headers, body))

            def answer(self, status: int, more: dict[str, str], body: bytes) -> None:
                self.send_response(status)
                for name, value in {**more, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self._threads = [threading.Thread(target=self.server.serve_forever, args=(0.02,)), threading.Thread(target=self._push)]
        for thread in self._threads:
            thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/lab-agent"

    def taken(self, path: str, given: Any, body: bytes) -> tuple[int, dict[str, str], bytes]:
        name = given["Idempotency-Key"]
        wanted = headers(OURS, name, body, at=float(given["Lab-Timestamp"]))["Lab-Signature"]
        if given["Lab-Signature"] != wanted:
            self.forged += 1
            return 401, {}, b""
        with self._changed:
            if path.endswith("/cancellations"):
                self.withdrawn |= {entry["line"] for entry in json.loads(body)["lines"]}
            else:
                self.posted.append(name)
                self.orders.setdefault(name, json.loads(body))
            if self.answers:
                return self.answers.pop(0)
        return 200, {}, b'{"accession": "A-1"}'

    def put_out(self, body: bytes) -> None:
        with self._changed:
            self.outbox.append((f"message-{next(self._numbers)}", body))

    def post(self, body: bytes, given: dict[str, str], path: str = "/messages") -> tuple[int, dict[str, Any]]:
        connection = http.client.HTTPConnection("127.0.0.1", self.agent_port, timeout=10)
        try:
            connection.request("POST", path, body, given)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or b"{}")
        finally:
            connection.close()

    def _push(self) -> None:
        while not self._ended.wait(0.01):
            for name, body in list(self.outbox):
                try:
                    status, _ = self.post(body, headers(THEIRS, name, body))
                except (OSError, http.client.HTTPException):
                    break
                if status == 200:
                    with self._changed:
                        self.outbox.remove((name, body))
                elif status == 503:
                    break

    def close(self) -> None:
        self._ended.set()
        self.server.shutdown()
        self.server.server_close()
        for thread in self._threads:
            thread.join()


@contextmanager
def http_lis(agent_port: int) -> Iterator[HttpLis]:
    lis = HttpLis(agent_port)
    try:
        yield lis
    finally:
        lis.close()
