"""What orders are searched by, for those that were stored before there was a search, or by a program that knew none."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from lab_agent.domain.ids import OrderKey


@dataclass(frozen=True, slots=True)
class SearchPortion:
    """Orders that were looked at, up to `last` (None: there was none), and those of them that lack something."""

    lacking: tuple[OrderKey, ...]
    last: OrderKey | None


class SearchIndex(Protocol):
    """What is missing in it, read by the keys of orders, a bounded number of rows at a time."""

    def lacking_terms(self, *, after: OrderKey, limit: int) -> SearchPortion:
        """Look at the next orders: which of those that were fetched cannot be found by a part of their numbers."""
        ...

    def lacking_digests(self, *, after: OrderKey, limit: int) -> SearchPortion:
        """Look at the next orders with identification: which of them cannot be found by their patient."""
        ...

    def add_terms(self, orders: Collection[OrderKey]) -> None:
        """Let these orders be found by their numbers; those that are gone are left out."""
        ...
