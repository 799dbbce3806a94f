"""The one-time sign-in by a person: the address to open, the callback, and the tokens (interface: Authentication, 1 to 3).

The callback arrives at a local listener if the registered address is on this machine; otherwise the person pastes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

from authlib.common.security import generate_token
from authlib.oauth2.rfc6749.errors import MismatchingStateException, MissingCodeException
from authlib.oauth2.rfc6749.parameters import parse_authorization_code_response, prepare_grant_uri
from authlib.oauth2.rfc7636 import create_s256_code_challenge

from lab_agent.exchange.authenticator import Authenticator
from lab_agent.exchange.token_client import CodeGrant
from lab_agent.settings.exchange import OAuthSettings
from lab_agent.shared.errors import AuthenticationRequired, Problem, SettingsError
from lab_agent.shared.url_origin import is_loopback, join_url, origin_of

_MAX_LINE = 8192
_REQUEST_TIMEOUT = 10.0
_SUCCESS_TEXT = "Signed in. You can close this window."
_NOT_FOUND_TEXT = "Not found."
_PAGE_TEMPLATE = "<!doctype html><meta charset=utf-8><title>lab-agent</title><p>{text}</p>"


@dataclass(frozen=True, slots=True)
class BrowserLogin:
    """A sign-in in progress: `authorization_url` is for the browser; `state` and `verifier` are kept for the callback."""

    authorization_url: str
    redirect_uri: str
    state: str
    verifier: str | None

    @property
    def has_local_callback(self) -> bool:
        """Whether the callback can be received on this machine."""
        return is_loopback(self.redirect_uri)


def start_login(oauth: OAuthSettings) -> BrowserLogin:
    """Start a sign-in. Raises `SettingsError` if the grant is not `authorization_code`."""
    if oauth.grant != "authorization_code" or oauth.redirect_uri is None:
        what = f"{oauth.grant} needs no sign-in by a person"
        raise SettingsError((Problem("exchange.oauth.grant", what, "set it to authorization_code if the service requires one"),))
    state = generate_token(32)
    verifier = generate_token(64) if oauth.pkce else None
    proof = {"code_challenge": create_s256_code_challenge(verifier), "code_challenge_method": "S256"} if verifier else {}
    address = prepare_grant_uri(
        join_url(f"{oauth.auth_url}/", oauth.authorize_path),
        client_id=oauth.client_id,
        response_type="code",
        redirect_uri=oauth.redirect_uri,
        scope=oauth.scope,
        state=state,
        **proof,
    )
    return BrowserLogin(address, oauth.redirect_uri, state, verifier)


def parse_callback(callback: str, login: BrowserLogin) -> CodeGrant:
    """Read the callback address (received or pasted). Raises `AuthenticationRequired` for an error or a foreign callback."""
    query = parse_qs(urlsplit(callback.strip()).query)
    if query.get("state") != [login.state]:
        raise AuthenticationRequired("the callback belongs to another sign-in (its state differs); run `lab-agent login` again")
    if "error" in query:
        raise AuthenticationRequired("the authorization server rejected the sign-in; run `lab-agent login` again")
    try:
        answer = parse_authorization_code_response(callback.strip(), state=login.state)
    except (MissingCodeException, MismatchingStateException) as exc:
        raise AuthenticationRequired("the callback contains no code; paste the complete address of the last page") from exc
    return CodeGrant(str(answer["code"]), login.verifier)


async def finish_login(callback: str, login: BrowserLogin, authenticator: Authenticator) -> None:
    """Exchange the callback's code, and store the tokens. Raises `AuthenticationRequired` or `ServiceUnavailable`."""
    await authenticator.exchange_code(parse_callback(callback, login))


@asynccontextmanager
async def callback_server(login: BrowserLogin) -> AsyncIterator[asyncio.Future[str]]:
    """Listen at the callback address while the block runs; the future gives the callback of this sign-in.

    Requests for anything else, or with another state, are answered and otherwise ignored. Raises `SettingsError` where the
    port cannot be listened on.
    """
    received: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _handle_callback(reader, writer, login, received)

    server = await _start_server(login, answer)
    try:
        yield received
    finally:
        server.close()
        await server.wait_closed()
        received.cancel()


_Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def _start_server(login: BrowserLogin, handler: _Handler) -> asyncio.Server:
    here = origin_of(login.redirect_uri)
    try:
        return await asyncio.start_server(handler, here.host, here.port, limit=_MAX_LINE)
    except OSError as exc:
        what = f"cannot listen at {here.host}:{here.port} ({exc.strerror})"
        raise SettingsError(
            (
                Problem(
                    "exchange.oauth.redirect_uri", what, "stop the program that uses the port, or paste the address (`--paste`)"
                ),
            )
        ) from exc


async def _handle_callback(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, login: BrowserLogin, received: asyncio.Future[str]
) -> None:
    try:
        async with asyncio.timeout(_REQUEST_TIMEOUT):
            target = await _read_target(reader)
            ours = target is not None and _is_callback(target, login)
            writer.write(_http_response(_SUCCESS_TEXT if ours else _NOT_FOUND_TEXT, found=ours))
            await writer.drain()
        if ours and not received.done():
            received.set_result(str(target))
    except OSError:
        pass  # the browser closed the connection or sent nothing; the person tries again
    finally:
        writer.close()


async def _read_target(reader: asyncio.StreamReader) -> str | None:
    """Read the head of the request; returns its target."""
    try:
        line = (await reader.readline()).decode("ascii").split()
        while (await reader.readline()).strip():
            pass
    except ValueError:
        return None
    return line[1] if len(line) == 3 and line[0] == "GET" else None


def _is_callback(target: str, login: BrowserLogin) -> bool:
    parts = urlsplit(target)
    path = urlsplit(login.redirect_uri).path or "/"
    return (parts.path or "/") == path and parse_qs(parts.query).get("state") == [login.state]


def _http_response(text: str, *, found: bool) -> bytes:
    body = _PAGE_TEMPLATE.format(text=text).encode()
    status = "200 OK" if found else "404 Not Found"
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
