"""One question to the token endpoint, and its answer in our words.

What is said to the token endpoint, and how its answer is read (RFC 6749, RFC 7636). Pure; authlib makes the requests.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from authlib.oauth2.rfc6749.parameters import prepare_token_request
from pydantic import SecretStr

from lab_agent import exact_json
from lab_agent.domain.records import StoredToken
from lab_agent.errors import (
    AmbiguousFailure,
    AuthenticationRequired,
    DataInvalidError,
    Failure,
    InvalidResponse,
    ServiceRefusal,
    ServiceUnavailable,
)
from lab_agent.exchange.responses import RequestContext, RequestKind, response_error
from lab_agent.http_client import HttpClient, HttpResponse
from lab_agent.ports.clock import Clock
from lab_agent.settings.exchange import OAuthSettings

_ERROR_CODE_PATTERN = re.compile(r"[a-z_]{1,40}")


@dataclass(frozen=True, slots=True)
class CodeGrant:
    """An authorization code, and the verifier that proves that we asked for it (None without PKCE)."""

    code: str
    verifier: str | None


def password_form(oauth: OAuthSettings) -> str:
    """Form of a sign-in with login and password."""
    return _form(oauth, "password", username=oauth.username, password=_reveal(oauth.password), scope=oauth.scope)


def client_credentials_form(oauth: OAuthSettings) -> str:
    """Form of a sign-in as the client itself. `offline_access` is not asked for: there is nothing to refresh."""
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


def parse_token(
    body: bytes, *, generation: int, requested_at: datetime, old_refresh_token: str | None = None
) -> StoredToken | None:
    """Read a token answer; None where it is none. Without a new refresh token the old one stays good (RFC 6749, 6)."""
    found = _parse_object(body)
    access = found.get("access_token")
    if not isinstance(access, str) or not access:
        return None
    refresh = found.get("refresh_token")
    return StoredToken(
        generation=generation,
        access_token=access,
        refresh_token=refresh if isinstance(refresh, str) and refresh else old_refresh_token,
        expires_at=_expiry(found.get("expires_in"), requested_at),
    )


def parse_error_code(body: bytes) -> str:
    """Read the error code of a refusal, such as `invalid_grant`; empty where there is none. The description is not repeated."""
    code = _parse_object(body).get("error")
    return code if isinstance(code, str) and _ERROR_CODE_PATTERN.fullmatch(code) else ""


def _expiry(expires_in: object, requested_at: datetime) -> datetime | None:
    """Some services send the number as a string."""
    try:
        seconds = int(str(expires_in))
    except ValueError:
        return None
    return requested_at + timedelta(seconds=seconds) if 0 < seconds < 10**9 else None


def _parse_object(body: bytes) -> Mapping[str, Any]:
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


_REQUEST_CONTEXT = RequestContext(kind=RequestKind.WRITE, description="signing in")
_MAX_CALL_SECONDS = 20.0
_FORM_HEADERS = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}


class TokenClient:
    """The service's `connect/token`. Every call may raise `ServiceUnavailable` or `SignInNeeded`; nothing is stored here."""

    def __init__(self, oauth: OAuthSettings, http: HttpClient, clock: Clock) -> None:
        self._oauth = oauth
        self._http = http
        self._clock = clock

    @property
    def max_call_seconds(self) -> float:
        """Seconds after which one question has ended in any case."""
        return min(_MAX_CALL_SECONDS, self._http.max_call_seconds)

    async def refresh(self, old: StoredToken, *, generation: int) -> StoredToken:
        """Refresh. A reply that was lost may have used up the old refresh token; it is tried once more all the same."""
        form = refresh_form(self._oauth, old.refresh_token or "")
        try:
            return await self._request_token(form, generation, old.refresh_token)
        except AmbiguousFailure:
            return await self._request_repeatable(form, generation, old.refresh_token)

    async def log_in(self, *, generation: int) -> StoredToken:
        """Sign in without a human, where the grant allows it. Raises `SignInNeeded` where it needs one."""
        if self._oauth.grant == "password":
            return await self._request_repeatable(password_form(self._oauth), generation)
        if self._oauth.grant == "client_credentials":
            return await self._request_repeatable(client_credentials_form(self._oauth), generation)
        raise AuthenticationRequired("a person has to sign in at the exchange service; run `lab-agent login`")

    async def exchange_code(self, grant: CodeGrant, *, generation: int) -> StoredToken:
        """Exchange an authorization code. A code is good for one time only, so a lost reply needs a new sign-in."""
        try:
            return await self._request_token(authorization_code_form(self._oauth, grant), generation)
        except AmbiguousFailure as exc:
            raise AuthenticationRequired("the answer to the sign-in was lost; run `lab-agent login` again") from exc

    async def _request_repeatable(self, form: str, generation: int, refresh_token: str | None = None) -> StoredToken:
        try:
            return await self._request_token(form, generation, refresh_token)
        except AmbiguousFailure as exc:
            raise ServiceUnavailable(f"the authorization site gave no answer: {exc}") from exc

    async def _request_token(self, form: str, generation: int, refresh_token: str | None = None) -> StoredToken:
        asked_at = self._clock.now()
        answer = await self._http.send(
            "POST",
            self._oauth.token_path,
            base=f"{self._oauth.auth_url}/",
            headers=_FORM_HEADERS,
            content=form.encode(),
            timeout=self.max_call_seconds,
        )
        if (
            wrong := response_error(_REQUEST_CONTEXT, answer.status, answer.headers, answer.body, now=self._clock.now())
        ) is not None:
            raise self._to_login_error(wrong, answer)
        token = parse_token(answer.body, generation=generation, requested_at=asked_at, old_refresh_token=refresh_token)
        if token is None:
            raise InvalidResponse("the authorization site answered without an access token")
        return token

    def _to_login_error(self, error: Failure, answer: HttpResponse) -> Failure:
        if not isinstance(error, AuthenticationRequired | ServiceRefusal):
            return error
        code = parse_error_code(answer.body)
        reason = f"{answer.status}, {code}" if code else str(answer.status)
        by_hand = "run `lab-agent login`, or " if self._oauth.grant == "authorization_code" else ""
        return AuthenticationRequired(f"the authorization site refused us ({reason}); {by_hand}mend [exchange.oauth]")
