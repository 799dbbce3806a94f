"""The token endpoint: each grant type gives a token response, or `OAuthError` (RFC 6749, 5.2)."""

import base64
import hashlib
import secrets
from collections.abc import Mapping
from typing import Any

from lab_sandbox.accounts import Accounts, parse_basic_credentials
from lab_sandbox.config import Counterparty
from lab_sandbox.errors import HttpError
from lab_sandbox.token_store import AuthorizationCode, TokenStore

OFFLINE_ACCESS = "offline_access"


class OAuthError(HttpError):
    """An error of the authorization endpoints: an OperationOutcome with RFC 6749's error code beside it."""

    def __init__(self, error: str, description: str, status: int = 400) -> None:
        headers = {"WWW-Authenticate": 'Basic realm="exchange"'} if status == 401 else {}
        super().__init__(status, HttpError.of(status, "login", f"{error}: {description}").issues, headers)
        self.error = error
        self.description = description


class TokenEndpoint:
    """Handles `POST {auth_url}/connect/token`."""

    def __init__(self, accounts: Accounts, tokens: TokenStore) -> None:
        self._accounts = accounts
        self._tokens = tokens

    def issue_tokens(self, form: Mapping[str, str], authorization: str | None) -> dict[str, Any]:
        """The token response for these form fields and a client's Basic header."""
        client = self.authenticate_client(form, authorization)
        grants = {
            "authorization_code": self._authorization_code_grant,
            "password": self._password_grant,
            "client_credentials": self._client_credentials_grant,
            "refresh_token": self._refresh_token_grant,
        }
        kind = form.get("grant_type", "")
        if kind not in grants:
            raise OAuthError("unsupported_grant_type", f"grant_type: must be one of {', '.join(grants)}, not {kind!r}")
        return grants[kind](form, client)

    def authenticate_client(self, form: Mapping[str, str], authorization: str | None) -> Counterparty:
        """The client, by client_secret_basic or client_secret_post; `invalid_client` (401) otherwise."""
        scheme, _, rest = (authorization or "").partition(" ")
        if scheme.lower() == "basic":
            client_id, secret = parse_basic_credentials(rest.strip(), form_encoded=True)
        else:
            client_id, secret = form.get("client_id", ""), form.get("client_secret", "")
        found = self._accounts.authenticate_client(client_id, secret)
        if found is None:
            raise OAuthError("invalid_client", "wrong client_id or client_secret", 401)
        return found

    def _authorization_code_grant(self, form: Mapping[str, str], client: Counterparty) -> dict[str, Any]:
        value = form.get("code", "")
        code = self._tokens.redeem_code(value)
        if code is None:
            raise OAuthError("invalid_grant", "code: unknown, used or expired")
        if code.client_id != client.client_id:
            raise OAuthError("invalid_grant", "code: issued to another client")
        if code.redirect_uri != form.get("redirect_uri"):
            raise OAuthError("invalid_grant", "redirect_uri: differs from that of the authorize request")
        _check_verifier(code, form.get("code_verifier"))
        family = secrets.token_hex(8)
        self._tokens.record_use(value, family)
        return self._tokens.issue_tokens(
            code.guid, code.client_id, code.scope, refresh=_has_offline_access(code.scope), family=family
        )

    def _password_grant(self, form: Mapping[str, str], client: Counterparty) -> dict[str, Any]:
        party = self._accounts.authenticate_login(form.get("username", ""), form.get("password", ""))
        if party is None:
            raise OAuthError("invalid_grant", "wrong username or password")
        scope = form.get("scope", OFFLINE_ACCESS)
        return self._tokens.issue_tokens(party.guid, str(client.client_id), scope, refresh=_has_offline_access(scope))

    def _client_credentials_grant(self, form: Mapping[str, str], client: Counterparty) -> dict[str, Any]:
        return self._tokens.issue_tokens(client.guid, str(client.client_id), form.get("scope", ""), refresh=False)

    def _refresh_token_grant(self, form: Mapping[str, str], client: Counterparty) -> dict[str, Any]:
        grant = self._tokens.redeem_refresh_token(form.get("refresh_token", ""), str(client.client_id))
        if grant is None:
            raise OAuthError("invalid_grant", "refresh_token: unknown, used, revoked or expired")
        return self._tokens.issue_tokens(grant.guid, grant.client_id, grant.scope, refresh=True, family=grant.family)


def _has_offline_access(scope: str) -> bool:
    return OFFLINE_ACCESS in scope.split()


def _check_verifier(code: AuthorizationCode, verifier: str | None) -> None:
    """PKCE (RFC 7636), S256 only: a code requested with a challenge needs the verifier."""
    if code.challenge is None:
        if verifier is not None:
            raise OAuthError("invalid_grant", "code_verifier: the code was requested without a code_challenge")
        return
    digest = hashlib.sha256((verifier or "").encode()).digest()
    if base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != code.challenge:
        raise OAuthError("invalid_grant", "code_verifier: does not match the code_challenge")
