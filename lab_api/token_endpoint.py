"""OAuth 2.0 client credentials: short-lived signed tokens for the clients of `lab-agent api-token` (RFC 6749, section 4.4).

The grant, its checks and its errors are authlib's; the signature is joserfc's. The signing key is derived from the store's
encryption key, so that a token made by one process is good at every other. Revoking a client ends its signed tokens too.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import parse_qsl

from authlib.oauth2.rfc6749 import AuthorizationServer, OAuth2Request
from authlib.oauth2.rfc6749.errors import InvalidClientError, InvalidRequestError
from authlib.oauth2.rfc6749.grants import ClientCredentialsGrant
from authlib.oauth2.rfc6749.models import ClientMixin
from authlib.oauth2.rfc6749.requests import BasicOAuth2Payload
from fastapi import Request, Response
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import OctKey

from lab_agent.crypto import token_matches
from lab_agent.domain.catalogue_records import ApiToken
from lab_api.response_cache import read_body

_ISSUER = "lab-api"
_MAX_BODY_BYTES = 10_000
_MAX_FORM_FIELDS = 50


class SignedTokens:
    """Makes and reads signed tokens; the first key signs, any of them is believed."""

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
        """Id of the client that a token was made for; None if it is not ours, was altered, or is over."""
        for key in self._keys:
            try:
                claims = jwt.decode(token, key, algorithms=["HS256"]).claims
            except (JoseError, ValueError, TypeError, LookupError, AttributeError):  # of a header that joserfc does not expect
                continue
            fits = claims.get("iss") == _ISSUER and isinstance(claims.get("exp"), int)
            return str(claims.get("cid")) if fits and claims["exp"] > self._now().timestamp() else None
        return None


@dataclass(slots=True)
class _OAuthClient(ClientMixin):  # type: ignore[misc]
    """A client as authlib asks for one. All credentials of a name are one client: an old and a new secret hold side by side."""

    name: str
    tokens: tuple[ApiToken, ...]
    verified_token: ApiToken | None = None

    def get_client_id(self) -> str:
        return self.name

    def get_allowed_scope(self, scope: str) -> str:
        del scope  # contracts are what a client may see; there are no scopes
        return ""

    def check_client_secret(self, client_secret: str) -> bool:
        found = [each for each in self.tokens if token_matches(client_secret, each.sha256)]
        self.verified_token = found[0] if found else None
        return bool(found)

    def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:
        return endpoint == "token" and method in _ClientCredentialsGrant.TOKEN_ENDPOINT_AUTH_METHODS

    def check_grant_type(self, grant_type: str) -> bool:
        return grant_type == "client_credentials"


class _ClientCredentialsGrant(ClientCredentialsGrant):  # type: ignore[misc]
    TOKEN_ENDPOINT_AUTH_METHODS = ("client_secret_basic", "client_secret_post")


class _TokenRequest(OAuth2Request):  # type: ignore[misc]
    """A token request: its form and its headers. That it came over HTTPS is the proxy's affair, not ours."""

    def __init__(self, form: Mapping[str, str], headers: Mapping[str, str]) -> None:
        super().__init__("POST", "https://laboratory/token", headers=headers)
        self.payload = BasicOAuth2Payload(dict(form))
        self._form = dict(form)

    @property
    def form(self) -> dict[str, str]:
        return self._form


class TokenEndpoint(AuthorizationServer):  # type: ignore[misc]
    """`POST token`. `tokens` gives the credentials as they stand."""

    def __init__(
        self, tokens: Callable[[], tuple[ApiToken, ...]], signed_tokens: SignedTokens, now: Callable[[], datetime]
    ) -> None:
        super().__init__()
        self._tokens = tokens
        self._signed_tokens = signed_tokens
        self._now = now
        self.register_grant(_ClientCredentialsGrant)
        self.register_token_generator("default", self._generate_token)

    async def handle(self, request: Request) -> Response:
        """Answer a token request (RFC 6749, sections 4.4 and 5)."""
        form = _parse_form(await read_body(request, _MAX_BODY_BYTES))
        if form is None:
            said = InvalidRequestError("The form names too much, or a parameter twice.")
            refused: Response = self.handle_error_response(None, said)
            return refused
        headers = {"Authorization": value} if (value := request.headers.get("authorization")) else {}
        try:
            response: Response = self.create_token_response(_TokenRequest(form, headers))
        except ValueError:  # not ASCII, or not UTF-8: of the Basic credentials, which authlib does not expect
            response = self.handle_error_response(None, InvalidClientError(status_code=401))
        return response

    def query_client(self, client_id: str) -> _OAuthClient:
        """The client of that name, with its valid credentials: none for a name that nobody has, which is answered the same."""
        now = self._now()
        held = tuple(each for each in self._tokens() if each.name == client_id and each.is_valid(now))
        return _OAuthClient(client_id, held)

    def create_oauth2_request(self, request: _TokenRequest) -> _TokenRequest:
        """It is one already."""
        return request

    def save_token(self, token: Mapping[str, Any], request: _TokenRequest) -> None:
        """Keep nothing: a signed token proves itself."""

    def send_signal(self, name: str, *args: object, **kwargs: object) -> None:
        """Tell nobody."""

    def handle_response(self, status: int, body: object, headers: list[tuple[str, str]]) -> Response:
        """Make the response."""
        return Response(json.dumps(body), status, dict(headers), "application/json")

    def _generate_token(self, client: _OAuthClient, **_: object) -> dict[str, Any]:
        if client.verified_token is None:
            raise InvalidClientError(status_code=401)
        return {
            "access_token": self._signed_tokens.issue(client.verified_token),
            "token_type": "Bearer",
            "expires_in": self._signed_tokens.lifetime,
        }


def _parse_form(body: bytes) -> dict[str, str] | None:
    """The fields of a form; None where there are too many, or one comes twice (RFC 6749, section 3.2)."""
    try:
        pairs = parse_qsl(body.decode("utf-8", "replace"), max_num_fields=_MAX_FORM_FIELDS)
    except ValueError:
        return None
    form = dict(pairs)
    return form if len(form) == len(pairs) else None
