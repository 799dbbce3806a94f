"""The sign-in that needs a human, once: the address to open, the callback, and the tokens (interface: Authentication, 1 to 3).

The callback is received on a local listener where the registered address is on this machine, or pasted by the person.
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

from lab_agent.errors import Problem, SettingsError, SignInNeeded
from lab_agent.exchange.grants import CodeGrant
from lab_agent.exchange.tokens import Authenticator
from lab_agent.origin import is_loopback, join, origin_of
from lab_agent.settings.exchange import OAuthSettings

_LONGEST_LINE = 8192
_PATIENCE = 10.0
_ARRIVED = "The sign-in has arrived. You can close this window."
_NOTHING = "There is nothing to see here."
_PAGE = "<!doctype html><meta charset=utf-8><title>lab-agent</title><p>{text}</p>"


@dataclass(frozen=True, slots=True)
class SignIn:
    """A sign-in that has begun: `address` is for the browser; `state` and `verifier` stay with us until the callback comes."""

    address: str
    redirect_uri: str
    state: str
    verifier: str | None

    @property
    def listens_here(self) -> bool:
        """Whether the callback can be received on this machine."""
        return is_loopback(self.redirect_uri)


def begin(oauth: OAuthSettings) -> SignIn:
    """Begin a sign-in. Raises `SettingsError` where the grant is not `authorization_code`."""
    if oauth.grant != "authorization_code" or oauth.redirect_uri is None:
        what = f"the grant {oauth.grant!r} needs no sign-in by a person"
        raise SettingsError((Problem("exchange.oauth.grant", what, "set authorization_code if the service wants one"),))
    state = generate_token(32)
    verifier = generate_token(64) if oauth.pkce else None
    proof = {"code_challenge": create_s256_code_challenge(verifier), "code_challenge_method": "S256"} if verifier else {}
    address = prepare_grant_uri(
        join(f"{oauth.auth_url}/", oauth.authorize_path),
        client_id=oauth.client_id,
        response_type="code",
        redirect_uri=oauth.redirect_uri,
        scope=oauth.scope,
        state=state,
        **proof,
    )
    return SignIn(address, oauth.redirect_uri, state, verifier)


def code_from(callback: str, sign_in: SignIn) -> CodeGrant:
    """Read the callback address (received or pasted). Raises `SignInNeeded` for a refusal, or a callback of another sign-in."""
    query = parse_qs(urlsplit(callback.strip()).query)
    if query.get("state") != [sign_in.state]:
        raise SignInNeeded("the callback does not belong to this sign-in (its state differs); run `lab-agent login` again")
    if "error" in query:
        raise SignInNeeded("the sign-in was refused at the authorization site; run `lab-agent login` again")
    try:
        answer = parse_authorization_code_response(callback.strip(), state=sign_in.state)
    except (MissingCodeException, MismatchingStateException) as exc:
        raise SignInNeeded("the callback carries no code; paste the whole address of the last page") from exc
    return CodeGrant(str(answer["code"]), sign_in.verifier)


async def finish(callback: str, sign_in: SignIn, tokens: Authenticator) -> None:
    """Exchange the callback's code, and store the tokens. Raises `SignInNeeded` or `ServiceUnavailable`."""
    await tokens.redeem(code_from(callback, sign_in))


@asynccontextmanager
async def listening(sign_in: SignIn) -> AsyncIterator[asyncio.Future[str]]:
    """Listen at the callback address while the block runs; the future gives the callback of this sign-in.

    Requests for anything else, or with another state, are answered and otherwise ignored. Raises `SettingsError` where the
    port cannot be listened on.
    """
    received: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _answer(reader, writer, sign_in, received)

    server = await _listen(sign_in, answer)
    try:
        yield received
    finally:
        server.close()
        await server.wait_closed()
        received.cancel()


_Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def _listen(sign_in: SignIn, handler: _Handler) -> asyncio.Server:
    here = origin_of(sign_in.redirect_uri)
    try:
        return await asyncio.start_server(handler, here.host, here.port, limit=_LONGEST_LINE)
    except OSError as exc:
        what = f"cannot listen at {here.host}:{here.port} ({exc.strerror})"
        raise SettingsError(
            (Problem("exchange.oauth.redirect_uri", what, "end what listens there, or paste the address"),)
        ) from exc


async def _answer(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, sign_in: SignIn, received: asyncio.Future[str]
) -> None:
    try:
        async with asyncio.timeout(_PATIENCE):
            target = await _target(reader)
            ours = target is not None and _is_ours(target, sign_in)
            writer.write(_page(_ARRIVED if ours else _NOTHING, found=ours))
            await writer.drain()
        if ours and not received.done():
            received.set_result(str(target))
    except OSError:
        pass  # the browser went away, or said nothing; the person tries again
    finally:
        writer.close()


async def _target(reader: asyncio.StreamReader) -> str | None:
    """Read the request's head, and give its target."""
    try:
        line = (await reader.readline()).decode("ascii").split()
        while (await reader.readline()).strip():
            pass
    except ValueError:
        return None
    return line[1] if len(line) == 3 and line[0] == "GET" else None


def _is_ours(target: str, sign_in: SignIn) -> bool:
    parts = urlsplit(target)
    path = urlsplit(sign_in.redirect_uri).path or "/"
    return (parts.path or "/") == path and parse_qs(parts.query).get("state") == [sign_in.state]


def _page(text: str, *, found: bool) -> bytes:
    body = _PAGE.format(text=text).encode()
    status = "200 OK" if found else "404 Not Found"
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
