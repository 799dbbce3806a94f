"""Rules about the Patient. Their messages never repeat what the Patient says (law 7)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from lab_agent.fhir.human_name import choose_name
from lab_agent.fhir.received_order import patient_key
from lab_agent.rules.context import RuleContext
from lab_agent.rules.rule import Severity, Violation, rule
from lab_agent.shared.values import PartialDate, day_span

_GENDERS = frozenset({"male", "female", "other", "unknown"})
_MAX_AGE_YEARS = 130


@rule(
    "patient.gender",
    Severity.REFUSE,
    "Patient: on the laboratory side",
    "{where}: the gender is missing. Please send the patient's gender.",
)
def _check_gender(context: RuleContext) -> Iterator[Violation]:
    for patient in context.order.patients:
        if patient.gender is None:
            yield Violation(f"{patient.where}.gender")


@rule(
    "patient.gender-code",
    Severity.REFUSE,
    "Patient: on the laboratory side",
    "{where}: the gender must be male, female, other or unknown. Please send one of these.",
)
def _check_gender_code(context: RuleContext) -> Iterator[Violation]:
    for patient in context.order.patients:
        if patient.gender is not None and patient.gender not in _GENDERS:
            yield Violation(f"{patient.where}.gender")


@rule(
    "patient.birth-date",
    Severity.REFUSE,
    "Patient: on the laboratory side",
    "{where}: the birth date {what}. Please send the patient's birth date.",
)
def _check_birth_date(context: RuleContext) -> Iterator[Violation]:
    for patient in context.order.patients:
        if patient.birth_date is None:
            what = "is missing" if patient.birth_date_text is None else "is not a date"
            yield Violation(f"{patient.where}.birthDate", values={"what": what})


@rule(
    "patient.birth-date-whole",
    Severity.WARN,
    "Patient: on the laboratory side",
    "{where}: the birth date has no day. Please send the whole date, where it is known.",
)
def _check_birth_date_whole(context: RuleContext) -> Iterator[Violation]:
    """FHIR allows a year, or a year and month: that is what is known of some patients."""
    for patient in context.order.patients:
        if isinstance(patient.birth_date, PartialDate):
            yield Violation(f"{patient.where}.birthDate")


@rule(
    "patient.birth-possible",
    Severity.REFUSE,
    "Patient: on the laboratory side",
    "{where}: this birth date is not possible. Please check the patient's birth date.",
    reads_clock=True,
)
def _check_birth_possible(context: RuleContext) -> Iterator[Violation]:
    times = (context.ordered_at(request) for request in context.order.requests)  # our own clock may be behind (law 10)
    latest = (max((context.facts.now, *times)) + timedelta(days=1)).date()
    for patient in context.order.patients:
        if patient.birth_date is None:
            continue
        first, last = day_span(patient.birth_date)
        if first > latest or last.year < latest.year - _MAX_AGE_YEARS:
            yield Violation(f"{patient.where}.birthDate")


@rule(
    "patient.anonymous",
    Severity.WARN,
    "Patient: anonymous order",
    "{where}: only half of the anonymous form is there. For an anonymous order please send ten digits as the family name, "
    "and two given names `-`.",
    reads_clock=True,
)
def _check_anonymous(context: RuleContext) -> Iterator[Violation]:
    """Digits for a family name without the dashes, or dashes without the ten digits."""
    for patient in context.order.patients:
        name = choose_name(patient.names, context.facts.now.date())
        digits = name is not None and bool(name.family) and str(name.family).isdigit()
        dashes = name is not None and bool(name.given) and set(name.given) == {"-"}
        if name is not None and (digits or dashes) and not name.is_anonymous:
            yield Violation(name.where)


@rule(
    "patient.global",
    Severity.WARN,
    "What the service does: rule 5, a global patient identifier",
    "{where}: this is a global identifier without a Patient, so the laboratory knows neither gender nor birth date.",
)
def _check_global(context: RuleContext) -> Iterator[Violation]:
    for line, request in context.lines_with_requests():
        if request.subject and request.subject.text is None and patient_key(request.subject):
            yield Violation(f"{request.where}.subject", (line.id,))
