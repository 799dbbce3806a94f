"""All errors are reported at once, each with its path and a hint; and no value is ever repeated."""

import json
from base64 import b64encode
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from lab_agent import serialization
from lab_agent.domain.lab_messages import Document, LabRejection, LabReport, ReportedObservation, ReportStatus
from lab_agent.domain.lab_order import LabOrder
from lab_agent.domain.values import Coding, PartialDate, Quantity
from lab_agent.errors import DataInvalidError
from lab_agent.serialization.types import strict_schema
from tests.harness.documents import PDF

MOMENT = "2024-05-17T08:30:00+03:00"


def observation(**changes: Any) -> dict[str, Any]:
    return {"code": {"code": "718-7"}, "value_quantity": {"value": "1.20", "unit": "g/L"}, **changes}


def report(**changes: Any) -> dict[str, Any]:
    base = {"report_id": "B1", "status": "final", "order": "RABC", "effective": MOMENT, "issued": MOMENT}
    return {**base, "observations": [observation()], **changes}


def problems(tree: Any) -> dict[str, str]:
    with pytest.raises(DataInvalidError) as caught:
        serialization.load_message(tree if isinstance(tree, bytes) else json.dumps(tree).encode())
    return {problem.where: f"{problem.what} — {problem.hint}" for problem in caught.value.problems}


def test_decimal_accepted_as_text() -> None:
    read = serialization.load_message(json.dumps(report()).encode())
    assert isinstance(read, LabReport)
    assert str(read.observations[0].value_quantity.value) == "1.20"  # type: ignore[union-attr]


@pytest.mark.parametrize("value", ["1,20", "", "NaN", "Infinity", " 1.2", "1_000", "0x10", True, None, [], {}, "1e999999", "٣"])
def test_invalid_decimal_reported(value: Any) -> None:
    found = problems(report(observations=[observation(), observation(value_quantity={"value": value})]))
    assert list(found) == ["observations[1].value_quantity.value"]


@pytest.mark.parametrize(
    ("series", "field"),
    [
        ({"dimensions": 0}, "dimensions"),
        ({"period": "-1"}, "period"),
        ({"period": 0}, "period"),
        ({"data": "foo bar"}, "data"),
        ({"data": "1  2"}, "data"),
        ({"data": "1,2"}, "data"),
        ({"data": "1E-5"}, "data"),
        ({"data": ""}, "data"),
    ],
)
def test_sampled_data_invalid_in_fhir_rejected(series: dict[str, Any], field: str) -> None:
    """A series that FHIR does not know is rejected."""
    good = {"origin": {"value": "0"}, "period": "10.0", "dimensions": 1, "data": "1.20 -2 E U L"}
    serialization.load_message(
        json.dumps(report(observations=[observation(value_quantity=None, value_sampled_data=good)])).encode()
    )
    found = problems(report(observations=[observation(value_quantity=None, value_sampled_data={**good, **series})]))
    assert list(found) == [f"observations[0].value_sampled_data.{field}"]


def test_period_ending_before_start_rejected() -> None:
    ends = {"start": "2024-05-17T08:30:00+03:00", "end": "2024-05-17T08:29:00+03:00"}
    found = problems(report(observations=[observation(value_quantity=None, value_period=ends)]))
    assert list(found) == ["observations[0].value_period"]
    local = json.dumps(
        report(observations=[observation(value_quantity=None, value_period={**ends, "end": "2024-05-17T10:00:00"})])
    )
    with pytest.raises(DataInvalidError, match="ends before it starts"):
        serialization.load_message(local.encode(), time_zone=ZoneInfo("Asia/Vladivostok"))


@pytest.mark.parametrize("text", [" ", "\u00a0", "\t\n"])
def test_blank_value_rejected(text: str) -> None:
    found = problems(report(observations=[observation(value_quantity=None, value_string=text)]))
    assert found == {"observations[0].value_string": "is blank — write the value, or leave the observation out"}


DATA = b64encode(PDF).decode()


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"value_quantity": None, "value_string": DATA}, "value_string"),
        ({"value_quantity": None, "value_string": f"{DATA[:60]}\n{DATA[60:]}"}, "value_string"),
        ({"value_quantity": None, "value_codeable_concept": {"text": DATA[:201]}}, "value_codeable_concept.text"),
        ({"note": f"data:application/pdf;base64,{DATA}"}, "note"),
    ],
)
def test_document_in_base64_rejected_as_text(changes: dict[str, Any], where: str) -> None:
    (found,) = problems(report(observations=[observation(**changes)])).items()
    assert found[0] == f"observations[0].{where}"
    assert found[1].startswith("is a document in Base64")


def test_document_in_base64_accepted_as_document() -> None:
    attached = observation(value_quantity=None, value_attachment={"content": DATA})
    tree = report(documents=[{"content": f"{DATA[:60]}\r\n{DATA[60:]}"}], observations=[attached])
    read = serialization.load_message(json.dumps(tree).encode())
    assert isinstance(read, LabReport)
    assert read.documents[0].content == PDF


@pytest.mark.parametrize(
    "kind", ['application/pdf; name="отчёт"', "a/b\r\nX-Evil: 1", "x/y/z", "/", "a/", "", "application/ pdf"]
)
def test_invalid_media_type_rejected(kind: str) -> None:
    document = {"url": "https://lab.example/1", "content_type": kind}
    attached = observation(value_quantity=None, value_attachment=document)
    found = problems(report(documents=[document], observations=[attached]))
    assert set(found) == {"documents[0].content_type", "observations[0].value_attachment.content_type"}
    assert all("such as application/pdf" in one for one in found.values())


@pytest.mark.parametrize("kind", ["application/pdf", "Application/PDF;version=1", 'text/plain; charset="utf-8"; format=flowed'])
def test_media_type_parameters_accepted(kind: str) -> None:
    serialization.load_message(json.dumps(report(documents=[{"url": "https://lab.example/1", "content_type": kind}])).encode())


def test_bare_nan_rejected_as_json() -> None:
    body = json.dumps(report()).replace('"1.20"', "NaN").encode()
    assert "not JSON" in problems(body)["document"]


def test_all_errors_reported_at_once() -> None:
    bad = report(
        status="done",
        issued="2024-05-17T08:30:00",
        efective=MOMENT,
        observations=[observation(value_string="x"), observation(value_quantity=None), observation(status=3)],
        documents=[{"content": "!!"}, {"file": "a.pdf", "url": "https://lab/x"}, {}],
    )
    found = problems(bad)
    assert set(found) == {
        "status",
        "issued",
        "efective",
        "observations[0]",
        "observations[1]",
        "observations[2].status",
        "documents[0].content",
        "documents[1]",
        "documents[2]",
    }
    assert "did you mean 'effective'?" in found["efective"]
    assert "'final'" in found["status"]
    assert found["issued"] == "is a time without a zone — add the offset from UTC: write it as 2024-05-17T08:30:00+03:00"
    assert "value_quantity, value_string" in found["observations[0]"]
    assert "no value" in found["observations[1]"]


@pytest.mark.parametrize("moment", [20240517, "20240517", "2024-05-17", "17.05.2024 08:30", 1715931000.5, "2024-02-30T08:00:00Z"])
def test_time_without_zone_rejected(moment: Any) -> None:
    """A time zone is never guessed."""
    assert list(problems(report(issued=moment))) == ["issued"]


def test_adapter_may_supply_time_zone() -> None:
    body = json.dumps(report(issued="2024-05-17T08:30:00")).encode()
    read = serialization.load_message(body, time_zone=ZoneInfo("Europe/Moscow"))
    assert isinstance(read, LabReport)
    assert read.issued == datetime(2024, 5, 17, 5, 30, tzinfo=UTC)
    assert read.effective.isoformat() == MOMENT


@pytest.mark.parametrize("date", ["2024", "2024-05", "2024-05-17"])
def test_date_without_time_read_and_written_as_it_is(date: str) -> None:
    """Where FHIR has a dateTime, a date may stand; nothing is added to it."""
    said = [
        {"code": {"code": "1"}, "value_date_time": date},
        {"code": {"code": "1"}, "value_period": {"start": date, "end": MOMENT}},
    ]
    body = json.dumps(report(effective=date, observations=said)).encode()
    read = serialization.load_message(body, time_zone=ZoneInfo("Europe/Moscow"))
    assert isinstance(read, LabReport)
    assert read.effective == PartialDate(date)
    written = json.loads(serialization.dump_message(read))
    assert (written["effective"], written["observations"][0]["value_date_time"]) == (date, date)
    assert written["observations"][1]["value_period"] == {"start": date, "end": MOMENT}
    assert serialization.validate_message(read) == read


@pytest.mark.parametrize("date", ["2024-13", "2024-02-30", "0000", "24", "2024-5", "2024-05-", 2024])
def test_date_that_does_not_exist_rejected(date: Any) -> None:
    assert list(problems(report(effective=date))) == ["effective"]


def test_issued_needs_a_time() -> None:
    """Both are an instant in FHIR."""
    said = observation(issued="2024-05-17")
    assert set(problems(report(issued="2024-05", observations=[said]))) == {"issued", "observations[0].issued"}


@pytest.mark.parametrize(
    ("start", "end", "is_valid"),
    [
        ("2024-05", "2024-05", True),
        ("2024-05-17", "2024", True),
        ("2024-05-17T23:00:00+03:00", "2024-05-17", True),
        ("2024-06", "2024-05", False),
        ("2024-05-18T01:00:00+03:00", "2024-05-17", False),
    ],
)
def test_period_of_dates_must_not_end_before_start(start: str, end: str, is_valid: bool) -> None:
    span = {"code": {"code": "1"}, "value_period": {"start": start, "end": end}}
    given = report(observations=[span])
    if is_valid:
        serialization.load_message(json.dumps(given).encode())
    else:
        assert "ends before it starts" in problems(given)["observations[0].value_period"]


@pytest.mark.parametrize("moment", ["0001-01-01T00:00:00+03:00", "9999-12-31T23:59:59-05:00"])
@pytest.mark.parametrize("name", ["issued", "effective"])
def test_time_outside_utc_range_rejected(name: str, moment: str) -> None:
    """A time that UTC cannot express is rejected, and not retried for ever."""
    assert "out of range" in problems(report(**{name: moment}))[name]


@pytest.mark.parametrize("version", [2**63, 10**30])
def test_version_beyond_database_range_rejected(version: int) -> None:
    """A version that no database can keep is rejected, and not retried for ever."""
    assert "too large" in problems(report(version=version))["version"]
    with pytest.raises(DataInvalidError, match="version"):
        serialization.validate_message(replace(serialization.load_message(json.dumps(report()).encode()), version=version))  # type: ignore[type-var]


def test_timestamp_accepted_as_version() -> None:
    serialization.load_message(json.dumps(report(version=20240517083000123)).encode())


@pytest.mark.parametrize("named", [{"order": None}, {"order": ""}, {"order": None, "lines": []}])
def test_report_without_order_reference_rejected(named: dict[str, Any]) -> None:
    assert "names no order" in problems(report(**named))["document"]


@pytest.mark.parametrize("named", [{"lines": ["L1"]}, {"accession": "77"}, {"barcode": "0042"}])
def test_any_order_reference_suffices(named: dict[str, Any]) -> None:
    serialization.load_message(json.dumps({**report(), "order": None, **named}).encode())


def test_negative_version_rejected() -> None:
    assert "negative" in problems(report(version=-1))["version"]
    serialization.load_message(json.dumps(report(version=0)).encode())


BAD_NAMES = {
    "x" * 201: "longer than 200",
    "a\tb": "control character",
    "a\u2028b": "control character",
    " a": "white space",
    "a\n": "control",
}


@pytest.mark.parametrize("name", sorted(BAD_NAMES))
@pytest.mark.parametrize("field", ["report_id", "order", "accession", "barcode", "lines", "items", "completes"])
def test_invalid_report_identifiers_rejected(field: str, name: str) -> None:
    """Identifiers in a report must be short and plain."""
    many = field in {"lines", "items", "completes"}
    found = problems(report(**{field: [name] if many else name}))
    assert BAD_NAMES[name] in found[f"{field}[0]" if many else field]
    assert name not in str(found)


def test_invalid_rejection_and_accession_identifiers_rejected() -> None:
    """Identifiers in rejections and accession updates must be short and plain too."""
    rejection = {
        "kind": "rejection",
        "order": "R",
        "not_performed": [{"line": " L1", "reason": "x"}, {"item": "1\t", "reason": "x"}],
    }
    assert set(problems(rejection)) == {"not_performed[0].line", "not_performed[1].item"}
    receipt = {
        "kind": "accession_update",
        "order": "R",
        "accessions": [{"line": "L1", "number": "7" * 201}, {"barcode": "0 ", "number": "7"}],
    }
    assert set(problems(receipt)) == {"accessions[0].number", "accessions[1].barcode"}


def test_long_non_ascii_identifiers_accepted() -> None:
    """Identifiers in other languages and of two hundred characters are accepted."""
    serialization.load_message(json.dumps(report(report_id="Анализ № 7/2", accession="x" * 200, barcode="a b")).encode())


@pytest.mark.parametrize(
    "url",
    ["http://[::1", "http://", "file:///etc/passwd", "C:\\x.pdf", "//other/x", "mailto:a@b", "https://lab/a b", "http://lab:x/"],
)
def test_unusable_document_url_rejected(url: str) -> None:
    assert list(problems(report(documents=[{"url": url}]))) == ["documents[0].url"]
    attached = observation(value_quantity=None, value_attachment={"url": url})
    assert list(problems(report(observations=[attached]))) == ["observations[0].value_attachment.url"]


@pytest.mark.parametrize("url", ["https://lab/x?y=1", "http://[::1]:80/x", "fhir/Binary/7", "/x.pdf", "https://лаб.рф/отчёт.pdf"])
def test_usable_document_url_accepted(url: str) -> None:
    serialization.load_message(json.dumps(report(documents=[{"url": url}])).encode())


@pytest.mark.parametrize("where", ["top", "within"])
def test_duplicate_key_rejected_by_name(where: str) -> None:
    body = json.dumps(report())
    twice = (
        '{"status": "partial", ' + body[1:] if where == "top" else body.replace('"code": "718-7"', '"code": "1", "code": "718-7"')
    )
    assert list(problems(twice.encode())) == ["status" if where == "top" else "code"]


def test_same_key_in_two_objects_accepted() -> None:
    serialization.load_message(json.dumps(report(observations=[observation(), observation()])).encode())


def test_stored_message_loads_despite_stricter_rules() -> None:
    """What is stored is read whatever the rules of today say."""
    body = json.dumps(report(version=-1, report_id=" x ", documents=[{"url": "file:///x"}])).encode()
    kept = serialization.load_stored_message(body)
    assert isinstance(kept, LabReport)
    assert kept.version == -1


def test_comparator_is_one_of_four() -> None:
    found = problems(report(observations=[observation(value_quantity={"value": 1, "comparator": "~"})]))
    assert list(found) == ["observations[0].value_quantity.comparator"]


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ({"value_range": {"low": {"value": 1, "comparator": ">"}, "high": {"value": 2}}}, ["value_range.low.comparator"]),
        (
            {"value_range": {"low": {"value": 1, "comparator": "~"}, "high": {"value": 2, "comparator": "<="}}},
            ["value_range.low.comparator", "value_range.high.comparator"],
        ),
        (
            {"value_sampled_data": {"origin": {"value": 0, "comparator": "<"}, "period": 1, "dimensions": 1, "data": "1"}},
            ["value_sampled_data.origin.comparator"],
        ),
    ],
)
def test_comparator_that_would_be_lost_rejected(value: dict[str, Any], named: list[str]) -> None:
    found = problems(report(observations=[observation(value_quantity=None, **value)]))
    assert set(found) == {f"observations[0].{field}" for field in named}


def test_reference_range_comparator_ignored() -> None:
    bounds = {"low": {"value": 1, "comparator": ">"}, "high": {"value": 2}}
    serialization.load_message(json.dumps(report(observations=[observation(reference_ranges=[bounds])])).encode())


def test_nul_character_reported() -> None:
    assert set(problems(report(observations=[observation(note="a\0b")], accession="\0"))) == {"observations[0].note", "accession"}


@pytest.mark.parametrize("kind", ["report", "rejection"])
def test_sex_that_nobody_could_compare_rejected(kind: str) -> None:
    found = problems({"kind": kind, "order": "O", "patient": {"gender": "F", "birth_date": "80-01-31"}})
    assert {"patient.gender", "patient.birth_date"} <= found.keys()


@pytest.mark.parametrize(("text", "read"), [("1980-01-31", date(1980, 1, 31)), ("1980-01", PartialDate("1980-01"))])
def test_birth_date_may_be_known_in_part(text: str, read: Any) -> None:
    said = serialization.load_reported_patient(json.dumps({"birth_date": text}).encode())
    assert said.birth_date == read


def test_rejection_distinguished_by_kind() -> None:
    body = {
        "kind": "rejection",
        "order": "RABC",
        "not_performed": [{"line": "L1", "reason": "haemolysed"}],
        "collect_again": True,
    }
    assert isinstance(serialization.load_message(json.dumps(body).encode()), LabRejection)
    assert set(problems({**body, "kind": "denial"})) == {"kind"}
    assert set(problems({**body, "not_performed": []})) == {"not_performed"}
    assert set(problems({**body, "not_performed": [{"reason": " "}]})) == {"not_performed[0].reason"}


@pytest.mark.parametrize("body", [b"", b"[]", b"7", b"{", b"[" * 100_000, b"\xff\xfe{}", b'{"a": 1' + b"0" * 6000 + b"}"])
def test_non_object_json_is_one_error(body: bytes) -> None:
    assert "document" in problems(body)


def test_byte_order_mark_accepted() -> None:
    serialization.load_message(b"\xef\xbb\xbf" + json.dumps(report()).encode())


def test_error_messages_do_not_repeat_values() -> None:
    secret = "Ivanova"
    found = problems(report(issued=secret, status=secret, lines=secret, observations=[observation(value_quantity=secret)]))
    assert len(found) == 4
    assert secret not in str(found)


def test_null_equals_missing() -> None:
    body = json.dumps(report(lines=None, documents=None, version=None)).encode()
    assert serialization.load_message(body) == serialization.load_message(json.dumps(report()).encode())


def test_empty_completes_differs_from_default() -> None:
    """A report that says it completes nothing is not one that leaves the field out."""
    nothing = serialization.load_message(json.dumps(report(completes=[])).encode())
    assert isinstance(nothing, LabReport)
    assert nothing.completes == ()
    assert serialization.load_message(serialization.dump_message(nothing)) == nothing


def in_python(value: Any, issued: datetime) -> LabReport:
    quantity = Quantity(value=value)
    seen = ReportedObservation(code=Coding(code="718-7"), value_quantity=quantity)
    return LabReport(report_id="B1", status=ReportStatus.FINAL, order="R", effective=issued, issued=issued, observations=(seen,))


def test_float_rejected_by_name() -> None:
    with pytest.raises(DataInvalidError, match=r"observations\[0\]\.value_quantity\.value: is a float — give a Decimal"):
        serialization.dump_message(in_python(1.2, datetime.now(UTC)))


def test_non_finite_number_rejected_by_name() -> None:
    with pytest.raises(DataInvalidError, match=r"observations\[0\]\.value_quantity\.value: is not a finite number"):
        serialization.dump_message(in_python(Decimal("NaN"), datetime.now(UTC)))


def test_naive_time_not_serialized() -> None:
    with pytest.raises(DataInvalidError, match="effective: is a time without a zone"):
        serialization.dump_message(in_python(Decimal(1), datetime(2024, 5, 17)))  # noqa: DTZ001


def test_message_built_in_python_is_validated_alike() -> None:
    """What was built in Python is held to the same rules as JSON."""
    moment = datetime.now(UTC)
    serialization.validate_message(in_python(Decimal("1.20"), moment))
    bad = LabReport(report_id="B1", status=ReportStatus.FINAL, effective=moment, issued=moment, documents=(Document(),))
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
    schema = serialization.message_schema()
    assert schema["$defs"]["LabRejection"]["properties"]["kind"] == {"const": "rejection"}
    assert {"required": ["value_quantity"]} in schema["$defs"]["ReportedObservation"]["oneOf"]
    assert schema["$defs"]["LabReport"]["additionalProperties"] is False
    assert serialization.order_schema()["$defs"]["OrderPatient"]["properties"]["birth_date"]
    named = schema["$defs"]["LabReport"]["properties"]
    assert (named["barcode"]["maxLength"], named["lines"]["items"]["maxLength"]) == (200, 200)
    assert [each.get("format", each.get("pattern")) for each in named["effective"]["anyOf"]] == [
        "date-time",
        r"^\d{4}(-\d\d(-\d\d)?)?$",
    ]
    assert named["issued"]["format"] == "date-time"
    assert "maxLength" not in json.dumps([serialization.order_schema(), schema["$defs"]["ReportedObservation"]])


def test_type_without_strict_reader_is_a_type_error() -> None:
    @dataclass(frozen=True)
    class Lax:
        value: float

    with pytest.raises(TypeError, match="float"):
        strict_schema(Lax)
