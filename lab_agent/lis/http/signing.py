"""Signatures: HMAC-SHA256 over the time stamp, the message's own name and the body, compared in constant time. Pure.

    Lab-Timestamp: 1718000000                     seconds since 1970
    Idempotency-Key: <name>                       the same for every repeat of the same message
    Lab-Signature: v1=<hex>                       HMAC-SHA256(secret, "<timestamp>.<name>." + body)

The name is signed with the rest, or a replayed message could pass for a new one.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from datetime import datetime

TIMESTAMP = "Lab-Timestamp"
NAME = "Idempotency-Key"
SIGNATURE = "Lab-Signature"
LONGEST_NAME = 200
_VERSION = "v1="


class NotGenuine(Exception):
    """A message is not signed as it must be; the text says what is wrong and may be shown to the sender."""


def signed(secret: bytes, name: str, body: bytes, now: datetime) -> dict[str, str]:
    """Give the headers of a message."""
    stamp = str(int(now.timestamp()))
    return {TIMESTAMP: stamp, NAME: name, SIGNATURE: _VERSION + _digest(secret, stamp, name, body)}


def check(headers: Mapping[str, str], body: bytes, *, secrets: Sequence[bytes], now: datetime, window: float) -> str:
    """Give the name of a genuine message. Raises `NotGenuine`."""
    stamp, name = headers.get(TIMESTAMP.lower(), ""), headers.get(NAME.lower(), "")
    given = headers.get(SIGNATURE.lower(), "")
    if not name.strip() or len(name) > LONGEST_NAME or not (name.isascii() and name.isprintable()):
        raise NotGenuine(f"{NAME} is missing, or is not up to {LONGEST_NAME} plain characters")
    if not (stamp.isascii() and stamp.isdecimal() and len(stamp) <= 12):
        raise NotGenuine(f"{TIMESTAMP} is missing, or is not a number of seconds since 1970")
    good = [hmac.compare_digest((_VERSION + _digest(secret, stamp, name, body)).encode(), given.encode()) for secret in secrets]
    if not any(good):
        raise NotGenuine(f"{SIGNATURE} is missing or wrong")
    if abs(now.timestamp() - int(stamp)) > window:
        raise NotGenuine(f"{TIMESTAMP} is too far from our clock; send it again with a new one")
    return name


def _digest(secret: bytes, stamp: str, name: str, body: bytes) -> str:
    return hmac.new(secret, f"{stamp}.{name}.".encode() + body, hashlib.sha256).hexdigest()
