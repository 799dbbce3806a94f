"""Authorization codes, access tokens and refresh tokens: issued, redeemed, rotated, revoked and expired."""

import secrets
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from lab_sandbox.config import Counterparty, TokenSettings
from lab_sandbox.resources import Clock


@dataclass(frozen=True)
class AuthorizationCode:
    """An authorization code: valid once, for a short time, for the client that requested it."""

    client_id: str
    redirect_uri: str
    guid: str
    scope: str
    challenge: str | None
    expires: datetime


@dataclass(frozen=True)
class IssuedToken:
    """An access or refresh token; tokens of one sign-in share a family."""

    guid: str
    client_id: str
    scope: str
    family: str
    expires: datetime


@dataclass
class TokenStore:
    """All valid codes and tokens, in memory: a restart ends every sign-in."""

    settings: TokenSettings
    clock: Clock
    _codes: dict[str, AuthorizationCode] = field(default_factory=dict)
    _access_tokens: dict[str, IssuedToken] = field(default_factory=dict)
    _refresh_tokens: dict[str, IssuedToken] = field(default_factory=dict)
    _used_credentials: dict[str, str] = field(default_factory=dict)
    """The family issued for each used code or refresh token."""

    def issue_code(self, party: Counterparty, client_id: str, redirect_uri: str, scope: str, challenge: str | None) -> str:
        """A one-time code for the callback address."""
        code = secrets.token_urlsafe(24)
        expires = self._expiry(self.settings.code_lifetime_seconds)
        self._codes[code] = AuthorizationCode(client_id, redirect_uri, party.guid, scope, challenge, expires)
        return code

    def redeem_code(self, code: str) -> AuthorizationCode | None:
        """What the code was issued for, once; a second use revokes the tokens of the first one."""
        if code in self._used_credentials:
            self._revoke_family(self._used_credentials[code])
        found = self._codes.pop(code, None)
        if found is None or found.expires <= self.clock():
            return None
        return found

    def record_use(self, credential: str, family: str) -> None:
        """Records the family issued for a used code or refresh token."""
        self._used_credentials[credential] = family

    def issue_tokens(self, guid: str, client_id: str, scope: str, *, refresh: bool, family: str | None = None) -> dict[str, Any]:
        """Issues tokens and gives the token response (RFC 6749, 5.1)."""
        self._drop_expired()
        grant = IssuedToken(guid, client_id, scope, family or secrets.token_hex(8), self._expiry(self.settings.lifetime_seconds))
        access = secrets.token_urlsafe(32)
        self._access_tokens[access] = grant
        response: dict[str, Any] = {"access_token": access, "token_type": "Bearer", "scope": scope}
        if self.settings.send_expires_in:
            response["expires_in"] = int(self.settings.lifetime_seconds)
        if refresh:
            response["refresh_token"] = self._issue_refresh(grant)
        return response

    def redeem_refresh_token(self, token: str, client_id: str) -> IssuedToken | None:
        """What a refresh token was issued for; with rotation it is valid once."""
        found = self._refresh_tokens.get(token)
        if found is None or found.client_id != client_id or found.expires <= self.clock():
            if token in self._used_credentials and self.settings.reuse_revokes:
                self._revoke_family(self._used_credentials[token])
            return None
        if self.settings.rotate_refresh:
            del self._refresh_tokens[token]
            self._used_credentials[token] = found.family
        return found

    def holder(self, access_token: str) -> str | None:
        """The guid of an access token's counterparty; None if the token is unknown, revoked or expired."""
        grant = self._access_tokens.get(access_token)
        return grant.guid if grant and grant.expires > self.clock() else None

    def revoke(self, token: str, client_id: str) -> bool:
        """Revokes a token; a refresh token ends the whole sign-in. An unknown token is no error (RFC 7009).

        False if the token was issued to another client, and stays valid.
        """
        grant = self._refresh_tokens.get(token) or self._access_tokens.get(token)
        if grant is not None and grant.client_id != client_id:
            return False
        if token in self._refresh_tokens:
            self._revoke_family(self._refresh_tokens[token].family)
        self._access_tokens.pop(token, None)
        return True

    def revoke_login(self, access_token: str) -> None:
        """Ends the sign-in of an access token, including its refresh token."""
        if access_token in self._access_tokens:
            self._revoke_family(self._access_tokens[access_token].family)

    def expire(self, access_token: str) -> None:
        """Expires an access token now; its refresh token stays valid."""
        if access_token in self._access_tokens:
            self._access_tokens[access_token] = replace(self._access_tokens[access_token], expires=self.clock())

    def _issue_refresh(self, grant: IssuedToken) -> str:
        if not self.settings.rotate_refresh:
            for token, issued in self._refresh_tokens.items():
                if issued.family == grant.family:
                    return token
        token = secrets.token_urlsafe(32)
        self._refresh_tokens[token] = replace(grant, expires=self._expiry(self.settings.refresh_lifetime_seconds))
        return token

    def _revoke_family(self, family: str) -> None:
        for tokens in (self._access_tokens, self._refresh_tokens):
            for token in [token for token, grant in tokens.items() if grant.family == family]:
                del tokens[token]

    def _drop_expired(self) -> None:
        now = self.clock()
        for tokens in (self._access_tokens, self._refresh_tokens):
            for token in [token for token, grant in tokens.items() if grant.expires <= now]:
                del tokens[token]

    def _expiry(self, seconds: float) -> datetime:
        return self.clock() + timedelta(seconds=seconds)
