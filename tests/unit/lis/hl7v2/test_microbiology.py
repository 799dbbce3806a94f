"""Which susceptibilities a message gives to which organism."""

import sys
from zoneinfo import ZoneInfo

import pytest

from lab_agent.domain.lab_messages import LabReport, ReportedObservation
from lab_agent.domain.value_text import format_value
from lab_agent.lis.hl7v2.field_map import default_field_map
from lab_agent.lis.hl7v2.parser import parse_message
from lab_agent.lis.hl7v2.results.microbiology import split_isolates
from lab_agent.lis.hl7v2.results.obx_values import ObxValueReader
from lab_agent.lis.hl7v2.results.report_merging import ParsedReport
from lab_agent.lis.hl7v2.results.result_reader import ResultReader
from lab_agent.lis.hl7v2.results.segment_groups import split_message

MSH = "MSH|^~\\&|LIS||AGENT||20240518100000+0300||ORU^R01|1|P|2.5.1"
TIMES = "|||20240517083000+0300|||||||||||||||20240518090000+0300|||F"
CULTURE, AST = f"OBR|1||F1|CULT{TIMES}", f"OBR|2||F1|AST{TIMES}"
ECOLI, STAPH = "^E. coli", "^S. aureus"


def org(number: str, name: str, kind: str = "CWE", code: str = "ORG") -> str:
    return f"OBX|1|{kind}|{code}|{number}|{name}||||||F"


def drug(code: str, number: str, flag: str, unit: str = "mg/L", value: str = "2") -> str:
    return f"OBX|1|ST|{code}|{number}|{value}|{unit}||{flag}|||F"


def read(*segments: str) -> list[ParsedReport]:
    reader = ResultReader(ObxValueReader(default_field_map(), ZoneInfo("UTC")), lambda _: None)
    return reader.read(parse_message("\r".join((MSH, "PID|1||X", *segments)) + "\r"))


def reports(*segments: str) -> dict[str, list[str]]:
    """The reports by id, each with what it says."""
    parts = read(*segments)
    assert [part.problem for part in parts if part.problem] == []
    return {part.content.report_id: [*map(shown, part.content.observations)] for part in parts if is_report(part)}


def is_report(part: ParsedReport) -> bool:
    return isinstance(part.content, LabReport)


def shown(one: ReportedObservation) -> str:
    return " ".join((one.code.code, format_value(one), *one.flags))


def problems(*segments: str) -> str:
    return "; ".join(part.problem for part in read(*segments) if part.problem)


def test_running_numbers_join_nothing() -> None:
    """OBX-4 that counts every OBX of an OBR says nothing of isolates."""
    said = reports(CULTURE, org("1", ECOLI), drug("AMP", "2", "R"), drug("CIP", "3", "S"))
    assert said == {"F1/CULT": ["ORG E. coli", "AMP 2 mg/L R", "CIP 2 mg/L S"]}


def test_drug_without_flag_stays_with_its_isolate() -> None:
    """A concentration that the laboratory does not interpret, before those that it does."""
    first = (org("1", ECOLI), org("1", "10^5", "ST", "COUNT"), drug("AMK", "1", ""), drug("AMP", "1", "R"))
    second = (org("2", STAPH), drug("AMK", "2", "", value="8"), drug("AMP", "2", "S"))
    assert reports(CULTURE, *first, *second) == {
        "F1/CULT": ["ORG E. coli", "COUNT 10^5", "ORG S. aureus"],
        "F1/CULT#1": ["ORG E. coli", "COUNT 10^5", "AMK 2 mg/L", "AMP 2 mg/L R"],
        "F1/CULT#2": ["ORG S. aureus", "AMK 8 mg/L", "AMP 2 mg/L S"],
    }


def test_flags_of_chemistry_split_nothing() -> None:
    said = reports(CULTURE, drug("K", "1", "H", "mmol/l"), drug("NA", "1", "N", "mmol/l"), drug("NA", "2", "L", "mmol/l"))
    assert list(said) == ["F1/CULT"]


def test_group_and_sequence_of_og_are_numbers() -> None:
    said = reports(CULTURE, org("^1^1", ECOLI), drug("AMP", "^1^2", "R"), org("^2^1", STAPH), drug("AMP", "^2^2", "S"))
    assert said["F1/CULT#1"] == ["ORG E. coli", "AMP 2 mg/L R"]
    assert said["F1/CULT#2"] == ["ORG S. aureus", "AMP 2 mg/L S"]


def test_two_panels_of_one_isolate_are_one_report() -> None:
    parent = "|ORG^1^E. coli"
    said = reports(CULTURE, org("1", ECOLI), AST + parent, drug("AMP", "", "R"), AST + parent, drug("CIP", "", "S"))
    assert said["F1/AST/ORG#1"] == ["ORG E. coli", "AMP 2 mg/L R", "CIP 2 mg/L S"]


def test_only_organism_of_order_names_the_susceptibilities() -> None:
    said = reports(CULTURE, org("1", ECOLI), AST, drug("AMP", "", "R"), org("", "by disk", "TX", "METHOD"))
    assert said["F1/AST"] == ["ORG E. coli", "AMP 2 mg/L R", "METHOD by disk"]


def test_susceptibilities_of_several_organisms_without_number_refused() -> None:
    said = problems(CULTURE, org("1", ECOLI), org("2", STAPH), AST, drug("AMP", "", "R"), org("", "by disk", "TX", "METHOD"))
    assert said.startswith("OBR 2: has susceptibilities without their organism")


def test_parent_of_another_order_is_never_taken() -> None:
    """The same code and number in another order's culture names another organism."""
    other = AST.replace("F1", "F2")
    assert "without their organism" in problems(CULTURE, org("1", ECOLI), f"{other}|ORG^1", drug("AMP", "", "R"))


def test_parent_named_by_its_order_is_taken() -> None:
    child = f"{AST.replace('F1', 'F1-1')}|ORG&Organism&L^1|||^F1"
    second = (CULTURE.replace("F1", "F3"), org("1", STAPH))
    said = reports(CULTURE, org("1", ECOLI), *second, child, drug("AMP", "", "R"))
    assert said["F1-1/AST/ORG#1/F1"] == ["ORG E. coli", "AMP 2 mg/L R"]


def test_numeric_parent_result_is_not_repeated() -> None:
    """A reflex test hangs on a number, which is no organism."""
    first = "OBX|1|NM|TSH||8.0|mIU/L|||||F"
    assert reports(CULTURE, first, f"{AST}|TSH", "OBX|1|NM|FT4||9|pmol/L|||||F")["F1/AST/TSH"] == ["FT4 9 pmol/L"]


def test_parent_code_with_name_and_system_is_read() -> None:
    said = reports(CULTURE, org("1", ECOLI), f"{AST}|ORG^Organism^L", drug("AMP", "", "R"))
    assert said["F1/AST/ORG"] == ["ORG E. coli", "AMP 2 mg/L R"]


@pytest.mark.parametrize(
    ("parent", "same"), [("ORG^1^Gram-negative rods", True), ("ORG&Organism&L^1^E. coli", True), ("ORG^2^E. coli", False)]
)
def test_report_of_isolate_known_by_its_number(parent: str, same: bool) -> None:
    assert ("F1/AST/ORG#1" in reports(f"{AST}|{parent}", drug("AMP", "", "R"))) is same


def test_bad_value_of_an_isolate_refuses_that_isolate_alone() -> None:
    first, second = (org("1", ECOLI), drug("AMP", "1", "R")), (org("2", STAPH), "OBX|1|NM|AMP|2|0,5|mg/L||S|||F")
    parts = read(CULTURE, *first, *second)
    [said] = [part.problem for part in parts if part.problem]
    assert said.startswith("OBR 1: OBX 4 has an invalid number")
    [culture] = [part.content for part in parts if is_report(part) and part.name == "1"]
    assert isinstance(culture, LabReport)
    assert culture.completes == ()


def test_parts_of_a_message_have_names_of_their_own() -> None:
    segments = (CULTURE, org("1", ECOLI), drug("AMP", "1", "R"), org("2", STAPH), drug("AMP", "2", "S"))
    assert [part.name for part in read(*segments)] == ["1", "1.1", "1.2"]


def test_many_isolates_are_told_apart() -> None:
    drugs = (drug(f"D{number}", str(number % 100), "S") for number in range(300))
    said = reports(CULTURE, *(org(str(number), f"^O{number}") for number in range(100)), AST, *drugs)
    assert said["F1/AST#42"] == ["ORG O42", "D42 2 mg/L S", "D142 2 mg/L S", "D242 2 mg/L S"]
    assert len(said) == 101


@pytest.mark.parametrize("status", ["F", "P"])
def test_isolate_with_a_line_of_its_own_is_about_that_line(status: str) -> None:
    first, second = "LAAAAAAAAAAAAAAA", "LBBBBBBBBBBBBBBB"
    culture = CULTURE.replace("||F1", f"|{first}|F1")[:-1] + status
    ast = AST.replace("||F1", f"|{second}|F1") + "|ORG^1"
    reports = [part.content for part in read(culture, org("1", ECOLI), ast, drug("AMP", "", "R"))]
    assert [(one.lines, one.completes) for one in reports if isinstance(one, LabReport)] == [((first,), None), ((second,), None)]


def test_isolate_completes_no_line_of_its_culture() -> None:
    line = "LAAAAAAAAAAAAAAA"
    culture, ast = (one.replace("||F1", f"|{line}|F1") for one in (CULTURE, AST))
    parts = read(culture[:-1] + "P", org("1", ECOLI), f"{ast}|ORG^1", drug("AMP", "", "R"))
    assert [part.content.completes for part in parts if isinstance(part.content, LabReport)] == [None, ()]


def test_concentration_and_its_meaning_are_one_value() -> None:
    meaning = "OBX|1|ST|AMP|1|R||||||F"
    said = reports(CULTURE, org("1", ECOLI), drug("AMP", "1", ""), meaning)
    assert said["F1/CULT#1"] == ["ORG E. coli", "AMP 2 mg/L R"]


def test_meaning_under_a_code_of_its_own_stays_a_value() -> None:
    said = reports(CULTURE, org("1", ECOLI), drug("AMP-MIC", "1", "", unit=""), "OBX|1|ST|AMP-INT|1|R||||||F|", org("2", STAPH),
                   drug("AMP-MIC", "2", "", unit=""), "OBX|1|ST|AMP-INT|2|S||||||F")  # fmt: skip
    assert said["F1/CULT"] == ["ORG E. coli", "ORG S. aureus"]
    assert said["F1/CULT#2"] == ["ORG S. aureus", "AMP-MIC 2", "AMP-INT S"]


def test_value_types_of_the_lis_are_read_before_isolates_are_told() -> None:
    field_map = default_field_map()
    tables = {**field_map.tables, "value_types": {"NUM": "NM"}}
    reader = ResultReader(ObxValueReader(field_map.model_copy(update={"tables": tables}), ZoneInfo("UTC")), lambda _: None)
    segments = (CULTURE, org("", ECOLI), org("", "10", "NUM", "COUNT"), AST, drug("AMP", "", "R"))
    parts = reader.read(parse_message("\r".join((MSH, "PID|1||X", *segments)) + "\r"))
    assert [part.problem for part in parts] == [None, None]


def test_gram_stain_and_organism_in_one_list_are_no_two_organisms() -> None:
    said = reports(CULTURE, org("", "^Gram-negative rods", code="GRAM"), org("", ECOLI), drug("AMP", "", "R"))
    assert said["F1/CULT"] == ["GRAM Gram-negative rods", "ORG E. coli", "AMP 2 mg/L R"]


def test_abbreviated_organism_is_the_same() -> None:
    culture = (CULTURE, org("1", "^Escherichia coli"), org("2", STAPH))
    said = reports(*culture, f"{AST}|ORG^^E. coli", drug("AMP", "", "R"))
    assert said["F1/AST/ORG^E. coli"] == ["ORG Escherichia coli", "AMP 2 mg/L R"]


def test_reactive_serology_is_no_antibiogram() -> None:
    values = (
        f"OBX|1|ST|{code}||{value}|||{flag}|||F" for code, value, flag in (("HBS", "R", "R"), ("HCV", "NR", ""), ("TP", "R", "R"))
    )
    assert reports(CULTURE, *values) == {"F1/CULT": ["HBS R", "HCV NR", "TP R"]}


def test_concentrations_that_nobody_interpreted_belong_to_their_parent() -> None:
    parent = f"{AST}|ORG^1|||^F1"
    said = reports(CULTURE, org("1", ECOLI), parent, drug("AMP", "", ""), drug("CIP", "", ""))
    assert said["F1/AST/ORG#1/F1"] == ["ORG E. coli", "AMP 2 mg/L", "CIP 2 mg/L"]


def test_line_stays_open_while_an_isolate_is_refused() -> None:
    parts = read(CULTURE, org("1", ECOLI), org("2", STAPH), AST, drug("AMP", "", "R"))
    assert [part.content.completes for part in parts if isinstance(part.content, LabReport)] == [()]


def many_isolates(count: int) -> tuple[str, ...]:
    """Organisms in one OBR, and for each an OBR with its number and one with OBR-26."""
    cultures = (CULTURE, *(org(str(number), f"^O{number}") for number in range(count)))
    numbered = (one for number in range(count) for one in (f"{AST}", drug("AMP", str(number), "S")))
    linked = (one for number in range(count) for one in (f"{AST}|ORG^{number}", drug("CIP", "", "S")))
    flagged = (drug(f"D{number}", "", "S") for number in range(count))
    return (*cultures, *numbered, *linked, CULTURE.replace("F1", "F2"), org("", ECOLI), *flagged)


def test_isolates_take_time_in_proportion_to_the_message() -> None:
    """Four times the isolates are about four times the calls, whatever the speed of the machine."""
    assert calls_to_split(many_isolates(80)) < 6 * calls_to_split(many_isolates(20))


def calls_to_split(segments: tuple[str, ...]) -> int:
    message = parse_message("\r".join((MSH, "PID|1||X", *segments)) + "\r")
    groups = split_message(message, lambda _: False, lambda _: False).groups
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        list(split_isolates(groups))
    finally:
        sys.setprofile(before)
    return calls
