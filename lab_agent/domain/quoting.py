"""Foreign words within our own sentences: a reason quotes a little of them, whatever was sent. Pure."""

from __future__ import annotations

from collections.abc import Iterable

LONGEST = 80
_MOST = 5


def quoted(text: str) -> str:
    """Give a foreign text as a reason, a timeline or a log may repeat it: on one line, and no longer than `LONGEST`."""
    shown = "".join(char if char.isprintable() else "?" for char in text[:LONGEST])
    return shown if len(text) <= LONGEST else f"{shown}…"


def several(sayings: Iterable[str], divider: str = ", ") -> str:
    """Join sentences or names; of many, the first few and the number of the others."""
    listed = list(sayings)
    more = len(listed) - _MOST
    return divider.join(listed[:_MOST]) + (f"{divider}and {more} more" if more > 0 else "")
