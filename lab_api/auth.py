"""Who calls: bearer tokens, HTTP Basic and short-lived signed tokens, without a human (interface: Authentication, 7).

Only hashes are kept. A client may be limited to contracts; for it, all others do not exist. Comparisons take the same time for
known and unknown names. Passwords are hashed in threads of their own, few at a time, and wrong ones make their name wait; one
that was verified once is not hashed again, and its client waits for none of that.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from base64 import b64decode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from lab_agent.catalogue.model import Contract
from lab_agent.catalogue.records import ApiToken
from lab_agent.settings.api import ApiBasicSettings, ApiTokenSettings
from lab_agent.status.password_attempts import AttemptRefusedError, PasswordAttempts
from lab_agent.store.api_refusals import RefusalReason
from lab_agent.store.crypto import Passwords, token_matches
from lab_api.errors import ApiError, CredentialsError
from lab_api.refusals import find_ended
from lab_api.token_endpoint import SignedTokens

_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="laboratory", Basic realm="laboratory", charset="UTF-8"'}
_MAX_HEADER_LENGTH = 4096


@dataclass(frozen=True, slots=True)
class Client:
    """Somebody who may call; `contracts` None means every contract."""

    name: str
    contracts: frozenset[str] | None

    def visible_contracts(self, contracts: Mapping[str, Contract]) -> Mapping[str, Contract]:
        """The contracts that this client may see."""
        if self.contracts is None:
            return contracts
        return {code: each for code, each in contracts.items() if code in self.contracts}


class Clients:
    """Everybody who may call: the clients of the settings, and those of the store as `stored_tokens` gives them."""

    def __init__(
        self,
        tokens: tuple[ApiTokenSettings, ...],
        basic: tuple[ApiBasicSettings, ...],
        stored_tokens: Callable[[], tuple[ApiToken, ...]] = tuple,
        signed_tokens: SignedTokens | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._stored_tokens = stored_tokens
        self._signed_tokens = signed_tokens
        self._now = now
        self._settings_tokens = [(each.sha256.lower(), _client_of_settings(each)) for each in tokens]
        self._basic = {each.name: (each.password_hash, _client_of_settings(each)) for each in basic}
        self._passwords = Passwords() if basic else None
        self._proof_key = secrets.token_bytes(32)
        self._proofs: dict[str, bytes] = {}
        self._attempts = PasswordAttempts()
        self._checking: dict[bytes, asyncio.Task[bool | None]] = {}

    async def authenticate(self, authorization: str, address: str = "") -> Client:
        """Find the client of an Authorization header, sent from this address.

        Raises `ApiError`: 401, the same for every reason; 429 for a password after too many wrong ones, or beside too many.
        """
        scheme, _, credential = authorization[:_MAX_HEADER_LENGTH].partition(" ")
        client = None
        if scheme.lower() == "bearer":
            client = self._by_token(credential.strip())
        elif scheme.lower() == "basic":
            client = await self._by_basic(credential.strip(), address)
        if client is None:
            raise CredentialsError(*self._find_refusal(scheme, credential.strip()), _CHALLENGE)
        return client

    def _find_refusal(self, scheme: str, credential: str) -> tuple[RefusalReason | None, str]:
        """Why nobody was found, and whose the credential was; no reason for a short-lived token whose time is over."""
        if not credential:
            return RefusalReason.NO_CREDENTIALS, ""
        secret = _basic_password(credential) if scheme.lower() == "basic" else credential
        if self._signed_tokens and secret.count(".") == 2 and (issued_to := self._signed_tokens.issued_to(secret)):
            tokens = [each for each in self._stored_tokens() if each.id == issued_to]
            return (None, "") if any(each.is_valid(self._now()) for each in tokens) else find_ended(tokens)
        return find_ended([each for each in self._stored_tokens() if token_matches(secret, each.sha256)])

    def _by_token(self, token: str) -> Client | None:
        found = [client for known, client in self._settings_tokens if token_matches(token, known)]
        found += [_client_of_token(each) for each in self._valid_tokens() if token_matches(token, each.sha256)]
        if not found and self._signed_tokens and token.count(".") == 2:
            client_id = self._signed_tokens.client_id(token)
            found = [_client_of_token(each) for each in self._valid_tokens() if each.id == client_id]
        return found[0] if found else None

    def _valid_tokens(self) -> list[ApiToken]:
        now = self._now()
        return [each for each in self._stored_tokens() if each.is_valid(now)]

    async def _by_basic(self, credential: str, address: str) -> Client | None:
        """The token of a stored client as the password of its name, or a user of the settings."""
        try:
            name, _, password = b64decode(credential, validate=True).decode().partition(":")
        except ValueError:  # not base64, or not UTF-8
            return None
        found = [
            _client_of_token(each) for each in self._valid_tokens() if each.name == name and token_matches(password, each.sha256)
        ]
        if found or self._passwords is None:
            return found[0] if found else None
        return await self._by_password(name, password, credential, self._passwords, address)

    async def _by_password(self, name: str, password: str, credential: str, passwords: Passwords, address: str) -> Client | None:
        known, client = self._basic.get(name, (None, None))
        proof = hmac.digest(self._proof_key, credential.encode(), "sha256")
        if hmac.compare_digest(self._proofs.get(name, b""), proof):
            return client
        # Requests that come at once with one credential are one attempt: a client that has just begun sends several.
        checking = self._checking.get(proof)
        if checking is None:
            verify = partial(_verify, passwords, password, known)
            # By name and address: who guesses elsewhere must not lock a partner out.
            checking = asyncio.create_task(self._attempts.check(f"{address} {name}", address, self._now(), verify))
            self._checking[proof] = checking
            checking.add_done_callback(lambda _: self._checking.pop(proof))
        try:
            right = await asyncio.shield(checking)
        except AttemptRefusedError as exc:
            diagnostics = f"credentials: too many attempts — try again in {exc.seconds} s, or send a bearer token"
            raise ApiError(429, "throttled", diagnostics, {"Retry-After": str(exc.seconds)}) from None
        if client is None or not right:
            return None
        # A keyed digest of the password, so that the next call with it is not hashed again. It lives as long as the process, as
        # the clients of the settings do.
        self._proofs[name] = proof
        return client


async def _verify(passwords: Passwords, password: str, known: str | None) -> bool | None:
    return await passwords.verify_in_thread(password, known) or None


def _basic_password(credential: str) -> str:
    try:
        return b64decode(credential, validate=True).decode().partition(":")[2]
    except ValueError:  # not base64, or not UTF-8
        return ""


def _client_of_token(token: ApiToken) -> Client:
    return Client(token.name, None if token.contracts is None else frozenset(token.contracts))


def _client_of_settings(entry: ApiTokenSettings | ApiBasicSettings) -> Client:
    return Client(entry.name, None if entry.contracts is None else frozenset(entry.contracts))
