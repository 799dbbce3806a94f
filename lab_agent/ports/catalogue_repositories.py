"""The repositories of what the laboratory offers: catalogue versions, turnaround notices, issued labels."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from datetime import datetime
from typing import Protocol

from lab_agent.domain.catalogue_records import CatalogueVersion, IssuedLabel, TurnaroundNotice
from lab_agent.domain.ids import OrderKey


class CatalogueRepository(Protocol):
    """Imported catalogue versions."""

    def add(self, version: CatalogueVersion) -> bool:
        """Activate a version. False, and nothing is written, where the active version is the same, byte for byte, and somebody's.

        Where the same version is stored with other bytes, those are damaged: they are replaced, and the rest of its row stays.
        An active version that nobody imported becomes that of whoever does.
        """
        ...

    def newest(self) -> CatalogueVersion | None:
        """The active version; None if none was ever imported."""
        ...

    def active(self) -> tuple[str, datetime] | None:
        """The name of the active version, and since when it is that, without its content; None if none was ever imported."""
        ...

    def active_since(self, moment: datetime) -> tuple[CatalogueVersion, ...]:
        """Every version that was active at that time or later, newest first."""
        ...


class TurnaroundNoticeRepository(Protocol):
    """What staff announced: stopped and delayed tests."""

    def add(self, notice: TurnaroundNotice) -> None:
        """Write a notice."""
        ...

    def lift(self, item: str, contract: str | None, *, now: datetime) -> int:
        """Lift the notices of an item that are not over: of that contract only, or (None) of every one. Gives their number."""
        ...

    def active_since(self, moment: datetime) -> tuple[TurnaroundNotice, ...]:
        """Notices that were active at that time or later, or are to come, in the order in which they were made."""
        ...


class IssuedLabelRepository(Protocol):
    """Issued barcodes. None is ever issued twice."""

    def lock_ranges(self, pattern: str, first: int) -> Mapping[int, int]:
        """Lock the ranges of a pattern until the unit of work ends.

        Gives the next number of each by its first number; a new range from `first` has that one next.
        """
        ...

    def set_next_number(self, pattern: str, first: int, next_number: int) -> None:
        """Set the next number of a locked range."""
        ...

    def add_all(self, labels: Sequence[IssuedLabel]) -> Set[str]:
        """Write labels, in one statement. Gives the barcodes that were written; one that was issued before is left as it is."""
        ...

    def list_for_basket(self, basket: str) -> tuple[IssuedLabel, ...]:
        """The labels of a basket, in the order in which they were issued."""
        ...

    def mark_used(self, barcodes: Collection[str], order: OrderKey, *, at: datetime) -> int:
        """Mark labels as used by an order, except unknown ones and those marked already. Gives how many were marked."""
        ...
