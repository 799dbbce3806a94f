"""Whose result it is: only what both sides say differently is a difference."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from lab_agent.lis.lab_messages import ReportedPatient
from lab_agent.lis.lab_order import OrderPatient, PatientName
from lab_agent.results.patient_comparison import find_differences, may_be_one_person
from lab_agent.shared.values import Identifier, PartialDate

POLICY, SERVICE = "urn:policy", "http://service.example/Patient"
BORN = date(1980, 2, 29)
ORDERED = OrderPatient(
    service_identifier=Identifier(system=SERVICE, value="77"),
    family="Sample",
    given=("Anna",),
    name_text="Mrs. (Doe)",
    other_names=(PatientName(family="Roe"),),
    gender="female",
    birth_date=BORN,
    identifiers=(Identifier(system=POLICY, value="1234-5678"), Identifier(value="local-9")),
)
ANONYMOUS = OrderPatient(
    anonymous=True,
    family="1234567890",
    gender="female",
    birth_date=BORN,
    service_identifier=Identifier(system=SERVICE, value="77"),
    identifiers=(Identifier(system=POLICY, value="1"),),
)


def numbers(*pairs: tuple[str | None, str]) -> dict[str, Any]:
    return {"identifiers": tuple(Identifier(system=system, value=value) for system, value in pairs)}


@pytest.mark.parametrize(
    ("reported", "differing"),
    [
        ({}, ""),
        ({"family": "SAMPLE", "given": ("Anna",)}, ""),
        ({"family": "Doe"}, ""),
        ({"family": "Roe"}, ""),
        ({"family": "Meier"}, "name"),
        ({"birth_date": BORN, "gender": "female"}, ""),
        ({"birth_date": date(1980, 2, 28)}, "birth date"),
        ({"birth_date": PartialDate("1980-02")}, ""),
        ({"birth_date": PartialDate("1980-03")}, "birth date"),
        ({"gender": "male"}, "sex"),
        ({"gender": "other"}, ""),
        (numbers((POLICY, "12345678")), ""),
        (numbers((POLICY, "0012345678")), ""),
        (numbers((POLICY, "１２３４５６７８")), ""),
        (numbers((POLICY, "A0012345678")), "identifier"),
        (numbers((POLICY, "999")), "identifier"),
        (numbers((POLICY, "999"), (POLICY, "1234 5678")), ""),
        (numbers((SERVICE + "/", "78")), "identifier"),
        (numbers((SERVICE + "/", "77")), ""),
        (numbers((f" {POLICY.upper()} ", "999")), "identifier"),
        (numbers((SERVICE, "77"), (POLICY, "999")), "identifier"),
        (numbers((None, "999"), ("urn:lis:patients", "0815"), ("", "local-8"), (POLICY, " ")), ""),
    ],
)
def test_difference_is_what_both_say_otherwise(reported: dict[str, Any], differing: str) -> None:
    assert ", ".join(find_differences(ReportedPatient(**reported), ORDERED)) == differing
    assert find_differences(ReportedPatient(**reported), OrderPatient()) == ()


@pytest.mark.parametrize(
    ("reported", "differing"),
    [
        ({"family": "Sample", "given": ("Anna",)}, ""),
        (numbers((POLICY, "2"), (SERVICE, "78")), ""),
        ({"birth_date": BORN, "gender": "female"}, ""),
        ({"family": "Sample", "birth_date": PartialDate("1981"), "gender": "male"}, "birth date, sex"),
    ],
)
def test_anonymous_order_differs_in_birth_date_and_sex(reported: dict[str, Any], differing: str) -> None:
    assert ", ".join(find_differences(ReportedPatient(**reported), ANONYMOUS)) == differing


def test_global_identifier_is_compared_in_its_system() -> None:
    ordered = OrderPatient(global_identifier=Identifier(system=POLICY, value="1"))
    assert find_differences(ReportedPatient(**numbers((POLICY, "2"))), ordered) == ("identifier",)


def test_placeholder_of_a_birth_date_says_nothing() -> None:
    reported, placeholder = ReportedPatient(birth_date=date(1900, 1, 1)), (date(1900, 1, 1),)
    assert find_differences(reported, ORDERED) == ("birth date",)
    assert find_differences(reported, ORDERED, placeholder) == ()
    other = ReportedPatient(birth_date=date(1981, 5, 17))
    assert find_differences(other, OrderPatient(birth_date=date(1900, 1, 1)), placeholder) == ()


ANNA = OrderPatient(family="Sample", given=("Anna",), birth_date=BORN, gender="female")
NOBODY = OrderPatient(anonymous=True, family="1234567890", birth_date=BORN, gender="female")
NUMBERED = OrderPatient(anonymous=True, family="1234567890", given=("-",))


@pytest.mark.parametrize(
    ("one", "other", "may_be"),
    [
        (ANNA, ANNA, True),
        (ANNA, None, False),
        (ANNA, replace(ANNA, **numbers((POLICY, "2"))), True),
        (ANNA, replace(ANNA, family="Meier"), False),
        (ANNA, replace(ANNA, given=("Berta",)), False),
        (ANNA, replace(ANNA, birth_date=date(1980, 2, 28)), False),
        (ANNA, replace(ANNA, gender="male"), False),
        (NUMBERED, NUMBERED, True),
        (NUMBERED, replace(NUMBERED, family="1234567891"), False),
        (NUMBERED, ANNA, False),
        (NOBODY, NOBODY, True),
        (NOBODY, replace(NOBODY, family="1234567891"), False),
        (NOBODY, replace(NOBODY, birth_date=date(1980, 1, 2)), False),
        (NOBODY, replace(NOBODY, gender="male"), False),
        (NOBODY, replace(NOBODY, birth_date=None, gender=None), True),
        (NOBODY, ANNA, False),
        (NOBODY, replace(NOBODY, anonymous=False), True),
        (NOBODY, None, False),
    ],
)
def test_two_orders_may_be_of_one_person(one: OrderPatient, other: OrderPatient | None, may_be: bool) -> None:
    assert may_be_one_person(one, other) is may_be
    assert may_be_one_person(other, one) is may_be
