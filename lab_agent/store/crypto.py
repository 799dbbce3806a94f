"""Encryption at rest, and the hashing of tokens and passwords.

Whoever has only the database file learns no name and can sign in nowhere: identification data, documents and our own tokens are
encrypted with keys that are stored elsewhere; of the tokens and passwords of others, only hashes are kept.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import secrets
from concurrent.futures import ThreadPoolExecutor

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError
from argon2.low_level import ARGON2_VERSION
from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives.ciphers import Cipher as StreamCipher
from cryptography.hazmat.primitives.ciphers import algorithms
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from lab_agent.shared.errors import CryptoError

_BAD_KEY = "An encryption key is not valid: it must be 32 bytes in URL-safe Base64, as `lab-agent init` makes them."
_NO_KEY = "No encryption key is set; identification data cannot be stored without one."
_WRONG_KEY = (
    "Encrypted data cannot be read: it needs a key that is not among those set (`store.encryption_keys`), or was altered."
)

_HASHING_THREADS = 2
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
            fernets = [Fernet(key.strip()) for key in keys]
        except ValueError as exc:
            raise CryptoError(_BAD_KEY) from exc
        self._keys = tuple(base64.urlsafe_b64decode(key.strip()) for key in keys)
        self._fernet, self._newest = MultiFernet(fernets), fernets[0]

    def derive(self, purpose: str) -> Cipher:
        """Give a cipher of keys that are derived from these for one purpose: neither reads what the other has encrypted."""
        info = f"lab-agent {purpose}".encode()
        derived = (HKDF(SHA256(), length=32, salt=None, info=info).derive(key) for key in self._keys)
        return Cipher(*(base64.urlsafe_b64encode(key).decode("ascii") for key in derived))

    def encrypt(self, content: bytes) -> bytes:
        """Give `content` encrypted and authenticated."""
        return self._fernet.encrypt(content)

    def decrypt(self, encrypted: bytes) -> bytes:
        """Give back what was encrypted. Raises `CryptoError` where no key fits, or the content was altered."""
        try:
            return self._fernet.decrypt(encrypted)
        except InvalidToken as exc:
            raise CryptoError(_WRONG_KEY) from exc

    def reencrypt(self, encrypted: bytes) -> bytes:
        """Give the same content, encrypted with the first key. Raises `CryptoError`."""
        try:
            return self._fernet.rotate(encrypted)
        except InvalidToken as exc:
            raise CryptoError(_WRONG_KEY) from exc

    def is_current(self, encrypted: bytes) -> bool:
        """Whether the first key encrypted this; nothing is decrypted for that."""
        try:
            self._newest.extract_timestamp(encrypted)
        except InvalidToken:
            return False
        return True


def decrypted_size(encrypted_size: int) -> int:
    """Approximate size in bytes, give or take 16, of what has this size encrypted; nothing is decrypted for that."""
    return max(0, encrypted_size * 3 // 4 - _FERNET_OVERHEAD)


def new_token() -> str:
    """Make a token for a client of ours: 32 random bytes, URL-safe."""
    return secrets.token_urlsafe(32)


def hash_token(token: str) -> str:
    """Give the SHA-256 of a token in hexadecimal. Tokens are random and long: a slow hash would add nothing."""
    return hashlib.sha256(token.encode()).hexdigest()


def token_matches(token: str, digest: str) -> bool:
    """Whether `digest` is the hash of `token`; takes the same time wherever they differ."""
    return hmac.compare_digest(hash_token(token).encode(), digest.encode())


class OneTimeCipher:
    """Encrypts one stream, part by part, with a key that nobody keeps: for a file that only this process reads again, whole."""

    def __init__(self) -> None:
        self._cipher = StreamCipher(algorithms.ChaCha20(secrets.token_bytes(32), secrets.token_bytes(16)), None)
        self._encryptor = self._cipher.encryptor()

    def encrypt(self, part: bytes) -> bytes:
        """Give the next part encrypted; it is not authenticated."""
        return self._encryptor.update(part)

    def decrypt(self, content: bytes) -> bytes:
        """Give all parts back."""
        return self._cipher.decryptor().update(content)


class Passwords:
    """Hashes passwords with argon2id; the costs travel in each hash.

    `memory_cost` is in KiB. The defaults are those of RFC 9106's low-memory profile; tests choose cheaper ones.
    """

    def __init__(self, *, time_cost: int = 3, memory_cost: int = 65536, parallelism: int = 4) -> None:
        self._hasher = PasswordHasher(time_cost=time_cost, memory_cost=memory_cost, parallelism=parallelism)
        self._hash_of_nobody = self._make_hash_of_nobody()
        # Threads of their own: whoever guesses passwords must not keep other work waiting for a thread.
        self._threads = ThreadPoolExecutor(_HASHING_THREADS, thread_name_prefix="passwords")

    async def hash_in_thread(self, password: str) -> str:
        """As `hash`, while the event loop goes on."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self.hash, password)

    async def verify_in_thread(self, password: str, hashed: str | None) -> bool:
        """As `verify`, while the event loop goes on."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self.verify, password, hashed)

    def hash(self, password: str) -> str:
        """Give the hash of a password, with its salt and costs."""
        return self._hasher.hash(password)

    def verify(self, password: str, hashed: str | None) -> bool:
        """Whether `hashed` is the hash of `password`. None (nobody has that name) costs as much as a wrong password."""
        try:
            self._hasher.verify(self._hash_of_nobody if hashed is None else hashed, password)
        except (VerificationError, InvalidHashError):
            return False
        return hashed is not None

    def _make_hash_of_nobody(self) -> str:
        """Make a hash that no password is known for: random bytes, as computing one takes 64 MiB that a start has no use for."""
        costs = f"m={self._hasher.memory_cost},t={self._hasher.time_cost},p={self._hasher.parallelism}"
        salt, digest = (
            base64.b64encode(secrets.token_bytes(length)).rstrip(b"=").decode()
            for length in (self._hasher.salt_len, self._hasher.hash_len)
        )
        return f"$argon2id$v={ARGON2_VERSION}${costs}${salt}${digest}"

    def needs_rehash(self, hashed: str) -> bool:
        """Whether the hash was made with other costs than today's."""
        return self._hasher.check_needs_rehash(hashed)
