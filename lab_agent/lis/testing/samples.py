"""Generated orders and messages: the same seed gives the same ones on every machine."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from random import Random

from lab_agent.lis.lab_messages import (
    Document,
    LabRejection,
    LabReport,
    NotPerformed,
    ReferenceRange,
    ReportedObservation,
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
from lab_agent.shared.ids import line_key, order_key
from lab_agent.shared.values import Coding, Identifier, Quantity

_SERVICE = "https://exchange.example/"
_TESTS = (
    ("010.001", "718-7", "g/L"),
    ("010.002", "2345-7", "mmol/L"),
    ("020.014", "3016-3", "mIU/L"),
    ("030.007", "1988-5", "mg/L"),
)
_EARLIEST = datetime(2024, 3, 1, 7, 0, tzinfo=UTC)
_FAMILY_NAMES = ("Sample", "Probe", "Тестова", "O'Sample-Probe", "Ünal")


def make_order(seed: int) -> LabOrder:
    """Make an order of one to four tests on one or two tubes."""
    random = Random(seed)  # noqa: S311 — samples, no secrets
    moment = _random_time(random)
    tests = random.sample(_TESTS, random.randint(1, len(_TESTS)))
    specimens = tuple(_specimen(seed, index, moment) for index in range(random.randint(1, 2)))
    return LabOrder(
        key=order_key(_SERVICE, f"order-{seed}"),
        requisition=Identifier(system=f"{_SERVICE}requisition", value=f"{seed:08d}"),
        contract="C-01",
        ordered_at=moment,
        patient=_patient(random),
        lines=tuple(
            OrderLine(
                key=line_key(_SERVICE, f"line-{seed}-{item}"),
                item=item,
                lab_code=f"LAB{item}",
                text=f"Test {item}",
                ordered_at=moment,
                specimens=(random.choice(specimens).id,),
            )
            for item, _, _ in tests
        ),
        specimens=specimens,
        answers=(OrderAnswer(link_id="fasting", values=(random.random() < 0.5,)), OrderAnswer(link_id="week", values=(0,))),
        notifications=(NotificationOption(channel="sms", wanted=True), NotificationOption(channel="email", wanted=False)),
    )


def make_report(seed: int, order: LabOrder) -> LabReport:
    """Make a final report on all lines of an order, with a document."""
    random = Random(seed)  # noqa: S311 — samples, no secrets
    issued = order.ordered_at + timedelta(hours=random.randint(1, 72))
    return LabReport(
        report_id=f"B{seed:06d}",
        version=1,
        status=ReportStatus.FINAL,
        order=order.key,
        effective=order.ordered_at,
        issued=issued,
        lines=tuple(line.key for line in order.lines),
        observations=tuple(_observation(line.item, random) for line in order.lines),
        documents=(Document(content=b"%PDF-1.4\n" + random.randbytes(64), content_type="application/pdf"),),
    )


def make_rejection(seed: int, order: LabOrder) -> LabRejection:
    """Make a rejection of one line of an order."""
    line = Random(seed).choice(order.lines)  # noqa: S311 — samples, no secrets
    entry = NotPerformed(line=line.key, reason="the specimen is haemolysed")
    return LabRejection(order=order.key, not_performed=(entry,), collect_again=True)


def make_correction(report: LabReport, digits: str) -> LabReport:
    """Make a copy of a report whose first value has these digits; nothing else changes, not even its time."""
    first, *others = report.observations
    return replace(report, observations=(replace(first, value_quantity=Quantity(value=Decimal(digits), unit="g/L")), *others))


def _specimen(seed: int, index: int, collected_at: datetime) -> OrderSpecimen:
    tube = OrderContainer(barcode=f"{seed:07d}{index}", type="EDTA", quantity=Decimal("1.50"))
    return OrderSpecimen(id=f"specimen-{seed}-{index}", type="100", collected_at=collected_at, containers=(tube,))


def _patient(random: Random) -> OrderPatient:
    if random.random() < 0.2:
        return OrderPatient(anonymous=True, family=f"{random.randrange(10**10):010d}", given=("-", "-"), gender="female")
    born = date(1930, 1, 1) + timedelta(days=random.randrange(30_000))
    return OrderPatient(
        family=random.choice(_FAMILY_NAMES), given=("Test", "Person"), gender=random.choice(("male", "female")), birth_date=born
    )


def _observation(item: str, random: Random) -> ReportedObservation:
    _, loinc, unit = next(test for test in _TESTS if test[0] == item)
    value = Decimal(random.randrange(10_000)).scaleb(-random.randint(0, 3))
    bounds = ReferenceRange(low=Quantity(value=Decimal("1.20"), unit=unit), high=Quantity(value=Decimal("9.0"), unit=unit))
    coding = Coding(system="http://loinc.org", code=loinc)
    return ReportedObservation(code=coding, value_quantity=Quantity(value=value, unit=unit), reference_ranges=(bounds,))


def _random_time(random: Random) -> datetime:
    zone = timezone(timedelta(hours=random.choice((0, 2, 3, 5))))
    return (_EARLIEST + timedelta(minutes=random.randrange(400_000))).astimezone(zone)
