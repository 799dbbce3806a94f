"""Loading: every problem at once, each with file, row and column."""

from __future__ import annotations

import csv
from decimal import Decimal
from pathlib import Path

import pytest

from lab_agent.catalogue.model import Catalogue
from lab_agent.catalogue.spreadsheet.csv_files import load_catalogue
from lab_agent.catalogue.spreadsheet.schema import SHEETS
from lab_agent.errors import CatalogueError
from tests.harness.paths import ROOT


def change(folder: Path, sheet: str, old: str, new: str) -> None:
    path = folder / f"{sheet}.csv"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def problems(folder: Path) -> list[str]:
    with pytest.raises(CatalogueError) as caught:
        load_catalogue(folder)
    return [str(problem) for problem in caught.value.problems]


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
        ("requirements", "yes,,,culture", "perhaps,,,culture", "is neither yes nor no"),
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
        ("turnaround", "001.001,,24,By the next working day\n", "", "'001.001' has no row in the sheet turnaround"),
        ("notices", "delayed", "late", "'late' is not one of stopped, delayed"),
        ("notices", "T00:00+03:00,2026", "T00:00,2026", "is not a date and time with UTC offset"),
        ("notices", "2026-01-09T", "2024-01-09T", "is not after the start"),
        ("notices", ",72,", ",,", "is empty or 0, and the status is delayed"),
    ],
)
def test_each_mistake_reported(folder: Path, sheet: str, old: str, new: str, said: str) -> None:
    change(folder, sheet, old, new)
    found = problems(folder)
    assert any(said in each for each in found), found
    assert all(".csv" in each for each in found)


def test_missing_and_unknown_sheets_reported(folder: Path) -> None:
    (folder / "contracts.csv").unlink()
    (folder / "item.csv").write_text("x\n")
    found = problems(folder)
    assert any(each.startswith("contracts.csv: is missing") for each in found)
    assert "item.csv: is not a sheet of the catalogue — did you mean 'items.csv'?" in found


def test_non_text_and_non_csv_files_reported(folder: Path) -> None:
    (folder / "contracts.csv").write_bytes(b"contract;name\nC-100;\xff\n")
    (folder / "notices.csv").write_text('item,"contract\n')
    found = problems(folder)
    assert any(each.startswith("contracts.csv: is not UTF-8") for each in found)
    assert any("notices.csv" in each and "is not CSV" in each for each in found)
    with pytest.raises(CatalogueError, match="is not a folder"):
        load_catalogue(folder / "nowhere")


def test_csv_as_spreadsheet_programs_save_it_loads_unchanged(folder: Path, sample: Catalogue) -> None:
    """Files as spreadsheet programs save them are the same catalogue."""
    for path in folder.glob("*.csv"):
        with path.open(newline="") as file:
            rows = list(csv.reader(file))
        with path.open("w", newline="", encoding="utf-8-sig") as file:
            csv.writer(file, delimiter=";", quoting=csv.QUOTE_ALL, lineterminator="\r\n").writerows([*rows, [""] * len(rows[0])])
    assert load_catalogue(folder).version == sample.version


def test_decimal_comma_accepted_and_any_change_changes_version(folder: Path, sample: Catalogue) -> None:
    assert load_catalogue(folder).version == sample.version
    path = folder / "containers.csv"
    path.write_text(path.read_text().replace(",2.7,0.2,", ',"2,7","0,2",'))
    changed = load_catalogue(folder)
    assert changed.version != sample.version
    assert (changed.containers["CIT27"].capacity, changed.containers["CIT27"].dead_volume) == (Decimal("2.7"), Decimal("0.2"))


def test_every_column_is_documented() -> None:
    text = (ROOT / "docs" / "catalogue.md").read_text()
    for sheet in SHEETS:
        assert f"### {sheet.name}" in text
        part = text.split(f"### {sheet.name}\n")[1].split("\n### ")[0]
        for column in sheet.columns:
            assert f"| `{column.name}` |" in part, (sheet.name, column.name)
