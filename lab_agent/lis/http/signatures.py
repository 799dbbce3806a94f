"""Signatures: HMAC-SHA256 over timestamp, idempotency key and body, compared in constant time. Pure.

    Lab-Timestamp: 1718000000                     Unix time in seconds
    Idempotency-Key: <name>                       the same in every repeat of the same message
    Lab-Signature: v1=<hex>                       HMAC-SHA256(secret, "<timestamp>.<name>." + body)

The name is signed too: otherwise a replayed message could pass for a new one.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

TIMESTAMP_HEADER = "Lab-Timestamp"
IDEMPOTENCY_KEY_HEADER = "Idempotency-Key"
SIGNATURE_HEADER = "Lab-Signature"
MAX_IDEMPOTENCY_KEY_LENGTH = 200
_VERSION_PREFIX = "v1="
_SIGNATURE_PATTERN = re.compile(r"v1=[0-9a-f]{64}", re.ASCII)


class InvalidSignature(Exception):
    """A message is not signed correctly; the text may be shown to the sender."""


def signature_headers(secret: bytes, idempotency_key: str, body: bytes, now: datetime) -> dict[str, str]:
    """Return the headers of a message."""
    stamp = str(int(now.timestamp()))
    code = _start_hmac(secret, stamp, idempotency_key)
    code.update(body)
    return {
        TIMESTAMP_HEADER: stamp,
        IDEMPOTENCY_KEY_HEADER: idempotency_key,
        SIGNATURE_HEADER: _VERSION_PREFIX + code.hexdigest(),
    }


@dataclass(frozen=True, slots=True)
class SignatureHeaders:
    """The headers of a message whose body is yet to come: well formed, and of our time."""

    timestamp: str
    idempotency_key: str
    signature: str

    def begin(self, secrets: Sequence[bytes]) -> SignatureCheck:
        """Begin to check a body of which parts arrive."""
        return SignatureCheck(self, secrets)


class SignatureCheck:
    """Checks the signature of a body, part by part, with each of the secrets."""

    def __init__(self, given: SignatureHeaders, secrets: Sequence[bytes]) -> None:
        self._given = given.signature
        self._codes = [_start_hmac(secret, given.timestamp, given.idempotency_key) for secret in secrets]

    def update(self, part: bytes) -> None:
        """Take the next part."""
        for code in self._codes:
            code.update(part)

    def verify(self) -> None:
        """Compare, once all parts were taken. Raises `InvalidSignature`."""
        good = [hmac.compare_digest(_VERSION_PREFIX + code.hexdigest(), self._given) for code in self._codes]
        if not any(good):
            raise InvalidSignature(f"{SIGNATURE_HEADER} is wrong")


def read_signature_headers(headers: Mapping[str, str], *, now: datetime, tolerance: float) -> SignatureHeaders:
    """Read what can be known of a signature before the body. Raises `InvalidSignature`."""
    stamp, name = headers.get(TIMESTAMP_HEADER.lower(), ""), headers.get(IDEMPOTENCY_KEY_HEADER.lower(), "")
    given = headers.get(SIGNATURE_HEADER.lower(), "")
    if not name.strip() or len(name) > MAX_IDEMPOTENCY_KEY_LENGTH or not (name.isascii() and name.isprintable()):
        raise InvalidSignature(
            f"{IDEMPOTENCY_KEY_HEADER} is missing or not 1 to {MAX_IDEMPOTENCY_KEY_LENGTH} printable ASCII characters"
        )
    if not (stamp.isascii() and stamp.isdecimal() and len(stamp) <= 12):
        raise InvalidSignature(f"{TIMESTAMP_HEADER} is missing or not a Unix time in seconds")
    if not _SIGNATURE_PATTERN.fullmatch(given):
        raise InvalidSignature(f"{SIGNATURE_HEADER} is missing or not v1= and 64 hexadecimal digits")
    if abs(now.timestamp() - int(stamp)) > tolerance:
        raise InvalidSignature(f"{TIMESTAMP_HEADER} is too far from our clock; send the message again with a new timestamp")
    return SignatureHeaders(stamp, name, given)


def _start_hmac(secret: bytes, timestamp: str, idempotency_key: str) -> hmac.HMAC:
    return hmac.new(secret, f"{timestamp}.{idempotency_key}.".encode(), hashlib.sha256)
