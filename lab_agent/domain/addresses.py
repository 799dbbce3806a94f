"""Addresses of documents, as a DiagnosticReport may carry them (interface: Result documents). Pure."""

from __future__ import annotations

from urllib.parse import urlsplit

URL_HINT = "give an http or https address, or one relative to the service's"
_URL_SCHEMES = frozenset({"http", "https"})


def is_openable_url(url: str) -> bool:
    """Whether a clinic could open it: http or https with a host, or relative to the service's base address."""
    if not url or not url.isprintable() or {" ", "\\"} & set(url):
        return False
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return False
    if parts.scheme or parts.netloc:
        return parts.scheme in _URL_SCHEMES and bool(parts.hostname) and port != 0
    return ":" not in parts.path.partition("/")[0]
