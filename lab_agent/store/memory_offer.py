"""Catalogues, notices, labels and API tokens, in memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime

from lab_agent.domain.ids import OrderKey
from lab_agent.domain.offer import ApiToken, CatalogueVersion, IssuedLabel, TurnaroundNotice
from lab_agent.errors import AlreadyExistsError
from lab_agent.store.memory_shelf import MemoryData


class MemoryCatalogueRepository:
    """Imported catalogue versions."""

    def __init__(self, data: MemoryData) -> None:
        self._data = data

    def add(self, version: CatalogueVersion) -> bool:
        """Put a version in force, and heal damaged copies of it. False where nothing was to do."""
        kept = self._data.catalogues
        damaged = [at for at, each in enumerate(kept) if each.version == version.version and each.content != version.content]
        for at in damaged:
            kept[at] = replace(kept[at], content=version.content)
        if kept and kept[-1].version == version.version:
            return bool(damaged)
        kept.append(version)
        return True

    def newest(self) -> CatalogueVersion | None:
        """The version in force."""
        return self._data.catalogues[-1] if self._data.catalogues else None

    def active_since(self, moment: datetime) -> tuple[CatalogueVersion, ...]:
        """Every version that was in force at that moment or later, newest first."""
        versions = self._data.catalogues
        oldest = max((place for place, each in enumerate(versions) if each.since <= moment), default=0)
        return tuple(reversed(versions[oldest:]))


class MemoryTurnaroundNoticeRepository:
    """What staff announced."""

    def __init__(self, data: MemoryData) -> None:
        self._data = data

    def add(self, notice: TurnaroundNotice) -> None:
        """Write a notice."""
        self._data.turnaround_notices.append(notice)

    def lift(self, item: str, contract: str | None, *, now: datetime) -> int:
        """End the notices of an item that are not over."""
        cleared = 0
        for place, each in enumerate(self._data.turnaround_notices):
            if each.item == item and contract in (None, each.contract) and each.end > now and each.lifted_at is None:
                self._data.turnaround_notices[place] = replace(each, lifted_at=now)
                cleared += 1
        return cleared

    def active_since(self, moment: datetime) -> tuple[TurnaroundNotice, ...]:
        """Notices that were in force at that moment or later."""
        return tuple(each for each in self._data.turnaround_notices if min(each.end, each.lifted_at or each.end) > moment)


class MemoryIssuedLabelRepository:
    """Barcodes that were given out."""

    def __init__(self, data: MemoryData) -> None:
        self._data = data

    def lock_ranges(self, pattern: str, first: int) -> Mapping[int, int]:
        """Give how far each range of a pattern was given: one unit of work runs at a time."""
        self._data.label_ranges.setdefault((pattern, first), first)
        return {first: following for (other, first), following in sorted(self._data.label_ranges.items()) if other == pattern}

    def set_next_number(self, pattern: str, first: int, next_number: int) -> None:
        """Set the next number of a range that we hold."""
        self._data.label_ranges[pattern, first] = next_number

    def add(self, label: IssuedLabel) -> bool:
        """Write a label. False where that barcode was given before."""
        return self._data.issued_labels.setdefault(label.label, label) is label

    def list_for_basket(self, basket: str) -> tuple[IssuedLabel, ...]:
        """The labels of a basket, in the order in which they were given."""
        return tuple(each for each in self._data.issued_labels.values() if each.basket == basket)

    def mark_used(self, barcodes: Collection[str], order: OrderKey, *, at: datetime) -> int:
        """Mark labels as used by an order."""
        given = self._data.issued_labels
        unused = [each for name in set(barcodes) if (each := given.get(name)) and each.used_at is None]
        given.update({each.label: replace(each, used_at=at, order=order) for each in unused})
        return len(unused)


class MemoryApiTokenRepository:
    """Credentials of callers of the laboratory's API."""

    def __init__(self, data: MemoryData) -> None:
        self._data = data

    def add(self, token: ApiToken) -> None:
        """Write a new one. Raises `AlreadyKnownError`."""
        if token.id in self._data.api_tokens:
            raise AlreadyExistsError(f"There is an API token {token.id} already; nothing was written.")
        self._data.api_tokens[token.id] = token

    def all(self) -> tuple[ApiToken, ...]:
        """Every one, by name and time."""
        return tuple(sorted(self._data.api_tokens.values(), key=lambda each: (each.name, each.created_at, each.id)))

    def revoke(self, id_or_name: str, *, now: datetime) -> int:
        """End those of this id or name that are not revoked yet; their number."""
        tokens = self._data.api_tokens
        ended = [each for each in tokens.values() if id_or_name in (each.id, each.name) and each.revoked_at is None]
        tokens.update({each.id: replace(each, revoked_at=now) for each in ended})
        return len(ended)
