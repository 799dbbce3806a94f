"""How long ago something was, as people read it."""

from __future__ import annotations

from datetime import datetime


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
