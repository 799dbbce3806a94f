"""Signatures: HMAC-SHA256 over timestamp, idempotency key and body, compared in constant time. Pure.

    Lab-Timestamp: 1718000000                     Unix time in seconds
    Idempotency-Key: <name>                       the same in every repeat of the same message
    Lab-Signature: v1=<hex>                       HMAC-SHA256(secret, "<timestamp>.<name>." + body)

The name is signed too: otherwise a replayed message could pass for a new one.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from datetime import datetime

TIMESTAMP_HEADER = "Lab-Timestamp"
IDEMPOTENCY_KEY_HEADER = "Idempotency-Key"
SIGNATURE_HEADER = "Lab-Signature"
MAX_IDEMPOTENCY_KEY_LENGTH = 200
_VERSION_PREFIX = "v1="


class InvalidSignature(Exception):
    """A message is not signed correctly; the text may be shown to the sender."""


def signature_headers(secret: bytes, idempotency_key: str, body: bytes, now: datetime) -> dict[str, str]:
    """Return the headers of a message."""
    stamp = str(int(now.timestamp()))
    return {
        TIMESTAMP_HEADER: stamp,
        IDEMPOTENCY_KEY_HEADER: idempotency_key,
        SIGNATURE_HEADER: _VERSION_PREFIX + _hmac_hex(secret, stamp, idempotency_key, body),
    }


def verify_signature(
    headers: Mapping[str, str], body: bytes, *, secrets: Sequence[bytes], now: datetime, tolerance: float
) -> str:
    """Return the idempotency key of a correctly signed message. Raises `InvalidSignature`."""
    stamp, name = headers.get(TIMESTAMP_HEADER.lower(), ""), headers.get(IDEMPOTENCY_KEY_HEADER.lower(), "")
    given = headers.get(SIGNATURE_HEADER.lower(), "")
    if not name.strip() or len(name) > MAX_IDEMPOTENCY_KEY_LENGTH or not (name.isascii() and name.isprintable()):
        raise InvalidSignature(
            f"{IDEMPOTENCY_KEY_HEADER} is missing or not 1 to {MAX_IDEMPOTENCY_KEY_LENGTH} printable ASCII characters"
        )
    if not (stamp.isascii() and stamp.isdecimal() and len(stamp) <= 12):
        raise InvalidSignature(f"{TIMESTAMP_HEADER} is missing or not a Unix time in seconds")
    good = [
        hmac.compare_digest((_VERSION_PREFIX + _hmac_hex(secret, stamp, name, body)).encode(), given.encode())
        for secret in secrets
    ]
    if not any(good):
        raise InvalidSignature(f"{SIGNATURE_HEADER} is missing or wrong")
    if abs(now.timestamp() - int(stamp)) > tolerance:
        raise InvalidSignature(f"{TIMESTAMP_HEADER} is too far from our clock; send the message again with a new timestamp")
    return name


def _hmac_hex(secret: bytes, timestamp: str, idempotency_key: str, body: bytes) -> str:
    return hmac.new(secret, f"{timestamp}.{idempotency_key}.".encode() + body, hashlib.sha256).hexdigest()
