"""Rows for the mapping tables: only what is certain is proposed, and the files of a spreadsheet keep their form."""

from pathlib import Path

import pytest

from lab_agent.results.mapping_loader import MappingsError, load_mapping_tables
from lab_agent.results.trial.table_rows import TableRow, plan_changes, write_changes
from lab_agent.results.well_known_codes import propose_answer, propose_ucum

HB = TableRow(file="codes.csv", cells={"code": "H;B"}).fill("718-7")


def test_rows_keep_the_form_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "codes.csv"
    file.write_bytes("\ufeffloinc;code\r\n6690-2;WBC".encode())
    file.chmod(0o640)
    write_changes(plan_changes(tmp_path, [HB]))
    assert file.read_bytes() == '\ufeffloinc;code\r\n6690-2;WBC\r\n718-7;"H;B"\r\n'.encode()
    assert file.stat().st_mode & 0o777 == 0o640
    assert load_mapping_tables(tmp_path).codes is not None


def test_nothing_is_written_where_the_tables_would_not_be_valid(tmp_path: Path) -> None:
    (tmp_path / "codes.csv").write_text("code,loinc\nH;B,718-7\n")
    with pytest.raises(MappingsError, match="already"):
        plan_changes(tmp_path, [HB])


@pytest.mark.parametrize("target", ["718-8", "HB", ""])
def test_target_must_be_a_code(target: str) -> None:
    with pytest.raises(ValueError, match="cannot be"):
        TableRow(file="codes.csv", cells={"code": "HB"}).fill(target)


@pytest.mark.parametrize(
    ("unit", "ucum"),
    [
        ("mmol/l", "mmol/L"), ("MMOL/L", "mmol/L"), ("µg/l", "ug/L"), ("μg/L", "ug/L"), ("10^9/л", "10*9/L"),
        ("x10^12/L", "10*12/L"),
        ("10 ^ 9 / L", "10*9/L"), ("мкмоль/л", "umol/L"), ("T/l", "10*12/L"), ("Gpt/l", "10*9/L"), ("мм/ч", "mm/h"),
        ("mcg/dL", "ug/dL"),
        ("G/l", None), ("G/L", None), ("S/CO", None), ("index", None), ("", None), ("M/l", None),
    ],
)  # fmt: skip
def test_unit_is_proposed_only_if_it_is_certain(unit: str, ucum: str | None) -> None:
    assert propose_ucum(unit) == ucum


@pytest.mark.parametrize(
    ("code", "text", "found"), [("neg", None, "260385009"), ("7", "обнаружено", "260373001"), ("2", "trace", None)]
)
def test_answer_is_proposed_only_if_it_is_certain(code: str, text: str | None, found: str | None) -> None:
    proposed = propose_answer(code, text)
    assert (proposed[1] if proposed else None) == found
