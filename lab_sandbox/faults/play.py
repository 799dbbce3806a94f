"""Plays the faults of one request around the app, in a fixed order: before the work, on the query, after the work."""

import asyncio
from datetime import timedelta
from email.utils import format_datetime
from typing import Final
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from lab_sandbox.faults.line import close_connection, reset_connection, wait_silently
from lab_sandbox.faults.reply import BufferedResponse, capture_response
from lab_sandbox.faults.rule import FaultRule
from lab_sandbox.faults.shapes import RESPONSE_VARIANTS
from lab_sandbox.names import canonical_type
from lab_sandbox.outcome import HttpError, Issue, operation_outcome
from lab_sandbox.references import Ref
from lab_sandbox.service import Service
from lab_sandbox.wire import decode_stored, encode

_JSON_HEADER = (b"content-type", b"application/json")
_HTML_BODY = b"<!doctype html><html><body><h1>Service temporarily unavailable</h1></body></html>"


FAULTS_KEY: Final = "lab_sandbox.faults"
"""The key in the ASGI scope for the kinds of fault that happen to a request."""


class FaultMiddleware:
    """Asks the desk what happens to each request; without a fault, the request passes untouched."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes the request on, with whatever happens to it."""
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
        """What the caller may be called in a plan; nothing when no plan asks, or nobody can tell."""
        if not self._service.faults.needs_caller():
            return frozenset()
        try:
            party = self._service.accounts.authenticate_header(Headers(scope=scope).get("authorization"))
        except HttpError:
            return frozenset()
        return frozenset({party.name, party.guid, party.kind})


class _FaultedRequest:
    """One request and the faults that happen to it."""

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
        """Before the work; the work; after the work."""
        if (latency := self._rules.get("latency")) is not None:
            await asyncio.sleep(latency.seconds)
        if (hang := self._rules.get("hang")) is not None:
            await wait_silently(self._receive, hang.seconds)
        if hang is not None or "reset" in self._rules:
            await reset_connection(self._scope, self._receive)
            return
        instead = self._replacement_response(after_work=False)
        if instead is not None:
            await instead.send(self._send)
            return
        self._expire_or_revoke_token()
        self._edit_as_partner()
        self._rewrite_query()
        reply = self._apply_variants(await capture_response(self._app, self._scope, self._receive))
        await self._send_response(self._replacement_response(after_work=True) or reply)

    async def _send_response(self, response: BufferedResponse) -> None:
        if "lost_reply" in self._rules:
            await reset_connection(self._scope, self._receive)
        elif "truncate" in self._rules:
            await response.send(self._send, max_bytes=len(response.body) // 2)
            await close_connection(self._scope, self._receive)
        else:
            await response.send(self._send)

    def _replacement_response(self, *, after_work: bool) -> BufferedResponse | None:
        """Another answer than the app's, when a fault says so."""
        status, html = self._rules.get("status"), self._rules.get("html")
        if "unauthorized" in self._rules and not after_work:
            return _outcome_response(401, "login", "Authorization: the access token is unknown, revoked or expired")
        if status is not None and status.after_work == after_work:
            return self._with_retry_after(
                _outcome_response(status.status, "transient", f"service: status {status.status}, on demand"), status
            )
        if html is not None and html.after_work == after_work:
            return BufferedResponse(200, ((b"content-type", b"text/html; charset=utf-8"),), _HTML_BODY)
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
        """The partner edits the resource between the client's read and its write."""
        rule, ref = self._rules.get("partner_edit"), self._target_ref()
        kept = self._service.resources.find(ref) if rule is not None and ref is not None else None
        if rule is not None and kept is not None:
            self._service.resources.replace(kept, decode_stored(kept.body) | rule.change)

    def _rewrite_query(self) -> None:
        small, repeated = self._rules.get("small_pages"), self._rules.get("repeated_rows")
        if small is None and repeated is None:
            return
        query = parse_qsl(self._scope["query_string"].decode("latin-1"), keep_blank_values=True)
        pairs = [pair for pair in query if pair[0] not in {"_count", "_after"}]
        given = {name: value for name, value in query if value.isascii() and value.isdigit()}
        size = small.size if small is not None else int(given.get("_count", self._service.config.rules.page_size))
        after = int(given.get("_after", 0))
        if repeated is not None and after:
            # The row that ended the page before begins this one; a page of one row would never get on.
            after, size = after - 1, max(2, size)
        more = [("_count", str(size))] + ([("_after", str(after))] if after else [])
        self._scope["query_string"] = urlencode([*pairs, *more]).encode()

    def _apply_variants(self, response: BufferedResponse) -> BufferedResponse:
        if "stale_read" in self._rules:
            response = self._previous_version(response)
        shapes = [(RESPONSE_VARIANTS[kind], rule) for kind, rule in self._rules.items() if kind in RESPONSE_VARIANTS]
        body = response.parse_json_object() if shapes else None
        if body is None:
            return response
        for shape, rule in shapes:
            body = shape(body, rule, self._service.config.own_addresses)
        return response.with_body(encode(body))

    def _previous_version(self, response: BufferedResponse) -> BufferedResponse:
        """A read as a replica that lags behind would answer it: the version before the newest, while it is kept."""
        ref = self._target_ref()
        kept = self._service.resources.find(ref) if ref is not None and response.status == 200 else None
        body = self._service.store.get_version(kept, kept.version - 1) if kept is not None else None
        if kept is None or body is None:
            return response
        return response.with_body(body).with_header(b"etag", f'W/"{kept.version - 1}"'.encode())

    def _target_ref(self) -> Ref | None:
        parts = self._scope["path"].strip("/").split("/")
        kind = canonical_type(parts[1]) if len(parts) == 3 and parts[0] == "fhir" else None
        return Ref(kind, parts[2]) if kind else None


def _outcome_response(status: int, code: str, text: str) -> BufferedResponse:
    return BufferedResponse(status, (_JSON_HEADER,), encode(operation_outcome([Issue(code, text)])))
