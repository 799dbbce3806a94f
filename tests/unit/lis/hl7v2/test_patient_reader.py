"""Whose result a message says it is."""

from datetime import date
from pathlib import Path

import pytest

from lab_agent.lis.hl7v2.field_map import default_field_map, load_field_map
from lab_agent.lis.hl7v2.parser import parse_message
from lab_agent.lis.hl7v2.results.patient_reader import read_patient
from lab_agent.lis.hl7v2.results.segment_groups import split_message
from lab_agent.lis.lab_messages import ReportedPatient
from lab_agent.shared.values import Identifier, PartialDate


def patient(pid: str, *, mapping: str = "", folder: Path | None = None) -> ReportedPatient | None:
    field_map = default_field_map()
    if folder is not None:
        (folder / "map.toml").write_text(mapping)
        field_map = load_field_map(folder / "map.toml")
    message = parse_message(f"MSH|^~\\&|LIS||AGENT||20240518||ORU^R01|1|P|2.5\r{pid}\rOBR|1||F1|T\r")
    [group] = split_message(message, lambda _: False, lambda _: False).groups
    return read_patient(group, field_map, {})


def identifiers(*pairs: tuple[str | None, str]) -> tuple[Identifier, ...]:
    return tuple(Identifier(system=system, value=value) for system, value in pairs)


@pytest.mark.parametrize(
    ("pid", "meant"),
    [
        ("PID|1", None),
        ('PID|1||""||""^""||""|', None),
        ('PID|1||""||DOE^J||""|', ReportedPatient(family="DOE", given=("J",))),
        ("PID|1||||Doe^Jane^Ann Mary^Jr^Dr~Roe^Jane", ReportedPatient(family="Doe", given=("Jane", "Ann Mary"))),
        ("PID|1||||van Doe&van&Doe^Jane", ReportedPatient(family="van Doe", given=("Jane",))),
        ("PID|1||||Doe\\T\\Roe, Jane", ReportedPatient(family="Doe&Roe, Jane")),
        ("PID|1||||^Jane", ReportedPatient(given=("Jane",))),
        ("PID|1||||||19800517|F", ReportedPatient(birth_date=date(1980, 5, 17), gender="female")),
        ("PID|1||||||198005171230+0300|m", ReportedPatient(birth_date=date(1980, 5, 17), gender="male")),
        ("PID|1||||||1980|U", ReportedPatient(birth_date=PartialDate("1980"), gender="unknown")),
        ("PID|1||||||19801399|O", ReportedPatient(gender="other")),
        ("PID|1||||||00000000|N", None),
        (
            "PID|1|X|4711^^^MIS~4711^^^MIS|4712^^^A&1.2.3&ISO",
            ReportedPatient(identifiers=identifiers(("MIS", "4711"), (None, "X"), ("urn:oid:1.2.3", "4712"))),
        ),
    ],
)
def test_patient_read_as_far_as_said(pid: str, meant: ReportedPatient | None) -> None:
    """What is empty, null or unreadable is not said; the same number twice is one."""
    assert patient(pid) == meant


MAPPING = """
[results]
patient_ids = ["PID-4"]
family = ["ZPI-2", "PID-5.2"]
given = ["PID-5.1"]
[tables.sex]
female = "W"
[tables.assigning_authorities]
MIS = "http://mis.example/ids"
"" = "http://exchange.example/fhir/Patient"
"""


def test_patient_read_by_the_map(tmp_path: Path) -> None:
    found = patient("PID|1||4711^^^MIS|P1~4712^^^MIS~4713^^^OTHER|Jane^Doe||19800517|W", mapping=MAPPING, folder=tmp_path)
    assert found is not None
    assert (found.family, found.given, found.gender) == ("Doe", ("Jane",), "female")
    assert found.identifiers == identifiers(
        ("http://exchange.example/fhir/Patient", "P1"), ("http://mis.example/ids", "4712"), ("OTHER", "4713")
    )
