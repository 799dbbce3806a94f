"""What is wrong is said all at once, by path, with a mend; and no value is ever repeated."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from lab_agent import codec
from lab_agent.domain.order import LabOrder
from lab_agent.domain.results import Document, LabRejection, LabReport, ReportedObservation, ReportStatus
from lab_agent.domain.values import Coding, Quantity
from lab_agent.errors import DataInvalidError

MOMENT = "2024-05-17T08:30:00+03:00"


def observation(**changes: Any) -> dict[str, Any]:
    return {"code": {"code": "718-7"}, "value_quantity": {"value": "1.20", "unit": "g/L"}, **changes}


def report(**changes: Any) -> dict[str, Any]:
    base = {"report_id": "B1", "status": "final", "order": "RABC", "effective": MOMENT, "issued": MOMENT}
    return {**base, "observations": [observation()], **changes}


def problems(tree: Any) -> dict[str, str]:
    with pytest.raises(DataInvalidError) as caught:
        codec.load_message(tree if isinstance(tree, bytes) else json.dumps(tree).encode())
    return {problem.where: f"{problem.what} — {problem.hint}" for problem in caught.value.problems}


def test_a_decimal_may_come_as_text() -> None:
    read = codec.load_message(json.dumps(report()).encode())
    assert isinstance(read, LabReport)
    assert str(read.observations[0].value_quantity.value) == "1.20"  # type: ignore[union-attr]


@pytest.mark.parametrize("value", ["1,20", "", "NaN", "Infinity", " 1.2", "1_000", "0x10", True, None, [], {}, "1e999999", "٣"])
def test_what_is_no_decimal_is_named(value: Any) -> None:
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
def test_a_series_that_fhir_does_not_know_is_refused(series: dict[str, Any], field: str) -> None:
    good = {"origin": {"value": "0"}, "period": "10.0", "dimensions": 1, "data": "1.20 -2 E U L"}
    codec.load_message(json.dumps(report(observations=[observation(value_quantity=None, value_sampled_data=good)])).encode())
    found = problems(report(observations=[observation(value_quantity=None, value_sampled_data={**good, **series})]))
    assert list(found) == [f"observations[0].value_sampled_data.{field}"]


def test_a_period_that_ends_before_it_starts_is_refused() -> None:
    ends = {"start": "2024-05-17T08:30:00+03:00", "end": "2024-05-17T08:29:00+03:00"}
    found = problems(report(observations=[observation(value_quantity=None, value_period=ends)]))
    assert list(found) == ["observations[0].value_period"]
    local = json.dumps(
        report(observations=[observation(value_quantity=None, value_period={**ends, "end": "2024-05-17T10:00:00"})])
    )
    with pytest.raises(DataInvalidError, match="ends before it starts"):
        codec.load_message(local.encode(), time_zone=ZoneInfo("Asia/Vladivostok"))


@pytest.mark.parametrize("text", [" ", "\u00a0", "\t\n"])
def test_a_blank_value_is_refused(text: str) -> None:
    found = problems(report(observations=[observation(value_quantity=None, value_string=text)]))
    assert found == {"observations[0].value_string": "is blank — write the value, or leave the observation out"}


@pytest.mark.parametrize(
    "kind", ['application/pdf; name="отчёт"', "a/b\r\nX-Evil: 1", "x/y/z", "/", "a/", "", "application/ pdf"]
)
def test_what_is_no_media_type_is_refused(kind: str) -> None:
    document = {"url": "https://lab.example/1", "content_type": kind}
    attached = observation(value_quantity=None, value_attachment=document)
    found = problems(report(documents=[document], observations=[attached]))
    assert set(found) == {"documents[0].content_type", "observations[0].value_attachment.content_type"}
    assert all("such as application/pdf" in one for one in found.values())


@pytest.mark.parametrize("kind", ["application/pdf", "Application/PDF;version=1", 'text/plain; charset="utf-8"; format=flowed'])
def test_a_media_type_may_have_parameters(kind: str) -> None:
    codec.load_message(json.dumps(report(documents=[{"url": "https://lab.example/1", "content_type": kind}])).encode())


def test_a_bare_nan_is_not_json() -> None:
    body = json.dumps(report()).replace('"1.20"', "NaN").encode()
    assert "not JSON" in problems(body)["document"]


def test_all_errors_are_told_at_once() -> None:
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
    assert "did you mean effective?" in found["efective"]
    assert "'final'" in found["status"]
    assert "zone" in found["issued"]
    assert "value_quantity, value_string" in found["observations[0]"]
    assert "no value" in found["observations[1]"]


@pytest.mark.parametrize("moment", [20240517, "20240517", "2024-05-17", "17.05.2024 08:30", 1715931000.5, "2024-02-30T08:00:00Z"])
def test_a_time_is_never_guessed(moment: Any) -> None:
    assert list(problems(report(issued=moment))) == ["issued"]


def test_the_adapter_may_say_what_zone_is_meant() -> None:
    body = json.dumps(report(issued="2024-05-17T08:30:00")).encode()
    read = codec.load_message(body, time_zone=ZoneInfo("Europe/Moscow"))
    assert isinstance(read, LabReport)
    assert read.issued == datetime(2024, 5, 17, 5, 30, tzinfo=UTC)
    assert read.effective.isoformat() == MOMENT


@pytest.mark.parametrize("moment", ["0001-01-01T00:00:00+03:00", "9999-12-31T23:59:59-05:00"])
@pytest.mark.parametrize("name", ["issued", "effective"])
def test_a_time_that_utc_cannot_say_is_refused_and_not_tried_for_ever(name: str, moment: str) -> None:
    assert "out of all measure" in problems(report(**{name: moment}))[name]


@pytest.mark.parametrize("version", [2**63, 10**30])
def test_a_version_that_no_database_keeps_is_refused_and_not_tried_for_ever(version: int) -> None:
    assert "out of all measure" in problems(report(version=version))["version"]
    with pytest.raises(DataInvalidError, match="version"):
        codec.validate_message(replace(codec.load_message(json.dumps(report()).encode()), version=version))  # type: ignore[type-var]


def test_a_time_stamp_may_be_a_version() -> None:
    codec.load_message(json.dumps(report(version=20240517083000123)).encode())


@pytest.mark.parametrize("named", [{"order": None}, {"order": ""}, {"order": None, "lines": []}])
def test_a_report_names_its_order(named: dict[str, Any]) -> None:
    assert "names no order" in problems(report(**named))["document"]


@pytest.mark.parametrize("named", [{"lines": ["L1"]}, {"accession": "77"}, {"barcode": "0042"}])
def test_any_name_of_the_order_is_enough(named: dict[str, Any]) -> None:
    codec.load_message(json.dumps({**report(), "order": None, **named}).encode())


def test_a_version_below_nought_is_refused() -> None:
    assert "below nought" in problems(report(version=-1))["version"]
    codec.load_message(json.dumps(report(version=0)).encode())


BAD_NAMES = {
    "x" * 201: "longer than 200",
    "a\tb": "control character",
    "a\u2028b": "control character",
    " a": "white space",
    "a\n": "control",
}


@pytest.mark.parametrize("name", sorted(BAD_NAMES))
@pytest.mark.parametrize("field", ["report_id", "order", "accession", "barcode", "lines", "items", "completes"])
def test_a_name_is_short_and_plain(field: str, name: str) -> None:
    many = field in {"lines", "items", "completes"}
    found = problems(report(**{field: [name] if many else name}))
    assert BAD_NAMES[name] in found[f"{field}[0]" if many else field]
    assert name not in str(found)


def test_the_names_of_refusals_and_receipts_are_short_and_plain_too() -> None:
    refusal = {
        "kind": "rejection",
        "order": "R",
        "not_performed": [{"line": " L1", "reason": "x"}, {"item": "1\t", "reason": "x"}],
    }
    assert set(problems(refusal)) == {"not_performed[0].line", "not_performed[1].item"}
    receipt = {
        "kind": "accession_update",
        "order": "R",
        "accessions": [{"line": "L1", "number": "7" * 201}, {"barcode": "0 ", "number": "7"}],
    }
    assert set(problems(receipt)) == {"accessions[0].number", "accessions[1].barcode"}


def test_names_of_other_languages_and_two_hundred_characters_go() -> None:
    codec.load_message(json.dumps(report(report_id="Анализ № 7/2", accession="x" * 200, barcode="a b")).encode())


@pytest.mark.parametrize(
    "url",
    ["http://[::1", "http://", "file:///etc/passwd", "C:\\x.pdf", "//other/x", "mailto:a@b", "https://lab/a b", "http://lab:x/"],
)
def test_an_address_that_nobody_can_open_is_refused(url: str) -> None:
    assert "no address that a clinic could open" in problems(report(documents=[{"url": url}]))["documents[0].url"]
    attached = observation(value_quantity=None, value_attachment={"url": url})
    assert list(problems(report(observations=[attached]))) == ["observations[0].value_attachment.url"]


@pytest.mark.parametrize("url", ["https://lab/x?y=1", "http://[::1]:80/x", "fhir/Binary/7", "/x.pdf", "https://лаб.рф/отчёт.pdf"])
def test_an_address_that_leads_somewhere_goes(url: str) -> None:
    codec.load_message(json.dumps(report(documents=[{"url": url}])).encode())


@pytest.mark.parametrize("where", ["top", "within"])
def test_a_key_that_is_there_twice_is_refused_by_its_name(where: str) -> None:
    body = json.dumps(report())
    twice = (
        '{"status": "partial", ' + body[1:] if where == "top" else body.replace('"code": "718-7"', '"code": "1", "code": "718-7"')
    )
    assert list(problems(twice.encode())) == ["status" if where == "top" else "code"]


def test_the_same_key_in_two_objects_is_no_fault() -> None:
    codec.load_message(json.dumps(report(observations=[observation(), observation()])).encode())


def test_what_we_kept_is_read_whatever_the_rules_of_today_say() -> None:
    body = json.dumps(report(version=-1, report_id=" x ", documents=[{"url": "file:///x"}])).encode()
    kept = codec.load_stored_message(body)
    assert isinstance(kept, LabReport)
    assert kept.version == -1


def test_a_comparator_is_one_of_four() -> None:
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
def test_a_comparator_that_would_be_lost_is_refused(value: dict[str, Any], named: list[str]) -> None:
    found = problems(report(observations=[observation(value_quantity=None, **value)]))
    assert set(found) == {f"observations[0].{field}" for field in named}
    assert any("leave it out" in one for one in found.values())


def test_a_comparator_at_a_reference_range_is_left_out() -> None:
    bounds = {"low": {"value": 1, "comparator": ">"}, "high": {"value": 2}}
    codec.load_message(json.dumps(report(observations=[observation(reference_ranges=[bounds])])).encode())


def test_a_nul_character_is_named() -> None:
    assert set(problems(report(observations=[observation(note="a\0b")], accession="\0"))) == {"observations[0].note", "accession"}


def test_a_refusal_is_told_by_its_kind() -> None:
    body = {
        "kind": "rejection",
        "order": "RABC",
        "not_performed": [{"line": "L1", "reason": "haemolysed"}],
        "collect_again": True,
    }
    assert isinstance(codec.load_message(json.dumps(body).encode()), LabRejection)
    assert set(problems({**body, "kind": "denial"})) == {"kind"}
    assert set(problems({**body, "not_performed": []})) == {"not_performed"}
    assert set(problems({**body, "not_performed": [{"reason": " "}]})) == {"not_performed[0].reason"}


@pytest.mark.parametrize("body", [b"", b"[]", b"7", b"{", b"[" * 100_000, b"\xff\xfe{}", b'{"a": 1' + b"0" * 6000 + b"}"])
def test_what_is_no_json_object_is_one_problem(body: bytes) -> None:
    assert "document" in problems(body)


def test_a_byte_order_mark_is_no_fault() -> None:
    codec.load_message(b"\xef\xbb\xbf" + json.dumps(report()).encode())


def test_values_are_not_repeated_in_the_sentences() -> None:
    secret = "Ivanova"
    found = problems(report(issued=secret, status=secret, lines=secret, observations=[observation(value_quantity=secret)]))
    assert len(found) == 4
    assert secret not in str(found)


def test_null_says_the_same_as_left_out() -> None:
    body = json.dumps(report(lines=None, documents=None, version=None)).encode()
    assert codec.load_message(body) == codec.load_message(json.dumps(report()).encode())


def test_completing_nothing_is_not_the_default() -> None:
    nothing = codec.load_message(json.dumps(report(completes=[])).encode())
    assert isinstance(nothing, LabReport)
    assert nothing.completes == ()
    assert codec.load_message(codec.dump_message(nothing)) == nothing


def in_python(value: Any, issued: datetime) -> LabReport:
    quantity = Quantity(value=value)
    seen = ReportedObservation(code=Coding(code="718-7"), value_quantity=quantity)
    return LabReport(report_id="B1", status=ReportStatus.FINAL, order="R", effective=issued, issued=issued, observations=(seen,))


def test_a_float_is_refused_by_name() -> None:
    with pytest.raises(DataInvalidError, match=r"observations\[0\]\.value_quantity\.value: is a float — give a Decimal"):
        codec.dump_message(in_python(1.2, datetime.now(UTC)))


def test_a_number_that_is_none_is_refused_by_name() -> None:
    with pytest.raises(DataInvalidError, match=r"observations\[0\]\.value_quantity\.value: is not a finite number"):
        codec.dump_message(in_python(Decimal("NaN"), datetime.now(UTC)))


def test_a_time_without_a_zone_is_not_written() -> None:
    with pytest.raises(DataInvalidError, match="effective: is a time without a zone"):
        codec.dump_message(in_python(Decimal(1), datetime(2024, 5, 17)))  # noqa: DTZ001


def test_what_was_made_in_python_is_held_against_the_same_rules() -> None:
    moment = datetime.now(UTC)
    codec.validate_message(in_python(Decimal("1.20"), moment))
    bad = LabReport(report_id="B1", status=ReportStatus.FINAL, effective=moment, issued=moment, documents=(Document(),))
    with pytest.raises(DataInvalidError) as caught:
        codec.validate_message(bad)
    assert {problem.where for problem in caught.value.problems} == {"document", "documents[0]"}


def test_an_order_of_a_newer_form_is_told_as_such() -> None:
    with pytest.raises(DataInvalidError, match="schema_version: is a newer form") as caught:
        codec.load_order(b'{"schema_version": 2, "patient": {"birth_date": 19800101}}')
    assert "patient.birth_date" in str(caught.value)


def test_the_medical_part_holds_nothing_of_the_patient() -> None:
    tree = {
        "key": "R",
        "requisition": {"value": "77"},
        "contract": "C",
        "ordered_at": MOMENT,
        "patient": {"anonymous": False, "family": "Ivanova", "birth_date": "1980-01-31"},
        "lines": [],
    }
    order = codec.load_order(json.dumps(tree).encode())
    medical, identity = codec.split_identity(order)
    assert b"Ivanova" not in medical
    assert b"1980" not in medical
    assert json.loads(identity) == tree["patient"]
    purged = codec.join_identity(medical, b"{}")
    assert isinstance(purged, LabOrder)
    assert purged.patient.family is None


def test_the_schemas_say_what_is_read() -> None:
    schema = codec.message_schema()
    assert schema["$defs"]["LabRejection"]["properties"]["kind"] == {"const": "rejection"}
    assert {"required": ["value_quantity"]} in schema["$defs"]["ReportedObservation"]["oneOf"]
    assert schema["$defs"]["LabReport"]["additionalProperties"] is False
    assert codec.order_schema()["$defs"]["OrderPatient"]["properties"]["birth_date"]
    named = schema["$defs"]["LabReport"]["properties"]
    assert (named["barcode"]["maxLength"], named["lines"]["items"]["maxLength"]) == (200, 200)
    assert "maxLength" not in json.dumps([codec.order_schema(), schema["$defs"]["ReportedObservation"]])
