"""Whether two Patients are the same person, as far as their resources say.

A partner may create the Patient anew for every order (interface: What the service does, daily flow), so that two resources with
different ids are often one person. Nothing is guessed: where birth date, sex or names differ, or too little is said, a person
has to look. Identifiers of one system may differ, for a clinic may number each visit; one that both have makes them the same.
"""

from __future__ import annotations

from enum import StrEnum

from lab_agent.domain.received_order import ReceivedPatient


class PatientMatch(StrEnum):
    """How two Patients compare."""

    SAME = "same"
    DIFFERENT = "different"
    UNKNOWN = "unknown"


def compare_patients(one: ReceivedPatient | None, other: ReceivedPatient | None) -> PatientMatch:
    """Compare birth date, sex, names and identifiers; a Patient that is not there any more leaves it unknown."""
    if one is None or other is None:
        return PatientMatch.UNKNOWN
    if _differ(one.birth_date, other.birth_date) or _differ(one.gender, other.gender):
        return PatientMatch.DIFFERENT
    if set(one.identifiers) & set(other.identifiers):
        return PatientMatch.SAME
    names, other_names = _names(one), _names(other)
    if names and other_names and not names & other_names:
        return PatientMatch.DIFFERENT
    is_known = one.birth_date is not None and one.birth_date == other.birth_date
    return PatientMatch.SAME if is_known and names & other_names else PatientMatch.UNKNOWN


def _differ(one: object, other: object) -> bool:
    return one is not None and other is not None and one != other


def _names(patient: ReceivedPatient) -> set[tuple[str, ...]]:
    """The names in a form that ignores case, spaces, and the order of the parts."""
    return {key for name in patient.names if (key := name.comparison_key)}
