"""What a new catalogue changes: rows that are new, gone or different, by the columns that tell the rows of a sheet apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lab_agent.catalogue.sheets import SHEETS, Row, Sheet, Table


@dataclass(frozen=True, slots=True)
class Change:
    """One row that changes. `columns` has old and new text by column; it is empty for a row that is new or gone."""

    sheet: str
    key: tuple[str, ...]
    kind: str
    """new, gone, changed, or (for a whole sheet) moved: the same rows in another order."""
    columns: Mapping[str, tuple[str, str]]

    def __str__(self) -> str:
        """Give the change as one line."""
        name = " / ".join(part for part in self.key if part)
        what = "; ".join(f"{column}: {old or '(empty)'} → {new or '(empty)'}" for column, (old, new) in self.columns.items())
        return f"{self.sheet} {name}: {self.kind}".replace(" :", ":") + (f", {what}" if what else "")


def changes(old: Mapping[str, Table], new: Mapping[str, Table]) -> tuple[Change, ...]:
    """Give every change, sheet by sheet."""
    return tuple(change for sheet in SHEETS for change in _sheet(sheet, _table(old, sheet), _table(new, sheet)))


def _table(tables: Mapping[str, Table], sheet: Sheet) -> dict[tuple[str, ...], Row]:
    rows = tables[sheet.name].rows if sheet.name in tables else ()
    return {tuple(row.cells.get(name, "") for name in sheet.key): row for row in rows}


def _sheet(sheet: Sheet, old: Mapping[tuple[str, ...], Row], new: Mapping[tuple[str, ...], Row]) -> Iterator[Change]:
    for key in old:
        if key not in new:
            yield Change(sheet.name, key, "gone", {})
    for key, row in new.items():
        if key not in old:
            yield Change(sheet.name, key, "new", {})
        elif columns := _columns(sheet, old[key], row):
            yield Change(sheet.name, key, "changed", columns)
    if list(old) != list(new) and old.keys() == new.keys():
        yield Change(sheet.name, (), "moved", {})


def _columns(sheet: Sheet, old: Row, new: Row) -> dict[str, tuple[str, str]]:
    pairs = {column.name: (old.cells.get(column.name, ""), new.cells.get(column.name, "")) for column in sheet.columns}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
