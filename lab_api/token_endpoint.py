"""OAuth 2.0 client credentials: short-lived signed tokens for the clients of `lab-agent api-token` (RFC 6749, section 4.4).

The signing key is derived from the store's encryption key, so that every process accepts what another one has issued. Revoking a
client ends its signed tokens too.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from base64 import b64decode
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any
from urllib.parse import parse_qsl, unquote_plus

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import OctKey
from starlette.requests import Request
from starlette.responses import Response

from lab_agent.catalogue.records import ApiToken
from lab_agent.store.api_refusals import RefusalReason
from lab_agent.store.crypto import token_matches
from lab_api.errors import ApiError, operation_outcome_body
from lab_api.refusals import count_refusal, find_ended
from lab_api.request_body import read_body

_ISSUER = "lab-api"
_MAX_BODY_BYTES = 10_000
_MAX_FORM_FIELDS = 50


class SignedTokens:
    """Issues and reads signed tokens; the first key signs, and any of them is accepted."""

    def __init__(self, keys: tuple[str, ...], lifetime: float, now: Callable[[], datetime]) -> None:
        self._keys = [OctKey.import_key(hmac.digest(key.encode(), b"lab-api signed tokens", hashlib.sha256)) for key in keys]
        self.lifetime = int(lifetime)
        self._now = now

    def issue(self, client: ApiToken) -> str:
        """A token for this client, valid for `lifetime` seconds."""
        at = int(self._now().timestamp())
        claims = {"iss": _ISSUER, "sub": client.name, "cid": client.id, "iat": at, "exp": at + self.lifetime}
        return jwt.encode({"alg": "HS256"}, {**claims, "jti": secrets.token_hex(8)}, self._keys[0])

    def client_id(self, token: str) -> str | None:
        """Id of the client that a token was issued to; None if it is not ours, was altered, or has expired."""
        claims = self._read_claims(token)
        return str(claims.get("cid")) if claims and claims["exp"] > self._now().timestamp() else None

    def issued_to(self, token: str) -> str | None:
        """Id of the client that a token was issued to, though it may have expired; None if it is not ours, or was altered."""
        claims = self._read_claims(token)
        return str(claims.get("cid")) if claims else None

    def _read_claims(self, token: str) -> Mapping[str, Any]:
        for key in self._keys:
            try:
                claims = jwt.decode(token, key, algorithms=["HS256"]).claims
            except (JoseError, ValueError, TypeError, LookupError, AttributeError):  # of a header that joserfc does not expect
                continue
            return claims if claims.get("iss") == _ISSUER and isinstance(claims.get("exp"), int) else {}
        return {}


class TokenEndpoint:
    """`POST token`. `tokens` gives the credentials as they are now."""

    def __init__(
        self, tokens: Callable[[], tuple[ApiToken, ...]], signed_tokens: SignedTokens, now: Callable[[], datetime]
    ) -> None:
        self._tokens = tokens
        self._signed_tokens = signed_tokens
        self._now = now

    async def handle(self, request: Request) -> Response:
        """Answer a token request (RFC 6749, sections 4.4 and 5); a failure as OperationOutcome, too."""
        try:
            form = _parse_form(await read_body(request, _MAX_BODY_BYTES))
        except ApiError as exc:
            return _error(exc.status, "invalid_request", str(exc))
        if form is None:
            return _error(400, "invalid_request", "The form has too many fields, or one of them twice.")
        if form.get("grant_type") != "client_credentials":
            return _error(400, "unsupported_grant_type", "Send grant_type=client_credentials.")
        name, secret = _client_credentials(request.headers.get("authorization"), form)
        client = self._authenticate(name, secret)
        if client is None:
            count_refusal(request, 401, *self._find_refusal(secret))
            return _error(
                401, "invalid_client", "Unknown client or wrong secret.", {"WWW-Authenticate": 'Basic realm="laboratory"'}
            )
        token = {"access_token": self._signed_tokens.issue(client), "token_type": "Bearer"}
        return _json(200, {**token, "expires_in": self._signed_tokens.lifetime})

    def _find_refusal(self, secret: str) -> tuple[RefusalReason, str]:
        """Why nobody was found, and whose the secret was."""
        if not secret:
            return RefusalReason.NO_CREDENTIALS, ""
        return find_ended(each for each in self._tokens() if token_matches(secret, each.sha256))

    def _authenticate(self, name: str, secret: str) -> ApiToken | None:
        """All credentials of a name are one client: an old and a new secret are valid side by side."""
        now = self._now()
        valid = (each for each in self._tokens() if each.name == name and each.is_valid(now))
        return next((each for each in valid if token_matches(secret, each.sha256)), None)


def _parse_form(body: bytes) -> dict[str, str] | None:
    """The fields of a form; None where there are too many, or one comes twice (RFC 6749, section 3.2)."""
    try:
        pairs = parse_qsl(body.decode("utf-8", "replace"), max_num_fields=_MAX_FORM_FIELDS)
    except ValueError:
        return None
    form = dict(pairs)
    return form if len(form) == len(pairs) else None


def _client_credentials(authorization: str | None, form: Mapping[str, str]) -> tuple[str, str]:
    """Name and secret, of HTTP Basic or of the form (RFC 6749, section 2.3.1); empty where there are none."""
    if authorization is None:
        return form.get("client_id", ""), form.get("client_secret", "")
    scheme, _, credential = authorization.partition(" ")
    try:
        name, _, secret = b64decode(credential.strip(), validate=True).decode().partition(":")
    except ValueError:  # not base64, or not UTF-8
        return "", ""
    return (unquote_plus(name), unquote_plus(secret)) if scheme.lower() == "basic" else ("", "")


def _error(status: int, error: str, description: str, headers: Mapping[str, str] | None = None) -> Response:
    """An OperationOutcome (interface: Errors) that has the error of RFC 6749, section 5.2, beside it."""
    outcome = operation_outcome_body([("login" if status == 401 else "invalid", f"{error}: {description}")])
    return _json(status, {**outcome, "error": error, "error_description": description}, headers)


def _json(status: int, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Response:
    return Response(json.dumps(body), status, {"Cache-Control": "no-store", **(headers or {})}, "application/json")
