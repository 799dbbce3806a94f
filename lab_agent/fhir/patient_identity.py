"""Whether two Patients are the same person, as far as their resources say.

A partner may create the Patient anew for every order (interface: What the service does, daily flow), so that two resources with
different ids are often one person. Nothing is guessed: where birth date, sex or names differ, or too little is said, a person
has to look. Identifiers of one system may differ, for a clinic may number each visit. One that both have stands for a birth date
that is missing or has no day, but not for the name: twins may have their mother's policy. A number without a system says nothing.
"""

from __future__ import annotations

from datetime import date
from enum import StrEnum

from lab_agent.fhir.received_order import ReceivedPatient
from lab_agent.shared.values import Identifier, may_be_same_day


class PatientMatch(StrEnum):
    """How two Patients compare."""

    SAME = "same"
    DIFFERENT = "different"
    UNKNOWN = "unknown"


def compare_patients(one: ReceivedPatient | None, other: ReceivedPatient | None) -> PatientMatch:
    """Compare birth date, sex, names and identifiers; a Patient that is not there any more leaves it unknown."""
    if one is None or other is None:
        return PatientMatch.UNKNOWN
    born, other_born = one.birth_date, other.birth_date
    if (born and other_born and not may_be_same_day(born, other_born)) or _differ(one.gender, other.gender):
        return PatientMatch.DIFFERENT
    shares_identifier = bool(_identifiers(one) & _identifiers(other))
    names, other_names = _names(one), _names(other)
    if names and other_names and not names & other_names:
        return PatientMatch.UNKNOWN if shares_identifier else PatientMatch.DIFFERENT
    is_known = shares_identifier or (isinstance(born, date) and born == other_born)
    return PatientMatch.SAME if is_known and names & other_names else PatientMatch.UNKNOWN


def _identifiers(patient: ReceivedPatient) -> set[Identifier]:
    return {each for each in patient.identifiers if each.system}


def _differ(one: object, other: object) -> bool:
    return one is not None and other is not None and one != other


def _names(patient: ReceivedPatient) -> set[tuple[str, ...]]:
    """The names in a form that ignores case, spaces, and the order of the parts."""
    return {key for name in patient.names if (key := name.comparison_key)}
