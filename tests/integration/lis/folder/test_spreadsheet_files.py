"""Files as Excel writes them in Russia, Germany and elsewhere, byte by byte: read with two lines of settings."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from lab_agent.domain.lab_messages import LabReport
from lab_agent.domain.values import Coding, PartialDate
from lab_agent.lis.folder import FolderAdapter, FolderSettings
from lab_agent.lis.testing import MemoryInbox, make_order, make_report
from lab_agent.serialization import dump_message

COLUMNS = {
    "report_id": "Номер",
    "barcode": "Штрихкод",
    "effective": "Взят",
    "code": "Тест",
    "value": "Результат",
    "unit": "Ед.",
    "low": "От",
    "high": "До",
}
HEAD = "Номер;Штрихкод;Взят;Тест;Результат;Ед.;От;До"
RUSSIAN = (
    HEAD,
    "B1;0004200001;17.05.2024 8:30;HB;13,40;г/дл;11,7;15,5",
    "B1;0004200001;17.05.2024 8:30;WBC;<0,50;10^9/л;;",
    "B1;0004200001;17.05.2024 8:30;FER;1 234,5;мкг/л;;",
)

Start = Callable[..., Awaitable[FolderAdapter]]


@pytest.fixture
def inbox() -> MemoryInbox:
    return MemoryInbox()


@pytest.fixture
async def start(tmp_path: Path, inbox: MemoryInbox) -> AsyncIterator[Start]:
    started: list[FolderAdapter] = []

    async def make(zone: str = "Europe/Moscow", **csv: Any) -> FolderAdapter:
        for name in ("orders", "results"):
            (tmp_path / name).mkdir()
        given = {"orders": tmp_path / "orders", "results": tmp_path / "results", "settle": 0, "time_zone": zone}
        table = {"columns": COLUMNS, "code_system": "urn:ours", **csv}
        started.append(FolderAdapter(FolderSettings.model_validate({**given, "csv": table}), "folder"))
        await started[0].start(inbox)
        return started[0]

    yield make
    for adapter in started:
        await adapter.stop()


def put(tmp_path: Path, data: bytes, name: str = "day.csv") -> None:
    (tmp_path / "results" / name).write_bytes(data)


def lines(rows: tuple[str, ...], delimiter: str = ";") -> str:
    return "\r\n".join(row.replace(";", delimiter) for row in (*rows, ""))


def read(report: Any) -> list[str]:
    assert isinstance(report, LabReport)
    amounts = [one.value_quantity for one in report.observations]
    return [f"{amount.comparator or ''}{amount.value} {amount.unit}" for amount in amounts if amount]


@pytest.mark.parametrize(
    "data",
    [
        lines(RUSSIAN).encode("cp1251"),
        lines(RUSSIAN).encode("utf-8-sig"),
        ("sep=;\r\n" + lines(RUSSIAN)).encode("cp1251"),
        ("sep=;\r\n" + lines(RUSSIAN)).encode("utf-8-sig"),
        ("\ufeff" + lines(RUSSIAN)).encode("utf-16-le"),
        ("\ufeff" + lines(RUSSIAN)).encode("utf-16-be"),
        ('"sep=\t"\r\n' + lines(RUSSIAN, "\t")).encode("cp1251"),
        ("\ufeffSEP=|\r" + lines(RUSSIAN, "|").replace("\r\n", "\r")).encode("utf-16-le"),
    ],
)
async def test_excel_in_russia_needs_two_lines(start: Start, inbox: MemoryInbox, tmp_path: Path, data: bytes) -> None:
    """`dialect` and `time_zone`; what the file says of itself wins."""
    adapter = await start(dialect="excel-ru", zone="Europe/Moscow")
    put(tmp_path, data)
    assert await adapter.collect() == 1
    (report,) = inbox.contents
    assert isinstance(report, LabReport)
    assert read(report) == ["13.40 г/дл", "<0.50 10^9/л", "1234.5 мкг/л"]
    assert (report.barcode, report.effective.isoformat()) == ("0004200001", "2024-05-17T08:30:00+03:00")
    bounds = report.observations[0].reference_ranges[0]
    assert (bounds.low and str(bounds.low.value), bounds.high and str(bounds.high.value)) == ("11.7", "15.5")


async def test_excel_in_germany_needs_two_lines(start: Start, inbox: MemoryInbox, tmp_path: Path) -> None:
    head = "Befund;Röhrchen;Entnahme;Test;Wert;Maß"
    columns = dict(zip(("report_id", "barcode", "effective", "code", "value", "unit"), head.split(";"), strict=True))
    adapter = await start(dialect="excel-de", zone="Europe/Berlin", columns=columns)
    moment = "17.05.2024 08:30:15"
    rows = (head, f"B1;42;{moment};GLU;5,10;µmol/l", f"B1;42;{moment};CRP;1.234,50;µg/l")
    put(tmp_path, lines(rows).encode("cp1252"))
    assert await adapter.collect() == 1
    (report,) = inbox.contents
    assert isinstance(report, LabReport)
    assert read(report) == ["5.10 µmol/l", "1234.50 µg/l"]
    assert report.effective.isoformat() == "2024-05-17T08:30:15+02:00"


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
async def test_json_with_byte_order_mark_is_read(start: Start, inbox: MemoryInbox, tmp_path: Path, encoding: str) -> None:
    adapter = await start()
    report = make_report(1, make_order(1))
    put(tmp_path, dump_message(report).decode().encode(encoding), "a.json")
    assert await adapter.collect() == 1
    assert inbox.contents == [report]


async def test_settings_beside_dialect_win(start: Start, inbox: MemoryInbox, tmp_path: Path) -> None:
    adapter = await start(dialect="excel-ru", decimal_comma=False, delimiter=",", encoding="cp866")
    put(tmp_path, lines((HEAD, "B1;42;17.05.2024;HB;13.40;г/дл;;"), ",").encode("cp866"))
    assert await adapter.collect() == 1
    assert read(inbox.contents[0]) == ["13.40 г/дл"]


@pytest.mark.parametrize(
    ("written", "date_format", "expected"),
    [
        ("17.05.2024", "%d.%m.%Y", PartialDate("2024-05-17")),
        ("7.5.2024", "%d.%m.%Y %H:%M", PartialDate("2024-05-07")),
        ("05.2024", "%d.%m.%Y", PartialDate("2024-05")),
        ("2024", "%d.%m.%Y", PartialDate("2024")),
        ("2024-05", None, PartialDate("2024-05")),
        ("2024-05-17", "%d.%m.%Y", PartialDate("2024-05-17")),
        ("17.05.2024 08:30:15", "%d.%m.%Y %H:%M", "2024-05-17T08:30:15+03:00"),
        ("5/17/2024 08:30 PM", "%m/%d/%Y %I:%M %p", "2024-05-17T20:30:00+03:00"),
        ("20240517083000", "%Y%m%d%H%M%S", "2024-05-17T08:30:00+03:00"),
        ("20240517", "%Y%m%d%H%M%S", PartialDate("2024-05-17")),
        ("2024-05-17T08:30:00+05:00", "%d.%m.%Y", "2024-05-17T08:30:00+05:00"),
    ],
)
async def test_dates_are_as_precise_as_written(
    start: Start, inbox: MemoryInbox, tmp_path: Path, written: str, date_format: str | None, expected: PartialDate | str
) -> None:
    """A day without a time stays a day: nothing is made up."""
    adapter = await start(date_format=date_format)
    put(tmp_path, lines((HEAD, f"B1;42;{written};HB;13.40;г/дл;;")).encode())
    assert await adapter.collect() == 1
    (report,) = inbox.contents
    assert isinstance(report, LabReport)
    assert (report.effective if isinstance(expected, PartialDate) else report.effective.isoformat()) == expected


async def test_report_of_days_issued_when_written(start: Start, inbox: MemoryInbox, tmp_path: Path) -> None:
    """`issued` is always a moment; where a file says only days, it is the file's own."""
    adapter = await start(dialect="excel-ru")
    put(tmp_path, lines((HEAD, "B1;42;17.05.2024;HB;13,40;г/дл;;")).encode("cp1251"))
    os.utime(tmp_path / "results" / "day.csv", (1_715_950_800.5, 1_715_950_800.5))
    assert await adapter.collect() == 1
    (report,) = inbox.contents
    assert isinstance(report, LabReport)
    assert report.issued.isoformat() == "2024-05-17T13:00:00+00:00"


@pytest.mark.parametrize("written", ["32.05.2024", "5/17/2024", "202411", "17.05.24", "yesterday"])
async def test_date_of_another_form_is_rejected(start: Start, inbox: MemoryInbox, tmp_path: Path, written: str) -> None:
    adapter = await start(date_format="%Y%m%d" if written == "202411" else "%d.%m.%Y")
    put(tmp_path, lines((HEAD, f"B1;42;{written};HB;13.40;г/дл;;")).encode())
    assert await adapter.collect() == 0
    assert inbox.rejections


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("13,40", "13.40"),
        ("13.40", "13.40"),
        ("0.125", "0.125"),
        ("-0,5", "-0.5"),
        (">= 1 000,5", ">=1000.5"),
        ("12\u00a0345", "12345"),
        ("1.234.567", "1234567"),
        ("1.234,5", "1234.5"),
        ("4,2E+3", "4.2E+3"),
        ("1.234", None),
        ("<5.000", None),
    ],
)
async def test_decimal_comma_never_changes_magnitude(
    start: Start, inbox: MemoryInbox, tmp_path: Path, written: str, expected: str | None
) -> None:
    """1.234 beside decimal commas may be one thousand or a little more than one: it is rejected, and never guessed."""
    adapter = await start(dialect="excel-ru")
    put(tmp_path, lines((HEAD, f"B1;42;17.05.2024 8:30;HB;{written};г/дл;;")).encode("utf-8-sig"))
    assert await adapter.collect() == (expected is not None)
    values = [value.removesuffix(" г/дл") for report in inbox.contents for value in read(report)]
    assert values == ([expected] if expected else [])


@pytest.mark.parametrize(("encoding", "first"), [("utf-16", ""), ("utf-8-sig", "sep=|\r\n"), ("cp1251", "")])
async def test_rejected_rows_can_be_read_again(
    start: Start, inbox: MemoryInbox, tmp_path: Path, encoding: str, first: str
) -> None:
    adapter = await start(dialect="excel-ru")
    delimiter = "|" if first else ";"
    good, bad = "B1;42;17.05.2024 8:30;HB;13,40;г/дл;;", "B2;43;вчера;HB;13,40;г/дл;;"
    put(tmp_path, (first + lines((HEAD, good, bad), delimiter)).encode(encoding))
    assert await adapter.collect() == 1
    (rows,) = (tmp_path / "results" / "failed").glob("rows-*.csv")
    put(tmp_path, rows.read_bytes().decode(encoding).replace("вчера", "17.05.2024 9:00").encode(encoding), "again.csv")
    assert await adapter.collect() == 1
    assert [report.report_id for report in inbox.contents if isinstance(report, LabReport)] == ["B1", "B2"]
    assert all(report.observations[0].code == Coding(system="urn:ours", code="HB") for report in inbox.contents)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("B2,42,17.05.2024 8:30,HB,13,5,g/L,,", "row 2: has 9 cells, and there are 8 columns"),
        ("B2,42,17.05.2024 8:30,HB,1", "row 2: has 5 cells"),
        ("B2,42,17.05.2024 8:30,HB,#DIV/0!,g/L,,", "value: is #DIV/0!"),
        ("B2,42,17.05.2024 8:30,HB,#ЗНАЧ!,g/L,,", "value: is #ЗНАЧ!"),
        ("B2,42,17.05.2024 8:30,HB,13,g/L,#####,", "low: is #####"),
    ],
)
async def test_row_whose_cells_are_not_what_they_seem_is_refused(
    start: Start, inbox: MemoryInbox, tmp_path: Path, row: str, words: str
) -> None:
    """A decimal comma without quotation marks shifts the unit into the value's place; half a row holds half a number."""
    adapter = await start(dialect="excel-ru", delimiter=",", encoding="utf-8")
    other = "B1,42,17.05.2024 8:30,HB,14,g/L,,"
    put(tmp_path, "\r\n".join((HEAD.replace(";", ","), row, other, "")).encode())
    assert await adapter.collect() == 1
    assert [report.report_id for report in inbox.contents if isinstance(report, LabReport)] == ["B1"]
    assert words in next(iter((tmp_path / "results" / "failed").glob("*.reason.txt"))).read_text("utf-8")


async def test_rows_without_headings_have_one_width(start: Start, inbox: MemoryInbox, tmp_path: Path) -> None:
    columns = {name: str(number) for number, name in enumerate(COLUMNS, 1)}
    adapter = await start(dialect="excel-ru", headings=False, columns=columns)
    rows = (*RUSSIAN[1:3], RUSSIAN[1].replace("B1", "B3") + ";;", RUSSIAN[1].replace("B1", "B2") + ";1")
    put(tmp_path, lines(rows).encode("cp1251"))
    assert await adapter.collect() == 2


async def test_last_row_without_line_end_is_read_where_the_settings_say_so(
    start: Start, inbox: MemoryInbox, tmp_path: Path
) -> None:
    adapter = await start(dialect="excel-ru", last_line_end=False)
    put(tmp_path, lines(RUSSIAN[:2]).rstrip().encode("cp1251"))
    assert await adapter.collect() == 1


@pytest.mark.parametrize(
    "wrong", [{"date_format": "%H:%M"}, {"date_format": "%d.%m"}, {"date_format": "%q"}, {"dialect": "excel-fr"}]
)
def test_invalid_csv_settings_rejected(tmp_path: Path, wrong: dict[str, str]) -> None:
    given = {"orders": tmp_path, "results": tmp_path, "csv": {"columns": COLUMNS, **wrong}}
    with pytest.raises(ValidationError):
        FolderSettings.model_validate(given)
