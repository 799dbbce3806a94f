"""The partner's sign-in: the authorization code flow of the interface document, or the password grant.

The code flow runs without a browser: the sign-in form is filled in by the types of its fields, whatever their names, and the
code is read from the redirect to the callback address.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from dataclasses import dataclass, field
from html.parser import HTMLParser
from urllib.parse import parse_qs, urlencode, urljoin, urlsplit

import httpx

from lab_sandbox.partner.account import PartnerAccount
from lab_sandbox.partner.errors import PartnerError, decode, require_success


@dataclass(slots=True)
class HtmlForm:
    """The first form of a page: its action and method, and its fields as (type, name, value)."""

    action: str = ""
    method: str = "get"
    fields: list[tuple[str, str, str]] = field(default_factory=list)

    def fill(self, login: str, password: str) -> dict[str, str]:
        """What a browser sends after login and password are entered and the first button is pressed."""
        typed = {"password": password, "text": login, "email": login}
        data = {name: typed.get(kind, value) for kind, name, value in self.fields if kind != "submit"}
        button = next(((name, value) for kind, name, value in self.fields if kind == "submit"), None)
        return data if button is None else {**data, button[0]: button[1]}


def parse_form(page: str, address: str) -> HtmlForm | None:
    """The first form of the page at `address`, with an absolute action; None if there is none."""
    parser = _FormParser()
    parser.feed(page)
    if parser.form is None:
        return None
    parser.form.action = urljoin(address, parser.form.action)
    return parser.form


class _FormParser(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.form: HtmlForm | None = None
        self._is_inside_form = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if tag == "form" and self.form is None:
            self.form, self._is_inside_form = HtmlForm(values.get("action", ""), values.get("method", "get").lower()), True
        elif self._is_inside_form and self.form and values.get("name") and tag in {"input", "button"}:
            kind = values.get("type", "submit" if tag == "button" else "text").lower()
            self.form.fields.append((kind, values["name"], values.get("value", "")))

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._is_inside_form = False


_MAX_STEPS = 6


class LoginError(PartnerError):
    """The authorization site did not lead back to the callback address with a code."""


@dataclass(frozen=True, slots=True)
class TokenPair:
    """An access token and, if issued, a refresh token."""

    access: str = field(repr=False)
    refresh: str | None = field(default=None, repr=False)


class LoginClient:
    """Gets tokens for one account over one HTTP client (interface: Authentication)."""

    def __init__(self, account: PartnerAccount, http: httpx.AsyncClient) -> None:
        self._account = account
        self._http = http

    async def login_with_password(self) -> TokenPair:
        """Sign in with login and password."""
        credentials = {"username": self._account.login, "password": self._account.password}
        return await self._request_tokens({"grant_type": "password", "scope": "offline_access", **credentials})

    async def login_with_code(self) -> TokenPair:
        """Sign in through the authorization site: form, callback with a one-time code, exchange of the code (PKCE S256)."""
        verifier, state = secrets.token_urlsafe(48), secrets.token_urlsafe(16)
        code = await self._authorize(verifier, state)
        return await self._request_tokens(
            {
                "grant_type": "authorization_code",
                "code": code,
                "redirect_uri": self._account.redirect_uri,
                "code_verifier": verifier,
            }
        )

    async def refresh(self, tokens: TokenPair) -> TokenPair:
        """New tokens with the refresh token, or with the password if there is none."""
        if tokens.refresh is None:
            return await self.login_with_password()
        return await self._request_tokens({"grant_type": "refresh_token", "refresh_token": tokens.refresh})

    async def _request_tokens(self, form: dict[str, str]) -> TokenPair:
        client = {"client_id": self._account.client_id, "client_secret": self._account.client_secret}
        response = require_success(await self._http.post(f"{self._account.auth_url}/connect/token", data={**client, **form}))
        answer = decode(response.content)
        return TokenPair(answer["access_token"], answer.get("refresh_token", form.get("refresh_token")))

    async def _authorize(self, verifier: str, state: str) -> str:
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        parameters = {
            "response_type": "code", "client_id": self._account.client_id, "redirect_uri": self._account.redirect_uri,
            "scope": "offline_access", "state": state, "code_challenge": challenge, "code_challenge_method": "S256",
        }  # fmt: skip
        response = await self._http.get(f"{self._account.auth_url}/connect/authorize?{urlencode(parameters)}")
        for _ in range(_MAX_STEPS):
            target = response.headers.get("location")
            if target and target.startswith(self._account.redirect_uri):
                return _parse_callback(target, state)
            response = await self._follow_page(require_success(response))
        raise LoginError(f"no callback after {_MAX_STEPS} pages of {self._account.auth_url}/connect/authorize")

    async def _follow_page(self, response: httpx.Response) -> httpx.Response:
        if "location" in response.headers:
            return await self._http.get(response.url.join(response.headers["location"]))
        form = parse_form(response.text, str(response.url))
        if form is None:
            raise LoginError(f"{response.url.path}: neither a form nor a redirect")
        return await self._submit_form(form)

    async def _submit_form(self, form: HtmlForm) -> httpx.Response:
        filled = form.fill(self._account.login, self._account.password)
        if form.method == "post":
            return await self._http.post(form.action, data=filled)
        return await self._http.get(form.action, params=filled)


def _parse_callback(callback: str, state: str) -> str:
    query = parse_qs(urlsplit(callback).query)
    if query.get("state") != [state]:
        raise LoginError("the callback has another state than the authorize request")
    if "code" not in query:
        raise LoginError(f"the authorization was denied: {query.get('error', ['no reason given'])[0]}")
    return query["code"][0]
