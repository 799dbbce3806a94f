"""Keys, encryption at rest, and the hashing of tokens and passwords.

Whoever holds the database file alone shall learn no name and be able to sign in nowhere: identification data, documents and our
own tokens are encrypted with a key that lives elsewhere; tokens and passwords that others show to us are kept only as hashes.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError
from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from lab_agent.errors import CryptoError

_BAD_KEY = "An encryption key is not valid: it must be 32 bytes in URL-safe Base64, as `new_key` makes them."
_NO_KEY = "No encryption key is set; what identifies patients cannot be stored without one."
_WRONG_KEY = "What is stored encrypted cannot be read: it was written with a key that is not among those set (or was altered)."

_FERNET_OVERHEAD = 57 + 16
"""Bytes of version, time, vector, padding and signature in Fernet's token, before it is written in Base64."""


def new_key() -> str:
    """Make a new key for a `Cipher`: 32 random bytes in URL-safe Base64."""
    return Fernet.generate_key().decode("ascii")


class Cipher:
    """Encrypts with the first key and reads with any, so that a new key can be put in front of an old one."""

    def __init__(self, *keys: str) -> None:
        if not keys:
            raise CryptoError(_NO_KEY)
        try:
            self._fernet = MultiFernet([Fernet(key.strip()) for key in keys])
        except ValueError as exc:
            raise CryptoError(_BAD_KEY) from exc

    def encrypt(self, content: bytes) -> bytes:
        """Give `content` encrypted and sealed."""
        return self._fernet.encrypt(content)

    def decrypt(self, encrypted: bytes) -> bytes:
        """Give back what was encrypted. Raises `CryptoError` where no key fits, or the content was altered."""
        try:
            return self._fernet.decrypt(encrypted)
        except InvalidToken as exc:
            raise CryptoError(_WRONG_KEY) from exc

    def reencrypt(self, encrypted: bytes) -> bytes:
        """Give the same content, sealed with the first key. Raises `CryptoError`."""
        try:
            return self._fernet.rotate(encrypted)
        except InvalidToken as exc:
            raise CryptoError(_WRONG_KEY) from exc


def decrypted_size(encrypted_size: int) -> int:
    """About how many bytes lie within a seal of so many, give or take 16. Nothing has to be opened for that."""
    return max(0, encrypted_size * 3 // 4 - _FERNET_OVERHEAD)


def new_token() -> str:
    """Make a token for somebody to show to us: 32 random bytes, URL-safe."""
    return secrets.token_urlsafe(32)


def hash_token(token: str) -> str:
    """Give the SHA-256 of a token in hexadecimal. Tokens are random and long: a slow hash would add nothing."""
    return hashlib.sha256(token.encode()).hexdigest()


def token_matches(token: str, digest: str) -> bool:
    """Whether `digest` is the hash of `token`; takes the same time wherever they differ."""
    return hmac.compare_digest(hash_token(token).encode(), digest.encode())


class Passwords:
    """Hashes passwords with argon2id; the costs travel in each hash.

    `memory_cost` is in KiB. The defaults are those of RFC 9106's low-memory profile; tests choose cheaper ones.
    """

    def __init__(self, *, time_cost: int = 3, memory_cost: int = 65536, parallelism: int = 4) -> None:
        self._hasher = PasswordHasher(time_cost=time_cost, memory_cost=memory_cost, parallelism=parallelism)
        self._dummy_hash = self._hasher.hash(secrets.token_urlsafe(32))

    def hash(self, password: str) -> str:
        """Give the hash of a password, with its salt and costs."""
        return self._hasher.hash(password)

    def verify(self, password: str, hashed: str | None) -> bool:
        """Whether `hashed` is the hash of `password`. None (nobody has that name) costs as much as a wrong password."""
        try:
            self._hasher.verify(self._dummy_hash if hashed is None else hashed, password)
        except (VerificationError, InvalidHashError):
            return False
        return hashed is not None

    def needs_rehash(self, hashed: str) -> bool:
        """Whether the hash was made with other costs than today's."""
        return self._hasher.check_needs_rehash(hashed)
