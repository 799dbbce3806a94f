"""Which susceptibilities a message gives to which organism."""

from zoneinfo import ZoneInfo

import pytest

from lab_agent.lis.hl7v2.field_map import default_field_map
from lab_agent.lis.hl7v2.parser import parse_message
from lab_agent.lis.hl7v2.results.obx_values import ObxValueReader
from lab_agent.lis.hl7v2.results.report_merging import ParsedReport
from lab_agent.lis.hl7v2.results.result_reader import ResultReader
from lab_agent.lis.lab_messages import LabReport, ReportedObservation
from lab_agent.lis.value_text import format_value

MSH = "MSH|^~\\&|LIS||AGENT||20240518100000+0300||ORU^R01|1|P|2.5.1"
TIMES = "|||20240517083000+0300|||||||||||||||20240518090000+0300|||F"
CULTURE, AST = f"OBR|1||F1|CULT{TIMES}", f"OBR|2||F1|AST{TIMES}"
ECOLI, STAPH = "^E. coli", "^S. aureus"


def org(number: str, name: str, kind: str = "CWE", code: str = "ORG") -> str:
    return f"OBX|1|{kind}|{code}|{number}|{name}||||||F"


def drug(code: str, number: str, flag: str, unit: str = "mg/L", value: str = "2") -> str:
    return f"OBX|1|ST|{code}|{number}|{value}|{unit}||{flag}|||F"


def read(*segments: str, **tables: dict[str, str]) -> list[ParsedReport]:
    field_map = default_field_map()
    field_map = field_map.model_copy(update={"tables": field_map.tables | tables})
    reader = ResultReader(ObxValueReader(field_map, ZoneInfo("UTC")), lambda _: None)
    return reader.read(parse_message("\r".join((MSH, "PID|1||X", *segments)) + "\r"))


def reports(*segments: str) -> dict[str, list[str]]:
    """The reports by id, each with what it says."""
    parts = read(*segments)
    assert [part.problem for part in parts if part.problem] == []
    found = (part.content for part in parts if isinstance(part.content, LabReport))
    return {report.report_id: [*map(shown, report.observations)] for report in found}


def shown(one: ReportedObservation) -> str:
    return " ".join((one.code.code, format_value(one), *one.flags))


def problems(*segments: str) -> str:
    return "; ".join(part.problem for part in read(*segments) if part.problem)


AMP_R, CIP_S, BY_DISK = drug("AMP", "", "R"), drug("CIP", "", "S"), org("", "by disk", "TX", "METHOD")
ORG, SECOND = org("1", ECOLI), org("2", STAPH)
CASES: dict[str, tuple[tuple[str, ...], dict[str, list[str]]]] = {
    # OBX-4 that counts every OBX of an OBR says nothing of isolates
    "running numbers": (
        (CULTURE, ORG, drug("AMP", "2", "R"), drug("CIP", "3", "S")),
        {"F1/CULT": ["ORG E. coli", "AMP 2 mg/L R", "CIP 2 mg/L S"]},
    ),
    # a concentration that the laboratory does not interpret, before those that it does
    "drug without flag": (
        (CULTURE, ORG, org("1", "10^5", "ST", "COUNT"), drug("AMK", "1", ""), drug("AMP", "1", "R"),
         SECOND, drug("AMK", "2", "", value="8"), drug("AMP", "2", "S")),
        {"F1/CULT": ["ORG E. coli", "COUNT 10^5", "ORG S. aureus"],
         "F1/CULT#1": ["ORG E. coli", "COUNT 10^5", "AMK 2 mg/L", "AMP 2 mg/L R"],
         "F1/CULT#2": ["ORG S. aureus", "AMK 8 mg/L", "AMP 2 mg/L S"]},
    ),
    "flags of chemistry": (
        (CULTURE, drug("K", "1", "H", "mmol/l"), drug("NA", "1", "N", "mmol/l"), drug("NA", "2", "L", "mmol/l")),
        {"F1/CULT": ["K 2 mmol/l H", "NA 2 mmol/l N", "NA 2 mmol/l L"]},
    ),
    "numbers of OG": (
        (CULTURE, org("^1^1", ECOLI), drug("AMP", "^1^2", "R"), org("^2^1", STAPH), drug("AMP", "^2^2", "S")),
        {"F1/CULT#1": ["ORG E. coli", "AMP 2 mg/L R"], "F1/CULT#2": ["ORG S. aureus", "AMP 2 mg/L S"]},
    ),
    "two panels of one isolate": (
        (CULTURE, ORG, f"{AST}|ORG^1^E. coli", AMP_R, f"{AST}|ORG^1^E. coli", CIP_S),
        {"F1/AST/ORG#1": ["ORG E. coli", "AMP 2 mg/L R", "CIP 2 mg/L S"]},
    ),
    "only organism": ((CULTURE, ORG, AST, AMP_R, BY_DISK), {"F1/AST": ["ORG E. coli", "AMP 2 mg/L R", "METHOD by disk"]}),
    "parent by its order": (
        (CULTURE, ORG, CULTURE.replace("F1", "F3"), org("1", STAPH),
         f"{AST.replace('F1', 'F1-1')}|ORG&Organism&L^1|||^F1", AMP_R),
        {"F1-1/AST/ORG#1/F1": ["ORG E. coli", "AMP 2 mg/L R"]},
    ),
    # a reflex test hangs on a number, which is no organism
    "numeric parent": (
        (CULTURE, "OBX|1|NM|TSH||8.0|mIU/L|||||F", f"{AST}|TSH", "OBX|1|NM|FT4||9|pmol/L|||||F"), {"F1/AST/TSH": ["FT4 9 pmol/L"]}
    ),
    "parent with name and system": (
        (CULTURE, ORG, f"{AST}|ORG^Organism^L", AMP_R), {"F1/AST/ORG": ["ORG E. coli", "AMP 2 mg/L R"]}
    ),
    "concentration and meaning": (
        (CULTURE, ORG, drug("AMP", "1", ""), "OBX|1|ST|AMP|1|R||||||F"), {"F1/CULT#1": ["ORG E. coli", "AMP 2 mg/L R"]}
    ),
    "meaning under its code": (
        (CULTURE, ORG, drug("AMP-MIC", "1", "", unit=""), "OBX|1|ST|AMP-INT|1|R||||||F|", SECOND,
         drug("AMP-MIC", "2", "", unit=""), "OBX|1|ST|AMP-INT|2|S||||||F"),
        {"F1/CULT": ["ORG E. coli", "ORG S. aureus"], "F1/CULT#2": ["ORG S. aureus", "AMP-MIC 2", "AMP-INT S"]},
    ),
    "gram stain": (
        (CULTURE, org("", "^Gram-negative rods", code="GRAM"), org("", ECOLI), AMP_R),
        {"F1/CULT": ["GRAM Gram-negative rods", "ORG E. coli", "AMP 2 mg/L R"]},
    ),
    "abbreviated": (
        (CULTURE, org("1", "^Escherichia coli"), SECOND, f"{AST}|ORG^^E. coli", AMP_R),
        {"F1/AST/ORG^E. coli": ["ORG Escherichia coli", "AMP 2 mg/L R"]},
    ),
    "reactive serology": (
        (CULTURE, *(f"OBX|1|ST|{code}||{value}|||{flag}|||F" for code, value, flag in
                    (("HBS", "R", "R"), ("HCV", "NR", ""), ("TP", "R", "R")))),
        {"F1/CULT": ["HBS R", "HCV NR", "TP R"]},
    ),
    "nobody interpreted": (
        (CULTURE, ORG, f"{AST}|ORG^1|||^F1", drug("AMP", "", ""), drug("CIP", "", "")),
        {"F1/AST/ORG#1/F1": ["ORG E. coli", "AMP 2 mg/L", "CIP 2 mg/L"]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_susceptibilities_stand_with_their_organism(name: str) -> None:
    segments, expected = CASES[name]
    found = reports(*segments)
    assert {each: found.get(each) for each in (found if [*expected] == ["F1/CULT"] else expected)} == expected


@pytest.mark.parametrize("parent", ["ORG^1^Gram-negative rods", "ORG&Organism&L^1^E. coli"])
def test_report_of_isolate_known_by_its_number(parent: str) -> None:
    assert "F1/AST/ORG#1" in reports(f"{AST}|{parent}", AMP_R)
    assert "F1/AST/ORG#2" in reports(f"{AST}|{parent.replace('^1^', '^2^')}", AMP_R)


def test_susceptibilities_without_their_organism_refused() -> None:
    """Of several organisms without a number; of another order's culture, whose same code and number name another organism."""
    several = (CULTURE, ORG, SECOND, AST, AMP_R)
    assert problems(*several, BY_DISK).startswith("OBR 2: has susceptibilities without their organism")
    assert "without their organism" in problems(CULTURE, ORG, f"{AST.replace('F1', 'F2')}|ORG^1", AMP_R)
    [culture] = [part.content for part in read(*several) if isinstance(part.content, LabReport)]
    assert culture.completes == (), "its line stays open"


def test_bad_value_of_an_isolate_refuses_that_isolate_alone() -> None:
    parts = read(CULTURE, ORG, drug("AMP", "1", "R"), SECOND, "OBX|1|NM|AMP|2|0,5|mg/L||S|||F")
    assert sorted(part.name for part in parts) == ["1", "1.1", "1.2"]
    [said] = [part.problem for part in parts if part.problem]
    assert said.startswith("OBR 1: OBX 4 has an invalid number")
    assert [part.content.completes for part in parts if isinstance(part.content, LabReport) and part.name == "1"] == [()]


@pytest.mark.parametrize(
    ("status", "ast_line", "expected"), [("F", "LB", [None, None]), ("P", "LB", [None, None]), ("P", "LA", [None, ()])]
)
def test_isolate_is_about_the_line_that_it_names(status: str, ast_line: str, expected: list[tuple[str, ...] | None]) -> None:
    """With a line of its own it completes that one; else none of its culture."""
    lines = ["L".ljust(16, "A"), ast_line.ljust(16, ast_line[1])]
    culture, ast = (one.replace("||F1", f"|{line}|F1") for one, line in zip((CULTURE, AST), lines, strict=True))
    found = read(culture[:-1] + status, ORG, f"{ast}|ORG^1", AMP_R)
    contents = [part.content for part in found if isinstance(part.content, LabReport)]
    assert [(one.lines, one.completes) for one in contents] == [
        ((line,), each) for line, each in zip(lines, expected, strict=True)
    ]


def test_value_types_of_the_lis_are_read_before_isolates_are_told() -> None:
    parts = read(CULTURE, org("", ECOLI), org("", "10", "NUM", "COUNT"), AST, AMP_R, value_types={"NUM": "NM"})
    assert [part.problem for part in parts] == [None, None]
