"""Addresses that lead away from a service, by every trick, and listeners on this machine: the service, and what is foreign."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.harness.canned_server import QuietHandler, serving

ADDRESSES = (
    # another port, host or scheme
    "http://127.0.0.1:{foreign}", "HTTP://127.0.0.1:{foreign}", "https://127.0.0.1:{own}", "https://127.0.0.1:{foreign}",
    "http://127.0.0.1", "http://127.0.0.1:", "http://127.0.0.1:80", "https://127.0.0.1:443", "http://127.0.0.1:0{foreign}",
    "http://127.0.0.2:{own}", "http://localhost:{own}", "http://LOCALHOST:{own}", "http://localhost:{foreign}",
    "ws://127.0.0.1:{foreign}", "ftp://127.0.0.1:{foreign}", "file://127.0.0.1:{foreign}", "javascript://127.0.0.1:{foreign}",
    # other spellings of the address
    "http://127.1:{own}", "http://127.0.1:{own}", "http://2130706433:{own}", "http://0x7f.0.0.1:{own}", "http://0177.0.0.1:{own}",
    "http://127.000.000.001:{own}", "http://0:{foreign}", "http://0.0.0.0:{foreign}", "http://127.0.0.1.:{own}",
    "http://localhost.:{own}", "http://127.0.0.1.:{foreign}",
    # dots and letters that only look like those of ASCII
    "http://127。0。0。1:{foreign}", "http://127．0．0．1:{own}", "http://127｡0｡0｡1:{own}", "http://①②⑦.0.0.1:{own}",
    "http://ⓛocalhost:{own}", "http://locaⅼhost:{own}", "http://loca\u00adlhost:{own}", "http://127.0.0.1\u200b:{foreign}",
    "http://xn--localhost-:{own}", "http://127.0.0.1:{foreign}\u2044",
    # IPv6
    "http://[::1]:{own}", "http://[::1]:{foreign}", "http://[::ffff:127.0.0.1]:{own}", "http://[::ffff:7f00:1]:{foreign}",
    "http://[0:0:0:0:0:0:0:1]:{own}", "http://[::1%25lo]:{own}", "http://[127.0.0.1]:{foreign}", "http://[::1:{own}",
    # user info, and what looks like it
    "http://127.0.0.1:{own}@127.0.0.1:{foreign}", "http://user:pass@127.0.0.1:{foreign}", "http://user@127.0.0.1:{own}",
    "http://@127.0.0.1:{foreign}", "http://127.0.0.1:{own}%40127.0.0.1:{foreign}", "http://127.0.0.1:{own};@127.0.0.1:{foreign}",
    "http://127.0.0.1:{own}%2f@127.0.0.1:{foreign}", "http://127.0.0.1:{own}%23@127.0.0.1:{foreign}",
    "http://127.0.0.1:{own}\\@127.0.0.1:{foreign}", "http://127.0.0.1:{foreign}#@127.0.0.1:{own}",
    "http://127.0.0.1:{foreign}?@127.0.0.1:{own}", "http://127.0.0.1:{foreign}\\@127.0.0.1:{own}",
    # slashes
    "//127.0.0.1:{foreign}", "///127.0.0.1:{foreign}", "////127.0.0.1:{foreign}", "/\\127.0.0.1:{foreign}",
    "\\\\127.0.0.1:{foreign}", "\\/127.0.0.1:{foreign}", "http:127.0.0.1:{foreign}", "http:/127.0.0.1:{foreign}",
    "http:///127.0.0.1:{foreign}", "http:\\\\127.0.0.1:{foreign}", "http:%2f%2f127.0.0.1:{foreign}", "/%2f127.0.0.1:{foreign}",
    "%2f%2f127.0.0.1:{foreign}", "/%5c127.0.0.1:{foreign}", "/.//127.0.0.1:{foreign}", "/..//127.0.0.1:{foreign}",
    "/fhir/..//127.0.0.1:{foreign}", ".//127.0.0.1:{foreign}",
    # blanks and control characters
    " http://127.0.0.1:{foreign}", "\thttp://127.0.0.1:{foreign}", "ht\ttp://127.0.0.1:{foreign}",
    "http://127.0.0.1:{own} @127.0.0.1:{foreign}",
    "http://127.0.0.1:{own}\t@127.0.0.1:{foreign}", "/\t/127.0.0.1:{foreign}", "http://\t127.0.0.1:{foreign}",
    "\x01http://127.0.0.1:{foreign}", "http://127.0.0.1:{foreign}\x7f",
)  # fmt: skip
"""With the ports of the service, and of what is foreign."""


@dataclass
class Seen:
    own_port: int = 0
    foreign_port: int = 0
    trick: str = ""
    """What the service answers with, as an address."""
    with_token: int = 0
    """Requests to the service itself that had the token: proof that there is one to lose."""
    leaks: list[str] = field(default_factory=list)
    """Where the token came that is no name of the service."""
    foreign: list[str] = field(default_factory=list)
    """Connections to what is foreign."""

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.own_port}/"


@contextmanager
def listeners() -> Iterator[Seen]:
    """Serve both: the service on a port of 127.0.0.1, and what is foreign on the other addresses and on another port."""
    seen = Seen()
    with ExitStack() as stack:
        own = stack.enter_context(serving(_service(seen), ("127.0.0.1", 0)))
        foreign = stack.enter_context(serving(_foreign(seen), ("127.0.0.1", 0)))
        seen.own_port, seen.foreign_port = own, foreign
        stack.enter_context(serving(_foreign(seen), ("127.0.0.2", own)))
        for port in (own, foreign):
            if socket.has_ipv6:
                stack.enter_context(serving(_foreign(seen), ("::1", port)))
        yield seen


def _service(seen: Seen) -> type[QuietHandler]:
    class Service(QuietHandler, BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._note()
            path = self.path.lower()
            if "part-of" in path:
                links = [{"relation": "next", "url": seen.trick + "/fhir/Task?part-of=2"}]
                self._answer(200, {"resourceType": "Bundle", "type": "searchset", "entry": [], "link": links})
            elif path.startswith("/fhir/task/"):
                self._answer(302, None, Location=seen.trick + "/fhir/Task/1")
            elif path.startswith("/fhir/binary/"):
                self._answer(302, None, Location=seen.trick + "/fhir/Binary/1")
            elif path.startswith("/fhir/patient/"):
                self._answer(200, {"resourceType": "Patient", "id": "1", "meta": {"versionId": "1"}})
            else:
                self._answer(404, {"resourceType": "OperationOutcome", "issue": []})

        def do_POST(self) -> None:
            self.read_body()
            if self.path == "/connect/token":
                self._answer(200, {"access_token": "secret", "expires_in": 86_400})
                return
            self._note()
            self._answer(201, None, Location=seen.trick + "/fhir/Binary/1/_history/1", ETag='W/"1"')

        def _note(self) -> None:
            if self.headers.get("Authorization"):
                seen.with_token += 1
                if self.headers.get("Host") != f"127.0.0.1:{seen.own_port}":
                    seen.leaks.append(f"{seen.trick!r} as {self.headers.get('Host')}")

        def send_error(self, *args: Any, **more: Any) -> None:
            seen.foreign.append(f"{seen.trick!r}: something else than HTTP")
            super().send_error(*args, **more)

        def _answer(self, status: int, body: object, **headers: str) -> None:
            content = b"" if body is None else json.dumps(body).encode()
            raw = {name: value.encode().decode("latin-1") for name, value in headers.items()}
            self.answer(status, content, {"Content-Type": "application/fhir+json", **raw})

    return Service


def _foreign(seen: Seen) -> type[QuietHandler]:
    class Foreign(QuietHandler, BaseHTTPRequestHandler):
        def setup(self) -> None:
            super().setup()
            seen.foreign.append(repr(seen.trick))

        def do_GET(self) -> None:
            if self.headers.get("Authorization"):
                seen.leaks.append(f"{seen.trick!r} at {self.server.server_address}")
            self.send_response(404)
            self.end_headers()

        def do_POST(self) -> None:
            self.do_GET()

    return Foreign
