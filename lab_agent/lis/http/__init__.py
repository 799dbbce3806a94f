"""The LIS by signed HTTP: orders go out as webhooks, results come in on an endpoint of our own.

Both ways carry the published JSON forms, a time stamp, a name that is the same for every repeat, and a signature over all three.
"""

from __future__ import annotations

from lab_agent.lis.http.adapter import HttpAdapter
from lab_agent.lis.http.settings import HttpSettings

__all__ = ["HttpAdapter", "HttpSettings"]
