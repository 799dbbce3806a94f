from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab_agent.fhir.content_digest import stable_identifier
from lab_agent.fhir.report_builder import (
    UploadContext,
    UploadLine,
    UploadPlan,
    UploadSpecimen,
    plan_uploads,
    with_result_references,
)
from lab_agent.lis.lab_messages import Document, LabReport, ObservationStatus, ReferenceRange, ReportedObservation, ReportStatus
from lab_agent.shared import exact_json
from lab_agent.shared.errors import DataInvalidError
from lab_agent.shared.ids import LineKey, OrderKey
from lab_agent.shared.values import CodeableConcept, Coding, Quantity, Range
from lab_sandbox.errors import Problems
from lab_sandbox.upload_rules import check_observation, check_report
from tests.unit.fhir.sample import SYSTEMS

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


CONTEXT = UploadContext(
    part_key=OrderKey("RKEY"),
    systems=SYSTEMS,
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
    report = {"issued": changes.pop("issued")} if "issued" in changes else {}
    return replace(REPORT, observations=(replace(observation, **changes),), **report)


def body_of(report: LabReport = REPORT, **changes: Any) -> dict[str, Any]:
    """What is written of the report itself."""
    return dict(plan_uploads(report, replace(CONTEXT, **changes)).report.body)


def places_of(*observations: ReportedObservation) -> list[str]:
    """Where the problems are for which these are not sent."""
    with pytest.raises(DataInvalidError) as caught:
        plan_uploads(replace(REPORT, observations=observations), CONTEXT)
    return [problem.where for problem in caught.value.problems]


def test_resources_match_interface() -> None:
    golden = exact_json.loads((Path(__file__).parent / "uploads.json").read_bytes())
    plan = plan_uploads(REPORT, CONTEXT)
    written = {"observations": [each.body for each in plan.observations], "report": plan.report.body}
    assert exact_json.dumps(written, sort_keys=True) == exact_json.dumps(golden, sort_keys=True)
    assert plan.report.identifier.value == "RKEY.rep-1"
    assert with_result_references(plan.report, ["o1", "o2"])["result"] == [
        {"reference": "observation/o1"},
        {"reference": "observation/o2"},
    ]
    assert with_result_references(plan.report, []) == plan.report.body


@pytest.mark.parametrize("readers", [(), ("",), (" ",)])
def test_report_without_readers_rejected(readers: tuple[str, ...]) -> None:
    with pytest.raises(DataInvalidError, match="counterparty"):
        plan_uploads(REPORT, replace(CONTEXT, readers=readers))


def test_uncovered_report_or_unknown_tube_rejected() -> None:
    """A report that covers no line or names an unknown tube is rejected."""
    with pytest.raises(DataInvalidError, match="no line"):
        plan_uploads(REPORT, replace(CONTEXT, covered_lines=()))
    with pytest.raises(DataInvalidError, match=r"observations\[0\].specimen"):
        plan_uploads(_with(HB, specimen="99"), CONTEXT)
    by_id = plan_uploads(_with(HB, specimen="s1"), CONTEXT).observations[0]
    assert by_id.body["specimen"] == {"reference": "specimen/s1"}


@pytest.mark.parametrize("changes", [{"value_quantity": None}, {"value_string": "x"}])
def test_observation_has_exactly_one_value(changes: Any) -> None:
    with pytest.raises(DataInvalidError):
        plan_uploads(_with(HB, **changes), CONTEXT)


def test_invalid_values_reported_together_with_location() -> None:
    """What has no legal form is reported with its place, and all at once."""
    reversed_ = Range(low=Quantity(value=Decimal(9)), high=Quantity(value=Decimal(2)))
    other_units = Range(low=Quantity(value=Decimal(9), unit="mg"), high=Quantity(value=Decimal(2), unit="g"))
    found = places_of(
        replace(HB, value_quantity=None, value_range=reversed_),
        replace(HB, value_quantity=None, value_range=other_units),
        replace(HB, reference_ranges=(ReferenceRange(), ReferenceRange(age=reversed_))),
        replace(HB, method=CodeableConcept(coding=(Coding(code="a  b"),))),
        replace(HB, value_quantity=None),
        replace(HB, value_quantity=Quantity(value=Decimal(1), system="UCUM", code="g/L")),
        replace(HB, method=CodeableConcept(coding=(Coding(system="99ROE", code="x"),))),
    )
    assert found == [
        "observations[0].value_range.low",
        "observations[2].reference_ranges[1].age.low",
        "observations[3].method.code",
        "observations[4].value",
        "observations[5].value_quantity.system",
        "observations[6].method.system",
    ]


def test_flags_sent_only_if_enabled() -> None:
    assert "interpretation" not in plan_uploads(REPORT, CONTEXT).observations[0].body
    sent = plan_uploads(REPORT, replace(CONTEXT, send_interpretation=True)).observations[0].body["interpretation"]
    assert [coding["code"] for coding in sent["coding"]] == ["H"]


def test_value_amended_only_by_change_after_final() -> None:
    """A value is amended only when it changes after it was final."""

    def status(report: LabReport, known: dict[str, str]) -> str:
        plan = plan_uploads(report, CONTEXT, previous=known)
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
    assert status(_with(HB, value_quantity=twelve), known) == "amended"
    assert status(_with(HB, value_quantity=twelve, status=ObservationStatus.PRELIMINARY), known) == "amended"


def test_digest_without_content_claims_no_change() -> None:
    """What an earlier version of the program recorded has two parts: who uploads compares with what is there."""
    known = {name: ":".join(digest.split(":")[:2]) + "0" for name, digest in _digests(plan_uploads(_with(HB), CONTEXT)).items()}
    assert plan_uploads(_with(HB), CONTEXT, previous=known).observations[0].body["status"] == "final"


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ({"code": "g/L"}, {"unit": "g/L"}),
        ({"code": "g/L", "unit": "г/л"}, {"unit": "г/л"}),
        ({"code": "g/L", "system": "urn:u"}, {"system": "urn:u", "code": "g/L"}),
        ({"unit": "g/L", "system": " "}, {"unit": "g/L"}),
    ],
)
def test_unit_code_without_system_is_a_unit(given: dict[str, str], written: dict[str, str]) -> None:
    """STU3 (qty-3): a code of a unit needs a system."""
    body = plan_uploads(_with(HB, value_quantity=Quantity(value=Decimal(1), **given)), CONTEXT).observations[0].body
    assert body["valueQuantity"] == {"value": Decimal(1), **written}


def test_final_report_stays_final() -> None:
    final = plan_uploads(replace(REPORT, status=ReportStatus.FINAL), CONTEXT)
    again = plan_uploads(REPORT, CONTEXT, previous=_digests(final))
    assert again.report.body["status"] == "final"


@pytest.mark.parametrize("observations", [(), (HB, CLEAR)])
@pytest.mark.parametrize("covered", [("L2",), ("L2", "L1")])
def test_report_lists_every_line_that_it_covers(covered: Any, observations: Any) -> None:
    body = body_of(replace(REPORT, observations=observations), covered_lines=covered)
    expected = sorted(each.replace("L", "procedurerequest/pr") for each in covered)
    assert [each["reference"] for each in body["basedOn"]] == expected


ONE, TWO = (LineKey("L1"),), (LineKey("L1"), LineKey("L2"))


def test_order_wide_document_names_every_line() -> None:
    document = replace(REPORT, observations=(), documents=REPORT.documents[:1])
    body = body_of(document, covered_lines=TWO)
    assert [each["reference"] for each in body["basedOn"]] == ["procedurerequest/pr1", "procedurerequest/pr2"]
    assert body["code"]["coding"][0]["code"] == "001.001"
    assert body_of(document, covered_lines=TWO, order_document_code="900.1")["code"]["coding"][0]["code"] == "900.1"
    assert body_of(covered_lines=TWO, order_document_code="900.1")["code"] == body_of(covered_lines=TWO)["code"]


CODES = {"item_codes": {"INR": "004.001", "X9": "009.009"}}
SEVERAL = {"several_tests_code": "900.2"}


@pytest.mark.parametrize(
    ("items", "lines", "covered", "known", "code"),
    [
        ((), (), TWO, CODES, "001.001"),
        (("INR",), (), TWO, CODES, "004.001"),
        (("X9",), ("L1",), TWO, CODES, "009.009"),
        (("X",), ("L1",), TWO, CODES, "001.001"),
        ((), TWO, TWO, SEVERAL, "900.2"),
        (("001.001", "004.001"), TWO, TWO, SEVERAL, "900.2"),
        (("004.001",), TWO, TWO, SEVERAL, "004.001"),
    ],
)
def test_report_code_names_its_test(items: Any, lines: Any, covered: Any, known: dict[str, Any], code: str) -> None:
    """Or it is the one that the settings have for several tests."""
    body = body_of(replace(REPORT, items=items, lines=lines), covered_lines=covered, **known)
    assert body["code"]["coding"][0]["code"] == code


def test_global_patient_referenced_by_identifier() -> None:
    assert body_of(subject="urn:global|G1")["subject"] == {"identifier": {"system": "urn:global", "value": "G1"}}
    assert body_of(subject="patient/p|1")["subject"] == {"reference": "patient/p|1"}


def test_observations_without_id_distinguished_by_code_and_position() -> None:
    plan = plan_uploads(replace(REPORT, observations=(CLEAR, HB, replace(CLEAR, value_string="two"))), CONTEXT)
    first, _, last = (each.identifier.value for each in plan.observations)
    assert (first[:-2], first[-2:], last[-2:]) == (last[:-2], ".1", ".2")


def test_time_without_offset_rejected() -> None:
    with pytest.raises(DataInvalidError):
        plan_uploads(replace(REPORT, issued=datetime(2026, 3, 3)), CONTEXT)  # noqa: DTZ001 - that is the point


@given(st.lists(st.text(max_size=60), min_size=1, max_size=4), st.lists(st.text(max_size=60), min_size=1, max_size=4))
def test_identifiers_are_plain_short_and_unique(first: list[str], second: list[str]) -> None:
    one, two = stable_identifier("RKEY", *first), stable_identifier("RKEY", *second)
    assert re.fullmatch(r"[A-Za-z0-9._\-]{1,120}", one)
    as_written = [part or "" for part in first], [part or "" for part in second]
    assert (one == two) == (as_written[0] == as_written[1])


def test_sandbox_knows_every_status_that_is_sent() -> None:
    problems = Problems()
    for report in ReportStatus:
        body = plan_uploads(replace(REPORT, status=report), CONTEXT).report.body
        check_report(dict(body), CONTEXT.systems.nomenclature.url, problems)
    for observation in ObservationStatus:
        check_observation(dict(plan_uploads(_with(HB, status=observation), CONTEXT).observations[0].body), problems)
    assert problems.found == []
