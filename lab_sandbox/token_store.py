"""Codes, access tokens and refresh tokens: handed out, shown once, rotated, revoked, expired."""

import secrets
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from lab_sandbox.config import Counterparty, TokenSettings
from lab_sandbox.resources import Clock


@dataclass(frozen=True)
class AuthorizationCode:
    """An authorization code: used once, soon, by the client that asked for it."""

    client_id: str
    redirect_uri: str
    guid: str
    scope: str
    challenge: str | None
    expires: datetime


@dataclass(frozen=True)
class IssuedToken:
    """One token and what it stands for; tokens of one sign-in share a family."""

    guid: str
    client_id: str
    scope: str
    family: str
    expires: datetime


@dataclass
class TokenStore:
    """All live codes and tokens, in memory: a restart ends every sign-in but none of the accounts."""

    settings: TokenSettings
    clock: Clock
    _codes: dict[str, AuthorizationCode] = field(default_factory=dict)
    _access_tokens: dict[str, IssuedToken] = field(default_factory=dict)
    _refresh_tokens: dict[str, IssuedToken] = field(default_factory=dict)
    _used_credentials: dict[str, str] = field(default_factory=dict)
    """Used codes and refresh tokens -> the family that came from them."""

    def issue_code(self, party: Counterparty, client_id: str, redirect_uri: str, scope: str, challenge: str | None) -> str:
        """A one-time code for the callback address."""
        code = secrets.token_urlsafe(24)
        expires = self._expiry(self.settings.code_lifetime_seconds)
        self._codes[code] = AuthorizationCode(client_id, redirect_uri, party.guid, scope, challenge, expires)
        return code

    def redeem_code(self, code: str) -> AuthorizationCode | None:
        """The code's meaning, once; a second use revokes what the first one gave."""
        if code in self._used_credentials:
            self._revoke_family(self._used_credentials[code])
        found = self._codes.pop(code, None)
        if found is None or found.expires <= self.clock():
            return None
        return found

    def record_use(self, credential: str, family: str) -> None:
        """Notes which family came from a code or a refresh token that is used up."""
        self._used_credentials[credential] = family

    def issue_tokens(self, guid: str, client_id: str, scope: str, *, refresh: bool, family: str | None = None) -> dict[str, Any]:
        """The token response (RFC 6749, 5.1), with a refresh token when one is due."""
        self._drop_expired()
        grant = IssuedToken(guid, client_id, scope, family or secrets.token_hex(8), self._expiry(self.settings.lifetime_seconds))
        access = secrets.token_urlsafe(32)
        self._access_tokens[access] = grant
        answer: dict[str, Any] = {"access_token": access, "token_type": "Bearer", "scope": scope}
        if self.settings.send_expires_in:
            answer["expires_in"] = int(self.settings.lifetime_seconds)
        if refresh:
            answer["refresh_token"] = self._issue_refresh(grant)
        return answer

    def redeem_refresh_token(self, token: str, client_id: str) -> IssuedToken | None:
        """What a refresh token stands for; with rotation it works once."""
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
        """The guid of the counterparty that an access token stands for; None when it is unknown, revoked or expired."""
        grant = self._access_tokens.get(access_token)
        return grant.guid if grant and grant.expires > self.clock() else None

    def revoke(self, token: str, client_id: str) -> bool:
        """Ends a token; with a refresh token the whole sign-in ends. Unknown tokens are no error (RFC 7009).

        False when the token was given to another client, and lives on.
        """
        grant = self._refresh_tokens.get(token) or self._access_tokens.get(token)
        if grant is not None and grant.client_id != client_id:
            return False
        if token in self._refresh_tokens:
            self._revoke_family(self._refresh_tokens[token].family)
        self._access_tokens.pop(token, None)
        return True

    def revoke_login(self, access_token: str) -> None:
        """Ends the sign-in that an access token belongs to, refresh token included."""
        if access_token in self._access_tokens:
            self._revoke_family(self._access_tokens[access_token].family)

    def expire(self, access_token: str) -> None:
        """Makes an access token expired now; its refresh token lives on."""
        if access_token in self._access_tokens:
            self._access_tokens[access_token] = replace(self._access_tokens[access_token], expires=self.clock())

    def _issue_refresh(self, grant: IssuedToken) -> str:
        if not self.settings.rotate_refresh:
            for token, kept in self._refresh_tokens.items():
                if kept.family == grant.family:
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
