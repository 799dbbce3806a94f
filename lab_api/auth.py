"""Who calls: bearer tokens and HTTP Basic, without a human (interface: Authentication, 7).

Only hashes are kept. A client may be tied to contracts; all others are, for it, contracts that do not exist. Comparisons take
the same time whoever is asked for, and a password is hashed in a thread, few at a time, so that guessing stops nobody else.
"""

from __future__ import annotations

import hmac
import secrets
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass

import anyio
from anyio import to_thread

from lab_agent.catalogue.items import Contract
from lab_agent.crypto import Passwords, token_matches
from lab_agent.settings.api import ApiBasicSettings, ApiTokenSettings
from lab_api.problems import Refused

_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="laboratory", Basic realm="laboratory", charset="UTF-8"'}
_AT_ONCE = 2
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
    """Everybody who may call."""

    def __init__(self, tokens: tuple[ApiTokenSettings, ...], basic: tuple[ApiBasicSettings, ...]) -> None:
        self._tokens = [(each.sha256.lower(), _client(each)) for each in tokens]
        self._basic = {each.name: (each.password_hash, _client(each)) for each in basic}
        self._passwords = Passwords() if basic else None
        self._key = secrets.token_bytes(32)
        self._proven: dict[str, bytes] = {}
        self._turns = anyio.CapacityLimiter(_AT_ONCE)

    async def authenticate(self, authorization: str) -> Client:
        """Find the client of an Authorization header. Raises `Refused` (401), the same for every reason."""
        scheme, _, credential = authorization[:_LONGEST].partition(" ")
        client = None
        if scheme.lower() == "bearer":
            client = self._by_token(credential.strip())
        elif scheme.lower() == "basic" and self._passwords:
            client = await self._by_password(credential.strip(), self._passwords)
        if client is None:
            raise Refused(
                401, "login", "no valid credentials: send the bearer token (or user and password) agreed with us", _CHALLENGE
            )
        return client

    def _by_token(self, token: str) -> Client | None:
        found = [client for known, client in self._tokens if token_matches(token, known)]
        return found[0] if found else None

    async def _by_password(self, credential: str, passwords: Passwords) -> Client | None:
        try:
            name, _, password = b64decode(credential, validate=True).decode().partition(":")
        except ValueError:  # not base64, or not UTF-8
            return None
        known, client = self._basic.get(name, (None, None))
        proof = hmac.digest(self._key, credential.encode(), "sha256")
        if hmac.compare_digest(self._proven.get(name, b""), proof):
            return client
        async with self._turns:
            right = await to_thread.run_sync(passwords.matches, password, known)
        if client is None or not right:
            return None
        self._proven[name] = proof  # one for each client: the next call with the same password is not hashed again
        return client


def _client(each: ApiTokenSettings | ApiBasicSettings) -> Client:
    return Client(each.name, None if each.contracts is None else frozenset(each.contracts))
