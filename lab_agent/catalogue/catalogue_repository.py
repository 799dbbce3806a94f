"""Catalogue versions, turnaround notices and issued labels, in the tables of those names."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from datetime import datetime

from sqlalchemy import bindparam, exists, insert, select, text, update

from lab_agent.catalogue.catalogue_tables import catalogues, issued_labels, label_ranges, turnaround_notices
from lab_agent.catalogue.records import CatalogueVersion, IssuedLabel, TurnaroundNotice
from lab_agent.shared.ids import OrderKey
from lab_agent.store.row_mapping import RecordMapping, chunked, to_record, to_values
from lab_agent.store.session import Query, Session, Write

_LABELS = RecordMapping(IssuedLabel, issued_labels)
_own_range = label_ranges.alias("own_range")
_LOCK_RANGES = Query(
    select(label_ranges.c.first, label_ranges.c.next_number)
    .where(
        label_ranges.c.pattern == bindparam("of_pattern"),
        exists().where(_own_range.c.pattern == bindparam("of_pattern"), _own_range.c.first == bindparam("of_first")),
    )
    .order_by(label_ranges.c.first)
    .with_for_update(of=label_ranges)
)
"""Locks nothing while the wanted range is missing: whoever inserts it must hold no lock that another inserter waits for."""
_ADD_RANGE = Write.insert(label_ranges, lambda insert: insert.on_conflict_do_nothing())
_ADVANCE_RANGE = Write.of(
    label_ranges,
    update(label_ranges)
    .where(label_ranges.c.pattern == bindparam("of_pattern"), label_ranges.c.first == bindparam("of_first"))
    .values(next_number=bindparam("following")),
)
_LABELS_OF_BASKET = Query(
    select(*_LABELS.columns).where(issued_labels.c.basket == bindparam("of_basket")).order_by(issued_labels.c.number)
)
_ADD_LABELS = Write.insert(issued_labels, lambda insert: insert.on_conflict_do_nothing().returning(issued_labels.c.label))
_MARK_LABELS_USED = Write.of(
    issued_labels,
    update(issued_labels)
    .where(issued_labels.c.label.in_(bindparam("barcodes", expanding=True)), issued_labels.c.used_at.is_(None))
    .values(used_at=bindparam("at"), order_key=bindparam("of_order")),
)


class CatalogueRepository:
    """Imported catalogue versions."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, version: CatalogueVersion) -> bool:
        """Activate a version. False, and nothing is written, where the active version is the same, byte for byte, and somebody's.

        Where the same version is stored with other bytes, those are damaged: they are replaced, and the rest of its row stays.
        An active version that nobody imported becomes that of whoever does.
        """
        if self._session.kind == "postgresql":  # two importers at once: the second sees what the first wrote
            self._session.execute(text("LOCK TABLE catalogues IN SHARE ROW EXCLUSIVE MODE"))
        damaged = (catalogues.c.version == version.version) & (catalogues.c.content != version.content)
        healed = self._session.execute(update(catalogues).where(damaged).values(content=version.content)).rowcount
        newest = select(catalogues.c.number, catalogues.c.version).order_by(catalogues.c.number.desc()).limit(1)
        row = self._session.execute(newest).one_or_none()
        if row is not None and row.version == version.version:
            return self._note_importer(row.number, version) or healed > 0
        self._session.execute(insert(catalogues).values(**to_values(version)))
        return True

    def _note_importer(self, number: int, version: CatalogueVersion) -> bool:
        if version.by is None:
            return False
        nobodys = (catalogues.c.number == number) & catalogues.c.actor.is_(None)
        values = {"origin": version.origin, "actor": version.by}
        return self._session.execute(update(catalogues).where(nobodys).values(**values)).rowcount > 0

    def newest(self) -> CatalogueVersion | None:
        """The active version; None if none was ever imported."""
        found = select(catalogues).order_by(catalogues.c.number.desc()).limit(1)
        row = self._session.execute(found).mappings().one_or_none()
        return None if row is None else to_record(CatalogueVersion, row)

    def active(self) -> tuple[str, datetime] | None:
        """The name of the active version, and since when it is that, without its content; None if none was ever imported."""
        found = select(catalogues.c.version, catalogues.c.since).order_by(catalogues.c.number.desc()).limit(1)
        row = self._session.execute(found).one_or_none()
        return None if row is None else (row.version, row.since)

    def active_since(self, moment: datetime) -> tuple[CatalogueVersion, ...]:
        """Every version that was active at that time or later, newest first."""
        begun_before = select(catalogues.c.number).where(catalogues.c.since <= moment).order_by(catalogues.c.number.desc())
        oldest = self._session.scalar(begun_before.limit(1)) or 0
        found = select(catalogues).where(catalogues.c.number >= oldest).order_by(catalogues.c.number.desc())
        return tuple(to_record(CatalogueVersion, row) for row in self._session.execute(found).mappings())


class TurnaroundNoticeRepository:
    """What staff announced: stopped and delayed tests."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, notice: TurnaroundNotice) -> None:
        """Write a notice."""
        self._session.execute(insert(turnaround_notices).values(**to_values(notice)))

    def lift(self, item: str, contract: str | None, *, now: datetime) -> int:
        """Lift the notices of an item that are not over: of that contract only, or (None) of every one. Gives their number."""
        which = (
            (turnaround_notices.c.item == item) & (turnaround_notices.c.end_at > now) & turnaround_notices.c.lifted_at.is_(None)
        )
        if contract is not None:
            which &= turnaround_notices.c.contract == contract
        return self._session.execute(update(turnaround_notices).where(which).values(lifted_at=now)).rowcount

    def active_since(self, moment: datetime) -> tuple[TurnaroundNotice, ...]:
        """Notices that were active at that time or later, or are to come, in the order in which they were made."""
        cleared = turnaround_notices.c.lifted_at
        late = (turnaround_notices.c.end_at > moment) & (cleared.is_(None) | (cleared > moment))
        found = select(turnaround_notices).where(late).order_by(turnaround_notices.c.number)
        return tuple(to_record(TurnaroundNotice, row) for row in self._session.execute(found).mappings())


class IssuedLabelRepository:
    """Issued barcodes. None is ever issued twice."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def lock_ranges(self, pattern: str, first: int) -> Mapping[int, int]:
        """Lock the ranges of a pattern until the unit of work ends.

        Gives the next number of each by its first number; a new range from `first` has that one next.
        """
        held = self._lock_ranges(pattern, first)
        if not held:  # the range is new; where another process makes it at this moment, theirs is taken
            self._session.send(_ADD_RANGE, {"pattern": pattern, "first": first, "next_number": first})
            held = self._lock_ranges(pattern, first)
        return held

    def _lock_ranges(self, pattern: str, first: int) -> dict[int, int]:
        rows = self._session.execute(_LOCK_RANGES, {"of_pattern": pattern, "of_first": first})
        return {row.first: row.next_number for row in rows}

    def set_next_number(self, pattern: str, first: int, next_number: int) -> None:
        """Set the next number of a locked range."""
        values = {"of_pattern": pattern, "of_first": first, "following": next_number}
        self._session.put(_ADVANCE_RANGE, (pattern, first), values)

    def add_all(self, labels: Sequence[IssuedLabel]) -> Set[str]:
        """Write labels, in one statement. Gives the barcodes that were written; one that was issued before is left as it is."""
        if not labels:
            return frozenset()
        return frozenset(self._session.send(_ADD_LABELS, [_LABELS.to_values(each) for each in labels]).scalars())

    def list_for_basket(self, basket: str) -> tuple[IssuedLabel, ...]:
        """The labels of a basket, in the order in which they were issued."""
        return _LABELS.to_records(self._session.execute(_LABELS_OF_BASKET, {"of_basket": basket}))

    def mark_used(self, barcodes: Collection[str], order: OrderKey, *, at: datetime) -> int:
        """Mark labels as used by an order, except unknown ones and those marked already. Gives how many were marked."""
        marked = 0
        for batch in chunked(sorted(set(barcodes))):
            marked += self._session.send(_MARK_LABELS_USED, {"barcodes": batch, "at": at, "of_order": order}).rowcount
        return marked
