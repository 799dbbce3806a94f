"""Requests to the token endpoint and their responses (RFC 6749, RFC 7636); authlib builds the requests."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from authlib.oauth2.rfc6749.parameters import prepare_token_request
from pydantic import SecretStr

from lab_agent.exchange.responses import RequestContext, RequestKind, response_error
from lab_agent.settings.exchange import OAuthSettings
from lab_agent.shared import exact_json
from lab_agent.shared.clock import Clock
from lab_agent.shared.errors import (
    AmbiguousFailure,
    AuthenticationRequired,
    DataInvalidError,
    Failure,
    InvalidResponse,
    ServiceRejected,
    ServiceUnavailable,
    SignInFailed,
)
from lab_agent.shared.http_client import HttpClient, HttpResponse
from lab_agent.store.credential_records import MAX_TOKEN_LENGTH, StoredToken, is_sendable_token

_ERROR_CODES = frozenset(
    {
        "invalid_request",
        "invalid_client",
        "invalid_grant",
        "unauthorized_client",
        "unsupported_grant_type",
        "invalid_scope",
        "access_denied",
        "server_error",
        "temporarily_unavailable",
    }
)
"""Those of RFC 6749, sections 4.1.2.1 and 5.2. Any other may be a name (law 7)."""
_REQUEST_CONTEXT = RequestContext(kind=RequestKind.WRITE, description="the sign-in")
_MAX_CALL_SECONDS = 20.0
_FORM_HEADERS = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}


@dataclass(frozen=True, slots=True)
class CodeGrant:
    """An authorization code, and the verifier that proves we requested it (None without PKCE)."""

    code: str
    verifier: str | None


class TokenClient:
    """The token endpoint. Every call may raise `ServiceUnavailable` or `AuthenticationRequired`; nothing is stored here."""

    def __init__(self, oauth: OAuthSettings, http: HttpClient, clock: Clock) -> None:
        self._oauth = oauth
        self._http = http
        self._clock = clock

    @property
    def max_call_seconds(self) -> float:
        """Seconds after which every call has ended."""
        return min(_MAX_CALL_SECONDS, self._http.max_call_seconds)

    async def refresh(self, old: StoredToken, *, generation: int) -> StoredToken:
        """Refresh. A lost reply may have used up the old refresh token; it is tried once more anyway."""
        form = refresh_form(self._oauth, old.refresh_token or "")
        try:
            return await self._request_token(form, generation, old)
        except AmbiguousFailure:
            return await self._request_repeatable(form, generation, old)

    async def log_in(self, *, generation: int) -> StoredToken:
        """Sign in without a person, if the grant allows it. Raises `AuthenticationRequired` if it needs one."""
        if self._oauth.grant == "password":
            return await self._request_repeatable(password_form(self._oauth), generation)
        if self._oauth.grant == "client_credentials":
            return await self._request_repeatable(client_credentials_form(self._oauth), generation)
        raise AuthenticationRequired("the exchange service requires a sign-in by a person; run `lab-agent login`")

    async def exchange_code(self, grant: CodeGrant, *, generation: int) -> StoredToken:
        """Exchange an authorization code. A code is valid once, so a lost reply requires a new sign-in."""
        try:
            return await self._request_token(authorization_code_form(self._oauth, grant), generation)
        except AmbiguousFailure as exc:
            raise AuthenticationRequired("the response to the sign-in was lost; run `lab-agent login` again") from exc

    async def _request_repeatable(self, form: str, generation: int, old: StoredToken | None = None) -> StoredToken:
        try:
            return await self._request_token(form, generation, old)
        except AmbiguousFailure as exc:
            raise ServiceUnavailable(f"the authorization server did not respond: {exc}") from exc

    async def _request_token(self, form: str, generation: int, old: StoredToken | None = None) -> StoredToken:
        requested_at = self._clock.now()
        answer = await self._http.send(
            "POST",
            self._oauth.token_path,
            base=f"{self._oauth.auth_url}/",
            headers=_FORM_HEADERS,
            content=form.encode(),
            timeout=self.max_call_seconds,
        )
        error = response_error(_REQUEST_CONTEXT, answer.status, answer.headers, answer.body, now=self._clock.now())
        if error is not None:
            raise self._to_login_error(error, answer)
        return parse_token(answer.body, generation=generation, requested_at=requested_at, old=old)

    def _to_login_error(self, error: Failure, answer: HttpResponse) -> Failure:
        if not isinstance(error, AuthenticationRequired | ServiceRejected):
            return error
        code = parse_error_code(answer.body)
        reason = f"{answer.status}, {code}" if code else str(answer.status)
        hint = "run `lab-agent login`, or " if self._oauth.grant == "authorization_code" else ""
        return AuthenticationRequired(f"the authorization server rejected the sign-in ({reason}); {hint}correct [exchange.oauth]")


def password_form(oauth: OAuthSettings) -> str:
    """Form of a sign-in with login and password."""
    return _form(oauth, "password", username=oauth.username, password=_reveal(oauth.password), scope=oauth.scope)


def client_credentials_form(oauth: OAuthSettings) -> str:
    """Form of a sign-in as the client itself. `offline_access` is not requested: there is nothing to refresh."""
    scope = " ".join(word for word in oauth.scope.split() if word != "offline_access")
    return _form(oauth, "client_credentials", scope=scope)


def authorization_code_form(oauth: OAuthSettings, grant: CodeGrant) -> str:
    """Form that exchanges an authorization code (interface: Authentication, 3)."""
    return _form(oauth, "authorization_code", code=grant.code, redirect_uri=oauth.redirect_uri, code_verifier=grant.verifier)


def refresh_form(oauth: OAuthSettings, refresh_token: str) -> str:
    """Form of a refresh."""
    return _form(oauth, "refresh_token", refresh_token=refresh_token)


def basic_authorization(oauth: OAuthSettings) -> str:
    """Value of the Authorization header for HTTP Basic, in UTF-8 (RFC 7617)."""
    return "Basic " + base64.b64encode(f"{oauth.username}:{_reveal(oauth.password)}".encode()).decode("ascii")


def parse_token(body: bytes, *, generation: int, requested_at: datetime, old: StoredToken | None = None) -> StoredToken:
    """Read a token response. `old` is what was refreshed: without a new refresh token the old one stays valid (RFC 6749, 6).

    Raises `InvalidResponse` for what is no JSON object, `SignInFailed` for one whose `access_token` no header can hold.
    """
    if len(body) >= exact_json.LARGE and body.lstrip().startswith(b"{"):
        raise SignInFailed(f"the authorization server's answer with the `access_token` is too large ({len(body)} bytes)")
    found = _parse_object(body)
    if not found:
        raise InvalidResponse("the authorization server responded without an access token")
    access = found.get("access_token")
    if not isinstance(access, str) or not is_sendable_token(access):
        raise SignInFailed(f"`access_token` in the authorization server's answer cannot be used: {_token_fault(access)}")
    refresh = found.get("refresh_token")
    return StoredToken(
        generation=generation,
        access_token=access,
        refresh_token=refresh if isinstance(refresh, str) and refresh else old.refresh_token if old else None,
        expires_at=_expiry(found.get("expires_in"), requested_at),
        signed_in_at=old.signed_in_at if old else requested_at,
        obtained_at=requested_at,
    )


def _token_fault(value: object) -> str:
    """Say what is wrong with a token, without showing it."""
    if value is None or value == "":
        return "it is missing or empty"
    if not isinstance(value, str):
        return "it is no text"
    if len(value) > MAX_TOKEN_LENGTH:
        return f"it has {len(value)} characters"
    return "it holds characters that no header can: control characters, other than ASCII, or blanks at its ends"


def parse_error_code(body: bytes) -> str:
    """Read the error code, such as `invalid_grant`; empty if there is none. The description is not repeated."""
    code = _parse_object(body).get("error")
    return code if isinstance(code, str) and code in _ERROR_CODES else ""


def _expiry(expires_in: object, requested_at: datetime) -> datetime | None:
    """The moment of expiry; some services send the number as a string."""
    try:
        seconds = int(str(expires_in))
    except ValueError:
        return None
    return requested_at + timedelta(seconds=seconds) if 0 < seconds < 10**9 else None


def _parse_object(body: bytes) -> Mapping[str, Any]:
    if len(body) >= exact_json.LARGE:
        return {}
    try:
        found = exact_json.loads(body)
    except DataInvalidError:
        return {}
    return found if isinstance(found, dict) else {}


def _form(oauth: OAuthSettings, grant_type: str, **fields: str | None) -> str:
    form: str = prepare_token_request(grant_type, client_id=oauth.client_id, client_secret=_reveal(oauth.client_secret), **fields)
    return form


def _reveal(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()
