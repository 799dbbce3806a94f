"""Results as CSV, other encodings, other names: what is good is taken digit for digit, what is bad comes back with its reason."""

from dataclasses import replace
from datetime import date
from typing import Any

import pytest
from pydantic import ValidationError

from lab_agent.lis.folder import FolderAdapter
from lab_agent.lis.lab_messages import LabMessage, LabReport, ReportedPatient
from lab_agent.lis.lab_order import OrderPatient
from lab_agent.lis.serialization import dump_message, load_order
from lab_agent.lis.testing import MemoryInbox, make_order, submit_order
from lab_agent.shared.errors import LabAgentError, StoreError
from lab_agent.shared.ids import LineKey
from lab_agent.shared.values import Identifier, PartialDate
from tests.integration.lis.folder.conftest import REPORT, Place

HEAD = "Report;Sample;Test;Collected;LOINC;Value;Unit;Low;High;Flag;Refused;Analyser"
NAMES = ("report_id", "accession", "item", "effective", "code", "value", "unit", "low", "high", "flag", "not_performed")
COLUMNS = dict(zip(NAMES, HEAD.split(";"), strict=False))
GOOD = "B1;A7;010.001;2024-05-17T08:30:00;718-7;13,40;g/dL;11,7;15,5;H;;XN-1000"
ALSO = "B1;A7;010.002;2024-05-17T08:30:00;2345-7;<0,50;mmol/L;;;;;AU"
OTHER = "B2;A8;010.003;2024-05-17T09:00:00;;;;;;;спецэритроциты разрушены;"
BAD = "B3;A9;010.001;yesterday;718-7;140;g/L;;;;;"
CSV = {"columns": COLUMNS, "encoding": "cp1251", "decimal_comma": True}


async def start(place: Place, **more: Any) -> FolderAdapter:
    return await place.adapter(**{"time_zone": "Europe/Moscow", "csv": CSV, **more})


def put(place: Place, *rows: str, name: str = "day.CSV", encoding: str = "cp1251") -> None:
    place.put(name, "".join(f"{row}\r\n" for row in rows).encode(encoding))


async def test_csv_rows_become_reports_with_exact_digits(place: Place) -> None:
    put(place, HEAD, GOOD, ALSO, "", OTHER)
    assert await (await start(place)).collect() == 2
    first, second = place.inbox.contents
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
    assert place.names("done") == ["day.CSV"]


async def test_csv_row_with_reason_is_not_performed(place: Place) -> None:
    """Also where its code is filled in; but a code alone is neither a value nor the name of a test of the order."""
    adapter = await start(place)
    put(place, HEAD, GOOD, "B1;A7;010.002;2024-05-17T08:30:00;2345-7;;;;;;clotted;")
    assert await adapter.collect() == 1
    assert [one.code.code for one in place.report.observations] == ["718-7"]
    assert [(one.item, one.reason) for one in place.report.not_performed] == [("010.002", "clotted")]
    assert place.report.items == ("010.001", "010.002")
    for row, words in (
        ("B1;A7;;2024-05-17T08:30:00;2345-7;;;;;;clotted;", "not_performed: row 2 has a reason and a code, but neither"),
        ("B1;A7;010.002;2024-05-17T08:30:00;2345-7;;;;;;;", "observations[0]: has no value"),
    ):
        put(place, HEAD, row)
        assert await adapter.collect() == 0
        assert words in place.reasons()


async def test_csv_invalid_report_returned_others_accepted(place: Place) -> None:
    """An invalid report does not block the others, and its rows come back in a file of their own, also after a crash."""
    adapter = await start(place)
    put(place, HEAD, GOOD, BAD, OTHER)
    place.inbox.fail_after = 2
    for _ in range(2):
        with pytest.raises(LabAgentError):
            await adapter.collect()
    assert await adapter.collect() == 1
    assert len(place.inbox.messages) == 2
    (rows,) = (place.results / "failed").glob("rows-*.CSV")
    assert rows.read_text("cp1251").splitlines() == [HEAD, BAD]
    assert "rows 3: effective" in place.reasons()
    put(place, *rows.read_text("cp1251").replace("yesterday", "2024-05-16T10:00:00").splitlines(), name="mended.csv")
    assert await adapter.collect() == 1
    assert len(place.inbox.messages) == 3


async def test_csv_report_that_cannot_be_stored_stops_no_other(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports of one file are committed in groups; where a group fails, they are stored one by one, and the file stays."""
    adapter = await start(place)
    put(place, HEAD, GOOD, *(OTHER.replace("B2", f"B{number}") for number in range(2, 60)))
    broken = True

    async def accept(inbox: MemoryInbox, name: str, message: LabMessage, whole: Any = MemoryInbox.accept) -> Any:
        if broken and isinstance(message, LabReport) and message.report_id == "B7":
            raise StoreError("it does not fit into its table")
        return await whole(inbox, name, message)

    monkeypatch.setattr(MemoryInbox, "accept", accept)
    with pytest.raises(LabAgentError):
        await adapter.collect()
    assert (len(place.inbox.messages), place.names()) == (58, ["day.CSV"])
    broken = False
    assert await adapter.collect() == 1
    assert (len(place.inbox.messages), place.names()) == (59, [])


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"\x98" * 10, (HEAD + '\nB1;"A7').encode(), (HEAD + "\nB1;\0").encode(), (HEAD + ";Value\n" + GOOD).encode()),
        HEAD.replace("Report", "Rapport").encode() + b"\n" + GOOD.encode(),
    ],
)
async def test_csv_unreadable_file_moved_to_failed(place: Place, data: bytes) -> None:
    place.put("bad.csv", data)
    put(place, HEAD, OTHER, name="good.csv")
    assert await (await start(place)).collect() == 1
    assert (place.results / "failed" / "bad.csv").read_bytes() == data
    assert (place.results / "failed" / "bad.csv.reason.txt").read_text("utf-8")


async def test_csv_without_headings_uses_column_numbers(place: Place) -> None:
    columns = {"report_id": "1", "barcode": "2", "effective": "3", "code": "4", "value": "5"}
    table = {"columns": columns, "headings": False, "delimiter": ",", "code_system": "urn:ours"}
    put(place, "B1,0042,2024-05-17T08:30:00Z,HB,negative", name="res_1.txt")
    put(place, "unread", name="notes.txt")
    assert await (await start(place, csv=table, csv_files="RES_*.TXT")).collect() == 1
    [one] = place.report.observations
    assert (one.code.system, one.value_string) == ("urn:ours", "negative")
    assert place.names() == ["notes.txt"]


async def test_orders_and_results_in_configured_encoding(place: Place) -> None:
    name = "{date}_{requisition}_{contract}_{key}.ord"
    adapter = await start(place, encoding="cp1251", file_name=name, result_files="*.res")
    patient = OrderPatient(family="Ünal-Тестова 😀", given=("\\u0041",))
    order = replace(make_order(1), requisition=Identifier(value="../../№ 7\n"), patient=patient)
    await submit_order(adapter, order)
    await adapter.submit(order)
    (path,) = place.orders.glob("*.ord")
    assert path.name == f"{order.ordered_at.date()}_________7__C-01_{order.key}.ord"
    assert load_order(path.read_bytes().decode("cp1251").encode()) == order
    await adapter.cancel(order.key, (LineKey("L1"),), "отозвано")
    await adapter.cancel(order.key, (LineKey("L2"),), "Ü")
    assert "отозвано" in (place.orders / f"{order.key}.cancel.json").read_text("cp1251")
    place.put("1.RES", dump_message(REPORT).decode().encode("cp1251"))
    place.put("2.res", b"\x98")
    assert await adapter.collect() == 1
    assert place.inbox.contents == [REPORT]
    assert (place.results / "failed" / "2.res").exists()


@pytest.mark.parametrize(
    "wrong",
    [
        *({"encoding": "klingon"}, {"result_files": "../*.json"}, {"cancel_name": "{requisition}_{key}.json"}),
        *({"file_name": name} for name in ("{key}_{patient}.json", "{key}{.json", "order.json", "{key}/x.json", ".{key}.json")),
        *({"file_name": name} for name in ("{key}.part", "{key}{key}")),
        *({"complete_marker": name} for name in ("ok", "{name}", "{key}.ok", "{name}{stem}.ok", "../{name}.ok")),
        *({"csv": {"columns": columns}} for columns in ({}, {"report_id": "a", "effective": "b"}, {**COLUMNS, "values": "c"})),
        *({"csv": {**CSV, "date_format": form}} for form in ("%H:%M", "%d.%m", "%q")),
        *({"csv": {**CSV, **each}} for each in ({"delimiter": ""}, {"encoding": "base64"}, {"dialect": "excel-fr"})),
    ],
)
def test_invalid_folder_settings_rejected(place: Place, wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        place.settings(**wrong)


PATIENT_COLUMNS = {"patient_birth_date": "Geboren", "patient_sex": "Sex", "patient_id": "Nr", "patient_id_system": "System"}
NAME_COLUMNS = {"patient_family": "Name", "patient_given": "Vorname"}
PATIENT_CSV = {"columns": {**COLUMNS, **PATIENT_COLUMNS, **NAME_COLUMNS}, "decimal_comma": True}


async def collect_with_patient(place: Place, *rows: str) -> None:
    put(place, f"{HEAD};Geboren;Sex;Nr;System;Name;Vorname", *rows, encoding="utf-8")
    await (await start(place, csv=PATIENT_CSV)).collect()


async def test_patient_columns_read_as_laboratories_write_them(place: Place) -> None:
    written = [(sex, "29.02.1980") for sex in ("F", "female", "2", "Ж", "W")]
    written += [("F", day) for day in ("1980-02-29", "19800229", "1980-02-29 00:00:00")]
    rows = (f"{GOOD};{day};{sex};12;urn:p; Müller ;Anna Maria" for sex, day in written)
    await collect_with_patient(place, *(row.replace("B1", f"B{number}") for number, row in enumerate(rows)))
    named = ReportedPatient(family="Müller", given=("Anna Maria",), birth_date=date(1980, 2, 29), gender="female")
    expected = replace(named, identifiers=(Identifier(system="urn:p", value="12"),))
    assert [one.patient for one in place.inbox.contents if isinstance(one, LabReport)] == [expected] * len(written)


async def test_rows_of_two_patients_are_no_report(place: Place) -> None:
    unreadable = f"{GOOD.replace('B1', 'B4')};;feminine;;;;"
    await collect_with_patient(place, f"{GOOD};1980;F;;;;", f"{ALSO};1981;F;;;;", f"{OTHER};1980-02;;;;;", unreadable)
    assert (place.report.report_id, place.report.patient) == ("B2", ReportedPatient(birth_date=PartialDate("1980-02")))
    assert "patient_birth_date" in place.reasons()
    assert "patient.gender" in place.reasons()
