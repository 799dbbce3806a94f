"""Which workers there are: their heartbeats in the store."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from lab_agent.domain.workers import WorkerRecord


class WorkerRepository(Protocol):
    """Runs of workers, each with its last heartbeat."""

    def save(self, worker: WorkerRecord) -> None:
        """Write or replace what a worker says of itself, in one statement."""
        ...

    def newest(self, *, limit: int = 100) -> tuple[WorkerRecord, ...]:
        """Workers, latest heartbeat first."""
        ...

    def purge(self, *, before: datetime) -> int:
        """Delete those whose last heartbeat was before then; gives how many."""
        ...
