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

from tests.harness.canned_server import QuietHandler
from tests.harness.clock import DEADLINE

AGENT_SECRET, LIS_SECRET = "the-secret-of-the-agent", "the-secret-of-the-lis"


def signed_headers(secret: str, name: str, body: bytes, *, timestamp: float | None = None) -> dict[str, str]:
    stamp = str(int(time.time() if timestamp is None else timestamp))
    digest = hmac.new(secret.encode(), f"{stamp}.{name}.".encode() + body, hashlib.sha256).hexdigest()
    return {"Lab-Timestamp": stamp, "Idempotency-Key": name, "Lab-Signature": f"v1={digest}", "Content-Type": "application/json"}


_REFUSALS = {"refusing": (422, {}, b"{}"), "busy": (429, {"Retry-After": "3"}, b"{}")}


class HttpLis:
    """`answers` are (status, headers, body) to give instead of the usual answer, one after the other."""

    def __init__(self, agent_port: int) -> None:
        self.agent_port = agent_port
        self.orders: dict[str, Any] = {}
        self.posted_names: list[str] = []
        self.cancelled_lines: set[str] = set()
        self.next_responses: list[tuple[int, dict[str, str], bytes]] = []
        self.outbox: list[tuple[str, bytes]] = []
        self.refused: list[tuple[str, bytes]] = []
        self.state = "working"
        self.bad_signatures = 0
        self._numbers = itertools.count(1)
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        lis = self

        class Handler(QuietHandler, BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                if self.is_switched_off():
                    return
                key = self.path.rsplit("/", 1)[-1]
                self.answer(200 if key in lis.orders or key == "health" else 404, b"{}")

            def is_switched_off(self) -> bool:
                """Whether the call came on a connection that was open before."""
                self.close_connection |= lis.state == "unreachable"
                return lis.state == "unreachable"

            def do_POST(self) -> None:
                if self.is_switched_off():
                    return
                answer = lis.handle_post(self.path, self.headers, self.read_body())
                if answer is None:
                    self.close_connection = True
                else:
                    status, more, body = answer
                    self.answer(status, body, more)

        self._handler = Handler
        self._listen(0)
        self._pushing = threading.Thread(target=self._push_results)
        self._pushing.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/lab-agent"

    def set_state(self, state: str) -> None:
        """Be working, unreachable, silent, refusing, busy or slow from now on."""
        self.state = state
        if state == "unreachable":
            self.server.shutdown()
            self.server.server_close()
        elif self.server.socket.fileno() == -1:
            self._listen(self.server.server_port)

    def _listen(self, port: int) -> None:
        self.server = ThreadingHTTPServer(("127.0.0.1", port), self._handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.02,)).start()

    def handle_post(self, path: str, request_headers: Any, body: bytes) -> tuple[int, dict[str, str], bytes] | None:
        name = request_headers["Idempotency-Key"]
        wanted = signed_headers(AGENT_SECRET, name, body, timestamp=float(request_headers["Lab-Timestamp"]))["Lab-Signature"]
        if request_headers["Lab-Signature"] != wanted:
            self.bad_signatures += 1
            return 401, {}, b""
        if self.state in _REFUSALS:
            return _REFUSALS[self.state]
        if self.state == "slow":
            time.sleep(0.8)
        with self._lock:
            if path.endswith("/cancellations"):
                self.cancelled_lines |= {entry["line"] for entry in json.loads(body)["lines"]}
            else:
                self.posted_names.append(name)
                self.orders.setdefault(name, json.loads(body))
            if self.state == "silent":
                return None
            if self.next_responses:
                return self.next_responses.pop(0)
        return 200, {}, b'{"accession": "A-1"}'

    def queue_result(self, body: bytes) -> None:
        with self._lock:
            self.outbox.append((f"message-{next(self._numbers)}", body))

    def post(self, body: bytes, request_headers: dict[str, str], path: str = "/messages") -> tuple[int, dict[str, Any]]:
        connection = http.client.HTTPConnection("127.0.0.1", self.agent_port, timeout=DEADLINE)
        try:
            connection.request("POST", path, body, request_headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or b"{}")
        finally:
            connection.close()

    def _push_results(self) -> None:
        while not self._stopped.wait(0.01):
            for name, body in list(self.outbox):
                try:
                    status, _ = self.post(body, signed_headers(LIS_SECRET, name, body))
                except (OSError, http.client.HTTPException):
                    break
                if status in {200, 400, 422}:
                    with self._lock:
                        self.outbox.remove((name, body))
                        self.refused += [] if status == 200 else [(name, body)]
                elif status == 503:
                    break

    def close(self) -> None:
        self._stopped.set()
        self.server.shutdown()
        self.server.server_close()
        self._pushing.join()


@contextmanager
def http_lis(agent_port: int) -> Iterator[HttpLis]:
    lis = HttpLis(agent_port)
    try:
        yield lis
    finally:
        lis.close()
