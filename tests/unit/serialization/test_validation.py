"""All errors are reported at once, each with its path and a hint; and no value is ever repeated."""

import json
from base64 import b64encode
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from lab_agent.lis import serialization
from lab_agent.lis.lab_messages import Document, LabRejection, LabReport, ReportedObservation, ReportStatus
from lab_agent.lis.lab_order import LabOrder
from lab_agent.shared.errors import DataInvalidError
from lab_agent.shared.values import Coding, PartialDate, Quantity
from tests.harness.documents import PDF

MOMENT = "2024-05-17T08:30:00+03:00"


def observation(**changes: Any) -> dict[str, Any]:
    return {"code": {"code": "718-7"}, "value_quantity": {"value": "1.20", "unit": "g/L"}, **changes}


def report(**changes: Any) -> dict[str, Any]:
    base = {"report_id": "B1", "status": "final", "order": "RABC", "effective": MOMENT, "issued": MOMENT}
    return {**base, "observations": [observation()], **changes}


def load(tree: Any, **options: Any) -> Any:
    return serialization.load_message(tree if isinstance(tree, bytes) else json.dumps(tree).encode(), **options)


def problems(tree: Any) -> dict[str, str]:
    with pytest.raises(DataInvalidError) as caught:
        load(tree)
    return {problem.where: f"{problem.what} — {problem.hint}" for problem in caught.value.problems}


def of_value(**value: Any) -> dict[str, Any]:
    """A report of one observation with this value."""
    return report(observations=[observation(value_quantity=None, **value)])


def test_decimal_is_read_exactly_or_reported() -> None:
    assert str(load(report()).observations[0].value_quantity.value) == "1.20"
    for value in ("1,20", "", "NaN", "Infinity", " 1.2", "1_000", "0x10", True, None, [], {}, "1e999999", "٣"):
        found = problems(report(observations=[observation(), observation(value_quantity={"value": value})]))
        assert list(found) == ["observations[1].value_quantity.value"], value
    assert "not JSON" in problems(json.dumps(report()).replace('"1.20"', "NaN").encode())["document"]


def test_sampled_data_invalid_in_fhir_rejected() -> None:
    good = {"origin": {"value": "0"}, "period": "10.0", "dimensions": 1, "data": "1.20 -2 E U L"}
    load(of_value(value_sampled_data=good))
    wrong = [("dimensions", 0), ("period", "-1"), ("period", 0)]
    for field, value in (*wrong, *(("data", text) for text in ("foo bar", "1  2", "1,2", "1E-5", ""))):
        found = problems(of_value(value_sampled_data={**good, field: value}))
        assert list(found) == [f"observations[0].value_sampled_data.{field}"], value


def test_period_ending_before_start_rejected() -> None:
    for start, end, is_valid in (
        ("2024-05-17T08:30:00+03:00", "2024-05-17T08:29:00+03:00", False),
        ("2024-05-17T23:00:00+03:00", "2024-05-17", True),
        ("2024-06", "2024-05", False),
    ):
        given = of_value(value_period={"start": start, "end": end})
        if is_valid:
            load(given)
        else:
            assert "ends before it starts" in problems(given)["observations[0].value_period"], (start, end)
    local = of_value(value_period={"start": MOMENT, "end": "2024-05-17T10:00:00"})
    with pytest.raises(DataInvalidError, match="ends before it starts"):
        load(local, time_zone=ZoneInfo("Asia/Vladivostok"))


DATA = b64encode(PDF).decode()


def test_document_in_base64_is_no_text() -> None:
    for changes, where in (
        ({"value_quantity": None, "value_string": f"{DATA[:60]}\n{DATA[60:]}"}, "value_string"),
        ({"value_quantity": None, "value_codeable_concept": {"text": DATA[:201]}}, "value_codeable_concept.text"),
        ({"note": f"data:application/pdf;base64,{DATA}"}, "note"),
    ):
        (found,) = problems(report(observations=[observation(**changes)])).items()
        assert (found[0], found[1][:24]) == (f"observations[0].{where}", "is a document in Base64 ")
    attached = observation(value_quantity=None, value_attachment={"content": DATA})
    read = load(report(documents=[{"content": f"{DATA[:60]}\r\n{DATA[60:]}"}], observations=[attached]))
    assert read.documents[0].content == PDF


def test_media_type_and_address_of_documents_are_checked() -> None:
    usable = ("https://lab/x?y=1", "http://[::1]:80/x", "fhir/Binary/7", "https://лаб.рф/отчёт.pdf")
    load(report(documents=[{"url": each, "content_type": 'text/plain; charset="utf-8"; format=flowed'} for each in usable]))
    wrong = [("content_type", {"url": "https://lab/1", "content_type": kind}) for kind in ("a/b\r\nX-Evil: 1", "")]
    for name, document in (*wrong, *(("url", {"url": each}) for each in ("file:///etc/passwd", "http://lab:x/"))):
        attached = observation(value_quantity=None, value_attachment=document)
        found = problems(report(documents=[document], observations=[attached]))
        assert set(found) == {f"documents[0].{name}", f"observations[0].value_attachment.{name}"}, document


def test_all_errors_reported_at_once() -> None:
    """And no value is repeated."""
    bad = report(
        status="done",
        issued="2024-05-17T08:30:00",
        efective=MOMENT,
        observations=[observation(value_string="x"), observation(value_quantity=None), observation(status=3)],
        documents=[{"content": "!!"}, {"file": "a.pdf", "url": "https://lab/x"}, {}],
    )
    found = problems(bad)
    observed = {"observations[0]", "observations[1]", "observations[2].status"}
    assert set(found) == {"status", "issued", "efective", *observed, "documents[0].content", "documents[1]", "documents[2]"}
    assert "did you mean 'effective'?" in found["efective"]
    assert "'final'" in found["status"]
    assert found["issued"] == "is a time without a zone — add the offset from UTC: write it as 2024-05-17T08:30:00+03:00"
    assert "value_quantity, value_string" in found["observations[0]"]
    assert "no value" in found["observations[1]"]
    secret = "Ivanova"
    found = problems(report(issued=secret, status=secret, lines=secret, observations=[observation(value_quantity=secret)]))
    assert (len(found), secret in str(found)) == (4, False)


def test_time_without_zone_rejected() -> None:
    """A time zone is never guessed; an adapter may know it."""
    for moment in (20240517, "20240517", "2024-05-17", "17.05.2024 08:30", 1715931000.5, "2024-02-30T08:00:00Z"):
        assert list(problems(report(issued=moment))) == ["issued"], moment
    read = load(report(issued="2024-05-17T08:30:00"), time_zone=ZoneInfo("Europe/Moscow"))
    assert read.issued == datetime(2024, 5, 17, 5, 30, tzinfo=UTC)
    assert read.effective.isoformat() == MOMENT
    said = observation(issued="2024-05-17")
    assert set(problems(report(issued="2024-05", observations=[said]))) == {"issued", "observations[0].issued"}


def test_date_without_time_read_and_written_as_it_is() -> None:
    """Where FHIR has a dateTime, a date may stand; nothing is added to it."""
    for day in ("2024", "2024-05", "2024-05-17"):
        period = {"start": day, "end": MOMENT}
        said = [{"code": {"code": "1"}, "value_date_time": day}, {"code": {"code": "1"}, "value_period": period}]
        read = load(report(effective=day, observations=said), time_zone=ZoneInfo("Europe/Moscow"))
        assert read.effective == PartialDate(day)
        written = json.loads(serialization.dump_message(read))
        assert (written["effective"], written["observations"][0]["value_date_time"]) == (day, day)
        assert written["observations"][1]["value_period"] == period
        assert serialization.validate_message(read) == read
    for day in ("2024-13", "2024-02-30", "0000", "24", "2024-5", "2024-05-", 2024):
        assert list(problems(report(effective=day))) == ["effective"], day


def test_what_no_database_can_keep_is_rejected() -> None:
    """A time that UTC cannot express, and a version: they are not retried for ever."""
    for moment in ("0001-01-01T00:00:00+03:00", "9999-12-31T23:59:59-05:00"):
        for name in ("issued", "effective"):
            assert "out of range" in problems(report(**{name: moment}))[name]
    for version in (2**63, 10**30):
        assert "too large" in problems(report(version=version))["version"]
        with pytest.raises(DataInvalidError, match="version"):
            serialization.validate_message(replace(load(report()), version=version))
    assert "negative" in problems(report(version=-1))["version"]
    for version in (0, 20240517083000123):
        load(report(version=version))


def test_report_names_an_order_in_some_way() -> None:
    for nothing in ({"order": None}, {"order": ""}, {"order": None, "lines": []}):
        assert "names no order" in problems(report(**nothing))["document"]
    for named in ({"lines": ["L1"]}, {"accession": "77"}, {"barcode": "0042"}):
        load({**report(), "order": None, **named})


BAD_NAMES = {
    "x" * 201: "longer than 200",
    "a\tb": "control character",
    "a\u2028b": "control character",
    " a": "white space",
    "a\n": "control",
}


@pytest.mark.parametrize("field", ["report_id", "order", "accession", "barcode", "lines", "items", "completes"])
def test_invalid_report_identifiers_rejected(field: str) -> None:
    """Identifiers in a report must be short and plain, in whatever language."""
    many = field in {"lines", "items", "completes"}
    for name, said in BAD_NAMES.items():
        found = problems(report(**{field: [name] if many else name}))
        assert said in found[f"{field}[0]" if many else field]
        assert name not in str(found)
    for name in ("Анализ № 7/2", "x" * 200, "a b"):
        load(report(**{field: [name] if many else name}))


def test_invalid_rejection_and_accession_identifiers_rejected() -> None:
    lines = [{"line": " L1", "reason": "x"}, {"item": "1\t", "reason": "x"}]
    found = problems({"kind": "rejection", "order": "R", "not_performed": lines})
    assert set(found) == {"not_performed[0].line", "not_performed[1].item"}
    numbers = [{"line": "L1", "number": "7" * 201}, {"barcode": "0 ", "number": "7"}]
    found = problems({"kind": "accession_update", "order": "R", "accessions": numbers})
    assert set(found) == {"accessions[0].number", "accessions[1].barcode"}


def test_duplicate_key_rejected_by_name() -> None:
    """The same key in two objects is none."""
    body = json.dumps(report())
    assert list(problems(('{"status": "partial", ' + body[1:]).encode())) == ["status"]
    assert list(problems(body.replace('"code": "718-7"', '"code": "1", "code": "718-7"').encode())) == ["code"]
    load(report(observations=[observation(), observation()]))


def test_stored_message_loads_despite_stricter_rules() -> None:
    """What is stored is read whatever the rules of today say."""
    body = json.dumps(report(version=-1, report_id=" x ", documents=[{"url": "file:///x"}])).encode()
    assert serialization.load_stored_message(body).version == -1  # type: ignore[union-attr]


def test_comparator_that_would_be_lost_rejected() -> None:
    """Each is one of four; that of a reference range is left out."""
    two = {"value": 2}
    for value, named in (
        ({"value_quantity": {"value": 1, "comparator": "~"}}, ["quantity"]),
        ({"value_range": {"low": {"value": 1, "comparator": ">"}, "high": two}}, ["range.low"]),
        (
            {"value_range": {"low": {"value": 1, "comparator": "~"}, "high": {**two, "comparator": "<="}}},
            ["range.low", "range.high"],
        ),
        (
            {"value_sampled_data": {"origin": {**two, "comparator": "<"}, "period": 1, "dimensions": 1, "data": "1"}},
            ["sampled_data.origin"],
        ),
    ):
        found = problems(report(observations=[observation(**{"value_quantity": None, **value})]))
        assert set(found) == {f"observations[0].value_{field}.comparator" for field in named}
    bounds = {"low": {"value": 1, "comparator": ">"}, "high": two}
    load(report(observations=[observation(reference_ranges=[bounds])]))


def test_nul_character_and_blank_value_reported() -> None:
    assert set(problems(report(observations=[observation(note="a\0b")], accession="\0"))) == {"observations[0].note", "accession"}
    for text in (" ", "\u00a0", "\t\n"):
        assert problems(of_value(value_string=text))["observations[0].value_string"].startswith("is blank")


def test_patient_that_nobody_could_compare_rejected() -> None:
    """A date of birth may be known in part."""
    for kind in ("report", "rejection"):
        found = problems({"kind": kind, "order": "O", "patient": {"gender": "F", "birth_date": "80-01-31"}})
        assert {"patient.gender", "patient.birth_date"} <= found.keys()
    for text, read in (("1980-01-31", date(1980, 1, 31)), ("1980-01", PartialDate("1980-01"))):
        assert serialization.load_reported_patient(json.dumps({"birth_date": text}).encode()).birth_date == read


def test_rejection_distinguished_by_kind() -> None:
    said = [{"line": "L1", "reason": "haemolysed"}]
    body = {"kind": "rejection", "order": "RABC", "not_performed": said, "collect_again": True}
    assert isinstance(load(body), LabRejection)
    assert set(problems({**body, "kind": "denial"})) == {"kind"}
    assert set(problems({**body, "not_performed": []})) == {"not_performed"}
    assert set(problems({**body, "not_performed": [{"reason": " "}]})) == {"not_performed[0].reason"}


def test_non_object_json_is_one_error() -> None:
    """A byte order mark is none, and null is as good as missing."""
    for body in (b"", b"[]", b"7", b"{", b"[" * 100_000, b"\xff\xfe{}", b'{"a": 1' + b"0" * 6000 + b"}"):
        assert "document" in problems(body), body[:9]
    body = json.dumps(report(lines=None, documents=None, version=None)).encode()
    assert load(b"\xef\xbb\xbf" + body) == load(report())


def test_empty_completes_differs_from_default() -> None:
    """A report that says it completes nothing is not one that leaves the field out."""
    nothing = load(report(completes=[]))
    assert nothing.completes == ()
    assert load(serialization.dump_message(nothing)) == nothing


def in_python(value: Any, issued: datetime) -> LabReport:
    seen = ReportedObservation(code=Coding(code="718-7"), value_quantity=Quantity(value=value))
    return LabReport(report_id="B1", status=ReportStatus.FINAL, order="R", effective=issued, issued=issued, observations=(seen,))


def test_value_built_in_python_is_rejected_by_name() -> None:
    now = datetime.now(UTC)
    for value, issued, said in (
        (1.2, now, r"observations\[0\]\.value_quantity\.value: is a float — give a Decimal"),
        (Decimal("NaN"), now, r"observations\[0\]\.value_quantity\.value: is not a finite number"),
        (Decimal(1), datetime(2024, 5, 17), "effective: is a time without a zone"),  # noqa: DTZ001
    ):
        with pytest.raises(DataInvalidError, match=said):
            serialization.dump_message(in_python(value, issued))
    serialization.validate_message(in_python(Decimal("1.20"), now))
    bad = LabReport(report_id="B1", status=ReportStatus.FINAL, effective=now, issued=now, documents=(Document(),))
    with pytest.raises(DataInvalidError) as caught:
        serialization.validate_message(bad)
    assert {problem.where for problem in caught.value.problems} == {"document", "documents[0]"}


def test_order_of_newer_format_reported() -> None:
    with pytest.raises(DataInvalidError, match="schema_version: is a newer version") as caught:
        serialization.load_order(b'{"schema_version": 2, "patient": {"birth_date": 19800101}}')
    assert "patient.birth_date" in str(caught.value)


def test_medical_part_contains_no_patient_data() -> None:
    tree = {
        "key": "R",
        "requisition": {"value": "77"},
        "contract": "C",
        "ordered_at": MOMENT,
        "patient": {"anonymous": False, "family": "Ivanova", "birth_date": "1980-01-31"},
        "lines": [],
    }
    line = {"key": "L1", "item": "001", "ordered_at": MOMENT, "notes": ["Call Ivanova"]}
    specimens = [{"id": "S1", "supporting_info": "Ivanova, 3"}, {"id": "S2"}]
    for lines in ([], [line, {**line, "key": "L2", "notes": []}]):
        order = serialization.load_order(json.dumps({**tree, "lines": lines, "specimens": specimens}).encode())
        medical, identity = serialization.split_identity(order)
        assert b"Ivanova" not in medical
        assert b"1980" not in medical
        sealed = {"line_notes": None, "specimen_infos": {"S1": "Ivanova, 3"}}
        assert {**json.loads(identity), "line_notes": None} == {**tree["patient"], **sealed}
        assert serialization.load_order_patient(identity) == order.patient
        assert serialization.join_identity(medical, identity) == order
        purged = serialization.join_identity(medical, b"{}")
        assert isinstance(purged, LabOrder)
        assert purged.patient.family is None
        assert [each.notes for each in purged.lines] == [()] * len(lines)
        assert [each.supporting_info for each in purged.specimens] == [None, None]


def test_schemas_match_what_is_accepted() -> None:
    schema, order = serialization.message_schema(), serialization.order_schema()
    assert schema["$defs"]["LabRejection"]["properties"]["kind"] == {"const": "rejection"}
    assert {"required": ["value_quantity"]} in schema["$defs"]["ReportedObservation"]["oneOf"]
    assert schema["$defs"]["LabReport"]["additionalProperties"] is False
    assert order["$defs"]["OrderPatient"]["properties"]["birth_date"]
    named = schema["$defs"]["LabReport"]["properties"]
    assert (named["barcode"]["maxLength"], named["lines"]["items"]["maxLength"]) == (200, 200)
    forms = [each.get("format", each.get("pattern")) for each in named["effective"]["anyOf"]]
    assert (forms, named["issued"]["format"]) == (["date-time", r"^\d{4}(-\d\d(-\d\d)?)?$"], "date-time")
    assert "maxLength" not in json.dumps([order, schema["$defs"]["ReportedObservation"]])
