"""Foreign words within our own sentences: a reason quotes a little of them, whatever was sent. Pure."""

from __future__ import annotations

from collections.abc import Iterable

MAX_LENGTH = 80
_MAX_ITEMS = 5


def shorten(text: str) -> str:
    """Give a foreign text as a reason, a timeline or a log may repeat it: on one line, and no longer than `LONGEST`."""
    shown = "".join(char if char.isprintable() else "?" for char in text[:MAX_LENGTH])
    return shown if len(text) <= MAX_LENGTH else f"{shown}…"


def join_limited(texts: Iterable[str], separator: str = ", ") -> str:
    """Join sentences or names; of many, the first few and the number of the others."""
    listed = list(texts)
    more = len(listed) - _MAX_ITEMS
    return separator.join(listed[:_MAX_ITEMS]) + (f"{separator}and {more} more" if more > 0 else "")
