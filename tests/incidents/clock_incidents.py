"""Clocks that differ: a proxy changes the `Date` of the exchange service's answers, as if a clock were wrong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import httpx

from lab_agent.conditions.ids import ConditionId
from tests.harness.clock import DEADLINE
from tests.incidents.catalogue_of_incidents import incident
from tests.incidents.laboratory import Laboratory


@incident(ConditionId.CLOCK_DIFFERS)
def our_clock_is_a_day_behind(lab: Laboratory) -> Iterator[None]:
    with service_clock_off_by(lab, timedelta(days=1)):
        yield
    lab.restart_agent()


@incident(ConditionId.CLOCK_DIFFERS)
def our_clock_is_a_day_ahead(lab: Laboratory) -> Iterator[None]:
    with service_clock_off_by(lab, timedelta(days=-1)):
        yield
    lab.restart_agent()


@contextmanager
def service_clock_off_by(lab: Laboratory, offset: timedelta) -> Iterator[None]:
    """Let the agent reach the service through a proxy on this machine while this lasts."""
    upstream = lab.workspace.service_url

    class Proxy(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._pass_on()

        def do_POST(self) -> None:
            self._pass_on()

        def _pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {name: value for name, value in self.headers.items() if name.lower() not in {"host", "content-length"}}
            address = upstream.rstrip("/") + self.path
            answer = httpx.request(self.command, address, content=body, headers=headers, trust_env=False, timeout=DEADLINE)
            self.send_response_only(answer.status_code)
            for name, value in answer.headers.items():
                if name not in {"date", "content-length", "content-encoding", "transfer-encoding", "connection"}:
                    self.send_header(name, value)
            self.send_header("Date", format_datetime(datetime.now(UTC) + offset, usegmt=True))
            self.send_header("Content-Length", str(len(answer.content)))
            self.end_headers()
            self.wfile.write(answer.content)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the standard library
            """Nothing: the tests read the agent's log."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    Thread(target=server.serve_forever, daemon=True).start()
    lab.set("exchange", base_url=f"http://127.0.0.1:{server.server_port}/")
    lab.restart_agent()
    try:
        yield
    finally:
        lab.set("exchange", base_url=upstream)
        server.shutdown()
        server.server_close()
