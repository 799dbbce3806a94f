"""What is said to the token endpoint, and how its answer is read (RFC 6749, RFC 7636). Pure; authlib makes the requests."""

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
from lab_agent.domain.journal import StoredToken
from lab_agent.errors import DataInvalidError
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
