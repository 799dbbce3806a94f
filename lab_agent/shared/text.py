"""Foreign text, made fit to be quoted in our own sentences, and how long ago something was. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from urllib.parse import urlsplit

MAX_LENGTH = 80
_MAX_ITEMS = 5
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 and C1: ESC, CSI, OSC, backspace, carriage return
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # direction marks, embeddings, overrides and isolates
    "\u180e\u200b\u2028\u2029\u2060-\u2065\u206a-\u206f\ufeff\ufff9-\ufffb"  # invisible characters and line separators
    "\ud800-\udfff\U000e0000-\U000e007f]"  # halves of characters, and tags
)


def shorten(text: str, length: int = MAX_LENGTH) -> str:
    """Give a foreign text as a reason, a timeline or a log may quote it: on one line, at most `length` characters of it."""
    shown = "".join(char if char.isprintable() else "?" for char in text[:length])
    return shown if len(text) <= length else f"{shown}…"


def escape_unprintable(text: str) -> str:
    r"""Give text that can neither steer a terminal nor reorder what it shows: such characters become escapes, `\u001b`.

    Line ends and tabs stay. JSON stays the same JSON, for its escapes are the same.
    """
    return _UNPRINTABLE.sub(lambda found: "".join(f"\\u{unit:04x}" for unit in _utf16_units(found[0])), text)


def _utf16_units(char: str) -> Iterator[int]:
    data = char.encode("utf-16-be", "surrogatepass")
    return (int.from_bytes(data[place : place + 2], "big") for place in range(0, len(data), 2))


def address_origin(address: str) -> str:
    """Give the origin of an absolute address for a message, without what may name somebody (user, path, query)."""
    try:
        parts = urlsplit(address.strip())
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "an address that cannot be read"
    return f"{parts.scheme or 'http'}://{parts.hostname or ''}{port}"


def join_limited(texts: Iterable[str], separator: str = ", ") -> str:
    """Join sentences or names; of many, the first few and the number of the others."""
    listed = list(texts)
    more = len(listed) - _MAX_ITEMS
    return separator.join(listed[:_MAX_ITEMS]) + (f"{separator}and {more} more" if more > 0 else "")


def format_age(since: datetime | None, now: datetime) -> str:
    """How long ago, in the two largest units: `3 d 4 h`, `12 min`, `8 s`; `in 5 min` for the future."""
    if since is None:
        return "never"
    seconds = int((now - since).total_seconds())
    if seconds < 0:
        return f"in {_format_duration(-seconds)}"
    return _format_duration(seconds)


def _format_duration(seconds: int) -> str:
    if seconds < 60:
        return f"{seconds} s"
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86_400
    if minutes < 60:
        return f"{minutes} min"
    if hours < 24:
        return f"{hours} h {minutes % 60} min" if minutes % 60 else f"{hours} h"
    return f"{days} d {hours % 24} h" if hours % 24 else f"{days} d"
