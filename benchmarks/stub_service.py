"""An exchange service that costs as little as possible, in a process of its own: `python -m benchmarks.stub_service`.

Raw asyncio, and answers made by replacing eight digits in bytes. It has sign-in, the polls and searches, reads, conditional
creates and updates with If-Match. Not for anything but measuring: it checks nothing that it is sent, and trusts who sends it.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections import Counter
from collections.abc import Callable, Iterable
from urllib.parse import parse_qs, unquote

from benchmarks.child_process import announce, serve_commands
from benchmarks.sample_order import ORDER_MARK, SampleOrder, build_sample_order

_MARK = ORDER_MARK.encode()
_NUMBER = re.compile(r"\d{8}(?=-)")
_CONTENT_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_IF_MATCH = re.compile(rb'\r\nif-match: *W/"(\d+)"', re.IGNORECASE)
_IF_NONE_EXIST = re.compile(rb"\r\nif-none-exist: *([^\r]+)", re.IGNORECASE)
_TOKEN = b'{"access_token":"stub","token_type":"Bearer","expires_in":86400,"refresh_token":"stub"}'
_STATUS_LINES = {200: b"200 OK", 201: b"201 Created", 404: b"404 Not Found", 412: b"412 Precondition Failed"}
_OUTCOME = b'{"resourceType":"OperationOutcome","issue":[{"severity":"error","code":"not-found"}]}'


def number_of(order: int) -> str:
    """The digits that stand for an order in ids."""
    return f"{order:08d}"


class StubService:
    """The orders that are offered, what was written, and how often what was asked."""

    def __init__(self, base_url: str, sample: SampleOrder) -> None:
        self.latency = 0.0
        self.requests: Counter[str] = Counter()
        self._base = base_url.encode()
        self._sample = sample
        self._offered: range = range(0)
        self._poll: bytes | None = None
        self._written: dict[str, tuple[int, bytes]] = {}
        self._created: dict[str, str] = {}
        self._answers: dict[str, bytes] = {}

    def offer(self, first: int, count: int) -> None:
        """List these orders, and no others, as requested."""
        self._offered, self._poll = range(first, first + count), None

    def pad(self, order: int, size: int) -> None:
        """Let a specimen of this order be as large as `size` bytes."""
        key = next(each for each in self._sample.resources if each.startswith("specimen/"))
        body = self._body(key, number_of(order).encode())
        text = b'"text":{"status":"generated","div":"' + b"x" * (size - len(body)) + b'"},'
        self._written[key.replace(ORDER_MARK, number_of(order))] = (1, b"{" + text + body[1:])

    def answer(self, method: str, target: str, head: bytes, body: bytes) -> bytes:
        """Answer one request."""
        path, _, query = target.lstrip("/").partition("?")
        kind, _, name = path.removeprefix("fhir/").partition("/")
        self.requests[f"{method} {kind.lower()}{'/' if name else ''}{'?' if query else ''}"] += 1
        if method == "GET":
            return self._read(f"{kind.lower()}/{name}") if name else self._search(kind, query)
        if method == "PUT":
            return self._update(f"{kind.lower()}/{name}", head, body)
        if path == "connect/token":
            return _response(200, _TOKEN)
        return self._create(kind, head, body)

    def _read(self, key: str) -> bytes:
        """A resource as written, or the sample's as it is for this order."""
        if (written := self._written.get(key)) is not None:
            return _response(200, written[1], written[0])
        found = _NUMBER.search(key)
        if found is None:
            return _response(404, _OUTCOME)
        marked = key.replace(found.group(), ORDER_MARK, 1)
        answer = self._answers.get(marked)
        if answer is None:
            body = self._sample.resources.get(marked)
            if body is None:
                return _response(404, _OUTCOME)
            answer = self._answers[marked] = _response(200, body, 1)
        return answer.replace(_MARK, found.group().encode())

    def _body(self, marked: str, number: bytes) -> bytes:
        written = self._written.get(marked.replace(ORDER_MARK, number.decode()))
        return written[1] if written else self._sample.resources[marked].replace(_MARK, number)

    def _search(self, kind: str, query: str) -> bytes:
        """The searches of the interface: requested orders, lines of an order, answers about a line, resources by identifier."""
        if kind.lower() == "task" and query.startswith("status="):
            if self._poll is None:
                numbers = [number_of(each).encode() for each in self._offered]
                self._poll = self._bundle("Task", [self._body(self._sample.order_task, each) for each in numbers])
            return self._poll
        values = parse_qs(query)
        if "identifier" in values:
            return self._by_identifier(kind, values["identifier"][0])
        number = _NUMBER.search(unquote(query))
        if number is None:
            return self._bundle(kind, [])
        if "part-of" in values:
            found: Iterable[str] = self._sample.line_tasks
        else:
            about = [each.lower().replace(number.group(), ORDER_MARK) for each in values.get("subject", [""])[0].split(",")]
            found = [key for each in about for key in self._sample.responses_about.get(each, ())]
        return self._bundle(kind, [self._body(key, number.group().encode()) for key in found])

    def _by_identifier(self, kind: str, identifier: str) -> bytes:
        if kind.lower() == "contract":
            return self._bundle("Contract", [self._sample.contract])
        key = self._created.get(f"{kind}?{identifier}")
        return self._bundle(kind, [self._written[key][1]] if key else [])

    def _create(self, kind: str, head: bytes, body: bytes) -> bytes:
        wanted = _IF_NONE_EXIST.search(head)
        name = f"{kind}?{unquote(wanted.group(1).decode()).removeprefix('identifier=')}" if wanted else ""
        if name and name in self._created:
            return self._read(self._created[name])
        key = f"{kind.lower()}/u{len(self._written)}"
        stored = b'{"id":"' + key.partition("/")[2].encode() + b'",' + body[1:]
        self._written[key] = (1, stored)
        if name:
            self._created[name] = key
        return _response(201, stored, 1)

    def _update(self, key: str, head: bytes, body: bytes) -> bytes:
        version, _ = self._written.get(key, (1, b""))
        asked = _IF_MATCH.search(head)
        if asked is None or int(asked.group(1)) != version:
            return _response(412, _OUTCOME)
        self._written[key] = (version + 1, body)
        return _response(200, body, version + 1)

    def _bundle(self, kind: str, bodies: list[bytes]) -> bytes:
        url = self._base + b"fhir/" + kind.encode() + b"/"
        entries = b",".join(b'{"fullUrl":"' + url + b'","resource":' + body + b"}" for body in bodies)
        total = str(len(bodies)).encode()
        return _response(200, b'{"resourceType":"Bundle","type":"searchset","total":' + total + b',"entry":[' + entries + b"]}")


def _response(status: int, body: bytes, version: int | None = None) -> bytes:
    etag = b"" if version is None else b'ETag: W/"%d"\r\n' % version
    return (
        b"HTTP/1.1 " + _STATUS_LINES[status] + b"\r\nContent-Type: application/json\r\n" + etag
        + b"Content-Length: %d\r\n\r\n" % len(body) + body
    )  # fmt: skip


class HttpConnection(asyncio.Protocol):
    """One connection; requests are answered in order, each after the latency."""

    def __init__(self, service: StubService, loop: asyncio.AbstractEventLoop) -> None:
        self._service = service
        self._loop = loop
        self._buffer = b""
        self._write: Callable[[bytes], None] = lambda _: None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember where answers go."""
        assert isinstance(transport, asyncio.WriteTransport)
        self._write = lambda answer: None if transport.is_closing() else transport.write(answer)

    def data_received(self, data: bytes) -> None:
        """Answer each whole request."""
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head = self._buffer[:end]
            length = _CONTENT_LENGTH.search(head)
            after = end + 4 + (int(length.group(1)) if length else 0)
            if len(self._buffer) < after:
                return
            body, self._buffer = self._buffer[end + 4 : after], self._buffer[after:]
            method, target, _ = head.split(b" ", 2)
            answer = self._service.answer(method.decode(), target.decode(), head, body)
            if self._service.latency:
                self._loop.call_later(self._service.latency, self._write, answer)
            else:
                self._write(answer)


async def _run() -> None:
    loop = asyncio.get_running_loop()
    sock = socket.create_server(("127.0.0.1", 0), backlog=1024)
    base_url = f"http://127.0.0.1:{sock.getsockname()[1]}/"
    sample = build_sample_order(base_url)
    service = StubService(base_url, sample)
    server = await loop.create_server(lambda: HttpConnection(service, loop), sock=sock)

    async def run_command(command: dict[str, object]) -> dict[str, object]:
        match command:
            case {"offer": [int(first), int(count)]}:
                service.offer(first, count)
            case {"pad": [int(order), int(size)]}:
                service.pad(order, size)
            case {"latency": int() | float() as seconds}:
                service.latency = float(seconds)
            case {"requests": "take"}:
                taken, service.requests = dict(service.requests), Counter()
                return {"requests": taken}
        return {}

    announce({"base_url": base_url, "sample": _describe(sample)})
    async with server:
        await serve_commands(run_command)


def _describe(sample: SampleOrder) -> dict[str, object]:
    bodies = {name: body.decode() for name, body in sample.resources.items()}
    return {"bodies": bodies, "order_task": sample.order_task, "line_tasks": sample.line_tasks}


if __name__ == "__main__":
    asyncio.run(_run())
