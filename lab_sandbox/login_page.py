"""The authorize page: a sign-in form for the organisation's login, and the redirect to the callback address."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from urllib.parse import urlencode, urlsplit, urlunsplit

from lab_sandbox.accounts import Accounts
from lab_sandbox.config import TokenSettings
from lab_sandbox.oauth import OFFLINE_ACCESS, OAuthError

_CHALLENGE_PATTERN = re.compile(r"[A-Za-z0-9_-]{43}")
AUTHORIZE_PARAMETERS = ("response_type", "client_id", "redirect_uri", "scope", "state", "code_challenge", "code_challenge_method")
"""The parameters of an authorize request (RFC 6749 and 7636)."""

_FORM_HTML = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Sign in</title></head>
<body><main><h1>Sign in to the exchange service</h1>{note}
<p>{name} asks for access to your organisation's orders.</p>
<form method="post" action="{action}">
{hidden}
<p><label>Login <input name="login" autocomplete="username" required></label></p>
<p><label>Password <input name="password" type="password" autocomplete="current-password" required></label></p>
<p><button>Sign in</button></p>
</form></main></body></html>
"""


class AuthorizeErrorRedirect(Exception):
    """The request is rejected, and the client learns it at its callback address (RFC 6749, 4.1.2.1)."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.address = address


@dataclass(frozen=True)
class AuthorizeRequest:
    """A valid authorize request: the client is known and the callback address is one of its own."""

    client_id: str
    redirect_uri: str
    scope: str
    state: str | None
    challenge: str | None
    client_name: str
    raw: Mapping[str, str]

    def callback_url(self, **parameters: str) -> str:
        """The callback address with these parameters and the state."""
        parts = urlsplit(self.redirect_uri)
        added = urlencode(parameters | ({"state": self.state} if self.state is not None else {}))
        return urlunsplit(parts._replace(query=f"{parts.query}&{added}" if parts.query else added))

    def render_form(self, action: str, note: str = "") -> str:
        """The sign-in form, with the request in hidden fields."""
        hidden = "\n".join(
            f'<input type="hidden" name="{name}" value="{escape(self.raw[name])}">'
            for name in AUTHORIZE_PARAMETERS
            if name in self.raw
        )
        alert = f'<p role="alert">{escape(note)}</p>' if note else ""
        return _FORM_HTML.format(note=alert, name=escape(self.client_name), action=escape(action), hidden=hidden)


def parse_authorize_request(fields: Mapping[str, str], accounts: Accounts, settings: TokenSettings) -> AuthorizeRequest:
    """Checks a query or form; `OAuthError` if the callback is not trusted, `AuthorizeErrorRedirect` for other errors."""
    client = accounts.find_client(fields.get("client_id", ""))
    if client is None:
        raise OAuthError("invalid_request", "client_id: unknown client")
    redirect = fields.get("redirect_uri", "")
    if redirect not in client.redirect_uris:
        raise OAuthError("invalid_request", "redirect_uri: must equal one of the client's registered addresses")
    challenge = fields.get("code_challenge")
    request = AuthorizeRequest(
        str(client.client_id),
        redirect,
        fields.get("scope", OFFLINE_ACCESS),
        fields.get("state"),
        challenge,
        client.name,
        dict(fields),
    )
    if fields.get("response_type", "code") != "code":
        raise AuthorizeErrorRedirect(
            request.callback_url(error="unsupported_response_type", error_description="response_type: must be code")
        )
    if challenge is not None and fields.get("code_challenge_method", "plain") != "S256":
        raise AuthorizeErrorRedirect(
            request.callback_url(error="invalid_request", error_description="code_challenge_method: must be S256")
        )
    if challenge is not None and not _CHALLENGE_PATTERN.fullmatch(challenge):
        raise AuthorizeErrorRedirect(
            request.callback_url(error="invalid_request", error_description="code_challenge: must have 43 characters")
        )
    if challenge is None and settings.require_pkce:
        raise AuthorizeErrorRedirect(request.callback_url(error="invalid_request", error_description="code_challenge: required"))
    return request
