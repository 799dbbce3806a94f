"""Workbooks: what a spreadsheet program makes of cells, the template, and the way there and back."""

from __future__ import annotations

import csv
import shutil
import subprocess
import sys
import time
import zipfile
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import openpyxl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab_agent.catalogue.spreadsheet import csv_files
from lab_agent.catalogue.spreadsheet.cells import CellError
from lab_agent.catalogue.spreadsheet.diff import diff_tables
from lab_agent.catalogue.spreadsheet.parser import build_catalogue
from lab_agent.catalogue.spreadsheet.schema import SHEETS, ColumnType, SheetRow, SheetTable
from lab_agent.catalogue.spreadsheet.xlsx_reader import README_SHEET, cell_to_text
from lab_agent.catalogue.spreadsheet.xlsx_writer import write_workbook
from lab_agent.shared.errors import CatalogueError
from tests.harness.paths import CATALOGUE
from tests.harness.proof import in_full


def change(book: Path, sheet: str, cell: str, value: Any, number_format: str | None = None) -> None:
    opened = openpyxl.load_workbook(book)
    opened[sheet][cell] = value
    if number_format:
        opened[sheet][cell].number_format = number_format
    opened.save(book)


def problems(book: Path) -> list[str]:
    with pytest.raises(CatalogueError) as caught:
        csv_files.load_catalogue(book)
    return [str(problem) for problem in caught.value.problems]


def test_prices_written_as_numbers_and_codes_as_text(book: Path) -> None:
    opened = openpyxl.load_workbook(book)
    price, code = opened["contract_items"]["C2"], opened["items"]["A2"]
    assert (price.value, price.number_format, price.data_type) == (480, "0.00", "n")
    assert (code.value, code.number_format, code.data_type) == ("001.001", "@", "s")


def test_template_contains_instructions_and_offers_nothing(tmp_path: Path) -> None:
    path = tmp_path / "template.xlsx"
    write_workbook(path, {})
    opened = openpyxl.load_workbook(path)
    assert opened.sheetnames == [README_SHEET, *(sheet.name for sheet in SHEETS)]
    for sheet in SHEETS:
        assert [cell.value for cell in opened[sheet.name][1]] == [column.name for column in sheet.columns]
        assert all(cell.comment.text for cell in opened[sheet.name][1])
    role = opened["requirements"].data_validations.dataValidation
    assert any(rule.formula1 == '"option,required"' for rule in role)
    assert any(rule.formula1.startswith("items!$A$2") and rule.errorStyle == "warning" for rule in role)
    assert problems(path) == ["contracts: has no contract, so nobody is offered anything — add one"]


@pytest.mark.parametrize(
    ("value", "number_format", "holds", "text"),
    [
        (480, "0.00", ColumnType.NUMBER, "480.00"),
        (480.123, "0.00", ColumnType.NUMBER, "480.123"),
        (1234.5, "#,##0.00", ColumnType.NUMBER, "1234.50"),
        (0.1, "General", ColumnType.NUMBER, "0.1"),
        (410 * 1.1, "0.00", ColumnType.NUMBER, "451.00"),
        (1 - 0.9, "0.0", ColumnType.NUMBER, "0.1"),
        (4.1 * 100, "General", ColumnType.CODE, "410"),
        (123456789012.25, "0.00", ColumnType.NUMBER, "123456789012.25"),
        (480, '#,##0.00\\ "р.;"', ColumnType.NUMBER, "480.00"),
        (1480, "#,##0.00\xa0[$€-407]", ColumnType.NUMBER, "1480.00"),
        (480, "[$₽-419]#,##0.0", ColumnType.NUMBER, "480.0"),
        (480, "$#,##0.00;[Red]-$#,##0.00", ColumnType.NUMBER, "480.00"),
        (480, '_-* #,##0.00\\ "€"_-;\\-* #,##0.00\\ "€"_-;_-* "-"??\\ "€"_-;_-@_-', ColumnType.NUMBER, "480.00"),
        (0.5, "0.00%", ColumnType.NUMBER, "0.5"),
        (480, "[>100]0.00", ColumnType.NUMBER, "480"),
        (7, '"A"000', ColumnType.CODE, "7"),
        (1e-7, "General", ColumnType.NUMBER, "0.0000001"),
        (42.036, "000.000", ColumnType.CODE, "042.036"),
        (190.1, "0.000", ColumnType.CODE, "190.100"),
        (7, "0000", ColumnType.CODE, "0007"),
        (10, "General", ColumnType.CODE, "10"),
        ("042.036", "@", ColumnType.CODE, "042.036"),
        (" x ", "General", ColumnType.TEXT, "x"),
        (True, "General", ColumnType.YES_NO, "yes"),
        (False, "General", ColumnType.YES_NO, "no"),
        (4.8e30, "0.00", ColumnType.NUMBER, "4800000000000000000000000000000.00"),
        (480, "0." + "0" * 5000, ColumnType.NUMBER, "480"),
        (-0.0, "0.00", ColumnType.NUMBER, "0.00"),
        ("a_x000D_\nb _x005F_x0041_", "General", ColumnType.TEXT, "a\nb _x0041_"),
    ],
)
def test_cell_text_matches_what_spreadsheet_shows(value: Any, number_format: str, holds: ColumnType, text: str) -> None:
    assert cell_to_text(value, "n", number_format, holds) == text


@pytest.mark.parametrize(
    ("value", "kind", "holds", "said"),
    [
        (42.036, "n", ColumnType.CODE, "a code may have had zeros around it"),
        (datetime(2026, 1, 2), "d", ColumnType.CODE, "holds a date"),  # noqa: DTZ001 - a workbook knows no zones
        (date(2026, 1, 2), "d", ColumnType.NUMBER, "holds a date"),
        (None, "f", ColumnType.NUMBER, "holds a formula without a value"),
        ("#REF!", "e", ColumnType.NUMBER, "holds the error #REF!"),
        (float("inf"), "n", ColumnType.NUMBER, "holds a number that is too large or too small"),
        (timedelta(hours=25), "d", ColumnType.NUMBER, "holds a duration"),
        (datetime(1, 1, 1), "d", ColumnType.DATE_TIME, "holds the year 1"),  # noqa: DTZ001 - as above
        (480, "?", ColumnType.NUMBER, "has a format that the workbook does not define"),
    ],
)
def test_unrecoverable_cell_value_is_an_error(value: Any, kind: str, holds: ColumnType, said: str) -> None:
    """What can no longer be told from a cell is an error with its reason."""
    found = cell_to_text(value, kind, "General", holds)
    assert isinstance(found, CellError)
    assert said in found.what


def test_date_uses_local_time_zone() -> None:
    seen = cell_to_text(datetime(2026, 1, 2, 8, 30), "d", "General", ColumnType.DATE_TIME)  # noqa: DTZ001 - as above
    assert isinstance(seen, str)
    assert datetime.fromisoformat(seen) == datetime(2026, 1, 2, 8, 30).astimezone()


def damaged(book: Path, sheet: str, old: bytes, new: bytes) -> Path:
    """The workbook, with this replaced in the XML of a sheet."""
    page = f"xl/worksheets/sheet{2 + [sheet.name for sheet in SHEETS].index(sheet)}.xml"
    path = book.with_name("damaged.xlsx")
    with zipfile.ZipFile(book) as whole, zipfile.ZipFile(path, "w") as file:
        for name in whole.namelist():
            content = whole.read(name)
            if name == page:
                assert old in content
                content = content.replace(old, new, 1)
            file.writestr(name, content)
    return path


def test_formula_yields_its_cached_value(book: Path) -> None:
    """openpyxl keeps no values with formulas; the file of a program that does is made by hand here."""
    change(book, "contract_items", "C2", "=240*2")
    whole = damaged(book, "contract_items", b"<f>240*2</f><v />", b"<f>240*2</f><v>480</v>")
    assert csv_files.content_version(csv_files.read_tables(whole)) == csv_files.content_version(csv_files.read_tables(CATALOGUE))


def test_excessive_numbers_reported(book: Path) -> None:
    change(book, "contract_items", "C2", 4.8e30, "0.00")
    change(book, "requirements", "O2", f"{'6' * 4400} = Venepuncture")
    found = problems(book)
    assert len(found) == 2
    assert found[0].startswith("requirements row 2, column time_points: '6666")
    assert found[1].startswith(
        "contract_items row 2, column price: '4800000000000000000000000000000.00' is not a number of 0 or more"
    )
    assert all(len(each) < 300 for each in found)


ITEMS = "(sheet items) — save it as an Excel workbook (.xlsx)"


@pytest.mark.parametrize(
    ("sheet", "old", "new", "said"),
    [
        ("contract_items", b'<c r="C2" s="', b'<c r="C2" s="99', "row 2, column price: has a format that the workbook does not"),
        ("items", b'<c r="A2"', b'<c r="A2!"', ITEMS),
        ("items", b'<row r="3"', b'<row r="999999999999"', ITEMS),
        ("items", b"</sheetData>", b'<row r="1048000"><c r="A1048000" s="1"/></row></sheetData>', None),
        ("items", b"</sheetData>", b'<row r="900"><c r="XFD900" s="1"/></row></sheetData>', None),
        ("contract_items", b'<dimension ref="A1:', b'<dimension ref="A1:B2" /><odd was="', None),
    ],
    ids=["format", "cell", "row", "far down", "far right", "dimension"],
)
def test_odd_sheet_is_read_or_says_where(book: Path, sheet: str, old: bytes, new: bytes, said: str | None) -> None:
    """Formatted cells without content are ignored, and rows beyond a wrong dimension are read."""
    path = damaged(book, sheet, old, new)
    if said:
        assert said in problems(path)[0]
    else:
        sample = csv_files.content_version(csv_files.read_tables(CATALOGUE))
        assert csv_files.content_version(csv_files.read_tables(path)) == sample


_SHEET = b'<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData>'
_ITEMS = "xl/worksheets/sheet4.xml"
BOMBS = {
    "wide rows": (_ITEMS, b'<row><c r="XFD1"><v>1</v></c></row>', 100_000, b"</sheetData></worksheet>"),
    "one wide row": (_ITEMS, b'<row r="1"><c r="XFD1"><v>1</v></c></row>', 1, b"</sheetData></worksheet>"),
    "many cells": (_ITEMS, b"<row>" + b"<c><v>1</v></c>" * 150 + b"</row>", 8_000, b"</sheetData></worksheet>"),
    "unknown elements": (_ITEMS, b'<a b=""/>', 2_100_000, b"</sheetData></worksheet>"),
    "one long part": (_ITEMS, b" " * 1_000_000, 70, b"</sheetData></worksheet>"),
    "shared strings": ("xl/sharedStrings.xml", b"<si><t>a</t></si>", 1_100_000, b"</sst>"),
    "styles": ("xl/styles.xml", b"<xf/>", 4_100_000, b"</styleSheet>"),
    "a picture": ("xl/media/image1.png", bytes(1_000_000), 70, b""),
}
"""Name of the part, what stands in it, how many times, and its end."""
_STARTS = {_ITEMS: _SHEET, "xl/sharedStrings.xml": b"<sst>", "xl/styles.xml": b"<styleSheet>"}
_READ = """
import resource, sys
from pathlib import Path
from lab_agent.catalogue.spreadsheet import csv_files
from lab_agent.shared.errors import CatalogueError
csv_files.load_catalogue(Path(sys.argv[1]))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    csv_files.load_catalogue(Path(sys.argv[2]))
except CatalogueError as exc:
    print(exc.problems[0].what.split(":")[0].split("(")[0].strip())
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", BOMBS)
def test_small_file_of_vast_content_takes_little_memory(book: Path, kind: str) -> None:
    name, unit, times, end = BOMBS[kind]
    path = book.with_name("vast.xlsx")
    with zipfile.ZipFile(book) as whole, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for part in whole.namelist():
            if part != name:
                file.writestr(part, whole.read(part))
        file.writestr(name, _STARTS.get(name, b"") + unit * times + end)
    assert path.stat().st_size < 2_000_000
    ran = subprocess.run([sys.executable, "-c", _READ, str(book), str(path)], capture_output=True, text=True, check=True)
    reason, kilobytes = ran.stdout.splitlines()
    assert reason == "is larger than a catalogue can be"
    assert int(kilobytes) < 100_000


def test_unknown_and_missing_sheets_reported(book: Path) -> None:
    opened = openpyxl.load_workbook(book)
    del opened["contracts"]
    opened.create_sheet("# my notes")
    opened.create_sheet("item")
    opened.save(book)
    found = problems(book)
    assert any(each.startswith("sheet contracts: is missing") for each in found)
    assert any(each.startswith("sheet item: is not a sheet of the catalogue — did you mean") for each in found)
    assert len(found) == 2


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 but no more", b"item,caption\n", b"\xd0\xcf\x11\xe0 an old workbook"])
def test_file_that_is_no_workbook_rejected(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "no.xlsx"
    path.write_bytes(content)
    assert "is not an XLSX workbook" in problems(path)[0]
    assert "cannot be read" in problems(tmp_path / "none.xlsx")[0]


STOP = "001.001,,stopped,2026-11-01T00:00+03:00,2026-12-01T00:00+03:00,,"
DELAY = "001.001,,delayed,2026-11-01T00:00+03:00,2026-12-20T00:00+03:00,24,"


def announced(tmp_path: Path, *rows: str) -> dict[str, SheetTable]:
    """The tables of the sample, with these rows of notices alone."""
    folder = Path(shutil.copytree(CATALOGUE, tmp_path / "announced", dirs_exist_ok=True))
    head = (CATALOGUE / "notices.csv").read_text().split("\n")[0]
    (folder / "notices.csv").write_text("\n".join((head, *rows)))
    return csv_files.read_tables(folder)


def test_stop_and_delay_of_same_start_are_separate(tmp_path: Path) -> None:
    """A stop and a longer delay of one start are two rows."""

    def told(old: tuple[str, ...], new: tuple[str, ...]) -> list[str]:
        return [str(each) for each in diff_tables(announced(tmp_path, *old), announced(tmp_path, *new))]

    assert len(build_catalogue(announced(tmp_path, STOP, DELAY), "v").notices) == 2
    named = "notices 001.001 / 2026-11-01T00:00+03:00"
    assert told((DELAY,), (STOP, DELAY)) == [f"{named}: new"]
    assert told((STOP, DELAY), (DELAY,)) == [f"{named}: gone"]
    assert told((STOP, DELAY), (DELAY, STOP)) == ["notices: moved"]
    assert told((STOP, DELAY), (STOP, DELAY.replace("24", "48"))) == [f"{named}: changed, delay_hours: 24 → 48"]
    both = [f"{named}: changed, delay_hours: 24 → 48", "notices: moved"]
    assert told((STOP, DELAY), (DELAY.replace("24", "48"), STOP)) == both


@pytest.mark.parametrize(
    ("again", "wrong"),
    [
        (STOP, True),
        (STOP.replace("T00:00+03:00,2026-12", "T01:00+04:00,2026-12"), True),
        (f"{STOP}No reagent", True),
        (DELAY.replace("24", "48"), True),
        (STOP.replace(",,stopped", ",C-100,stopped"), False),
        (STOP.replace("2026-12-01", "2026-12-02"), False),
        (DELAY.replace("2026-12-20", "2026-12-21"), False),
    ],
)
def test_duplicate_notice_is_an_error(tmp_path: Path, again: str, wrong: bool) -> None:
    tables = announced(tmp_path, STOP, DELAY, again)
    if not wrong:
        assert len(build_catalogue(tables, "v").notices) == 3
        return
    with pytest.raises(CatalogueError) as caught:
        build_catalogue(tables, "v")
    row = 3 if again.startswith(DELAY[:16]) else 2
    what = f"has the same item, contract, status, start and end as row {row} — keep one of the two"
    assert [str(each) for each in caught.value.problems] == [f"notices.csv row 4: {what}"]


ROWS = st.lists(st.sampled_from([STOP, DELAY, STOP.replace("-01T", "-02T"), f"{DELAY}Late"]), max_size=4)


@given(ROWS, ROWS)
def test_unchanged_content_keeps_version(old: list[str], new: list[str]) -> None:
    def tables(rows: list[str]) -> dict[str, SheetTable]:
        names = [column.name for column in SHEETS[-1].columns]
        read = (SheetRow("notices", at, dict(zip(names, row.split(","), strict=True))) for at, row in enumerate(rows, 2))
        return {sheet.name: SheetTable(sheet.name) for sheet in SHEETS} | {"notices": SheetTable("notices", tuple(read))}

    found = diff_tables(tables(old), tables(new))
    assert (found == ()) is (csv_files.content_version(tables(old)) == csv_files.content_version(tables(new)))


@in_full
@pytest.mark.proof
def test_load_time_stays_proportional_to_csv_reading(tmp_path: Path) -> None:
    """About a second on one core here: stated as a ratio to plain CSV reading, so that a slower machine changes nothing."""
    folder = Path(shutil.copytree(CATALOGUE, tmp_path / "catalogue"))
    for sheet, row in {
        "items": "9{i:05},Test {i},,,,,,,,,\n",
        "requirements": "9{i:05},10,option,,,,SST5,0.2,Venepuncture,,,,,,,\n",
        "contract_items": "C-100,9{i:05},100.00,\nC-200,9{i:05},100.00,\n",
        "turnaround": "9{i:05},,24,\n",
    }.items():
        with (folder / f"{sheet}.csv").open("a") as file:
            file.writelines(row.format(i=i) for i in range(4000))
    write_workbook(tmp_path / "big.xlsx", csv_files.read_tables(folder))

    def best(work: Any) -> float:
        times = []
        for _ in range(3):
            began = time.process_time()
            work()
            times.append(time.process_time() - began)
        return min(times)

    def plain() -> None:
        for path in folder.glob("*.csv"):
            with path.open(newline="") as file:
                list(csv.reader(file))

    unit = best(plain)
    assert best(lambda: csv_files.load_catalogue(folder)) < 100 * unit
    assert best(lambda: csv_files.load_catalogue(tmp_path / "big.xlsx")) < 500 * unit
