"""Any report, uploaded and read back by the partner driver: the same values, digit for digit; all resources are valid STU3.

Whatever a laboratory system sends is rejected on arrival, or becomes that.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import fields
from datetime import UTC, datetime, time
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from lab_agent.fhir.report_builder import UploadContext, UploadLine, plan_uploads, with_result_references
from lab_agent.lis.lab_messages import Document, LabReport, ReportedObservation
from lab_agent.lis.serialization import dump_message, load_message
from lab_agent.shared import exact_json
from lab_agent.shared.code_systems import CodeSystems
from lab_agent.shared.errors import DataInvalidError
from lab_agent.shared.ids import LineKey, WorkOrderKey
from lab_agent.shared.values import CodeableConcept, Coding, PartialDate, Period, Quantity, Range, Ratio, SampledData
from lab_agent.status.formatting import format_timestamp
from lab_sandbox.partner.errors import decode
from lab_sandbox.partner.result_reader import find_differences, value_fields
from tests.harness.results import NOW, ResultsBench, haemoglobin, make_report
from tests.harness.stu3_schema import find_violations

EXAMPLES = max(20, int(600 * float(os.environ.get("LAB_PROOF_SHARE", "0.05"))))


def violations(plan: Any) -> list[str]:
    """What is not valid STU3 in what is to be uploaded."""
    bodies = [*(each.body for each in plan.observations), with_result_references(plan.report, ["1"])]
    return [said for body in bodies for said in find_violations(body, context().systems.nomenclature.url)]


def context() -> UploadContext:
    return UploadContext(
        part_key=WorkOrderKey("WKEY"),
        systems=CodeSystems(base_url="https://exchange.example/api/", lab_codes_url="https://codes.example"),
        report_system="https://codes.example/report",
        observation_system="https://codes.example/observation",
        order_system="https://codes.example/order",
        subject="patient/p1",
        readers=("clinic-guid",),
        lines=(UploadLine(key=LineKey("L1"), procedure_request_id="pr1", item="001.001"),),
        covered_lines=(LineKey("L1"),),
    )


ONE_OF_EACH: list[dict[str, Any]] = [
    {"value_quantity": Quantity(value=Decimal("0.10"), comparator="<", unit="mg/L")},
    {"value_codeable_concept": CodeableConcept(coding=(Coding(system="http://snomed.info/sct", code="260385009"),), text="neg")},
    {"value_string": "жёлтый"},
    {"value_range": Range(low=Quantity(value=Decimal("3.0")), high=Quantity(value=Decimal("5.00")))},
    {"value_ratio": Ratio(numerator=Quantity(value=Decimal(1)), denominator=Quantity(value=Decimal(128)))},
    {
        "value_sampled_data": SampledData(
            origin=Quantity(value=Decimal("0.0")), period=Decimal("10.0"), dimensions=1, data="1.0 2"
        )
    },
    {"value_attachment": Document(url="https://lab.example/ecg/1", content_type="image/png", title="ECG")},
    {"value_time": time(8, 5)},
    {"value_date_time": datetime(2026, 1, 1, tzinfo=UTC)},
    {"value_period": Period(start=datetime(2026, 1, 1, tzinfo=UTC))},
]


async def test_every_value_type_round_trips_exactly(bench: ResultsBench) -> None:
    """Every type of value comes back from the exchange digit for digit."""
    forms = {each.name for each in fields(ReportedObservation) if each.name.startswith("value_")}
    assert ({name for form in ONE_OF_EACH for name in form}, len(ONE_OF_EACH)) == (forms, 10)
    code = Coding(system="http://loinc.org", code="718-7")
    sent = make_report(*(ReportedObservation(id=str(n), code=code, **form) for n, form in enumerate(ONE_OF_EACH)))
    await bench.receive(sent)
    (found,) = await bench.clinic_reports()
    expected = decode(dump_message(sent))["observations"]
    assert [find_differences(one, seen) for one, seen in zip(expected, found.observations, strict=True)] == [[]] * len(expected)


@pytest.mark.slow
async def test_dates_without_time_reach_the_clinic_as_they_are(bench: ResultsBench) -> None:
    """No time is made up where only a date is known."""
    onset = haemoglobin("1", id="onset", value_quantity=None, value_date_time=PartialDate("2026-02"))
    period = Period(start=PartialDate("2025"), end=PartialDate("2026-02-28"))
    span = haemoglobin("1", id="span", value_quantity=None, value_period=period)
    await bench.receive(make_report(onset, span, effective=PartialDate("2026-02-28")))
    (found,) = await bench.clinic_reports()
    assert (found.resource["effectiveDateTime"], found.resource["issued"]) == ("2026-02-28", NOW.isoformat())
    values = [each.get("valueDateTime", each.get("valuePeriod")) for each in found.observations]
    assert values == ["2026-02", {"start": "2025", "end": "2026-02-28"}]
    assert all(each["issued"] == NOW.isoformat() for each in found.observations)
    assert format_timestamp(PartialDate("2026-02-28")) == "2026-02-28", "nor for people"


# --- whatever a laboratory system sends

BLANKS = st.sampled_from(
    ["", " ", "  ", "a", "a b", "a  b", " a", "a ", "\t", "a\tb", "\n", "a\nb", "é", "\u00a0", "\u200b", "\x01", "https://x"]
)
ODD = BLANKS | st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), max_size=4)
DIGITS = st.sampled_from(["0", "-0", "0.00", "-1", "1.20", "1e300", "1E-300", "1E+2", "-0.10", "1" * 60]) | st.decimals(
    -(10**12), 10**12, allow_nan=False
).map(str)
MOMENT = st.sampled_from(
    ["0001-01-02T00:00:00+00:00", "9999-12-30T00:00:00Z", "2026-01-01T00:00:00.123456+03:00", "2026-01-01T00:00:00+23:59",
     "2026-01-01T24:00:00Z", "2026-01-01T00:00-15:30"]
)  # fmt: skip


def some(required: dict[str, Any], **optional: Any) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(required, optional=optional)


RAW_QUANTITY = some(
    {"value": DIGITS}, comparator=st.sampled_from(["<", "<=", ">=", ">", "~", ""]), unit=ODD, system=ODD, code=ODD
)
RAW_CODING = some({"code": ODD}, system=ODD, display=ODD)
RAW_CONCEPT = some({}, coding=st.lists(RAW_CODING, max_size=2), text=ODD)
RAW_RANGE = some({}, low=RAW_QUANTITY, high=RAW_QUANTITY)
RAW_DOCUMENT = some(
    {}, url=st.sampled_from(["https://lab.example/1", "https://lab.example/a b", ""]) | ODD, content_type=ODD | st.just("a/b"),
    language=ODD, title=ODD
)  # fmt: skip
RAW_SERIES = some(
    {"origin": RAW_QUANTITY, "period": DIGITS, "dimensions": st.integers(-1, 2), "data": st.sampled_from(["1 2", "E U L"]) | ODD},
    factor=DIGITS, lower_limit=DIGITS, upper_limit=DIGITS,
)  # fmt: skip
RAW_VALUES = {
    "value_quantity": RAW_QUANTITY,
    "value_codeable_concept": RAW_CONCEPT,
    "value_string": ODD,
    "value_range": RAW_RANGE,
    "value_ratio": some({"numerator": RAW_QUANTITY, "denominator": RAW_QUANTITY}),
    "value_sampled_data": RAW_SERIES,
    "value_attachment": RAW_DOCUMENT,
    "value_time": st.sampled_from(["08:05", "23:59:59.123456", "24:00", "00:00:00"]),
    "value_date_time": MOMENT,
    "value_period": some({}, start=MOMENT, end=MOMENT),
}
RAW_NORMAL = some({}, low=RAW_QUANTITY, high=RAW_QUANTITY, meaning=RAW_CONCEPT, age=RAW_RANGE, text=ODD)


@st.composite
def raw_observations(draw: st.DrawFn) -> dict[str, Any]:
    form = draw(st.sampled_from(sorted(RAW_VALUES)))
    more = draw(some({}, id=ODD, method=RAW_CONCEPT, reference_ranges=st.lists(RAW_NORMAL, max_size=2), issued=MOMENT, note=ODD))
    return {"code": draw(some({"code": st.just("718-7")}, display=ODD)), form: draw(RAW_VALUES[form]), **more}


RAW_REPORT = some(
    {
        "report_id": ODD | st.just("r"),
        "status": st.sampled_from(["registered", "partial", "preliminary", "final"]),
        "order": st.just("R1"),
        "effective": MOMENT,
        "issued": MOMENT,
        "observations": st.lists(raw_observations(), max_size=1),
    },
    documents=st.lists(RAW_DOCUMENT, max_size=1),
)


def digits(node: Any) -> Iterator[str]:
    """Every number with a unit or without, as it is written."""
    for name, each in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        yield from ("0" if each == "-0" else str(each),) if name == "value" else digits(each)


@pytest.mark.slow
@given(RAW_REPORT)
@settings(max_examples=10 * EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
def test_accepted_message_produces_valid_stu3(tree: dict[str, Any]) -> None:
    """And every value as it was sent, digit for digit."""
    try:
        read = load_message(exact_json.dumps(tree))
        assert isinstance(read, LabReport)
        plan = plan_uploads(read, context())
    except DataInvalidError:
        event("refused")
        return
    event("accepted")
    assert violations(plan) == []
    sent = decode(dump_message(read)).get("observations", ())
    for each, reported in zip(plan.observations, sent, strict=True):
        wire = decode(exact_json.dumps(each.body))
        assert len(value_fields(wire)) == 1
        there = {name: part for name, part in wire.items() if name in {*value_fields(wire), "referenceRange"}}
        given = {name: part for name, part in reported.items() if name.startswith(("value_", "reference_ranges"))}
        assert sorted(digits(there)) == sorted(digits(given))
