"""Injects the faults of a request in a fixed order: before it is processed, in its query, and in the response.

The response is buffered, so that it can be changed, truncated or dropped.
"""

import asyncio
import socket
import struct
from dataclasses import dataclass, replace
from datetime import timedelta
from email.utils import format_datetime
from typing import Final
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lab_sandbox.errors import HttpError, Issue, operation_outcome
from lab_sandbox.exact_json import Json, decode, decode_stored, encode
from lab_sandbox.faults.plan import FaultRule
from lab_sandbox.faults.response_variants import RESPONSE_VARIANTS, fill_in_poison
from lab_sandbox.path_aliases import canonical_type
from lab_sandbox.references import Ref
from lab_sandbox.service import Service

FAULTS_KEY: Final = "lab_sandbox.faults"
"""The key of a request's faults in the ASGI scope."""
TRANSPORT_KEY: Final = "lab_sandbox.transport"
"""The key of the connection in the ASGI scope."""
_JSON_HEADER = (b"content-type", b"application/json")
_HTML_HEADER = (b"content-type", b"text/html; charset=utf-8")
_HTML_BODY = b"<!doctype html><html><body><h1>Service temporarily unavailable</h1></body></html>"


async def reset_connection(scope: Scope, receive: Receive) -> None:
    """Resets the TCP connection; in-process, where there is none, raises ConnectionResetError."""
    transport = scope.get(TRANSPORT_KEY)
    if transport is None:
        raise ConnectionResetError("the sandbox reset the connection")
    sock = transport.get_extra_info("socket")
    if sock is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()
    await _wait_for_disconnect(receive)


async def close_connection(scope: Scope, receive: Receive) -> None:
    """Closes the connection after pending data is sent; in-process raises ConnectionResetError."""
    transport = scope.get(TRANSPORT_KEY)
    if transport is None:
        raise ConnectionResetError("the sandbox closed the connection in the middle of a response")
    transport.close()
    await _wait_for_disconnect(receive)


async def wait_silently(receive: Receive, seconds: float) -> None:
    """Sends nothing until the client disconnects or the time has passed."""
    try:
        await asyncio.wait_for(_wait_for_disconnect(receive), seconds)
    except TimeoutError:
        return


async def _wait_for_disconnect(receive: Receive) -> None:
    """Waits until the server reports the disconnect, so that it does not complain about a missing response."""
    while (await receive())["type"] != "http.disconnect":
        continue


@dataclass(frozen=True)
class BufferedResponse:
    """Status, headers and body of a response."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes

    def with_body(self, body: bytes) -> "BufferedResponse":
        """A copy with another body."""
        return replace(self, body=body)

    def with_header(self, name: bytes, value: bytes) -> "BufferedResponse":
        """A copy with one header set."""
        others = tuple(pair for pair in self.headers if pair[0].lower() != name)
        return replace(self, headers=(*others, (name, value)))

    def parse_json_object(self) -> Json | None:
        """The body if it is a JSON object, else None."""
        if not any(name.lower() == b"content-type" and b"json" in value for name, value in self.headers):
            return None
        try:
            body = decode(self.body)
        except HttpError:
            return None
        return body if isinstance(body, dict) else None

    async def send(self, send: Send, max_bytes: int | None = None) -> None:
        """Sends the response; with `max_bytes`, only so many bytes of the body that Content-Length announces."""
        whole = self.with_header(b"content-length", str(len(self.body)).encode())
        await send({"type": "http.response.start", "status": whole.status, "headers": list(whole.headers)})
        sent = self.body if max_bytes is None else self.body[:max_bytes]
        await send({"type": "http.response.body", "body": sent, "more_body": max_bytes is not None})


async def capture_response(app: ASGIApp, scope: Scope, receive: Receive) -> BufferedResponse:
    """Lets the application process the request, and returns its response."""
    messages: list[Message] = []

    async def collect(message: Message) -> None:
        messages.append(message)

    await app(scope, receive, collect)
    start = next(message for message in messages if message["type"] == "http.response.start")
    body = b"".join(message.get("body", b"") for message in messages if message["type"] == "http.response.body")
    return BufferedResponse(int(start["status"]), tuple(start.get("headers", ())), body)


class FaultMiddleware:
    """Injects the scheduled faults; a request without faults passes unchanged."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes the request on, with its faults."""
        if scope["type"] != "http" or scope["path"].startswith("/sandbox/"):
            await self._app(scope, receive, send)
            return
        query = scope["query_string"].decode("latin-1")
        rules = self._service.faults.select_faults(scope["method"], scope["path"], query, self._caller_names(scope))
        if not rules:
            await self._app(scope, receive, send)
            return
        scope[FAULTS_KEY] = [rule.kind for rule in rules]
        await _FaultedRequest(self._app, self._service, rules, scope, receive, send).run()

    def _caller_names(self, scope: Scope) -> frozenset[str]:
        """The names that a plan may use for the caller; none if no fault needs them, or the caller is unknown."""
        if not self._service.faults.needs_caller():
            return frozenset()
        try:
            party = self._service.accounts.authenticate_header(Headers(scope=scope).get("authorization"))
        except HttpError:
            return frozenset()
        return frozenset({party.name, party.guid, party.kind})


class _FaultedRequest:
    """One request and its faults."""

    def __init__(
        self, app: ASGIApp, service: Service, rules: list[FaultRule], scope: Scope, receive: Receive, send: Send
    ) -> None:
        self._app = app
        self._service = service
        self._rules = {rule.kind: rule for rule in reversed(rules)}
        self._scope = dict(scope)
        self._receive = receive
        self._send = send

    async def run(self) -> None:
        """Applies all faults of the request."""
        if (latency := self._rules.get("latency")) is not None:
            await asyncio.sleep(latency.seconds)
        if (hang := self._rules.get("hang")) is not None:
            await wait_silently(self._receive, hang.seconds)
        if hang is not None or "reset" in self._rules:
            await reset_connection(self._scope, self._receive)
            return
        replacement = self._replacement_response(after_work=False)
        if replacement is not None:
            await replacement.send(self._send)
            return
        self._expire_or_revoke_token()
        self._edit_as_partner()
        self._rewrite_query()
        response = self._apply_variants(await capture_response(self._app, self._scope, self._receive))
        await self._send_response(self._replacement_response(after_work=True) or response)

    async def _send_response(self, response: BufferedResponse) -> None:
        if "lost_reply" in self._rules:
            await reset_connection(self._scope, self._receive)
        elif "truncate" in self._rules:
            await response.send(self._send, max_bytes=len(response.body) // 2)
            await close_connection(self._scope, self._receive)
        else:
            await response.send(self._send)

    def _replacement_response(self, *, after_work: bool) -> BufferedResponse | None:
        """The response that a fault sends in place of the application's, if any."""
        status, html = self._rules.get("status"), self._rules.get("html")
        if "unauthorized" in self._rules and not after_work:
            return _outcome_response(401, "login", "Authorization: the access token is unknown, revoked or expired")
        if status is not None and status.after_work == after_work:
            return self._with_retry_after(
                _outcome_response(status.status, "transient", f"service: injected status {status.status}"), status
            )
        if html is not None and html.after_work == after_work:
            return BufferedResponse(200, (_HTML_HEADER,), _HTML_BODY)
        maintenance = self._rules.get("maintenance_page")
        if maintenance is not None and maintenance.after_work == after_work:
            return BufferedResponse(302, (_HTML_HEADER, (b"location", f"{maintenance.origin}/maintenance".encode())), _HTML_BODY)
        return None

    def _with_retry_after(self, response: BufferedResponse, rule: FaultRule) -> BufferedResponse:
        if rule.retry_after is None:
            return response
        if rule.retry_after_form == "seconds":
            return response.with_header(b"retry-after", str(rule.retry_after).encode())
        moment = self._service.resources.now() + timedelta(seconds=rule.retry_after)
        return response.with_header(b"retry-after", format_datetime(moment, usegmt=True).encode())

    def _expire_or_revoke_token(self) -> None:
        token = Headers(scope=self._scope).get("authorization", "").partition(" ")[2].strip()
        if "expire_token" in self._rules:
            self._service.tokens.expire(token)
        if "revoke_token" in self._rules:
            self._service.tokens.revoke_login(token)

    def _edit_as_partner(self) -> None:
        """Edits the resource as its owner, between the client's read and its write."""
        rule, ref = self._rules.get("partner_edit"), self._target_ref()
        stored = self._service.resources.find(ref) if rule is not None and ref is not None else None
        if rule is not None and stored is not None:
            self._service.resources.replace(stored, decode_stored(stored.body) | rule.change)

    def _rewrite_query(self) -> None:
        """Changes the search: fewer criteria, other pages."""
        ignored = self._rules.get("ignore_search_parameters")
        if ignored is not None:
            query = parse_qsl(self._scope["query_string"].decode("latin-1"), keep_blank_values=True)
            kept = [pair for pair in query if pair[0].startswith("_") or not ignored.ignores(pair[0])]
            self._scope["query_string"] = urlencode(kept).encode()
        self._rewrite_paging()

    def _rewrite_paging(self) -> None:
        small, repeated = self._rules.get("small_pages"), self._rules.get("repeated_rows")
        if small is None and repeated is None:
            return
        query = parse_qsl(self._scope["query_string"].decode("latin-1"), keep_blank_values=True)
        pairs = [pair for pair in query if pair[0] not in {"_count", "_after"}]
        given = {name: value for name, value in query if value.isascii() and value.isdigit()}
        size = small.size if small is not None else int(given.get("_count", self._service.config.rules.page_size))
        after = int(given.get("_after", 0))
        if repeated is not None and after:
            # Repeats the last result of the previous page; with pages of one result a client would never advance.
            after, size = after - 1, max(2, size)
        paging = [("_count", str(size))] + ([("_after", str(after))] if after else [])
        self._scope["query_string"] = urlencode([*pairs, *paging]).encode()

    def _apply_variants(self, response: BufferedResponse) -> BufferedResponse:
        if "stale_read" in self._rules:
            response = self._previous_version(response)
        variants = [(RESPONSE_VARIANTS[kind], rule) for kind, rule in self._rules.items() if kind in RESPONSE_VARIANTS]
        body = response.parse_json_object() if variants else None
        if body is None:
            return response
        for variant, rule in variants:
            body = variant(body, rule, self._service.config.own_addresses)
        poison = self._rules.get("poison_task")
        encoded = encode(body)
        return response.with_body(encoded if poison is None else fill_in_poison(encoded, poison))

    def _previous_version(self, response: BufferedResponse) -> BufferedResponse:
        """The response of a lagging replica: the previous version, if it is stored."""
        ref = self._target_ref()
        stored = self._service.resources.find(ref) if ref is not None and response.status == 200 else None
        body = self._service.store.get_version(stored, stored.version - 1) if stored is not None else None
        if stored is None or body is None:
            return response
        return response.with_body(body).with_header(b"etag", f'W/"{stored.version - 1}"'.encode())

    def _target_ref(self) -> Ref | None:
        parts = self._scope["path"].strip("/").split("/")
        kind = canonical_type(parts[1]) if len(parts) == 3 and parts[0] == "fhir" else None
        return Ref(kind, parts[2]) if kind else None


def _outcome_response(status: int, code: str, text: str) -> BufferedResponse:
    return BufferedResponse(status, (_JSON_HEADER,), encode(operation_outcome([Issue(code, text)])))
