"""Every mistake comes at once: what cannot be read, and what contradicts itself, in the order of sheets and rows."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Sequence
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import openpyxl
import pytest

from lab_agent.catalogue.model import Catalogue
from lab_agent.catalogue.spreadsheet import csv_files
from lab_agent.catalogue.spreadsheet.cells import SpreadsheetProblems
from lab_agent.catalogue.spreadsheet.diff import diff_tables
from lab_agent.catalogue.spreadsheet.parser import build_catalogue
from lab_agent.catalogue.spreadsheet.schema import SHEETS, SheetRow, SheetTable
from lab_agent.catalogue.spreadsheet.xlsx_writer import write_workbook
from lab_agent.shared.errors import CatalogueError
from tests.harness.paths import CATALOGUE, ROOT


def change(book: Path, cells: dict[tuple[str, int, str], Any], more: Callable[[openpyxl.Workbook], Any] = lambda _: None) -> None:
    opened = openpyxl.load_workbook(book)
    for (sheet, row, column), value in cells.items():
        place = next(cell.column for cell in opened[sheet][1] if cell.value == column)
        cell = opened[sheet].cell(row, place)
        cell.number_format = "General"
        cell.value = value
    more(opened)
    opened.save(book)


def change_text(folder: Path, sheet: str, old: str, new: str) -> None:
    path = folder / f"{sheet}.csv"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def problems(source: Path, read: Callable[[Path], object] = csv_files.load_catalogue) -> list[str]:
    with pytest.raises(CatalogueError) as caught:
        read(source)
    return [str(problem) for problem in caught.value.problems]


MISTAKES: dict[tuple[str, int, str], tuple[Any, str]] = {
    ("items", 3, "item"): (42.036, "holds the number 42.036"),
    ("items", 3, "allow_multiple_items"): ("perhaps", "'perhaps' is neither yes nor no"),
    ("items", 5, "item"): ("001.001", "'001.001' is already in row 2"),
    ("requirements", 2, "volume"): (datetime(2026, 1, 2), "holds a date"),  # noqa: DTZ001 - a workbook knows no zones
    ("requirements", 3, "container_type"): ("SST55", "'SST55' is not in the sheet containers"),
    ("requirements", 4, "volume"): ("viel", "'viel' is not a number of 0 or more"),
    ("requirements", 7, "volume"): (-2, "'-2' is not a number of 0 or more"),
    ("contracts", 3, "cache_hours"): ("=1+", "holds a formula without a value"),
    ("contract_items", 4, "contract"): ("C-10", "'C-10' is not in the sheet contracts"),
    ("contract_items", 4, "price"): ("1 200,50", "'1 200,50' is not a number of 0 or more"),
    ("turnaround", 2, "hours"): ("soon", "'soon' is not a number from 0"),
}


def test_workbook_with_errors_of_every_kind_lists_all(book: Path) -> None:
    cells = {place: value for place, (value, _) in MISTAKES.items()}
    change(book, cells, lambda opened: opened.create_sheet("item"))
    found = problems(book)
    assert found == problems(book, csv_files.read_tables)
    for (sheet, row, column), (_, said) in MISTAKES.items():
        assert any(each.startswith(f"{sheet} row {row}, column {column}: {said}") for each in found), (sheet, row, column, found)
    assert found[0].startswith("sheet item: is not a sheet of the catalogue")
    assert len(found) == len(MISTAKES) + 1, found
    names = [sheet.name for sheet in SHEETS]
    places = [(names.index(name), int(row)) for name, row in (each.split(",")[0].split(" row ") for each in found[1:])]
    assert places == sorted(places)


def test_folder_lists_unreadable_and_inconsistent_cells(folder: Path) -> None:
    for stray in ("item", "stray"):
        (folder / f"{stray}.csv").write_text("x\n")
    (folder / "specimen_types.csv").write_text('specimen_code,specimen_name\n10,"Ser\n')
    change_text(folder, "items", "Complete blood count", "Complete\x0bblood count")
    change_text(folder, "contract_items", "480.00", "free")
    change_text(folder, "turnaround", "001.001,,24,By the next working day\n", "")
    found = problems(folder)
    assert found[0] == "item.csv: is not a sheet of the catalogue — did you mean 'items.csv'?"
    assert found[1] == "stray.csv: is not a sheet of the catalogue — remove it"
    assert found[2].startswith("specimen_types.csv line 2: is not CSV")
    assert found[3].startswith("items.csv row 2, column caption: holds the control character U+000B — remove it")
    assert any("column price: 'free' is not a number" in each for each in found)
    assert all("contract_items.csv" in each for each in found[4:])
    assert any("has no row in the sheet turnaround" in each for each in found)
    assert not any("specimen_code" in each for each in found)


@pytest.mark.parametrize("sheet", [sheet.name for sheet in SHEETS])
def test_broken_header_stops_only_its_sheet(folder: Path, sheet: str) -> None:
    path = folder / f"{sheet}.csv"
    path.write_text(path.read_text().replace(",", ",odd,", 1))
    other = "containers" if sheet == "items" else "items"
    bad = folder / f"{other}.csv"
    bad.write_text(bad.read_text() + ",,,,,,\n" + "x" * 5 + ",,,,,,,,,,,,,,,,,,,1\n")
    found = problems(folder)
    assert f"{sheet}.csv row 1, column odd: is not a column of this sheet — remove it" in found
    rest = [each for each in found if not each.startswith(f"{sheet}.csv row 1")]
    assert rest
    assert all(each.startswith(f"{other}.csv row ") for each in rest), rest


@pytest.mark.parametrize("sheet", [sheet.name for sheet in SHEETS if not sheet.optional])
def test_missing_sheet_is_the_only_error(folder: Path, sheet: str) -> None:
    (folder / f"{sheet}.csv").unlink()
    assert [each.split(" — ")[0] for each in problems(folder)] == [f"{sheet}.csv: is missing"]


@pytest.mark.slow
@pytest.mark.parametrize(("sheet", "column"), [(sheet.name, column.name) for sheet in SHEETS for column in sheet.columns])
def test_unreadable_cell_causes_no_further_errors(sheet: str, column: str) -> None:
    """No check complains of a cell that could not be read."""
    tables = csv_files.read_tables(CATALOGUE)
    rows = tables[sheet].rows
    for place, row in enumerate(rows):
        left = {name: text for name, text in row.cells.items() if name != column}
        marked = SheetRow(row.source, row.number, left, frozenset({column}))
        problems = SpreadsheetProblems()
        problems.add(SheetRow(row.source, row.number, {}), column, "cannot be read", "mend it")
        with pytest.raises(CatalogueError) as caught:
            build_catalogue({**tables, sheet: SheetTable(sheet, (*rows[:place], marked, *rows[place + 1 :]))}, "", problems)
        assert [str(each) for each in caught.value.problems] == [f"{row.where(column)}: cannot be read — mend it"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a\x0bb", "holds the control character U+000B"),
        ("a\x85b", "holds the control character U+0085"),
        ("a\uffffb", "holds the control character U+FFFF"),
        ("ä" * 32_768, "holds more than 32767 characters"),
        ("😀" * 16_384, "holds more than 32767 characters"),
    ],
)
def test_text_invalid_in_workbook_rejected_everywhere(folder: Path, tmp_path: Path, text: str, said: str) -> None:
    """What a workbook cannot hold is rejected in every format, so that any catalogue can be written as one."""
    tables = with_cells("items", "description", ["", text])
    csv_files.write_csv_folder(folder, tables)
    assert [each.split(" — ")[0] for each in problems(folder)] == [f"items.csv row 3, column description: {said}"]
    with pytest.raises(CatalogueError, match=re.escape(f"items.csv row 3, column description: {said} — a workbook cannot")):
        write_workbook(tmp_path / "now.xlsx", tables)
    assert not (tmp_path / "now.xlsx").exists()


def test_workbook_with_escaped_control_character_rejected(book: Path) -> None:
    change(book, {("items", 3, "description"): "a_x000B_b"})
    assert problems(book)[0].startswith("items row 3, column description: holds the control character U+000B")


TEXTS = ("tab\tand\nnewline", "x" * 32_767, "_x0041_ and _x000D_", "_x005F_x0041_", "=1+1", "#REF!", "'quoted", "< & > \" '")
TEXTS += ("Общий анализ 😀", "a\u2028b", "1e5", "007", "TRUE", "2026-01-02")
NUMBERS = ("0.0000000001", "999999999999.1234567891", "480.00", "480.10", "1480,5", "0", "12345678901.2345")


def with_cells(sheet: str, column: str, values: Sequence[str]) -> dict[str, SheetTable]:
    """The tables of the sample, with these values in the first rows of a column."""
    tables = csv_files.read_tables(CATALOGUE)
    rows = list(tables[sheet].rows)
    rows[: len(values)] = [
        SheetRow(row.source, row.number, {**row.cells, column: value}) for row, value in zip(rows, values, strict=False)
    ]
    return {**tables, sheet: SheetTable(sheet, tuple(rows))}


@pytest.mark.parametrize(("sheet", "column", "values"), [("items", "description", TEXTS), ("contract_items", "price", NUMBERS)])
def test_valid_text_and_number_survive_round_trip(tmp_path: Path, sheet: str, column: str, values: tuple[str, ...]) -> None:
    tables = with_cells(sheet, column, values)
    write_workbook(tmp_path / "now.xlsx", tables)
    csv_files.write_csv_folder(tmp_path / "now", tables)
    for source in (tmp_path / "now.xlsx", tmp_path / "now"):
        read = csv_files.read_tables(source)
        assert [row.cells[column] for row in read[sheet].rows[: len(values)]] == list(values)
        assert csv_files.content_version(read) == csv_files.content_version(tables)
        assert diff_tables(tables, read) == ()


def test_line_ending_style_does_not_change_catalogue(folder: Path, book: Path) -> None:
    change(book, {("items", 3, "description"): "one_x000D_\ntwo"})
    rows = csv_files.read_tables(book)["items"].rows
    assert rows[1].cells["description"] == "one\ntwo"
    (folder / "items.csv").write_bytes(b'item,caption,description\r\n1,x,"one\r\ntwo\rthree"\r\n')
    assert "control character" not in "".join(problems(folder))


@pytest.mark.parametrize(
    ("sheet", "old", "new", "said"),
    [
        ("containers", "5.0,0.5,ml", "5.0,6,ml", "row 2, column dead_volume: leaves no room"),
        ("requirements", "001.001,11,option", "001.001,99,option", "column specimen_code: '99' is not in the sheet"),
        ("questions", "height,body,", "height,bodi,", "did you mean 'body'?"),
        ("items", "item,caption", "item,capton", "did you mean 'caption'?"),
        ("items", "item,caption", "item,caption,caption", "appears twice"),
        ("items", "\n001.002,", "\n001.001,", "'001.001' is already in row 2"),
        ("items", "Complete blood count with differential", "", "row 2, column caption: is empty"),
        ("specimen_types", "10,Serum", "010,Serum", "is not a whole number"),
        ("containers", "EDTA3,EDTA 3", "SST5,EDTA 3", "'SST5' is already in row 2"),
        ("containers", "TR-COOL\nEDTA3", "TR-COLD\nEDTA3", "did you mean 'TR-COOL'?"),
        ("requirements", ",0.5,Venepuncture", ",500,Venepuncture", "more than 50 tubes"),
        ("requirements", ",0.5,Venepuncture", ",0,Venepuncture", "column volume: is 0"),
        ("requirements", ",24,Keeps for 24 hours", ",,Keeps for 24 hours", "goes with stability_hours"),
        ("requirements", "60 = Venepuncture 60", "sixty = Venepuncture 60", "is not a time point"),
        ("requirements", "60 = Venepuncture 60", "６０ = Venepuncture 60", "is not a time point"),
        ("requirements", "60 = Venepuncture 60", "600000 = Venepuncture 60", "is not a time point"),
        ("requirements", ",24,Keeps for 24 hours", ",9000000,Keeps for 24 hours", "is more than a century"),
        ("turnaround", "001.001,,24", "001.001,,9000000", "is not a number from 0 to 878400"),
        ("notices", "T00:00+03:00,2026", "T00:00+03:00,0001", "is not after the start"),
        ("requirements", ",CERV,Cervical canal,LBC20", ',"C,1",Cervical canal,LBC20', "holds a comma"),
        ("contracts", "centres,12", "centres,12000", "is more than a year"),
        ("requirements", ",,diuresis", ',,"a,b"', "cannot be sent"),
        ("requirements", ",,060.001,,", ",,060.009,,", "'060.009' is not in the sheet items"),
        ("questions", "body,order,Body,group", "body,,Body,group", "only one group is at the top"),
        ("questions", "body,order,Body,group", "body,body,Body,group", "leads back to itself"),
        ("questions", "height,body,Height in centimetres,string", "height,body,Height,choice", "has none for it"),
        ("questions", ",Height in centimetres,string", ",Height,number", "'number' is not one of"),
        ("options", "anticoagulant,https://lab.example/codes/anticoagulant,warfarin", "height,s,c", "is not of type choice"),
        ("options", ",warfarin", ",none", "is already an option of 'anticoagulant'"),
        ("item_questions", "002.015,height", "002.015,body", "'body' is a group"),
        ("item_questions", "002.015,height", "002.015,weight", "is already asked by '002.015'"),
        ("contract_items", "C-100,001.002", "C-100,001.001", "'001.001' is already in contract 'C-100'"),
        ("contracts", "C-200,", "C-100,", "'C-100' is already in row 2"),
        ("turnaround", "001.001,,24", "001.002,,24", "'001.002' already has a time"),
        ("notices", "delayed", "late", "'late' is not one of stopped, delayed"),
        ("notices", "T00:00+03:00,2026", "T00:00,2026", "is not a date and time with UTC offset"),
        ("notices", "2026-01-09T", "2024-01-09T", "is not after the start"),
        ("notices", ",72,", ",,", "is empty or 0, and the status is delayed"),
    ],
)
def test_each_mistake_reported(folder: Path, sheet: str, old: str, new: str, said: str) -> None:
    change_text(folder, sheet, old, new)
    found = problems(folder)
    assert any(said in each for each in found), found
    assert all(".csv" in each for each in found)


def test_non_text_and_missing_folder_reported(folder: Path) -> None:
    (folder / "contracts.csv").write_bytes(b"contract;name\nC-100;\xff\n")
    assert problems(folder)[0].startswith("contracts.csv: is not UTF-8")
    with pytest.raises(CatalogueError, match="is not a folder"):
        csv_files.load_catalogue(folder / "nowhere")


def test_csv_as_spreadsheet_programs_save_it_loads_unchanged(folder: Path, sample: Catalogue) -> None:
    """Files as spreadsheet programs save them are the same catalogue."""
    for path in folder.glob("*.csv"):
        with path.open(newline="") as file:
            rows = list(csv.reader(file))
        with path.open("w", newline="", encoding="utf-8-sig") as file:
            csv.writer(file, delimiter=";", quoting=csv.QUOTE_ALL, lineterminator="\r\n").writerows([*rows, [""] * len(rows[0])])
    assert csv_files.load_catalogue(folder).version == sample.version


def test_decimal_comma_accepted_and_any_change_changes_version(folder: Path, sample: Catalogue) -> None:
    assert csv_files.load_catalogue(folder).version == sample.version
    path = folder / "containers.csv"
    path.write_text(path.read_text().replace(",2.7,0.2,", ',"2,7","0,2",'))
    changed = csv_files.load_catalogue(folder)
    assert changed.version != sample.version
    assert (changed.containers["CIT27"].capacity, changed.containers["CIT27"].dead_volume) == (Decimal("2.7"), Decimal("0.2"))


def test_every_column_is_documented() -> None:
    text = (ROOT / "docs" / "catalogue.md").read_text()
    for sheet in SHEETS:
        assert f"### {sheet.name}" in text
        part = text.split(f"### {sheet.name}\n")[1].split("\n### ")[0]
        for column in sheet.columns:
            assert f"| `{column.name}` |" in part, (sheet.name, column.name)
