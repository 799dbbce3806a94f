"""Any order and any report survive the round trip digit for digit."""

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from lab_agent.lis import serialization
from lab_agent.lis.lab_messages import (
    Document,
    LabRejection,
    LabReport,
    NotPerformed,
    ReferenceRange,
    ReportedObservation,
    ReportedPatient,
    ReportStatus,
)
from lab_agent.lis.lab_order import (
    LabOrder,
    NotificationOption,
    OrderAnswer,
    OrderContainer,
    OrderLine,
    OrderPatient,
    OrderSpecimen,
)
from lab_agent.lis.report_documents import is_openable_url
from lab_agent.shared.values import CodeableConcept, Coding, Identifier, PartialDate, Period, Quantity, Range, Ratio, SampledData

offsets = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
moments = st.datetimes(min_value=datetime(1900, 1, 2), timezones=offsets)  # noqa: DTZ001
days = st.builds(lambda day, length: PartialDate(day.isoformat()[:length]), st.dates(), st.sampled_from([4, 7, 10]))
numbers = st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**30), max_value=10**30)
words = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), min_size=1, max_size=12)
names = st.text(st.characters(exclude_categories=("Cs", "Cc", "Z")), min_size=1, max_size=12)
codings = st.builds(Coding)
quantities = st.builds(Quantity, value=numbers, comparator=st.sampled_from((None, "<", "<=", ">=", ">")))
amounts = st.builds(Quantity, value=numbers, comparator=st.none())
bounds = st.builds(Range, low=amounts, high=st.none() | amounts)
documents = st.one_of(
    st.builds(Document, content=st.binary(min_size=1, max_size=40), file=st.none(), url=st.none()),
    st.builds(Document, content=st.none(), file=words, url=st.none()),
    st.builds(Document, content=st.none(), file=st.none(), url=names.map("https://lab/{}".format).filter(is_openable_url)),
)
concepts = st.builds(CodeableConcept, coding=st.lists(codings, max_size=2).map(tuple), text=words)
ages = st.builds(
    lambda low, span: Range(low=Quantity(value=low, unit="a"), high=Quantity(value=low + span, unit="a")),
    st.decimals(0, 150, places=2),
    st.decimals(0, 50, places=2),
)
ranges = st.builds(
    ReferenceRange,
    low=st.none() | quantities,
    high=st.none() | quantities,
    meaning=st.none() | concepts,
    age=st.none() | ages,
)
VALUES = {
    "value_quantity": quantities,
    "value_codeable_concept": concepts,
    "value_string": words.filter(str.strip),
    "value_range": bounds,
    "value_ratio": st.builds(Ratio, numerator=quantities, denominator=quantities),
    "value_sampled_data": st.builds(
        SampledData,
        origin=amounts,
        period=st.decimals("0.01", 10**6, places=2),
        dimensions=st.integers(1, 9),
        data=st.lists(st.sampled_from(["1.20", "-3", "E", "U", "L"]), min_size=1, max_size=4).map(" ".join),
        factor=st.none() | numbers,
    ),
    "value_attachment": documents,
    "value_time": st.times(),
    "value_date_time": moments | days,
    "value_period": st.lists(moments, min_size=2, max_size=2).map(sorted).map(lambda ends: Period(start=ends[0], end=ends[1])),
}


@st.composite
def observations(draw: st.DrawFn) -> ReportedObservation:
    chosen = draw(st.sampled_from(sorted(VALUES)))
    values = {name: draw(VALUES[name]) if name == chosen else None for name in VALUES}
    return draw(
        st.builds(
            ReportedObservation,
            issued=st.none() | moments,
            method=st.none() | concepts,
            reference_ranges=st.lists(ranges, max_size=2).map(tuple),
            **{name: st.just(value) for name, value in values.items()},
        )
    )


reported_patients = st.builds(
    ReportedPatient,
    family=st.none() | words,
    given=st.lists(words, max_size=2).map(tuple),
    birth_date=st.none() | st.dates() | days.filter(lambda day: len(day.text) < len("2024-05-17")),
    gender=st.sampled_from([None, "male", "female", "other", "unknown"]),
    identifiers=st.lists(st.builds(Identifier), max_size=2).map(tuple),
)
reports = st.builds(
    LabReport,
    patient=st.none() | reported_patients,
    report_id=names,
    order=names,
    effective=moments | days,
    issued=moments,
    observations=st.lists(observations(), max_size=3).map(tuple),
    documents=st.lists(documents, max_size=2).map(tuple),
    not_performed=st.lists(st.builds(NotPerformed, reason=words.filter(str.strip)), max_size=2).map(tuple),
)
rejections = st.builds(
    LabRejection,
    patient=st.none() | reported_patients,
    barcode=names,
    not_performed=st.lists(st.builds(NotPerformed, reason=words.filter(str.strip)), min_size=1, max_size=2).map(tuple),
)
answers = st.builds(OrderAnswer, values=st.lists(st.booleans() | st.integers() | numbers | words | codings).map(tuple))
patients = st.builds(OrderPatient, birth_date=st.none() | st.dates(date(1900, 1, 1)))
tubes = st.builds(OrderContainer, quantity=st.none() | numbers)
specimens = st.builds(OrderSpecimen, collected_at=st.none() | moments, containers=st.lists(tubes, max_size=2).map(tuple))
orders = st.builds(
    LabOrder,
    lines=st.lists(st.builds(OrderLine, ordered_at=moments), max_size=2).map(tuple),
    specimens=st.lists(specimens, max_size=2).map(tuple),
    ordered_at=moments,
    patient=patients,
    answers=st.lists(answers, max_size=3).map(tuple),
    notifications=st.lists(st.builds(NotificationOption), max_size=2).map(tuple),
    schema_version=st.just(1),
)


def spelled(value: object) -> object:
    """The value with every decimal as its digits, so that 1.2 and 1.20 differ; a decimal without a fraction is a whole number."""
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, tuple):
        return tuple(spelled(item) for item in value)
    if hasattr(value, "__dataclass_fields__"):
        return {name: spelled(getattr(value, name)) for name in value.__dataclass_fields__}
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def storable(message: LabReport | LabRejection) -> bool:
    return b"\\u0000" not in serialization.dump_message(message)


@given(reports.filter(storable))
@settings(deadline=None, max_examples=60)
def test_any_report_round_trips(report: LabReport) -> None:
    back = serialization.load_message(serialization.dump_message(report))
    assert back == report
    assert spelled(back) == spelled(report)


@given(rejections.filter(storable), reported_patients)
@settings(deadline=None, max_examples=40)
def test_any_rejection_and_patient_round_trip(rejection: LabRejection, patient: ReportedPatient) -> None:
    assert serialization.load_message(serialization.dump_message(rejection)) == rejection
    assert serialization.load_reported_patient(serialization.dump_reported_patient(patient)) == patient


@given(orders)
@settings(deadline=None, max_examples=50)
def test_any_order_round_trips_whole_and_split(order: LabOrder) -> None:
    """Any order survives the round trip whole and in two parts."""
    back = serialization.load_order(serialization.dump_order(order))
    assert back == order
    assert spelled(back) == spelled(order)
    medical, identity = serialization.split_identity(order)
    assert serialization.join_identity(medical, identity) == order


def test_digits_preserved() -> None:
    moment = datetime(2024, 5, 17, tzinfo=UTC)
    long = "123456789012345678901234567890.10"
    for digits in ("1.20", "0.10", "1E+5", "1E-7", "9E+400", long, "-0", "-0E+3", "-0.0", "7", "0E-7"):
        value = ReportedObservation(code=Coding(code="718-7"), value_quantity=Quantity(value=Decimal(digits)))
        report = LabReport(
            report_id="R", status=ReportStatus.FINAL, order="O", effective=moment, issued=moment, observations=(value,)
        )
        back: Any = serialization.load_message(serialization.dump_message(report))
        assert f"{back.observations[0].value_quantity.value:f}" == f"{Decimal(digits):f}"
