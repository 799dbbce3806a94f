"""Who calls: bearer tokens and HTTP Basic, without a human (interface: Authentication, 7).

Only hashes are kept. A client may be tied to contracts; all others are, for it, contracts that do not exist. Comparisons take
the same time whoever is asked for, and a password is hashed in a thread, few at a time, so that guessing stops nobody else.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass

import anyio
from anyio import to_thread
from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from lab_agent.catalogue.items import Contract
from lab_agent.settings_api import ApiBasicSettings, ApiTokenSettings
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
        self._tokens = [(bytes.fromhex(each.sha256), _client(each)) for each in tokens]
        self._basic = {each.name: (each.password_hash, _client(each)) for each in basic}
        self._hasher = PasswordHasher()
        self._nobody = self._hasher.hash(secrets.token_urlsafe()) if basic else ""
        self._key = secrets.token_bytes(32)
        self._proven: dict[str, bytes] = {}
        self._turns = anyio.CapacityLimiter(_AT_ONCE)

    async def authenticate(self, authorization: str) -> Client:
        """Find the client of an Authorization header. Raises `Refused` (401), the same for every reason."""
        scheme, _, credential = authorization[:_LONGEST].partition(" ")
        client = None
        if scheme.lower() == "bearer":
            client = self._by_token(credential.strip())
        elif scheme.lower() == "basic" and self._basic:
            client = await self._by_password(credential.strip())
        if client is None:
            raise Refused(
                401, "login", "no valid credentials: send the bearer token (or user and password) agreed with us", _CHALLENGE
            )
        return client

    def _by_token(self, token: str) -> Client | None:
        digest = hashlib.sha256(token.encode()).digest()
        found = [client for known, client in self._tokens if hmac.compare_digest(known, digest)]
        return found[0] if found else None

    async def _by_password(self, credential: str) -> Client | None:
        try:
            name, _, password = b64decode(credential, validate=True).decode().partition(":")
        except ValueError:  # not base64, or not UTF-8
            return None
        known, client = self._basic.get(name, (self._nobody, None))
        proof = hmac.digest(self._key, credential.encode(), "sha256")
        if hmac.compare_digest(self._proven.get(name, b""), proof):
            return client
        async with self._turns:
            right = await to_thread.run_sync(self._verify, known, password)
        if client is None or not right:
            return None
        self._proven[name] = proof  # one for each client: the next call with the same password is not hashed again
        return client

    def _verify(self, known: str, password: str) -> bool:
        try:
            return self._hasher.verify(known, password)
        except (VerificationError, InvalidHashError):
            return False


def _client(each: ApiTokenSettings | ApiBasicSettings) -> Client:
    return Client(each.name, None if each.contracts is None else frozenset(each.contracts))
