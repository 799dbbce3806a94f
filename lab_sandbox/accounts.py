"""Authenticates callers: by login and password, by client id and secret, by bearer token."""

import base64
import secrets
from urllib.parse import unquote_plus

from lab_sandbox.config import Counterparty, SandboxConfig
from lab_sandbox.errors import HttpError
from lab_sandbox.token_store import TokenStore

CHALLENGE = {"WWW-Authenticate": 'Bearer realm="exchange"'}


class Accounts:
    """The registered organisations and their secrets."""

    def __init__(self, config: SandboxConfig, tokens: TokenStore) -> None:
        self._config = config
        self._tokens = tokens

    def authenticate_login(self, login: str, password: str) -> Counterparty | None:
        """The organisation with this login, if the password is right."""
        found = next((one for one in self._config.counterparties if one.login == login), None)
        return found if found and _is_same_secret(found.password, password) else None

    def find_client(self, client_id: str) -> Counterparty | None:
        """The organisation that a client is registered for."""
        return next((one for one in self._config.counterparties if one.client_id == client_id), None)

    def authenticate_client(self, client_id: str, client_secret: str) -> Counterparty | None:
        """The organisation of a client, if its secret is right."""
        found = self.find_client(client_id)
        return found if found and _is_same_secret(found.client_secret, client_secret) else None

    def authenticate_header(self, authorization: str | None) -> Counterparty:
        """The counterparty of an Authorization header; `HttpError` (401) if it is missing or wrong."""
        scheme, _, rest = (authorization or "").partition(" ")
        if scheme.lower() == "bearer":
            found = self._config.counterparty(self._tokens.holder(rest.strip()) or "")
            reason = "the access token is unknown, revoked or expired"
        elif scheme.lower() == "basic" and self._config.tokens.allow_basic:
            found = self.authenticate_login(*parse_basic_credentials(rest.strip()))
            reason = "login or password is wrong"
        else:
            found, reason = None, "the header Authorization: Bearer <ACCESS_TOKEN> is required"
        if found is None:
            raise HttpError.of(401, "login", f"Authorization: {reason}", CHALLENGE)
        return found


def parse_basic_credentials(encoded: str, *, form_encoded: bool = False) -> tuple[str, str]:
    """The user and password of HTTP Basic (form-encoded for clients, RFC 6749, 2.3.1); empty if malformed."""
    try:
        user, _, password = base64.b64decode(encoded, validate=True).decode("utf-8").partition(":")
    except ValueError:
        return "", ""
    return (unquote_plus(user), unquote_plus(password)) if form_encoded else (user, password)


def _is_same_secret(known: str | None, given: str) -> bool:
    return known is not None and secrets.compare_digest(known.encode(), given.encode())
