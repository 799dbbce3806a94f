"""Rules about the Patient. Messages never repeat what the Patient says."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from lab_agent.domain.received import subject_key
from lab_agent.rules.case import Case
from lab_agent.rules.rule import Problem, Rule, Severity

_GENDERS = frozenset({"male", "female", "other", "unknown"})
_OLDEST_YEARS = 130


def _gender(case: Case) -> Iterator[Problem]:
    for patient in case.order.patients:
        if patient.gender is None:
            yield Problem(f"{patient.where}.gender")


def _gender_code(case: Case) -> Iterator[Problem]:
    for patient in case.order.patients:
        if patient.gender is not None and patient.gender not in _GENDERS:
            yield Problem(f"{patient.where}.gender")


def _birth_date(case: Case) -> Iterator[Problem]:
    for patient in case.order.patients:
        if patient.birth_date is None:
            what = "is missing" if patient.birth_text is None else "is not a date with year, month and day"
            yield Problem(f"{patient.where}.birthDate", values={"what": what})


def _birth_possible(case: Case) -> Iterator[Problem]:
    latest = (case.facts.now + timedelta(days=1)).date()
    for patient in case.order.patients:
        born = patient.birth_date
        if born and (born > latest or born.year < latest.year - _OLDEST_YEARS):
            yield Problem(f"{patient.where}.birthDate")


def _anonymous(case: Case) -> Iterator[Problem]:
    """Half of the anonymous form: ten digits without the dashes, or dashes without the ten digits."""
    for patient in case.order.patients:
        digits = bool(patient.family) and str(patient.family).isdigit()
        dashes = bool(patient.given) and set(patient.given) == {"-"}
        if (digits or dashes) and not patient.anonymous:
            yield Problem(f"{patient.where}.name[0]")


def _global(case: Case) -> Iterator[Problem]:
    for line, request in case.lines():
        if request.subject and request.subject.text is None and subject_key(request.subject):
            yield Problem(f"{request.where}.subject", (line.id,))


RULES = (
    Rule(
        id="patient.gender",
        severity=Severity.REFUSE,
        section="Patient: on the laboratory side",
        check=_gender,
        message="{where}: is missing. Send the patient's gender.",
    ),
    Rule(
        id="patient.gender-code",
        severity=Severity.REFUSE,
        section="Patient: on the laboratory side",
        check=_gender_code,
        message="{where}: is none of male, female, other, unknown. Send one of these.",
    ),
    Rule(
        id="patient.birth-date",
        severity=Severity.REFUSE,
        section="Patient: on the laboratory side",
        check=_birth_date,
        message="{where}: {what}. Send the patient's birth date.",
    ),
    Rule(
        id="patient.birth-possible",
        severity=Severity.REFUSE,
        section="Patient: on the laboratory side",
        check=_birth_possible,
        message="{where}: is not possible. Check the patient's birth date.",
    ),
    Rule(
        id="patient.anonymous",
        severity=Severity.WARN,
        section="Patient: anonymous order",
        check=_anonymous,
        message="{where}: is half of the anonymous form. For an anonymous order send ten digits and two given names `-`.",
    ),
    Rule(
        id="patient.global",
        severity=Severity.WARN,
        section="What the service does: rule 5, a global patient identifier",
        check=_global,
        message="{where}: is a global identifier without a Patient, so gender and birth date are not known here.",
    ),
)
