"""The audit as the workflow sees it: records are added, in the transaction of what they tell of; nothing changes them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Protocol

from lab_agent.domain.audit import AuditEntry


class AuditRepository(Protocol):
    """The records of what people and commands did."""

    def add(self, entry: AuditEntry) -> None:
        """Add a record at the commit, behind all others that are committed by then."""
        ...

    def digest_settings(self, values: Mapping[str, str]) -> Mapping[str, str]:
        """Give digests of settings' values, by which changes show, and the values do not."""
        ...

    def purge(self, *, before: datetime, limit: int = 500) -> int:
        """Cut off the records made before then, oldest first, and anchor the rest; how many. The newest record always stays."""
        ...
