"""The tables: what is wrong with them comes at once, and what they say is looked up."""

from __future__ import annotations

import shutil
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab_agent.lis.hl7v2.field_map import default_field_map
from lab_agent.lis.hl7v2.parser import parse_message
from lab_agent.lis.hl7v2.results.obx_values import ObxValueReader
from lab_agent.lis.lab_messages import ReferenceRange, ReportedObservation
from lab_agent.results.code_translation import MissingKind, find_gaps, missing_mappings, translate
from lab_agent.results.mapping_loader import MappingCache, MappingsError, load_mapping_tables
from lab_agent.results.mapping_tables import MappingTables, check_digit, is_loinc, is_ucum
from lab_agent.shared.ids import ReportKey
from lab_agent.shared.values import CodeableConcept, Coding, Quantity
from tests.harness.paths import MAPPINGS
from tests.harness.results import haemoglobin, make_report


def test_loinc_codes_have_their_check_digit() -> None:
    assert all(map(is_loinc, ("718-7", "14749-6", "6690-2", "19113-0", "2160-0", "1-8")))
    assert not any(map(is_loinc, ("718-8", "718", "718–7", "7187", "12345678-0", "٧١٨-7", "")))


@given(st.integers(min_value=1, max_value=9_999_999), st.integers(min_value=1, max_value=9))
def test_loinc_single_digit_error_detected(number: int, off: int) -> None:
    right = check_digit(str(number))
    assert is_loinc(f"{number}-{right}")
    assert not is_loinc(f"{number}-{(right + off) % 10}")


def test_ucum_units_checked_for_characters_and_brackets() -> None:
    assert all(map(is_ucum, ("10*9/L", "m[IU]/L", "{CFU}/mL", "%")))
    assert not any(map(is_ucum, ("µmol/L", "g / L", "m[IU/L", "a]b[", "")))


SNOMED = "http://snomed.info/sct"
TITRES = "http://lab.example/titre-steps"
ANSWERS = f"""answer,system,code,display,observation,answer_system
1,{SNOMED},10828004,Positive,,
1,{SNOMED},260385009,Negative,HCV,
1,{SNOMED},260413007,None,,{TITRES}
2,{SNOMED},52101004,Present,HCV,{TITRES}
"""


def test_all_table_errors_reported_with_place(tmp_path: Path) -> None:
    (tmp_path / "codes.csv").write_text(
        "code;loinc;display\nHGB;718-8;x\nHGB;718-7;y\nA;718–7;\n;718-7;\nB\u00a0;718-7;\nC;718-7;d;more\n", encoding="utf-8"
    )
    (tmp_path / "units.csv").write_text("unit,ucum,stuff\nx,y,z\n")
    (tmp_path / "answers.csv").write_text(f"{ANSWERS}1,{SNOMED},1-9,Twice,,{TITRES}\n3,snomed,260385009,,,\n")
    (tmp_path / "extra.csv").write_text("a\n")
    with pytest.raises(MappingsError) as caught:
        load_mapping_tables(tmp_path)
    said = [str(problem) for problem in caught.value.problems]
    for words in (
        "codes.csv row 2, column loinc: '718-8' is not a LOINC code",
        "codes.csv row 3, column code: 'HGB' is in row 2 already",
        "codes.csv row 4, column loinc: '718–7' is not plain ASCII",
        "codes.csv row 5, column code: is empty",
        "codes.csv row 6, column code: contains an invisible character",
        "codes.csv row 7: has more cells than the header",
        "units.csv row 1, column stuff: is not a column of this table",
        "answers.csv row 6, column answer: '1' is in row 4 already",
        "answers.csv row 7, column system: 'snomed' is not a URI",
        "extra.csv: is not a mapping table",
    ):
        assert any(words in each for each in said), (words, said)


def test_empty_tables_accept_only_possible_loinc() -> None:
    none = MappingTables()
    assert none.code(Coding(code="718-7")) is not None
    assert none.code(Coding(code="HGB")) is None
    assert none.code(Coding(system="urn:lab", code="HGB")) is None
    assert none.code(Coding(system="urn:lab", code="718-7")) is None
    assert none.code(Coding(system="urn:oid:2.16.840.1.113883.6.1", code="718-7")) == none.code(Coding(code="718-7"))
    assert none.unit(Quantity(value=Decimal(1), unit="anything")) == Quantity(value=Decimal(1), unit="anything")


AMOUNT = Quantity(value=Decimal("5.10"), unit="ммоль/л")


def answered(*codings: Coding) -> ReportedObservation:
    return haemoglobin("1", id="b", value_quantity=None, value_codeable_concept=CodeableConcept(coding=codings))


def test_report_translated_with_exact_digits() -> None:
    tables = load_mapping_tables(MAPPINGS)
    low = Quantity(value=Decimal("3.90"), unit="ммоль/л")
    local = make_report(
        haemoglobin("5.10", code=Coding(code="GLU"), value_quantity=AMOUNT, reference_ranges=(ReferenceRange(low=low),)),
        answered(Coding(code="NEG")),
    )
    assert missing_mappings(local, tables) == ()
    one, two = translate(local, tables).observations
    assert one.value_quantity == replace(AMOUNT, system="http://unitsofmeasure.org", code="mmol/L")
    assert str(one.value_quantity.value) == "5.10"
    assert one.reference_ranges[0].low == replace(low, system="http://unitsofmeasure.org", code="mmol/L")
    assert [each.code for each in two.value_codeable_concept.coding][:1] == ["260385009"]


@pytest.mark.parametrize(
    ("observation", "answer", "said"),
    [
        ("HIV", Coding(code="1"), "10828004"),
        ("HCV", Coding(code="1"), "260385009"),
        ("HIV", Coding(system=TITRES, code="1"), "260413007"),
        ("HCV", Coding(system=TITRES, code="2"), "52101004"),
        ("HIV", Coding(system=TITRES, code="2"), None),
        ("HCV", Coding(system="http://lab.example/other-list", code="1"), None),
    ],
)
def test_answer_with_system_needs_row_for_system(tmp_path: Path, observation: str, answer: Coding, said: str | None) -> None:
    (tmp_path / "answers.csv").write_text(ANSWERS)
    found = load_mapping_tables(tmp_path).answer(observation, answer)
    assert found is not None
    assert [each.code for each in found] == [*([said] if said else []), *([answer.code] if answer.system else [])]
    assert found[-1] == answer or not answer.system, "the laboratory's own goes along"


def test_missing_lists_only_answers_without_system(tmp_path: Path) -> None:
    (tmp_path / "answers.csv").write_text(ANSWERS)
    report = make_report(answered(Coding(code="3"), Coding(system=TITRES, code="3")))
    assert [str(each) for each in missing_mappings(report, load_mapping_tables(tmp_path))] == [
        "answer '3' of 718-7 is not mapped"
    ]


@pytest.mark.parametrize("system", ["L", "l", "99ZZZ", ""])
def test_hl7_local_code_answers_find_rows(system: str) -> None:
    segment = parse_message(f"MSH|^~\\&|LIS\rOBX|1|CE|718-7^Hb^LN||NEG^negativ^{system}||||||F\r").segments[1]
    value = ObxValueReader(default_field_map(), None).read_value(segment)["value_codeable_concept"]
    found = load_mapping_tables(MAPPINGS).answer("718-7", value.coding[0])
    assert found is not None
    assert [each.code for each in found] == ["260385009"]


def test_missing_mappings_counted_with_example() -> None:
    tables = load_mapping_tables(MAPPINGS)
    odd = replace(haemoglobin("1"), code=Coding(code="NEW"), value_quantity=Quantity(value=Decimal(1), unit="furlong"))
    found = find_gaps([(ReportKey("P1"), make_report(odd)), (ReportKey("P2"), make_report(odd, replace(odd, id="c")))], tables)
    assert [(gap.missing.value, gap.reports, gap.example) for gap in found] == [("NEW", 2, "P1"), ("furlong", 2, "P1")]


def test_invalid_table_keeps_previous_tables(tmp_path: Path) -> None:
    folder = tmp_path / "mappings"
    shutil.copytree(MAPPINGS, folder)
    cache = MappingCache(folder)
    before = cache.current()
    assert before is not None
    (folder / "codes.csv").write_text("code,loinc\nX,1-1\n")
    assert not cache.reload()
    assert cache.current() is before
    assert MappingCache(folder).current() is None
    (folder / "codes.csv").write_text("code,loinc\nX,718-7\n")
    assert cache.reload()
    assert cache.current() is not before


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        (Coding(code="718-0"), MissingKind.LOINC, "code '718-0' is no LOINC code (718-7 would be)"),
        (Coding(system="http://loinc.org", code="718-0"), MissingKind.LOINC, "code '718-0' is no LOINC code (718-7 would be)"),
        (Coding(system="http://loinc.org", code="HGB"), MissingKind.LOINC, "code 'HGB' is no LOINC code"),
        (Coding(code="HGB"), MissingKind.CODE, "code 'HGB' is not mapped"),
        (Coding(system="urn:lab", code="718-0"), MissingKind.CODE, "code '718-0' is not mapped"),
    ],
)
def test_code_that_cannot_be_loinc_says_so(code: Coding, kind: MissingKind, words: str) -> None:
    (missing,) = missing_mappings(make_report(haemoglobin("1", code=code)), MappingTables())
    assert (missing.kind, str(missing)) == (kind, words)
