"""Leases by name: who may do something that one of several workers is enough for."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Protocol


class LeaseRepository(Protocol):
    """One owner at a time for each name, until the lease ends or is given back."""

    def acquire(self, name: str, owner: str, *, now: datetime, lease: timedelta) -> bool:
        """Take or renew it. False if another owner holds it; then nothing is written."""
        ...

    def release(self, name: str, owner: str) -> None:
        """Give it back, if this owner holds it."""
        ...

    def release_all(self, owner: str) -> None:
        """Give back whatever this owner holds: it ends."""
        ...
