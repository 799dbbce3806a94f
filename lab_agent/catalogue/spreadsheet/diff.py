"""What a new catalogue changes: rows that are new, gone or different, each identified by the key of its sheet."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lab_agent.catalogue.spreadsheet.schema import SHEETS, Sheet, SheetRow, SheetTable

_Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """One row that changes. `columns` has old and new text by column; it is empty for a row that is new or gone."""

    sheet: str
    key: tuple[str, ...]
    kind: str
    """new, gone, changed; or moved, for a whole sheet that has the same rows in another order."""
    columns: Mapping[str, tuple[str, str]]

    def __str__(self) -> str:
        """Give the change as one line."""
        name = " / ".join(part for part in self.key if part)
        what = "; ".join(f"{column}: {old or '(empty)'} → {new or '(empty)'}" for column, (old, new) in self.columns.items())
        return f"{self.sheet} {name}: {self.kind}".replace(" :", ":") + (f", {what}" if what else "")


def diff_tables(old: Mapping[str, SheetTable], new: Mapping[str, SheetTable]) -> tuple[Change, ...]:
    """Give every change, sheet by sheet; none only where each sheet has the same rows in the same order."""
    return tuple(change for sheet in SHEETS for change in _diff_sheet(sheet, _rows(old, sheet), _rows(new, sheet)))


def _rows(tables: Mapping[str, SheetTable], sheet: Sheet) -> tuple[SheetRow, ...]:
    return tables[sheet.name].rows if sheet.name in tables else ()


def _diff_sheet(sheet: Sheet, old: tuple[SheetRow, ...], new: tuple[SheetRow, ...]) -> Iterator[Change]:
    pairs = _pair_rows(sheet, old, new)
    stayed = set(pairs.values())
    for place, row in enumerate(old):
        if place not in stayed:
            yield Change(sheet.name, _row_key(sheet, row), "gone", {})
    for place, row in enumerate(new):
        if place not in pairs:
            yield Change(sheet.name, _row_key(sheet, row), "new", {})
        elif columns := _changed_columns(sheet, old[pairs[place]], row):
            yield Change(sheet.name, _row_key(sheet, row), "changed", columns)
    if len(pairs) == len(old) == len(new) and any(place != before for place, before in pairs.items()):
        yield Change(sheet.name, (), "moved", {})


def _pair_rows(sheet: Sheet, old: tuple[SheetRow, ...], new: tuple[SheetRow, ...]) -> dict[int, int]:
    """The old place of each new row that has one; of several rows with the same key, equal ones are paired first."""
    free: dict[_Key, list[int]] = defaultdict(list)
    for place, row in enumerate(old):
        free[_row_key(sheet, row)].append(place)
    pairs: dict[int, int] = {}
    for must_be_equal in (True, False):
        for place, row in enumerate(new):
            left = free[_row_key(sheet, row)] if place not in pairs else []
            found = next((each for each in left if not (must_be_equal and _changed_columns(sheet, old[each], row))), None)
            if found is not None:
                pairs[place] = found
                left.remove(found)
    return pairs


def _row_key(sheet: Sheet, row: SheetRow) -> _Key:
    return tuple(row.cells.get(name, "") for name in sheet.key)


def _changed_columns(sheet: Sheet, old: SheetRow, new: SheetRow) -> dict[str, tuple[str, str]]:
    pairs = {column.name: (old.cells.get(column.name, ""), new.cells.get(column.name, "")) for column in sheet.columns}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
