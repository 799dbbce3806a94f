"""When a clinic's system asks again: busy services and lost answers, and never where something might be done twice."""

from __future__ import annotations

from datetime import datetime
from email.utils import parsedate_to_datetime

import httpx

RETRY_DELAYS = (0.1, 0.4, 1.6)
"""Seconds before the second, third and fourth try."""
MAX_RETRY_DELAY = 10.0
"""The longest wait, in seconds, that a service may ask for; more than that, and the refusal is told as it is."""
_BUSY_STATUSES = frozenset({429, 503})
_SERVER_ERROR_STATUSES = frozenset({500, 502, 504})


def can_retry(method: str, outcome: httpx.Response | httpx.TransportError) -> bool:
    """Whether another try is harmless and may help: a busy service did nothing, and a GET can be repeated after anything."""
    if isinstance(outcome, httpx.TransportError):
        return method == "GET"
    return outcome.status_code in _BUSY_STATUSES or (method == "GET" and outcome.status_code in _SERVER_ERROR_STATUSES)


def retry_delay(default: float, outcome: httpx.Response | httpx.TransportError, now: datetime) -> float:
    """Seconds to wait: as the service asks (Retry-After, in either form), else `wait`."""
    asked = outcome.headers.get("retry-after", "") if isinstance(outcome, httpx.Response) else ""
    if asked.isascii() and asked.isdigit():
        return float(asked)
    try:
        return max(0.0, (parsedate_to_datetime(asked) - now).total_seconds())
    except (ValueError, TypeError):
        return default
