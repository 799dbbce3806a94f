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
from lab_agent.store.memory_books import MemoryBook, MemoryHosted, MemoryTokens, MemoryUploads, MemoryUsers, MemoryVault
from lab_agent.store.memory_effects import MemoryEffects
from lab_agent.store.memory_offer import MemoryApiTokens, MemoryCatalogues, MemoryEtaNotices, MemoryLabels
from lab_agent.store.memory_orders import MemoryOrders
from lab_agent.store.memory_purge import MemoryPurge
from lab_agent.store.memory_reports import MemoryReports
from lab_agent.store.memory_shelf import Shelf

T = TypeVar("T")


class MemoryUnitOfWork:
    """One transaction: a copy of the shelf, and the books on it."""

    def __init__(self, shelf: Shelf, keep: Callable[[Shelf], None]) -> None:
        self._shelf = shelf
        self._keep = keep
        self.orders = MemoryOrders(shelf)
        self.effects = MemoryEffects(shelf)
        self.reports = MemoryReports(shelf)
        self.uploads = MemoryUploads(shelf)
        self.vault = MemoryVault(shelf)
        self.hosted = MemoryHosted(shelf)
        self.book = MemoryBook(shelf)
        self.tokens = MemoryTokens(shelf)
        self.users = MemoryUsers(shelf)
        self.catalogues = MemoryCatalogues(shelf)
        self.eta_notices = MemoryEtaNotices(shelf)
        self.labels = MemoryLabels(shelf)
        self.api_tokens = MemoryApiTokens(shelf)
        self.purge = MemoryPurge(shelf)

    def commit(self) -> None:
        """Make it so."""
        self._keep(self._shelf.copy())


class MemoryStore:
    """A store that forgets everything when the process ends."""

    def __init__(self) -> None:
        self._shelf = Shelf(notes={"instance": uuid.uuid4().hex})
        self._one_at_a_time = threading.Lock()

    async def run(self, work: Callable[[UnitOfWork], T]) -> T:
        """Run `work` in a unit of work. What it did not commit is rolled back."""
        with self._one_at_a_time:
            return work(MemoryUnitOfWork(self._shelf.copy(), self._put_back))

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""

    def _put_back(self, shelf: Shelf) -> None:
        self._shelf = shelf
