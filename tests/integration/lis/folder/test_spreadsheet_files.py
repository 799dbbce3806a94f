"""Files as Excel writes them in Russia, Germany and elsewhere, byte by byte: read with two lines of settings."""

import os
from typing import Any

import pytest

from lab_agent.lis.folder import FolderAdapter
from lab_agent.lis.lab_messages import LabReport
from lab_agent.lis.serialization import dump_message
from lab_agent.shared.values import Coding, PartialDate
from tests.integration.lis.folder.conftest import REPORT, Place

HEAD = "Номер;Штрихкод;Взят;Тест;Результат;Ед.;От;До"
COLUMNS = dict(zip(("report_id", "barcode", "effective", "code", "value", "unit", "low", "high"), HEAD.split(";"), strict=True))
RUSSIAN = (
    HEAD,
    "B1;0004200001;17.05.2024 8:30;HB;13,40;г/дл;11,7;15,5",
    "B1;0004200001;17.05.2024 8:30;WBC;<0,50;10^9/л;;",
    "B1;0004200001;17.05.2024 8:30;FER;1 234,5;мкг/л;;",
)


async def start(place: Place, zone: str = "Europe/Moscow", **csv: Any) -> FolderAdapter:
    return await place.adapter(time_zone=zone, csv={"columns": COLUMNS, "code_system": "urn:ours", **csv})


def lines(rows: tuple[str, ...], delimiter: str = ";") -> str:
    return "\r\n".join(row.replace(";", delimiter) for row in (*rows, ""))


def read(report: LabReport) -> list[str]:
    amounts = [one.value_quantity for one in report.observations]
    return [f"{amount.comparator or ''}{amount.value} {amount.unit}" for amount in amounts if amount]


WHOLE = lines(RUSSIAN)


@pytest.mark.parametrize(
    "data",
    [
        *((first + WHOLE).encode(encoding) for first in ("", "sep=;\r\n") for encoding in ("cp1251", "utf-8-sig")),
        *(("\ufeff" + WHOLE).encode(encoding) for encoding in ("utf-16-le", "utf-16-be")),
        ('"sep=\t"\r\n' + lines(RUSSIAN, "\t")).encode("cp1251"),
        ("\ufeffSEP=|\r" + lines(RUSSIAN, "|").replace("\r\n", "\r")).encode("utf-16-le"),
    ],
)
async def test_excel_in_russia_needs_two_lines(place: Place, data: bytes) -> None:
    """`dialect` and `time_zone`; what the file says of itself wins."""
    place.put("day.csv", data)
    assert await (await start(place, dialect="excel-ru")).collect() == 1
    report = place.report
    assert read(report) == ["13.40 г/дл", "<0.50 10^9/л", "1234.5 мкг/л"]
    assert (report.barcode, report.effective.isoformat()) == ("0004200001", "2024-05-17T08:30:00+03:00")
    bounds = report.observations[0].reference_ranges[0]
    assert (bounds.low and str(bounds.low.value), bounds.high and str(bounds.high.value)) == ("11.7", "15.5")


async def test_excel_in_germany_needs_two_lines(place: Place) -> None:
    head = "Befund;Röhrchen;Entnahme;Test;Wert;Maß"
    columns = dict(zip(COLUMNS, head.split(";"), strict=False))
    rows = (head, *(f"B1;42;17.05.2024 08:30:15;{each}" for each in ("GLU;5,10;µmol/l", "CRP;1.234,50;µg/l")))
    place.put("day.csv", lines(rows).encode("cp1252"))
    assert await (await start(place, dialect="excel-de", zone="Europe/Berlin", columns=columns)).collect() == 1
    assert read(place.report) == ["5.10 µmol/l", "1234.50 µg/l"]
    assert place.report.effective.isoformat() == "2024-05-17T08:30:15+02:00"


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
async def test_json_with_byte_order_mark_is_read(place: Place, encoding: str) -> None:
    place.put("a.json", dump_message(REPORT).decode().encode(encoding))
    assert await (await start(place)).collect() == 1
    assert place.inbox.contents == [REPORT]


async def test_settings_beside_dialect_win(place: Place) -> None:
    """Also for a last row without a line end."""
    more = {"decimal_comma": False, "delimiter": ",", "encoding": "cp866", "last_line_end": False}
    place.put("day.csv", lines((HEAD, "B1;42;17.05.2024;HB;13.40;г/дл;;"), ",").rstrip().encode("cp866"))
    assert await (await start(place, dialect="excel-ru", **more)).collect() == 1
    assert read(place.report) == ["13.40 г/дл"]


DAY = "%d.%m.%Y"


@pytest.mark.parametrize(
    ("written", "date_format", "expected"),
    [
        ("17.05.2024", DAY, "2024-05-17"),
        ("7.5.2024", f"{DAY} %H:%M", "2024-05-07"),
        ("05.2024", DAY, "2024-05"),
        ("2024", DAY, "2024"),
        ("2024-05-17", DAY, "2024-05-17"),
        ("17.05.2024 08:30:15", f"{DAY} %H:%M", "2024-05-17T08:30:15+03:00"),
        ("5/17/2024 08:30 PM", "%m/%d/%Y %I:%M %p", "2024-05-17T20:30:00+03:00"),
        ("20240517083000", "%Y%m%d%H%M%S", "2024-05-17T08:30:00+03:00"),
        ("20240517", "%Y%m%d%H%M%S", "2024-05-17"),
        ("2024-05-17T08:30:00+05:00", DAY, "2024-05-17T08:30:00+05:00"),
        ("202411", "%Y%m%d", None),
        *((other, DAY, None) for other in ("32.05.2024", "5/17/2024", "17.05.24", "yesterday")),
    ],
)
async def test_dates_are_as_precise_as_written(place: Place, written: str, date_format: str | None, expected: str | None) -> None:
    """A day without a time stays a day; `issued` is a moment: the file's own. A date of another form is rejected."""
    path = place.put("day.csv", lines((HEAD, f"B1;42;{written};HB;13.40;г/дл;;")).encode())
    os.utime(path, (1_715_950_800.5, 1_715_950_800.5))
    assert await (await start(place, date_format=date_format)).collect() == (expected is not None)
    assert bool(place.inbox.rejections) is (expected is None)
    if expected is not None:
        effective = place.report.effective
        if isinstance(effective, PartialDate):
            assert (effective.text, place.report.issued.isoformat()) == (expected, "2024-05-17T13:00:00+00:00")
        else:
            assert effective.isoformat() == expected


@pytest.mark.parametrize(("encoding", "first"), [("utf-16", ""), ("utf-8-sig", "sep=|\r\n"), ("cp1251", "")])
async def test_rejected_rows_can_be_read_again(place: Place, encoding: str, first: str) -> None:
    adapter = await start(place, dialect="excel-ru")
    good, bad = "B1;42;17.05.2024 8:30;HB;13,40;г/дл;;", "B2;43;вчера;HB;13,40;г/дл;;"
    place.put("day.csv", (first + lines((HEAD, good, bad), "|" if first else ";")).encode(encoding))
    assert await adapter.collect() == 1
    (rows,) = (place.results / "failed").glob("rows-*.csv")
    place.put("again.csv", rows.read_bytes().decode(encoding).replace("вчера", "17.05.2024 9:00").encode(encoding))
    assert await adapter.collect() == 1
    assert place.report_ids() == ["B1", "B2"]
    assert all(report.observations[0].code == Coding(system="urn:ours", code="HB") for report in place.inbox.contents)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("HB,13,5,g/L,,", "row 2: has 9 cells, and there are 8 columns"),
        ("HB,1", "row 2: has 5 cells"),
        ("HB,#DIV/0!,g/L,,", "value: is #DIV/0!"),
        ("HB,#ЗНАЧ!,g/L,,", "value: is #ЗНАЧ!"),
        ("HB,13,g/L,#####,", "low: is #####"),
    ],
)
async def test_row_whose_cells_are_not_what_they_seem_is_refused(place: Place, row: str, words: str) -> None:
    """A decimal comma without quotation marks shifts the unit into the value's place; half a row holds half a number."""
    rows = (HEAD.replace(";", ","), f"B2,42,17.05.2024 8:30,{row}", "B1,42,17.05.2024 8:30,HB,14,g/L,,", "")
    place.put("day.csv", "\r\n".join(rows).encode())
    assert await (await start(place, dialect="excel-ru", delimiter=",", encoding="utf-8")).collect() == 1
    assert place.report.report_id == "B1"
    assert words in place.reasons()


async def test_rows_without_headings_have_one_width(place: Place) -> None:
    columns = {name: str(number) for number, name in enumerate(COLUMNS, 1)}
    rows = (*RUSSIAN[1:3], RUSSIAN[1].replace("B1", "B3") + ";;", RUSSIAN[1].replace("B1", "B2") + ";1")
    place.put("day.csv", lines(rows).encode("cp1251"))
    assert await (await start(place, dialect="excel-ru", headings=False, columns=columns)).collect() == 2
