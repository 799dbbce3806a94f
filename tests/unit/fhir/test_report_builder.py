from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab_agent import exact_json
from lab_agent.domain.code_systems import CodeSystems
from lab_agent.domain.ids import LineKey, OrderKey
from lab_agent.domain.lab_messages import (
    Document,
    LabReport,
    ObservationStatus,
    ReferenceRange,
    ReportedObservation,
    ReportStatus,
)
from lab_agent.domain.values import CodeableConcept, Coding, Period, Quantity, Range, Ratio, SampledData
from lab_agent.errors import DataInvalidError
from lab_agent.fhir.content_digest import content_digest, stable_identifier
from lab_agent.fhir.report_builder import (
    UploadContext,
    UploadLine,
    UploadPlan,
    UploadSpecimen,
    plan_uploads,
    with_result_references,
)
from lab_sandbox.errors import Problems
from lab_sandbox.upload_rules import check_observation, check_report

BASE = "https://exchange.example/api/"
MOSCOW = timezone(timedelta(hours=3))
ISSUED = datetime(2026, 3, 3, 10, tzinfo=MOSCOW)
HB = ReportedObservation(
    id="hb",
    code=Coding(code="718-7", display="Hemoglobin"),
    value_quantity=Quantity(value=Decimal("13.20"), comparator=">", unit="g/dL", system="http://unitsofmeasure.org", code="g/dL"),
    method=CodeableConcept(text="SLS"),
    specimen="10000001",
    reference_ranges=(
        ReferenceRange(
            low=Quantity(value=Decimal("12.0"), unit="g/dL"),
            high=Quantity(value=Decimal("15.50"), unit="g/dL", comparator="<"),
            meaning=CodeableConcept(coding=(Coding(code="normal"),)),
            age=Range(low=Quantity(value=Decimal(18), unit="a")),
            text="women",
        ),
    ),
    flags=("H",),
)
CLEAR = ReportedObservation(
    code=Coding(system="http://loinc.org", code="5767-9"),
    status=ObservationStatus.PRELIMINARY,
    value_string="clear",
    issued=ISSUED - timedelta(hours=1),
)
REPORT = LabReport(
    report_id="rep-1",
    status=ReportStatus.PARTIAL,
    effective=datetime(2026, 3, 2, 8, 30, tzinfo=MOSCOW),
    issued=ISSUED,
    observations=(HB, CLEAR),
    documents=(
        Document(file="vault-1", title="Report"),
        Document(file="vault-2"),
        Document(url="https://lab.example/r/1", content_type="text/html", language="en"),
    ),
)


@pytest.fixture
def context(systems: CodeSystems) -> UploadContext:
    return UploadContext(
        part_key=OrderKey("RKEY"),
        systems=systems,
        report_system="https://lab.example/codes/report",
        observation_system="https://lab.example/codes/observation",
        order_system="https://codes.example/order",
        subject="patient/p1",
        readers=("clinic-guid",),
        lines=(
            UploadLine(key=LineKey("L1"), procedure_request_id="pr1", item="001.001"),
            UploadLine(key=LineKey("L2"), procedure_request_id="pr2", item="004.001"),
        ),
        covered_lines=(LineKey("L1"),),
        specimens=(UploadSpecimen(id="s1", barcodes=frozenset({"10000001"})),),
        document_urls={("vault-1", kind): "fhir/Binary/b1" for kind in ("application/pdf", "image/png")},
    )


def _digests(plan: UploadPlan) -> dict[str, str]:
    return {each.identifier.value: each.digest for each in (*plan.observations, plan.report)}


def _with(observation: ReportedObservation, **changes: Any) -> LabReport:
    report = {key: changes.pop(key) for key in ("status", "issued") if key in changes and key == "issued"}
    return replace(REPORT, observations=(replace(observation, **changes),), **report)


def test_resources_match_interface(context: UploadContext) -> None:
    golden = exact_json.loads((Path(__file__).parent / "uploads.json").read_bytes())
    plan = plan_uploads(REPORT, context)
    written = {"observations": [each.body for each in plan.observations], "report": plan.report.body}
    assert exact_json.dumps(written, sort_keys=True) == exact_json.dumps(golden, sort_keys=True)
    assert plan.report.identifier.value == "RKEY.rep-1"
    assert with_result_references(plan.report, ["o1", "o2"])["result"] == [
        {"reference": "observation/o1"},
        {"reference": "observation/o2"},
    ]
    assert with_result_references(plan.report, []) == plan.report.body


@pytest.mark.parametrize("readers", [(), ("",), (" ",)])
def test_report_without_readers_rejected(context: UploadContext, readers: tuple[str, ...]) -> None:
    with pytest.raises(DataInvalidError, match="counterparty"):
        plan_uploads(REPORT, replace(context, readers=readers))


def test_uncovered_report_or_unknown_tube_rejected(context: UploadContext) -> None:
    """A report that covers no line or names an unknown tube is rejected."""
    with pytest.raises(DataInvalidError, match="no line"):
        plan_uploads(REPORT, replace(context, covered_lines=()))
    with pytest.raises(DataInvalidError, match=r"observations\[0\].specimen"):
        plan_uploads(_with(HB, specimen="99"), context)
    by_id = plan_uploads(_with(HB, specimen="s1"), context).observations[0]
    assert by_id.body["specimen"] == {"reference": "specimen/s1"}


Q = Quantity(value=Decimal("1.0"))
VALUES: list[tuple[str, Any, str, Any]] = [
    ("value_codeable_concept", CodeableConcept(coding=(Coding(code="A"),), text="t"), "valueCodeableConcept", None),
    ("value_string", "x", "valueString", "x"),
    ("value_range", Range(low=Q), "valueRange", {"low": {"value": Decimal("1.0")}}),
    ("value_ratio", Ratio(numerator=Q, denominator=Q), "valueRatio", None),
    (
        "value_sampled_data",
        SampledData(origin=Q, period=Decimal("10.0"), dimensions=1, data="1 2 E", lower_limit=Decimal("0.50")),
        "valueSampledData",
        {
            "origin": {"value": Decimal("1.0")},
            "period": Decimal("10.0"),
            "lowerLimit": Decimal("0.50"),
            "dimensions": 1,
            "data": "1 2 E",
        },
    ),
    (
        "value_attachment",
        Document(file="vault-1", content_type="image/png"),
        "valueAttachment",
        {"contentType": "image/png", "url": "fhir/Binary/b1"},
    ),
    ("value_time", time(8, 5), "valueTime", "08:05:00"),
    ("value_date_time", datetime(2026, 1, 1, tzinfo=UTC), "valueDateTime", "2026-01-01T00:00:00+00:00"),
    ("value_period", Period(start=ISSUED), "valuePeriod", {"start": "2026-03-03T10:00:00+03:00"}),
]


@pytest.mark.parametrize(("field", "value", "name", "expected"), VALUES, ids=[each[0] for each in VALUES])
def test_every_value_type_written(context: UploadContext, field: str, value: Any, name: str, expected: Any) -> None:
    body = plan_uploads(_with(HB, value_quantity=None, **{field: value}), context).observations[0].body
    assert [key for key in body if key.startswith("value")] == [name]
    if expected is not None:
        assert body[name] == expected


@pytest.mark.parametrize("changes", [{"value_quantity": None}, {"value_string": "x"}])
def test_observation_has_exactly_one_value(context: UploadContext, changes: Any) -> None:
    with pytest.raises(DataInvalidError):
        plan_uploads(_with(HB, **changes), context)


def test_invalid_values_reported_together_with_location(context: UploadContext) -> None:
    """What has no legal form is reported with its place, and all at once."""
    reversed_ = Range(low=Quantity(value=Decimal(9)), high=Quantity(value=Decimal(2)))
    other_units = Range(low=Quantity(value=Decimal(9), unit="mg"), high=Quantity(value=Decimal(2), unit="g"))
    wrong = (
        replace(HB, value_quantity=None, value_range=reversed_),
        replace(HB, value_quantity=None, value_range=other_units),
        replace(HB, reference_ranges=(ReferenceRange(), ReferenceRange(age=reversed_))),
        replace(HB, method=CodeableConcept(coding=(Coding(code="a  b"),))),
        replace(HB, value_quantity=None),
    )
    with pytest.raises(DataInvalidError) as caught:
        plan_uploads(replace(REPORT, observations=wrong), context)
    assert [problem.where for problem in caught.value.problems] == [
        "observations[0].value_range.low",
        "observations[2].reference_ranges[1].age.low",
        "observations[3].method.code",
        "observations[4].value",
    ]


@pytest.mark.parametrize(
    ("field", "value", "where"),
    [
        ("value_quantity", Quantity(value=Decimal(1), system="UCUM", code="g/L"), "value_quantity.system"),
        ("method", CodeableConcept(coding=(Coding(system="99ROE", code="x"),)), "method.system"),
    ],
)
def test_system_without_address_is_reported(context: UploadContext, field: str, value: object, where: str) -> None:
    with pytest.raises(DataInvalidError) as caught:
        plan_uploads(replace(REPORT, observations=(replace(HB, **{field: value}),)), context)
    assert [problem.where for problem in caught.value.problems] == [f"observations[0].{where}"]


def test_flags_sent_only_if_enabled(context: UploadContext) -> None:
    assert "interpretation" not in plan_uploads(REPORT, context).observations[0].body
    sent = plan_uploads(REPORT, replace(context, send_interpretation=True)).observations[0].body["interpretation"]
    assert [coding["code"] for coding in sent["coding"]] == ["H"]


def test_codes_use_given_translation(context: UploadContext) -> None:
    local = CodeableConcept(coding=(Coding(system="http://loinc.org", code="1-8"), Coding(system="urn:lab", code="X")))
    body = plan_uploads(REPORT, context, translate=lambda _: local).observations[1].body
    assert [coding["code"] for coding in body["code"]["coding"]] == ["1-8", "X"]


def test_value_amended_only_by_change_after_final(context: UploadContext) -> None:
    """A value is amended only when it changes after it was final."""

    def status(report: LabReport, known: dict[str, str]) -> str:
        plan = plan_uploads(report, context, previous=known)
        known.update(_digests(plan))
        return str(plan.observations[0].body["status"])

    known: dict[str, str] = {}
    twelve = Quantity(value=Decimal(12))
    assert status(_with(HB, status=ObservationStatus.PRELIMINARY), known) == "preliminary"
    assert status(_with(HB, value_quantity=twelve), known) == "final"
    same = dict(known)
    assert status(_with(HB, value_quantity=twelve, issued=ISSUED + timedelta(hours=1)), known) == "final"
    assert known["RKEY.rep-1.hb"] == same["RKEY.rep-1.hb"]
    assert status(_with(HB), known) == "amended"
    assert status(_with(HB), known) == "amended"
    assert status(_with(HB, value_quantity=twelve), known) == "amended"
    assert status(_with(HB, value_quantity=twelve, status=ObservationStatus.PRELIMINARY), known) == "amended"


def test_digest_without_content_claims_no_change(context: UploadContext) -> None:
    """What an earlier version of the program recorded has two parts: who uploads compares with what is there."""
    known = {name: ":".join(digest.split(":")[:2]) + "0" for name, digest in _digests(plan_uploads(_with(HB), context)).items()}
    assert plan_uploads(_with(HB), context, previous=known).observations[0].body["status"] == "final"


def test_additional_digits_count_as_change(context: UploadContext) -> None:
    """More digits in a value are a change of its content."""
    first = plan_uploads(_with(HB, value_quantity=Quantity(value=Decimal("1.2"))), context).observations[0]
    second = plan_uploads(_with(HB, value_quantity=Quantity(value=Decimal("1.20"))), context).observations[0]
    assert first.digest != second.digest


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ({"code": "g/L"}, {"unit": "g/L"}),
        ({"code": "g/L", "unit": "г/л"}, {"unit": "г/л"}),
        ({"code": "g/L", "system": "urn:u"}, {"system": "urn:u", "code": "g/L"}),
        ({"unit": "g/L", "system": " "}, {"unit": "g/L"}),
    ],
)
def test_unit_code_without_system_is_a_unit(context: UploadContext, given: dict[str, str], written: dict[str, str]) -> None:
    """STU3 (qty-3): a code of a unit needs a system."""
    body = plan_uploads(_with(HB, value_quantity=Quantity(value=Decimal(1), **given)), context).observations[0].body
    assert body["valueQuantity"] == {"value": Decimal(1), **written}


def test_final_report_stays_final(context: UploadContext) -> None:
    final = plan_uploads(replace(REPORT, status=ReportStatus.FINAL), context)
    again = plan_uploads(REPORT, context, previous=_digests(final))
    assert again.report.body["status"] == "final"


@pytest.mark.parametrize("observations", [(), (HB,), (HB, CLEAR)])
@pytest.mark.parametrize("covered", [("L1",), ("L2",), ("L1", "L2"), ("L2", "L1")])
def test_report_lists_every_line_that_it_covers(
    context: UploadContext, covered: tuple[str, ...], observations: tuple[ReportedObservation, ...]
) -> None:
    about = replace(context, covered_lines=tuple(map(LineKey, covered)))
    body = plan_uploads(replace(REPORT, observations=observations), about).report.body
    expected = sorted(each.replace("L", "procedurerequest/pr") for each in covered)
    assert [each["reference"] for each in body["basedOn"]] == expected


def test_order_wide_document_names_every_line(context: UploadContext) -> None:
    document = replace(REPORT, observations=(), documents=REPORT.documents[:1])
    whole = replace(context, covered_lines=(LineKey("L1"), LineKey("L2")))
    plan = plan_uploads(document, whole)
    assert plan.observations == ()
    assert [each["reference"] for each in plan.report.body["basedOn"]] == ["procedurerequest/pr1", "procedurerequest/pr2"]
    assert plan.report.body["code"]["coding"][0]["code"] == "001.001"
    coded = plan_uploads(document, replace(whole, order_document_code="900.1")).report.body
    assert coded["code"]["coding"][0]["code"] == "900.1"
    assert plan_uploads(REPORT, replace(whole, order_document_code="900.1")).report.body["code"] == plan.report.body["code"]


@pytest.mark.parametrize(
    ("covered", "items", "code"),
    [
        (("L1", "L2"), (), "900.2"),
        (("L1", "L2"), ("001.001", "004.001"), "900.2"),
        (("L1", "L2"), ("004.001",), "004.001"),
        (("L2",), (), "004.001"),
    ],
)
def test_report_about_several_tests_has_the_code_of_the_settings(
    context: UploadContext, covered: tuple[str, ...], items: tuple[str, ...], code: str
) -> None:
    whole = replace(context, covered_lines=tuple(map(LineKey, covered)), item_codes={}, several_tests_code="900.2")
    report = replace(REPORT, items=items, lines=tuple(map(LineKey, covered)))
    assert plan_uploads(report, whole).report.body["code"]["coding"][0]["code"] == code


STATED: list[tuple[tuple[str, ...], tuple[str, ...], str]] = [
    ((), (), "001.001"),
    (("004.001",), (), "004.001"),
    (("INR",), (), "004.001"),
    (("X9",), ("L1",), "009.009"),
    (("X",), ("L1",), "001.001"),
]


@pytest.mark.parametrize(("items", "lines", "code"), STATED)
def test_report_code_names_its_test(context: UploadContext, items: Any, lines: Any, code: str) -> None:
    whole = replace(context, covered_lines=(LineKey("L1"), LineKey("L2")), item_codes={"INR": "004.001", "X9": "009.009"})
    body = plan_uploads(replace(REPORT, items=items, lines=lines), whole).report.body
    assert body["code"]["coding"][0]["code"] == code


def test_patient_with_bar_in_id_is_referenced(context: UploadContext) -> None:
    body = plan_uploads(REPORT, replace(context, subject="patient/p|1")).report.body
    assert body["subject"] == {"reference": "patient/p|1"}


def test_global_patient_referenced_by_identifier(context: UploadContext) -> None:
    body = plan_uploads(REPORT, replace(context, subject="urn:global|G1")).report.body
    assert body["subject"] == {"identifier": {"system": "urn:global", "value": "G1"}}


def test_observations_without_id_distinguished_by_code_and_position(context: UploadContext) -> None:
    plan = plan_uploads(replace(REPORT, observations=(CLEAR, HB, replace(CLEAR, value_string="two"))), context)
    values = [each.identifier.value for each in plan.observations]
    assert len(set(values)) == 3
    assert values[0].endswith(".1")
    assert values[2].endswith(".2")


def test_time_without_offset_rejected(context: UploadContext) -> None:
    with pytest.raises(DataInvalidError):
        plan_uploads(replace(REPORT, issued=datetime(2026, 3, 3)), context)  # noqa: DTZ001 - that is the point


@given(st.lists(st.text(max_size=60), min_size=1, max_size=4), st.lists(st.text(max_size=60), min_size=1, max_size=4))
def test_identifiers_are_plain_short_and_unique(first: list[str], second: list[str]) -> None:
    one, two = stable_identifier("RKEY", *first), stable_identifier("RKEY", *second)
    assert re.fullmatch(r"[A-Za-z0-9._\-]{1,120}", one)
    as_written = [part or "" for part in first], [part or "" for part in second]
    assert (one == two) == (as_written[0] == as_written[1])


def test_digest_ignores_non_content() -> None:
    body = {"resourceType": "DiagnosticReport", "status": "final", "issued": "x"}
    assert content_digest({**body, "id": "1", "meta": {"versionId": "2"}}, BASE) == content_digest(body, BASE)
    assert content_digest({**body, "issued": "y"}, BASE) != content_digest(body, BASE)


def test_sandbox_knows_every_status_that_is_sent(context: UploadContext) -> None:
    problems = Problems()
    for report in ReportStatus:
        body = plan_uploads(replace(REPORT, status=report), context).report.body
        check_report(dict(body), context.systems.nomenclature.url, problems)
    for observation in ObservationStatus:
        check_observation(dict(plan_uploads(_with(HB, status=observation), context).observations[0].body), problems)
    assert problems.found == []


def test_sandbox_accepts_resources(context: UploadContext) -> None:
    """The sandbox, which reads the interface for itself, accepts the resources."""
    everything = tuple(
        replace(HB, id=f"v{n}", value_quantity=None, **{field: value}) for n, (field, value, _, _) in enumerate(VALUES)
    )
    empty = replace(HB, id="e", reference_ranges=(ReferenceRange(),))
    plan = plan_uploads(replace(REPORT, observations=(HB, empty, *everything)), context)
    problems = Problems()
    for each in plan.observations:
        check_observation(dict(each.body), problems)
    check_report(dict(with_result_references(plan.report, ["1"])), context.systems.nomenclature.url, problems)
    assert problems.found == []
