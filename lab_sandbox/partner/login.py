"""The partner's sign-in: the authorization code flow as the interface document has it, or the password grant.

The code flow is driven to its end without a browser: the form is filled in, and the callback address is read from the
redirect instead of being listened on.

Filling in the service's sign-in page as a person would: by what kind of field it is, not by what it happens to be called.
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
    """The first form of a page: where it goes, and its fields as (type, name, value)."""

    action: str = ""
    method: str = "get"
    fields: list[tuple[str, str, str]] = field(default_factory=list)

    def fill(self, login: str, password: str) -> dict[str, str]:
        """What the browser would send after a person typed login and password and pressed the first button."""
        typed = {"password": password, "text": login, "email": login}
        sent = {name: typed.get(kind, value) for kind, name, value in self.fields if kind != "submit"}
        button = next(((name, value) for kind, name, value in self.fields if kind == "submit"), None)
        return sent if button is None else {**sent, button[0]: button[1]}


def parse_form(page: str, address: str) -> HtmlForm | None:
    """The first form of the page at `address`, its action as an absolute address; None if there is none."""
    reader = _FormParser()
    reader.feed(page)
    if reader.form is None:
        return None
    reader.form.action = urljoin(address, reader.form.action)
    return reader.form


class _FormParser(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.form: HtmlForm | None = None
        self._is_inside_form = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form" and self.form is None:
            self.form, self._is_inside_form = HtmlForm(given.get("action", ""), given.get("method", "get").lower()), True
        elif self._is_inside_form and self.form and given.get("name") and tag in {"input", "button"}:
            kind = given.get("type", "submit" if tag == "button" else "text").lower()
            self.form.fields.append((kind, given["name"], given.get("value", "")))

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._is_inside_form = False


_MAX_STEPS = 6


class LoginError(PartnerError):
    """The authorization site did not lead back to the callback address with a code."""


@dataclass(frozen=True, slots=True)
class TokenPair:
    """What the token endpoint gave."""

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
        """New tokens for the refresh token (offline refresh); without one, by password."""
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
        asked = {
            "response_type": "code", "client_id": self._account.client_id, "redirect_uri": self._account.redirect_uri,
            "scope": "offline_access", "state": state, "code_challenge": challenge, "code_challenge_method": "S256",
        }  # fmt: skip
        response = await self._http.get(f"{self._account.auth_url}/connect/authorize?{urlencode(asked)}")
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
        raise LoginError("the callback carries another state than the one that was sent")
    if "code" not in query:
        raise LoginError(f"the authorization was refused: {query.get('error', ['no reason given'])[0]}")
    return query["code"][0]
