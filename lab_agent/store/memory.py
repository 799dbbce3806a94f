"""The store in memory: the port's behaviour without a database, for tests of steps and of adapters.

It passes the same contract suite as SQLite and PostgreSQL. One unit of work runs at a time, on a copy; `commit` puts the copy in
the place of the original. Nothing survives the process, and nothing is encrypted.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from typing import TypeVar

from lab_agent.ports.store import UnitOfWork
from lab_agent.store.memory_books import (
    MemoryAlertRepository,
    MemoryEventRepository,
    MemoryHostedDocumentRepository,
    MemoryKeyValueRepository,
    MemoryOAuthTokenRepository,
    MemoryRejectionRepository,
    MemoryUploadRepository,
    MemoryUserRepository,
    MemoryVault,
)
from lab_agent.store.memory_effects import MemoryJobRepository
from lab_agent.store.memory_offer import (
    MemoryApiTokenRepository,
    MemoryCatalogueRepository,
    MemoryIssuedLabelRepository,
    MemoryTurnaroundNoticeRepository,
)
from lab_agent.store.memory_orders import MemoryOrderRepository
from lab_agent.store.memory_purge import MemoryPurge
from lab_agent.store.memory_reports import MemoryReportRepository
from lab_agent.store.memory_shelf import MemoryData

T = TypeVar("T")


class MemoryUnitOfWork:
    """One transaction: a copy of the shelf, and the books on it."""

    def __init__(self, data: MemoryData, on_commit: Callable[[MemoryData], None]) -> None:
        self._data = data
        self._on_commit = on_commit
        self.orders = MemoryOrderRepository(data)
        self.jobs = MemoryJobRepository(data)
        self.reports = MemoryReportRepository(data)
        self.uploads = MemoryUploadRepository(data)
        self.vault = MemoryVault(data)
        self.hosted_documents = MemoryHostedDocumentRepository(data)
        self.events = MemoryEventRepository(data)
        self.alerts = MemoryAlertRepository(data)
        self.rejections = MemoryRejectionRepository(data)
        self.key_values = MemoryKeyValueRepository(data)
        self.oauth_tokens = MemoryOAuthTokenRepository(data)
        self.users = MemoryUserRepository(data)
        self.catalogues = MemoryCatalogueRepository(data)
        self.turnaround_notices = MemoryTurnaroundNoticeRepository(data)
        self.issued_labels = MemoryIssuedLabelRepository(data)
        self.api_tokens = MemoryApiTokenRepository(data)
        self.purge = MemoryPurge(data)

    def commit(self) -> None:
        """Make it so."""
        self._on_commit(self._data.copy())


class MemoryStore:
    """A store that forgets everything when the process ends."""

    def __init__(self) -> None:
        self._data = MemoryData(key_values={"instance": uuid.uuid4().hex})
        self._lock = threading.Lock()

    async def run(self, work: Callable[[UnitOfWork], T]) -> T:
        """Run `work` in a unit of work. What it did not commit is rolled back."""
        with self._lock:
            return work(MemoryUnitOfWork(self._data.copy(), self._replace_data))

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""

    def _replace_data(self, data: MemoryData) -> None:
        self._data = data
