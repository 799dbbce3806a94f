"""The origin pin (law 6): an address is joined first, then its scheme, host and port are compared, and only then is it used.

Strict on purpose: whatever two parsers could read differently (user info, a backslash, a control character, a non-ASCII host)
is rejected rather than interpreted.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import SplitResult, quote, urljoin, urlsplit

from lab_agent.shared.errors import ForeignOrigin, InvalidAddress

LOOPBACK_OF_ANY = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared with, nothing listens there
"""Hosts that mean every address of this machine, and the one at which a program on it reaches what listens there."""
_DEFAULT_PORTS = {"http": 80, "https": 443}
_HOST_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-._:[]")
_UNSAFE_CHARACTER = re.compile(r"[\x00-\x20\x7F\\]")
_PRINTABLE_ASCII = "".join(map(chr, range(0x21, 0x7F)))


class Origin(NamedTuple):
    """Scheme, host (lower case) and port of an address."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        """The origin as an address without a path."""
        return f"{self.scheme}://{self.host}:{self.port}"


def origin_of(address: str) -> Origin:
    """Origin of an absolute http or https address. Raises `InvalidAddress` for anything else."""
    parts = _urlsplit(address)
    host = (parts.hostname or "").lower()
    if (
        parts.scheme not in _DEFAULT_PORTS
        or not host
        or "@" in parts.netloc
        or not _HOST_CHARACTERS.issuperset(parts.netloc.lower())
    ):
        raise InvalidAddress("the address is not a plain http or https address")
    try:
        port = parts.port
    except ValueError as exc:
        raise InvalidAddress("the address has an invalid port") from exc
    return Origin(parts.scheme, host, _DEFAULT_PORTS[parts.scheme] if port is None else port)


@lru_cache(maxsize=16)
def pin_of(base: str) -> Origin:
    """Origin of a base address, kept for the last 16: every call asks, of two or three. Raises `InvalidAddress`."""
    return origin_of(base)


def join_url(base: str, target: str) -> str:
    """Join `target` (absolute or relative) onto `base`; the result has the origin of `base`. Raises `ForeignOrigin`.

    A `target` that is no address raises its `InvalidAddress`.
    """
    pin = pin_of(base)
    address = _urljoin(base, _percent_encode(target))
    found = origin_of(address)
    if found != pin:
        raise ForeignOrigin(f"the address leads to {found} instead of {pin}; nothing was sent")
    return address.partition("#")[0]


def is_loopback(address: str) -> bool:
    """Whether an address is on this machine."""
    host = origin_of(address).host
    return host in {"localhost", "::1"} or host.startswith("127.")


def _urljoin(base: str, target: str) -> str:
    try:
        return urljoin(base, target)
    except ValueError as exc:
        raise InvalidAddress("the address is invalid") from exc


def _percent_encode(target: str) -> str:
    if _UNSAFE_CHARACTER.search(target):
        raise InvalidAddress("the address contains a backslash, a blank or a control character")
    return target if target.isascii() else quote(target, safe=_PRINTABLE_ASCII)


def _urlsplit(address: str) -> SplitResult:
    _percent_encode(address)
    try:
        return urlsplit(address)
    except ValueError as exc:
        raise InvalidAddress("the address is invalid") from exc
