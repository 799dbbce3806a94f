"""What an order says reaches the laboratory's HL7 message, field by field of the default map."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest

from lab_agent.lis.hl7v2.orders.order_builder import OrderBuilder
from lab_agent.lis.hl7v2.settings import Hl7v2Settings
from lab_agent.lis.lab_order import AnswerStep, LabOrder, NotificationOption, OrderAnswer, PatientName
from lab_agent.lis.testing.samples import make_order
from lab_agent.shared.values import BirthDate, Coding, Identifier, PartialDate

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
PATIENT = Identifier(system="https://exchange.example/fhir/Patient", value="42")
CHART = Identifier(system="urn:chart", value="7")

LINKS = {"orders": {"role": "client", "port": 1}, "folder": "x", "duplicates": "msh10"}


def sent(order: LabOrder, kind: str = "OML") -> list[str]:
    settings = Hl7v2Settings.model_validate(LINKS | {"order_message": kind})
    return OrderBuilder(settings).build_order(order, "1", NOW).decode().split("\r")


def fields(order: LabOrder, segment: str) -> list[list[str]]:
    """The fields of every segment of that name; the first is at 1."""
    return [line.split("|") for line in sent(order) if line.startswith(f"{segment}|")]


SERVICE_NUMBER = "42^^^https://exchange.example/fhir/Patient"


@pytest.mark.parametrize(
    ("anonymous", "identifiers", "expected"),
    [
        *((False, (), SERVICE_NUMBER), (False, (CHART,), f"{SERVICE_NUMBER}~7^^^urn:chart")),
        *((True, (), "{key}"), (True, (CHART,), "7^^^urn:chart")),
    ],
)
def test_patient_number_is_the_services_unless_anonymous(
    anonymous: bool, identifiers: tuple[Identifier, ...], expected: str
) -> None:
    for made in map(make_order, (1, 3)):
        patient = replace(made.patient, anonymous=anonymous, service_identifier=PATIENT, identifiers=identifiers)
        order = replace(made, patient=patient)
        assert fields(order, "PID")[0][3] == expected.format(key=order.key)
        assert fields(order, "PV1")[0][19] == order.key


@pytest.mark.parametrize(
    ("born", "written"),
    [(PartialDate("1980"), "1980"), (PartialDate("1980-02"), "198002"), (date(1980, 2, 29), "19800229"), (None, "")],
)
def test_birth_date_is_written_as_far_as_known(born: BirthDate | None, written: str) -> None:
    order = make_order(3)
    assert fields(replace(order, patient=replace(order.patient, birth_date=born)), "PID")[0][7] == written


def test_other_names_are_in_the_alias_field() -> None:
    names = (PatientName(use="maiden", family="Byron", given=("Ada", "Augusta")), PatientName(text="Countess"))
    order = make_order(3)
    order = replace(order, patient=replace(order.patient, other_names=names))
    assert fields(order, "PID")[0][9] == "Byron^Ada^Augusta^^^^M~Countess^^^^^^U"


def test_further_codes_numbers_and_periods_are_passed_on() -> None:
    order = make_order(3)
    tube = replace(order.specimens[0].containers[0], second_barcode="12", other_identifiers=(CHART,))
    end = NOW + timedelta(hours=24)
    specimen = replace(order.specimens[0], containers=(tube,), collected_at=NOW, collected_until=end)
    line = replace(order.lines[0], specimens=(specimen.id,), other_codes=(Coding(system="http://loinc.org", code="718-7"),))
    order = replace(order, specimens=(specimen,), lines=(line,))
    assert fields(order, "OBR")[0][46] == "718-7^^http://loinc.org"
    assert fields(order, "SPM")[0][31] == "12~7^^^urn:chart"
    assert fields(order, "SPM")[0][17] == "20260302120000+0000^20260303120000+0000"


def test_repeats_of_a_group_have_different_sub_ids() -> None:
    paths = [(AnswerStep(link_id="drug", repeat=number), AnswerStep(link_id="dose")) for number in (1, 2)]
    answers = tuple(OrderAnswer(link_id="dose", path=path, values=(5,)) for path in paths)
    assert [segment[4] for segment in fields(replace(make_order(3), answers=answers), "OBX")] == ["1", "2"]


@pytest.mark.parametrize(
    ("values", "units", "kind", "said", "unit"),
    [
        ((Decimal("70.5"),), ("kg",), "NM", "70.5", "kg"),
        ((5,), (), "NM", "5", ""),
        ((5, 6), ("L", "mL"), "ST", "5 L~6 mL", ""),
        ((5, 6), ("L", ""), "ST", "5 L~6", ""),
    ],
)
def test_unit_of_an_answer_is_in_its_field(
    values: tuple[int | Decimal, ...], units: tuple[str, ...], kind: str, said: str, unit: str
) -> None:
    answers = (OrderAnswer(link_id="weight", values=values, units=units),)
    (segment,) = fields(replace(make_order(3), answers=answers), "OBX")
    assert (segment[2], segment[5], segment[6]) == (kind, said, unit)


@pytest.mark.parametrize("kind", ["OML", "ORM"])
@pytest.mark.parametrize(
    ("options", "notes"),
    [
        ({}, []),
        ({"sms": True}, ["NTE|1|P|Notify by sms: Y"]),
        ({"email": False}, ["NTE|2|P|Notify by email: N"]),
        ({"email": True, "sms": False}, ["NTE|1|P|Notify by sms: N", "NTE|2|P|Notify by email: Y"]),
    ],
)
def test_notification_options_are_notes_of_the_patient(kind: str, options: dict[str, bool], notes: list[str]) -> None:
    given = tuple(NotificationOption(channel=channel, wanted=wanted) for channel, wanted in options.items())
    lines = sent(replace(make_order(3), notifications=given), kind)
    assert lines[2 : 2 + len(notes) + 1] == [*notes, f"PV1|1|O|||||||||||||||||{make_order(3).key}"]
