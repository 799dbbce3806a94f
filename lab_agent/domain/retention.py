"""Which data has been kept long enough, by class."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeTimes:
    """What is older than these times has been kept long enough."""

    identities: datetime
    documents: datetime
    refused_contents: datetime
    refused_messages: datetime
    orders: datetime
    baskets: datetime
    catalogues: datetime
    audit: datetime
