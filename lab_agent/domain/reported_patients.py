"""Whether the patient that a laboratory system names with a result may be the order's patient.

Only what both sides say is compared: too little is no difference, since most laboratory systems return less than they were
given. An identifier means something within its system alone, and only where the order has one of that system: any other one is
the laboratory system's own number. One without a system is the same, whether it is ours or not. Names: `name_comparison`.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterable
from datetime import date
from enum import StrEnum

from lab_agent.domain.lab_messages import ReportedPatient
from lab_agent.domain.lab_order import OrderPatient, PatientName
from lab_agent.domain.name_comparison import names_differ
from lab_agent.domain.values import Identifier, may_be_same_day

_COMPARED_GENDERS = frozenset({"male", "female"})
"""What says something of a person: `other` and `unknown` are written for many reasons, and never contradict."""


class PatientField(StrEnum):
    """What may differ, in the words in which people read it."""

    NAME = "name"
    BIRTH_DATE = "birth date"
    SEX = "sex"
    IDENTIFIER = "identifier"


def find_differences(
    reported: ReportedPatient, ordered: OrderPatient, unknown_birth_dates: Collection[date] = ()
) -> tuple[PatientField, ...]:
    """What both sides say and say differently.

    An anonymous patient has a real birth date and sex (interface: Patient); name and numbers are nobody's, and are not compared.
    `unknown_birth_dates` are those that people and programs write where none is known: they say nothing.
    """
    one, other = (None if each in unknown_birth_dates else each for each in (reported.birth_date, ordered.birth_date))
    differs = {
        PatientField.NAME: not ordered.anonymous
        and names_differ(PatientName(family=reported.family, given=reported.given), _names_of(ordered)),
        PatientField.BIRTH_DATE: one is not None and other is not None and not may_be_same_day(one, other),
        PatientField.SEX: _genders_differ(reported.gender, ordered.gender),
        PatientField.IDENTIFIER: not ordered.anonymous and _identifiers_differ(reported.identifiers, _identifiers_of(ordered)),
    }
    return tuple(field for field, is_different in differs.items() if is_different)


def may_be_one_person(one: OrderPatient | None, other: OrderPatient | None) -> bool:
    """Whether the patients of two orders may be one person: nothing that both say differs. One who is not known may be anybody.

    Ids and numbers are not compared: a partner may give each order new ones.
    """
    if one is None or other is None:
        return False
    if (one.anonymous or other.anonymous) and one.family != other.family:
        return False
    said = ReportedPatient(family=one.family, given=one.given, birth_date=one.birth_date, gender=one.gender)
    return not find_differences(said, other)


def _genders_differ(one: str | None, other: str | None) -> bool:
    return one != other and one in _COMPARED_GENDERS and other in _COMPARED_GENDERS


def _names_of(patient: OrderPatient) -> tuple[PatientName, ...]:
    return (PatientName(family=patient.family, given=patient.given, text=patient.name_text), *patient.other_names)


def _identifiers_of(patient: OrderPatient) -> list[Identifier]:
    own = (patient.global_identifier, patient.service_identifier)
    return [*(each for each in own if each is not None), *patient.identifiers]


def _identifiers_differ(reported: Iterable[Identifier], ordered: Iterable[Identifier]) -> bool:
    """Whether there is a system in which both sides name something, and nothing that both name."""
    known, named = _values_by_system(ordered), _values_by_system(reported)
    return any(not known[system] & values for system, values in named.items() if system in known)


def _values_by_system(identifiers: Iterable[Identifier]) -> dict[str, set[str]]:
    values: dict[str, set[str]] = {}
    for each in identifiers:
        if (system := (each.system or "").strip().rstrip("/").casefold()) and (value := _comparison_key(each.value)):
            values.setdefault(system, set()).add(value)
    return values


def _comparison_key(value: str) -> str:
    """Letters and digits alone: `112-233-445 95` is `11223344595`. Zeros before a number are how wide a system writes it."""
    plain = "".join(char for char in unicodedata.normalize("NFKC", value).casefold() if char.isalnum())
    return plain.lstrip("0") or "0" if plain.isdecimal() else plain
