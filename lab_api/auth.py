"""Who calls: bearer tokens, HTTP Basic and short-lived signed tokens, without a human (interface: Authentication, 7).

Only hashes are kept. A client may be tied to contracts; all others are, for it, contracts that do not exist. Comparisons take
the same time whoever is asked for, and a password is hashed in a thread, few at a time, so that guessing stops nobody else: what
does not fit into a short queue is turned away, and a client that has proven itself is known again without hashing.
"""

from __future__ import annotations

import hmac
import secrets
from base64 import b64decode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import anyio
from anyio import to_thread

from lab_agent.catalogue.items import Contract
from lab_agent.crypto import Passwords, token_matches
from lab_agent.domain.offer import ApiToken
from lab_agent.settings.api import ApiBasicSettings, ApiTokenSettings
from lab_api.oauth import SignedTokens
from lab_api.problems import Refused

_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="laboratory", Basic realm="laboratory", charset="UTF-8"'}
_AT_ONCE = 2
_IN_THE_QUEUE = 16
_LONGEST = 4096


@dataclass(frozen=True, slots=True)
class Client:
    """Somebody who may call. `contracts` None means every contract."""

    name: str
    contracts: frozenset[str] | None

    def visible(self, contracts: Mapping[str, Contract]) -> Mapping[str, Contract]:
        """The contracts that exist for this client."""
        if self.contracts is None:
            return contracts
        return {code: each for code, each in contracts.items() if code in self.contracts}


class Clients:
    """Everybody who may call: those of the settings, and those that `stored` gives, as they stand in the store."""

    def __init__(
        self,
        tokens: tuple[ApiTokenSettings, ...],
        basic: tuple[ApiBasicSettings, ...],
        stored: Callable[[], tuple[ApiToken, ...]] = tuple,
        signed: SignedTokens | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._stored = stored
        self._signed = signed
        self._now = now
        self._tokens = [(each.sha256.lower(), _client(each)) for each in tokens]
        self._basic = {each.name: (each.password_hash, _client(each)) for each in basic}
        self._passwords = Passwords() if basic else None
        self._key = secrets.token_bytes(32)
        self._proven: dict[str, bytes] = {}
        self._turns = anyio.CapacityLimiter(_AT_ONCE)

    async def authenticate(self, authorization: str) -> Client:
        """Find the client of an Authorization header.

        Raises `Refused`: 401, the same for every reason; 429 where too many passwords are being tried.
        """
        scheme, _, credential = authorization[:_LONGEST].partition(" ")
        client = None
        if scheme.lower() == "bearer":
            client = self._by_token(credential.strip())
        elif scheme.lower() == "basic":
            client = await self._by_basic(credential.strip())
        if client is None:
            raise Refused(
                401, "login", "no valid credentials: send the bearer token (or user and password) agreed with us", _CHALLENGE
            )
        return client

    def _by_token(self, token: str) -> Client | None:
        found = [client for known, client in self._tokens if token_matches(token, known)]
        found += [_tied(each) for each in self._valid() if token_matches(token, each.sha256)]
        if not found and self._signed and token.count(".") == 2:
            client_id = self._signed.client_id(token)
            found = [_tied(each) for each in self._valid() if each.id == client_id]
        return found[0] if found else None

    def _valid(self) -> list[ApiToken]:
        now = self._now()
        return [each for each in self._stored() if each.valid(now)]

    async def _by_basic(self, credential: str) -> Client | None:
        """The token of a stored client as the password of its name, or a user of the settings."""
        try:
            name, _, password = b64decode(credential, validate=True).decode().partition(":")
        except ValueError:  # not base64, or not UTF-8
            return None
        found = [_tied(each) for each in self._valid() if each.name == name and token_matches(password, each.sha256)]
        if found or self._passwords is None:
            return found[0] if found else None
        return await self._by_password(name, password, credential, self._passwords)

    async def _by_password(self, name: str, password: str, credential: str, passwords: Passwords) -> Client | None:
        known, client = self._basic.get(name, (None, None))
        proof = hmac.digest(self._key, credential.encode(), "sha256")
        if hmac.compare_digest(self._proven.get(name, b""), proof):
            return client
        if self._turns.statistics().tasks_waiting >= _IN_THE_QUEUE:
            said = "credentials: too many are being tried at the moment — try again in 1 s, or call with a bearer token"
            raise Refused(429, "throttled", said, {"Retry-After": "1"})
        async with self._turns:
            right = await to_thread.run_sync(passwords.matches, password, known)
        if client is None or not right:
            return None
        # One for each client, under a key of this process alone: the next call with the same password is not hashed again. Such
        # clients are the settings', so that one is ended by a restart, and the proof with it.
        self._proven[name] = proof
        return client


def _tied(each: ApiToken) -> Client:
    return Client(each.name, None if each.contracts is None else frozenset(each.contracts))


def _client(each: ApiTokenSettings | ApiBasicSettings) -> Client:
    return Client(each.name, None if each.contracts is None else frozenset(each.contracts))
