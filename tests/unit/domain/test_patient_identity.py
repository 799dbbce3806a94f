from __future__ import annotations

from dataclasses import replace
from datetime import date

import pytest

from lab_agent.fhir.human_name import HumanName
from lab_agent.fhir.patient_identity import PatientMatch, compare_patients
from lab_agent.fhir.received_order import ReceivedPatient, ResourceRef
from lab_agent.shared.values import Identifier, PartialDate

BORN = date(1990, 12, 10)
ADA = ReceivedPatient(
    ref=ResourceRef("Patient", "1"),
    names=(HumanName(family="Lovelace", given=("Ada", "King")),),
    gender="female",
    birth_date=BORN,
    identifiers=(Identifier(system="urn:visits", value="1"),),
)
AGAIN = replace(ADA, ref=ResourceRef("Patient", "2"), identifiers=(Identifier(system="urn:visits", value="2"),))


@pytest.mark.parametrize(
    ("other", "match"),
    [
        (AGAIN, PatientMatch.SAME),
        (replace(AGAIN, names=(HumanName(text="ADA  King Lovelace"),)), PatientMatch.SAME),
        (replace(AGAIN, names=(HumanName(family="Byron"), *ADA.names)), PatientMatch.SAME),
        (replace(ADA, names=(HumanName(family="Byron"),)), PatientMatch.UNKNOWN),
        (replace(ADA, names=()), PatientMatch.UNKNOWN),
        (replace(ADA, birth_date=None), PatientMatch.SAME),
        (replace(ADA, birth_date=PartialDate("1990")), PatientMatch.SAME),
        (replace(AGAIN, birth_date=PartialDate("1990-12")), PatientMatch.UNKNOWN),
        (replace(AGAIN, birth_date=PartialDate("1991")), PatientMatch.DIFFERENT),
        (replace(AGAIN, names=(HumanName(family="Byron"),)), PatientMatch.DIFFERENT),
        (replace(ADA, gender="male"), PatientMatch.DIFFERENT),
        (replace(AGAIN, birth_date=None), PatientMatch.UNKNOWN),
        (None, PatientMatch.UNKNOWN),
    ],
)
def test_patients_are_compared_by_what_they_say(other: ReceivedPatient | None, match: PatientMatch) -> None:
    assert compare_patients(ADA, other) is match
    assert compare_patients(other, ADA) is match


def test_number_without_a_system_is_no_shared_identifier() -> None:
    one = replace(ADA, identifiers=(Identifier(system=None, value="1"),))
    assert compare_patients(one, replace(one, names=(HumanName(family="Byron"),))) is PatientMatch.DIFFERENT
    assert compare_patients(one, replace(one, birth_date=None)) is PatientMatch.UNKNOWN
    one, other = (replace(each, birth_date=PartialDate("1990")) for each in (ADA, AGAIN))
    assert compare_patients(one, other) is PatientMatch.UNKNOWN
