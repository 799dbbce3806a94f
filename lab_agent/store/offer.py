"""Catalogues, notices, labels and API tokens (`ports.offer`), in the tables of those names."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime

from sqlalchemy import Connection, insert, select, text, update

from lab_agent.domain.ids import OrderKey
from lab_agent.domain.offer import ApiToken, CatalogueVersion, EtaNotice, LabelGiven
from lab_agent.errors import AlreadyKnownError
from lab_agent.store.rows import batches, insert_new, to_record, to_values
from lab_agent.store.tables import api_tokens, catalogues, eta_notices, label_ranges, labels_given


class SqlCatalogues:
    """Imported catalogue versions."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, version: CatalogueVersion) -> bool:
        """Put a version in force, and heal damaged copies of it. False where nothing was to do."""
        if self._connection.dialect.name == "postgresql":  # two importers at once: the second sees what the first wrote
            self._connection.execute(text("LOCK TABLE catalogues IN SHARE ROW EXCLUSIVE MODE"))
        damaged = (catalogues.c.version == version.version) & (catalogues.c.content != version.content)
        healed = self._connection.execute(update(catalogues).where(damaged).values(content=version.content)).rowcount
        newest = select(catalogues.c.version).order_by(catalogues.c.number.desc()).limit(1)
        if self._connection.scalar(newest) == version.version:
            return healed > 0
        self._connection.execute(insert(catalogues).values(**to_values(version)))
        return True

    def newest(self) -> CatalogueVersion | None:
        """The version in force."""
        found = select(catalogues).order_by(catalogues.c.number.desc()).limit(1)
        row = self._connection.execute(found).mappings().one_or_none()
        return None if row is None else to_record(CatalogueVersion, row)

    def in_force_since(self, moment: datetime) -> tuple[CatalogueVersion, ...]:
        """Every version that was in force at that moment or later, newest first."""
        begun_before = select(catalogues.c.number).where(catalogues.c.since <= moment).order_by(catalogues.c.number.desc())
        oldest = self._connection.scalar(begun_before.limit(1)) or 0
        found = select(catalogues).where(catalogues.c.number >= oldest).order_by(catalogues.c.number.desc())
        return tuple(to_record(CatalogueVersion, row) for row in self._connection.execute(found).mappings())


class SqlEtaNotices:
    """What staff announced."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, notice: EtaNotice) -> None:
        """Write a notice."""
        self._connection.execute(insert(eta_notices).values(**to_values(notice)))

    def clear(self, item: str, contract: str | None, *, now: datetime) -> int:
        """End the notices of an item that are not over."""
        which = (eta_notices.c.item == item) & (eta_notices.c.end_at > now) & eta_notices.c.cleared_at.is_(None)
        if contract is not None:
            which &= eta_notices.c.contract == contract
        return self._connection.execute(update(eta_notices).where(which).values(cleared_at=now)).rowcount

    def since(self, moment: datetime) -> tuple[EtaNotice, ...]:
        """Notices that were in force at that moment or later."""
        cleared = eta_notices.c.cleared_at
        late = (eta_notices.c.end_at > moment) & (cleared.is_(None) | (cleared > moment))
        found = select(eta_notices).where(late).order_by(eta_notices.c.number)
        return tuple(to_record(EtaNotice, row) for row in self._connection.execute(found).mappings())


class SqlLabels:
    """Barcodes that were given out."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def hold(self, pattern: str, first: int) -> Mapping[int, int]:
        """Hold the ranges of a pattern until the unit of work ends. Gives how far each was given, the one from `first` too."""
        insert_new(self._connection, label_ranges, {"pattern": pattern, "first": first, "following": first})
        held = select(label_ranges.c.first, label_ranges.c.following).where(label_ranges.c.pattern == pattern)
        rows = self._connection.execute(held.order_by(label_ranges.c.first).with_for_update())
        return {row.first: row.following for row in rows}

    def move(self, pattern: str, first: int, following: int) -> None:
        """Set the next number of a range that we hold."""
        which = (label_ranges.c.pattern == pattern) & (label_ranges.c.first == first)
        self._connection.execute(update(label_ranges).where(which).values(following=following))

    def add(self, label: LabelGiven) -> bool:
        """Write a label. False where that barcode was given before."""
        return insert_new(self._connection, labels_given, to_values(label))

    def of_basket(self, basket: str) -> tuple[LabelGiven, ...]:
        """The labels of a basket, in the order in which they were given."""
        found = select(labels_given).where(labels_given.c.basket == basket).order_by(labels_given.c.number)
        return tuple(to_record(LabelGiven, row) for row in self._connection.execute(found).mappings())

    def use(self, barcodes: Collection[str], order: OrderKey, *, at: datetime) -> int:
        """Mark labels as used by an order."""
        marked = 0
        for batch in batches(sorted(set(barcodes))):
            unused = labels_given.c.label.in_(batch) & labels_given.c.used_at.is_(None)
            marked += self._connection.execute(update(labels_given).where(unused).values(used_at=at, order_key=order)).rowcount
        return marked


class SqlApiTokens:
    """Credentials of callers of the laboratory's API."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, token: ApiToken) -> None:
        """Write a new one. Raises `AlreadyKnownError`."""
        if not insert_new(self._connection, api_tokens, to_values(token)):
            raise AlreadyKnownError(f"There is an API token {token.id} already; nothing was written.")

    def all(self) -> tuple[ApiToken, ...]:
        """Every one, by name and time."""
        found = select(api_tokens).order_by(api_tokens.c.name, api_tokens.c.created_at, api_tokens.c.id)
        return tuple(to_record(ApiToken, row) for row in self._connection.execute(found).mappings())

    def revoke(self, which: str, *, now: datetime) -> int:
        """End those of this id or name that are not revoked yet; their number."""
        named = ((api_tokens.c.id == which) | (api_tokens.c.name == which)) & api_tokens.c.revoked_at.is_(None)
        return self._connection.execute(update(api_tokens).where(named).values(revoked_at=now)).rowcount
