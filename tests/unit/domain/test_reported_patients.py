"""Whose result it is: only what both sides say differently is a difference."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import pytest

from lab_agent.domain.lab_messages import ReportedPatient
from lab_agent.domain.lab_order import OrderPatient, PatientName
from lab_agent.domain.reported_patients import PatientField, find_differences, may_be_one_person
from lab_agent.domain.values import Identifier, PartialDate

POLICY, SERVICE = "urn:policy", "http://service.example/Patient"
ORDERED = OrderPatient(
    service_identifier=Identifier(system=SERVICE, value="77"),
    family="Sample",
    given=("Anna",),
    name_text="Mrs. (Doe)",
    other_names=(PatientName(family="Roe"),),
    gender="female",
    birth_date=date(1980, 2, 29),
    identifiers=(Identifier(system=POLICY, value="1234-5678"), Identifier(value="local-9")),
)


def _named(*pairs: tuple[str | None, str]) -> ReportedPatient:
    return ReportedPatient(identifiers=tuple(Identifier(system=system, value=value) for system, value in pairs))


@pytest.mark.parametrize(
    ("reported", "differing"),
    [
        (ReportedPatient(), ()),
        (ReportedPatient(family="SAMPLE", given=("Anna",)), ()),
        (ReportedPatient(family="Doe"), ()),
        (ReportedPatient(family="Roe"), ()),
        (ReportedPatient(family="Meier"), (PatientField.NAME,)),
        (ReportedPatient(family="Sample", given=("Berta",)), (PatientField.NAME,)),
        (ReportedPatient(birth_date=date(1980, 2, 29), gender="female"), ()),
        (ReportedPatient(birth_date=date(1980, 2, 28)), (PatientField.BIRTH_DATE,)),
        (ReportedPatient(birth_date=PartialDate("1980")), ()),
        (ReportedPatient(birth_date=PartialDate("1980-02")), ()),
        (ReportedPatient(birth_date=PartialDate("1980-03")), (PatientField.BIRTH_DATE,)),
        (ReportedPatient(birth_date=PartialDate("1981")), (PatientField.BIRTH_DATE,)),
        (ReportedPatient(gender="male"), (PatientField.SEX,)),
        (ReportedPatient(gender="unknown"), ()),
        (ReportedPatient(gender="other"), ()),
        (_named((POLICY, "12345678")), ()),
        (_named((POLICY, "0012345678")), ()),
        (_named((POLICY, "１２３４５６７８")), ()),
        (_named((POLICY, "A0012345678")), (PatientField.IDENTIFIER,)),
        (_named((POLICY, "999")), (PatientField.IDENTIFIER,)),
        (_named((POLICY, "999"), (POLICY, "1234 5678")), ()),
        (_named((SERVICE + "/", "77")), ()),
        (_named((SERVICE + "/", "78")), (PatientField.IDENTIFIER,)),
        (_named((f" {POLICY.upper()} ", "999")), (PatientField.IDENTIFIER,)),
        (_named((SERVICE, "78")), (PatientField.IDENTIFIER,)),
        (_named((SERVICE, "77"), (POLICY, "999")), (PatientField.IDENTIFIER,)),
        (_named((None, "999"), ("urn:lis:patients", "0815"), ("", "local-8"), (POLICY, " ")), ()),
    ],
)
def test_difference_is_what_both_say_otherwise(reported: ReportedPatient, differing: tuple[PatientField, ...]) -> None:
    assert find_differences(reported, ORDERED) == differing


@pytest.mark.parametrize(
    ("reported", "differing"),
    [
        (ReportedPatient(family="9999999999"), ()),
        (ReportedPatient(family="Sample", given=("Anna",)), ()),
        (_named((POLICY, "2"), (SERVICE, "78")), ()),
        (ReportedPatient(birth_date=date(1980, 1, 1), gender="female"), ()),
        (ReportedPatient(birth_date=date(1980, 1, 2)), (PatientField.BIRTH_DATE,)),
        (ReportedPatient(gender="male"), (PatientField.SEX,)),
        (
            ReportedPatient(family="Sample", birth_date=PartialDate("1981"), gender="male"),
            (PatientField.BIRTH_DATE, PatientField.SEX),
        ),
    ],
)
def test_anonymous_order_differs_in_birth_date_and_sex(reported: ReportedPatient, differing: tuple[PatientField, ...]) -> None:
    ordered = OrderPatient(
        anonymous=True,
        family="1234567890",
        gender="female",
        birth_date=date(1980, 1, 1),
        service_identifier=Identifier(system=SERVICE, value="77"),
        identifiers=(Identifier(system=POLICY, value="1"),),
    )
    assert find_differences(reported, ordered) == differing


def test_order_that_names_nobody_differs_in_nothing() -> None:
    reported = ReportedPatient(
        family="Sample", gender="male", birth_date=date(1970, 1, 1), identifiers=(Identifier(system=POLICY, value="2"),)
    )
    assert find_differences(reported, OrderPatient()) == ()


BORN = date(1980, 1, 1)
NOBODY = OrderPatient(anonymous=True, family="1234567890", birth_date=BORN, gender="female")


@pytest.mark.parametrize(
    ("other", "may_be"),
    [
        (NOBODY, True),
        (replace(NOBODY, family="1234567891"), False),
        (replace(NOBODY, birth_date=date(1980, 1, 2)), False),
        (replace(NOBODY, gender="male"), False),
        (replace(NOBODY, birth_date=None, gender=None), True),
        (OrderPatient(family="Sample", birth_date=BORN, gender="female"), False),
        (OrderPatient(family="1234567890", birth_date=BORN, gender="female"), True),
        (None, False),
    ],
)
def test_anonymous_orders_of_one_person(other: OrderPatient | None, may_be: bool) -> None:
    assert may_be_one_person(NOBODY, other) is may_be
    assert may_be_one_person(other, NOBODY) is may_be


def test_global_identifier_is_compared_in_its_system() -> None:
    ordered = OrderPatient(global_identifier=Identifier(system=POLICY, value="1"))
    assert find_differences(_named((POLICY, "2")), ordered) == (PatientField.IDENTIFIER,)


def test_placeholder_of_a_birth_date_says_nothing() -> None:
    reported, placeholder = ReportedPatient(birth_date=date(1900, 1, 1)), (date(1900, 1, 1),)
    assert find_differences(reported, ORDERED) == (PatientField.BIRTH_DATE,)
    assert find_differences(reported, ORDERED, placeholder) == ()
    other = ReportedPatient(birth_date=date(1981, 5, 17))
    assert find_differences(other, OrderPatient(birth_date=date(1900, 1, 1)), placeholder) == ()


ANNA = OrderPatient(family="Sample", given=("Anna",), birth_date=date(1980, 2, 29), gender="female")
NUMBERED = OrderPatient(anonymous=True, family="1234567890", given=("-",))


@pytest.mark.parametrize(
    ("one", "other", "may_be"),
    [
        (ANNA, ANNA, True),
        (ANNA, None, False),
        (None, ANNA, False),
        (ANNA, replace(ANNA, identifiers=(Identifier(system=POLICY, value="2"),)), True),
        (ANNA, replace(ANNA, family="Meier"), False),
        (ANNA, replace(ANNA, given=("Berta",)), False),
        (ANNA, replace(ANNA, birth_date=date(1980, 2, 28)), False),
        (ANNA, replace(ANNA, gender="male"), False),
        (NUMBERED, NUMBERED, True),
        (NUMBERED, replace(NUMBERED, family="1234567891"), False),
        (NUMBERED, ANNA, False),
        (ANNA, NUMBERED, False),
    ],
)
def test_two_orders_may_be_of_one_person(one: OrderPatient | None, other: OrderPatient | None, may_be: bool) -> None:
    assert may_be_one_person(one, other) is may_be
