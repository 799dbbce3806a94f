"""A small OpenID provider on this machine, which signs what a test wants and checks what a client has to send (PKCE, secret)."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import parse_qsl, urlencode

from joserfc import jwt
from joserfc.jwk import RSAKey

from tests.harness.canned_server import serving_app

CLIENT_ID = "status-page"
CLIENT_SECRET = "provider's secret: +/%"
KEY = RSAKey.generate_key(2048, {"kid": "first", "use": "sig"})
OTHER_KEY = RSAKey.generate_key(2048, {"kid": "first", "use": "sig"})
"""A key that the provider does not publish, under the same name."""


@dataclass
class Provider:
    issuer: str
    now: Callable[[], datetime]
    claims: dict[str, Any] = field(default_factory=dict)
    """What the ID token says beside, or instead of, what it has to."""
    userinfo: dict[str, Any] | None = None
    """What `/userinfo` says; None: there is none."""
    key: Any = field(default_factory=lambda: KEY)
    algorithm: str = "RS256"
    metadata: dict[str, Any] = field(default_factory=dict)
    """Changes to the discovery document."""
    error: str | None = None
    """The error that signing in ends with."""
    status: int = 200
    """Status of the discovery document."""
    has_page: bool = False
    """Whether signing in takes a click on a page of the provider's."""
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    forms: list[dict[str, str]] = field(default_factory=list)
    """What the token endpoint was sent."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        body = (await receive()).get("body", b"")
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        query = dict(parse_qsl(scope["query_string"].decode()))
        status, location, answer = self._answer(scope["path"], headers, query, dict(parse_qsl(body.decode())))
        content = json.dumps(answer).encode()
        sent = [(b"content-type", b"application/json"), *([(b"location", location.encode())] if location else [])]
        if location and self.has_page:
            page = f'<!doctype html><title>Provider</title><a href="{html.escape(location)}">Yes, it is me</a>'
            status, sent, content = 200, [(b"content-type", b"text/html")], page.encode()
        await send({"type": "http.response.start", "status": status, "headers": sent})
        await send({"type": "http.response.body", "body": content})

    def _answer(
        self, path: str, headers: dict[str, str], query: dict[str, str], form: dict[str, str]
    ) -> tuple[int, str | None, Any]:
        match path:
            case "/.well-known/openid-configuration":
                return self.status, None, self._metadata()
            case "/authorize":
                return 303, self._authorize(query), {}
            case "/token":
                return self._token(headers, form)
            case "/jwks":
                other = {"kty": "unknown", "kid": "odd"}
                return 200, None, {"keys": [other, KEY.as_dict(private=False)]}
            case "/userinfo" if headers.get("authorization") == "Bearer of-the-person":
                return 200, None, self.userinfo
        return 404, None, {}

    def _metadata(self) -> dict[str, Any]:
        endpoints = {"authorization_endpoint": "authorize", "token_endpoint": "token", "jwks_uri": "jwks"}
        if self.userinfo is not None:
            endpoints["userinfo_endpoint"] = "userinfo"
        return {"issuer": self.issuer, **{name: f"{self.issuer}/{path}" for name, path in endpoints.items()}, **self.metadata}

    def _authorize(self, query: dict[str, str]) -> str:
        assert query["response_type"] == "code"
        assert query["code_challenge_method"] == "S256"
        assert "openid" in query["scope"].split()
        code = secrets.token_urlsafe(8)
        self.codes[code] = query
        answer = {"error": self.error} if self.error else {"code": code, "iss": self.issuer}
        return f"{query['redirect_uri']}?{urlencode({**answer, 'state': query['state']})}"

    def _token(self, headers: dict[str, str], form: dict[str, str]) -> tuple[int, None, Any]:
        self.forms.append(form)
        asked = self.codes.pop(form.get("code", ""), None)
        if asked is None or not self._is_client(headers, form) or form["redirect_uri"] != asked["redirect_uri"]:
            return 400, None, {"error": "invalid_grant"}
        challenge = base64.urlsafe_b64encode(hashlib.sha256(form["code_verifier"].encode()).digest()).rstrip(b"=").decode()
        if challenge != asked["code_challenge"]:
            return 400, None, {"error": "invalid_grant"}
        token = self._id_token(asked["nonce"])
        return 200, None, {"access_token": "of-the-person", "token_type": "Bearer", "id_token": token}

    def _is_client(self, headers: dict[str, str], form: dict[str, str]) -> bool:
        if form.get("client_id") == CLIENT_ID:
            return form.get("client_secret") in {None, CLIENT_SECRET}
        scheme, _, pair = headers.get("authorization", "").partition(" ")
        quoted = "provider%27s%20secret%3A%20%2B%2F%25"
        return scheme == "Basic" and base64.b64decode(pair).decode() == f"{CLIENT_ID}:{quoted}"

    def _id_token(self, nonce: str) -> str:
        now = int(self.now().timestamp())
        claims = {"iss": self.issuer, "sub": "42", "aud": CLIENT_ID, "iat": now, "exp": now + 300, "nonce": nonce, **self.claims}
        kept = {name: value for name, value in claims.items() if value is not None}
        return jwt.encode({"alg": self.algorithm, "kid": "first"}, kept, self.key, algorithms=[self.algorithm])


@asynccontextmanager
async def oidc_provider(now: Callable[[], datetime], host: str = "127.0.0.1") -> AsyncIterator[Provider]:
    """A running provider on a free port of this machine, which calls itself `host`."""
    provider = Provider("", now)
    async with serving_app(provider) as port:
        provider.issuer = f"http://{host}:{port}"
        yield provider
