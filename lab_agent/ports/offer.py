"""The books of the store about what the laboratory offers: catalogues, notices, labels, and who may call its API."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Protocol

from lab_agent.domain.ids import OrderKey
from lab_agent.domain.offer import ApiToken, CatalogueVersion, IssuedLabel, TurnaroundNotice


class CatalogueRepository(Protocol):
    """Imported catalogue versions."""

    def add(self, version: CatalogueVersion) -> bool:
        """Put a version in force. False, and nothing is written, where the version in force is the same, byte for byte.

        Where the same version is kept with other bytes, they have been damaged: they are replaced, and the rest of its row stays.
        """
        ...

    def newest(self) -> CatalogueVersion | None:
        """The version in force; None if none was ever imported."""
        ...

    def active_since(self, moment: datetime) -> tuple[CatalogueVersion, ...]:
        """Every version that was in force at that moment or later, newest first."""
        ...


class TurnaroundNoticeRepository(Protocol):
    """What staff announced: stopped and delayed tests."""

    def add(self, notice: TurnaroundNotice) -> None:
        """Write a notice."""
        ...

    def lift(self, item: str, contract: str | None, *, now: datetime) -> int:
        """End the notices of an item that are not over: of that contract alone, or of every one. Gives their number."""
        ...

    def active_since(self, moment: datetime) -> tuple[TurnaroundNotice, ...]:
        """Notices that were in force at that moment or later (or are to come), in the order in which they were made."""
        ...


class IssuedLabelRepository(Protocol):
    """Barcodes that were given out. What was given is never given again."""

    def lock_ranges(self, pattern: str, first: int) -> Mapping[int, int]:
        """Hold the ranges of a pattern until the unit of work ends, other takers wait.

        Gives the next number of each by its first number; a new range from `first` has that one next.
        """
        ...

    def set_next_number(self, pattern: str, first: int, next_number: int) -> None:
        """Set the next number of a range that we hold."""
        ...

    def add(self, label: IssuedLabel) -> bool:
        """Write a label. False, and nothing is written, where that barcode was given before."""
        ...

    def list_for_basket(self, basket: str) -> tuple[IssuedLabel, ...]:
        """The labels of a basket, in the order in which they were given."""
        ...

    def mark_used(self, barcodes: Collection[str], order: OrderKey, *, at: datetime) -> int:
        """Mark labels as used by an order; what is not ours, or is marked already, is left alone. Gives how many were marked."""
        ...


class ApiTokenRepository(Protocol):
    """Credentials of callers of the laboratory's API."""

    def add(self, token: ApiToken) -> None:
        """Write a new one. Raises `AlreadyKnownError` for a known id."""
        ...

    def all(self) -> tuple[ApiToken, ...]:
        """Every one, by name and time."""
        ...

    def revoke(self, id_or_name: str, *, now: datetime) -> int:
        """End those of this id or name that are not revoked yet; their number."""
        ...
