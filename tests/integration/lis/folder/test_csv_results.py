"""Results as CSV, other encodings, other names: what is good is taken digit for digit, what is bad comes back with its reason."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from lab_agent.domain.ids import LineKey
from lab_agent.domain.lab_messages import LabMessage, LabReport, ReportedPatient
from lab_agent.domain.lab_order import OrderPatient
from lab_agent.domain.values import Identifier, PartialDate
from lab_agent.errors import LabAgentError, StoreError
from lab_agent.lis.folder import FolderAdapter, FolderSettings
from lab_agent.lis.testing import MemoryInbox, make_order, make_report, submit_order
from lab_agent.serialization import dump_message, load_order

COLUMNS = {
    "report_id": "Report",
    "accession": "Sample",
    "item": "Test",
    "effective": "Collected",
    "code": "LOINC",
    "value": "Value",
    "unit": "Unit",
    "low": "Low",
    "high": "High",
    "flag": "Flag",
    "not_performed": "Refused",
}
HEAD = "Report;Sample;Test;Collected;LOINC;Value;Unit;Low;High;Flag;Refused;Analyser"
GOOD = "B1;A7;010.001;2024-05-17T08:30:00;718-7;13,40;g/dL;11,7;15,5;H;;XN-1000"
ALSO = "B1;A7;010.002;2024-05-17T08:30:00;2345-7;<0,50;mmol/L;;;;;AU"
OTHER = "B2;A8;010.003;2024-05-17T09:00:00;;;;;;;спецэритроциты разрушены;"
BAD = "B3;A9;010.001;yesterday;718-7;140;g/L;;;;;"


def settings(folder: Path, **more: Any) -> FolderSettings:
    table = {"columns": COLUMNS, "encoding": "cp1251", "decimal_comma": True}
    return FolderSettings.model_validate(
        {
            "orders": folder / "orders",
            "results": folder / "results",
            "settle": 0,
            "time_zone": "Europe/Moscow",
            "csv": table,
            **more,
        }
    )


@pytest.fixture
def inbox() -> MemoryInbox:
    return MemoryInbox()


@pytest.fixture
async def adapter(tmp_path: Path, inbox: MemoryInbox) -> AsyncIterator[FolderAdapter]:
    for name in ("orders", "results"):
        (tmp_path / name).mkdir()
    made = FolderAdapter(settings(tmp_path), "folder")
    await made.start(inbox)
    yield made
    await made.stop()


def put(folder: Path, *rows: str, name: str = "day.CSV", encoding: str = "cp1251") -> Path:
    path = folder / "results" / name
    path.write_bytes("".join(f"{row}\r\n" for row in rows).encode(encoding))
    return path


async def test_csv_rows_become_reports_with_exact_digits(adapter: FolderAdapter, inbox: MemoryInbox, tmp_path: Path) -> None:
    put(tmp_path, HEAD, GOOD, ALSO, "", OTHER)
    assert await adapter.collect() == 2
    first, second = inbox.contents
    assert isinstance(first, LabReport)
    assert (first.report_id, first.accession, first.items) == ("B1", "A7", ("010.001", "010.002"))
    assert first.effective.isoformat() == "2024-05-17T08:30:00+03:00"
    haemoglobin, glucose = (one.value_quantity for one in first.observations)
    assert haemoglobin
    assert glucose
    assert (str(haemoglobin.value), haemoglobin.unit) == ("13.40", "g/dL")
    assert (glucose.comparator, str(glucose.value)) == ("<", "0.50")
    bounds = first.observations[0].reference_ranges[0]
    assert bounds.low
    assert (str(bounds.low.value), first.observations[0].flags) == ("11.7", ("H",))
    assert isinstance(second, LabReport)
    assert second.not_performed[0].reason == "спецэритроциты разрушены"
    assert [path.name for path in (tmp_path / "results" / "done").iterdir()] == ["day.CSV"]


async def test_csv_row_with_reason_is_not_performed(adapter: FolderAdapter, inbox: MemoryInbox, tmp_path: Path) -> None:
    """A row with a reason is a test not performed, also where its code is filled in."""
    put(tmp_path, HEAD, GOOD, "B1;A7;010.002;2024-05-17T08:30:00;2345-7;;;;;;clotted;")
    assert await adapter.collect() == 1
    (report,) = inbox.contents
    assert isinstance(report, LabReport)
    assert [one.code.code for one in report.observations] == ["718-7"]
    assert [(one.item, one.reason) for one in report.not_performed] == [("010.002", "clotted")]
    assert report.items == ("010.001", "010.002")


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("B1;A7;;2024-05-17T08:30:00;2345-7;;;;;;clotted;", "not_performed: row 2 has a reason and a code, but neither"),
        ("B1;A7;010.002;2024-05-17T08:30:00;2345-7;;;;;;;", "observations[0]: has no value"),
    ],
)
async def test_csv_code_without_value_or_item_rejected(
    adapter: FolderAdapter, inbox: MemoryInbox, tmp_path: Path, row: str, words: str
) -> None:
    """A code alone is neither a value nor the name of a test of the order."""
    put(tmp_path, HEAD, row)
    assert await adapter.collect() == 0
    (reason,) = (tmp_path / "results" / "failed").glob("rows-*.reason.txt")
    assert words in reason.read_text("utf-8")


async def test_csv_invalid_report_returned_others_accepted(adapter: FolderAdapter, inbox: MemoryInbox, tmp_path: Path) -> None:
    """An invalid report does not block the others, and its rows come back in a file of their own."""
    put(tmp_path, HEAD, GOOD, BAD, OTHER)
    assert await adapter.collect() == 2
    failed = tmp_path / "results" / "failed"
    (rows,) = failed.glob("rows-*.CSV")
    assert rows.read_text("cp1251").splitlines() == [HEAD, BAD]
    assert "rows 3: effective" in rows.with_name(f"{rows.name}.reason.txt").read_text("utf-8")
    mended = rows.read_text("cp1251").replace("yesterday", "2024-05-16T10:00:00")
    put(tmp_path, *mended.splitlines(), name="mended.csv")
    assert await adapter.collect() == 1
    assert len(inbox.messages) == 3


async def test_csv_crash_mid_file_duplicates_and_loses_nothing(
    adapter: FolderAdapter, inbox: MemoryInbox, tmp_path: Path
) -> None:
    put(tmp_path, HEAD, GOOD, BAD, OTHER)
    inbox.fail_after = 2
    for _ in range(2):
        with pytest.raises(LabAgentError):
            await adapter.collect()
    assert await adapter.collect() == 1
    assert len(inbox.messages) == 2
    assert len(list((tmp_path / "results" / "failed").glob("rows-*.CSV"))) == 1


async def test_csv_report_that_cannot_be_stored_stops_no_other(
    adapter: FolderAdapter, inbox: MemoryInbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reports of one file are committed in groups; where a group fails, they are stored one by one, and the file stays."""
    file = put(tmp_path, HEAD, GOOD, *(OTHER.replace("B2", f"B{number}") for number in range(2, 60)))
    broken = True

    async def accept(inbox: MemoryInbox, name: str, message: LabMessage, whole: Any = MemoryInbox.accept) -> Any:
        if broken and isinstance(message, LabReport) and message.report_id == "B7":
            raise StoreError("it does not fit into its table")
        return await whole(inbox, name, message)

    monkeypatch.setattr(MemoryInbox, "accept", accept)
    with pytest.raises(LabAgentError):
        await adapter.collect()
    assert len(inbox.messages) == 58
    assert file.exists()
    broken = False
    assert await adapter.collect() == 1
    assert len(inbox.messages) == 59
    assert not file.exists()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x98" * 10,
        HEAD.replace("Report", "Rapport").encode() + b"\n" + GOOD.encode(),
        (HEAD + ";Value\n" + GOOD).encode(),
        (HEAD + '\nB1;"A7').encode(),
        (HEAD + "\nB1;\0").encode(),
    ],
)
async def test_csv_unreadable_file_moved_to_failed(
    adapter: FolderAdapter, inbox: MemoryInbox, tmp_path: Path, data: bytes
) -> None:
    (tmp_path / "results" / "bad.csv").write_bytes(data)
    put(tmp_path, HEAD, OTHER, name="good.csv")
    assert await adapter.collect() == 1
    assert (tmp_path / "results" / "failed" / "bad.csv").read_bytes() == data
    assert (tmp_path / "results" / "failed" / "bad.csv.reason.txt").read_text("utf-8")


async def test_csv_without_headings_uses_column_numbers(tmp_path: Path, inbox: MemoryInbox) -> None:
    for name in ("orders", "results"):
        (tmp_path / name).mkdir()
    columns = {"report_id": "1", "barcode": "2", "effective": "3", "code": "4", "value": "5"}
    table = {"columns": columns, "headings": False, "delimiter": ",", "code_system": "urn:ours"}
    adapter = FolderAdapter(settings(tmp_path, csv=table, csv_files="RES_*.TXT"), "folder")
    await adapter.start(inbox)
    put(tmp_path, "B1,0042,2024-05-17T08:30:00Z,HB,negative", name="res_1.txt")
    put(tmp_path, "unread", name="notes.txt")
    assert await adapter.collect() == 1
    (report,) = inbox.contents
    assert isinstance(report, LabReport)
    assert (report.observations[0].code.system, report.observations[0].value_string) == ("urn:ours", "negative")
    assert (tmp_path / "results" / "notes.txt").exists()
    await adapter.stop()


async def test_orders_and_results_in_configured_encoding(tmp_path: Path, inbox: MemoryInbox) -> None:
    for name in ("orders", "results"):
        (tmp_path / name).mkdir()
    name = "{date}_{requisition}_{contract}_{key}.ord"
    adapter = FolderAdapter(settings(tmp_path, encoding="cp1251", file_name=name, result_files="*.res"), "folder")
    await adapter.start(inbox)
    order = replace(
        make_order(1),
        requisition=Identifier(value="../../№ 7\n"),
        patient=OrderPatient(family="Ünal-Тестова 😀", given=("\\u0041",)),
    )
    await submit_order(adapter, order)
    await adapter.submit(order)
    (path,) = (tmp_path / "orders").glob("*.ord")
    assert path.name == f"{order.ordered_at.date()}_________7__C-01_{order.key}.ord"
    assert load_order(path.read_bytes().decode("cp1251").encode()) == order
    await adapter.cancel(order.key, (LineKey("L1"),), "отозвано")
    await adapter.cancel(order.key, (LineKey("L2"),), "Ü")
    assert "отозвано" in (tmp_path / "orders" / f"{order.key}.cancel.json").read_text("cp1251")
    report = make_report(1, make_order(1))
    (tmp_path / "results" / "1.RES").write_bytes(dump_message(report).decode().encode("cp1251"))
    (tmp_path / "results" / "2.res").write_bytes(b"\x98")
    assert await adapter.collect() == 1
    assert inbox.contents == [report]
    assert (tmp_path / "results" / "failed" / "2.res").exists()
    await adapter.stop()


@pytest.mark.parametrize(
    "wrong",
    [
        {"encoding": "klingon"},
        {"file_name": "{key}_{patient}.json"},
        {"file_name": "{key}{.json"},
        {"cancel_name": "{requisition}_{key}.json"},
        {"result_files": "../*.json"},
        {"csv": {"columns": {}}},
        {"csv": {"columns": {"report_id": "a", "effective": "b"}}},
        {"csv": {"columns": {**COLUMNS, "values": "c"}}},
        {"csv": {"columns": COLUMNS, "delimiter": ""}},
        {"csv": {"columns": COLUMNS, "encoding": "base64"}},
    ],
)
def test_invalid_folder_settings_rejected(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        settings(tmp_path, **wrong)


PATIENT_COLUMNS = {"patient_birth_date": "Geboren", "patient_sex": "Sex", "patient_id": "Nr", "patient_id_system": "System"}
NAME_COLUMNS = {"patient_family": "Name", "patient_given": "Vorname"}


async def collect_with_patient(folder: Path, inbox: MemoryInbox, *rows: str) -> None:
    table = {"columns": {**COLUMNS, **PATIENT_COLUMNS, **NAME_COLUMNS}, "decimal_comma": True}
    for name in ("orders", "results"):
        (folder / name).mkdir()
    adapter = FolderAdapter(settings(folder, csv=table), "folder")
    await adapter.start(inbox)
    put(folder, f"{HEAD};Geboren;Sex;Nr;System;Name;Vorname", *rows, encoding="utf-8")
    await adapter.collect()
    await adapter.stop()


@pytest.mark.parametrize("sex", ["F", "female", "2", "Ж", "W"])
@pytest.mark.parametrize("day", ["1980-02-29", "29.02.1980", "19800229", "1980-02-29 00:00:00"])
async def test_patient_columns_read_as_laboratories_write_them(tmp_path: Path, inbox: MemoryInbox, sex: str, day: str) -> None:
    await collect_with_patient(tmp_path, inbox, f"{GOOD};{day};{sex};12;urn:p; Müller ;Anna Maria")
    (report,) = inbox.contents
    assert isinstance(report, LabReport)
    expected = (Identifier(system="urn:p", value="12"),)
    named = ReportedPatient(family="Müller", given=("Anna Maria",), birth_date=date(1980, 2, 29), gender="female")
    assert report.patient == replace(named, identifiers=expected)


async def test_rows_of_two_patients_are_no_report(tmp_path: Path, inbox: MemoryInbox) -> None:
    await collect_with_patient(tmp_path, inbox, f"{GOOD};1980;F;;;;", f"{ALSO};1981;F;;;;", f"{OTHER};1980-02;;;;;")
    (report,) = inbox.contents
    assert isinstance(report, LabReport)
    assert (report.report_id, report.patient) == ("B2", ReportedPatient(birth_date=PartialDate("1980-02")))
    assert "patient_birth_date" in "".join(path.read_text() for path in (tmp_path / "results" / "failed").glob("*.reason.txt"))


async def test_unreadable_sex_is_named(tmp_path: Path, inbox: MemoryInbox) -> None:
    await collect_with_patient(tmp_path, inbox, f"{GOOD};;feminine;;;;")
    assert inbox.contents == []
    assert "patient.gender" in "".join(path.read_text() for path in (tmp_path / "results" / "failed").glob("*.reason.txt"))
