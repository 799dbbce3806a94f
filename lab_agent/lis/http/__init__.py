"""The LIS by signed HTTP: orders go out as webhooks, results come in at our own endpoint.

Both directions carry the published JSON forms with a timestamp, an idempotency key and a signature over all three.
"""

from __future__ import annotations

from lab_agent.lis.http.adapter import HttpAdapter
from lab_agent.lis.http.settings import HttpSettings

__all__ = ["HttpAdapter", "HttpSettings"]
