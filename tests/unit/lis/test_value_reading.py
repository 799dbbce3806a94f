"""The one table of what a value becomes by any adapter; `tests/integration/lis/test_value_doors.py` sends it by each."""

from __future__ import annotations

import re
from contextlib import suppress
from time import process_time
from typing import Any

import pytest

from lab_agent.lis.tabular_values import read_observations
from lab_agent.lis.value_reading import (
    Declared,
    Number,
    UnreadableValueError,
    ValueFault,
    ValueRules,
    read_text,
    read_value,
    suggests_decimal_comma,
)
from tests.harness.paths import ROOT

UNIT = "mmol/L"
Case = tuple[str, str | ValueFault]
"""A text, and what it becomes beside the unit `UNIT`: a number with the unit if it begins with `=`, a text, or a refusal."""

ALIKE: tuple[Case, ...] = (
    # numbers, digit for digit
    ("5.4", "=5.4"), ("1.20", "=1.20"), (".5", "=0.5"), ("-0.50", "=-0.50"), ("−2.3", "=-2.3"), ("1.0E+5", "=100000"),
    ("+2.3", "=2.3"), ("12\xa0345", "=12345"), ("12\u202f345", "=12345"), ("1\u2009234", "=1234"), ("1'234", "=1234"),
    ("1’234", "=1234"),
    # comparators
    ("<5", "=<5"), ("<\xa05", "=<5"), ("<=5", "=<=5"), ("=<5", "=<=5"), ("≤5", "=<=5"), ("⩽5", "=<=5"), ("≦5", "=<=5"),
    (">5", "=>5"), (">=5", "=>=5"), ("=>5", "=>=5"), ("≥60", "=>=60"), ("⩾60", "=>=60"), ("= 5", "=5"), ("<.5", "=<0.5"),
    # amounts that are no certain number: the text as it is, with the unit
    ("5-10", "5-10 mmol/L"), ("5 - 10", "5 - 10 mmol/L"), ("5–10", "5–10 mmol/L"), ("5-10 mmol/L", "5-10 mmol/L"),
    ("5.4 mmol/l", "5.4 mmol/l"), ("12.5*", "12.5* mmol/L"), ("12.5 ↑", "12.5 ↑ mmol/L"), ("H 12.5", "H 12.5 mmol/L"),
    ("1:40", "1:40 mmol/L"), ("1 : 1280", "1 : 1280 mmol/L"), ("<1:8", "<1:8 mmol/L"), ("10:1", "10:1 mmol/L"),
    ("ca. 140", "ca. 140 mmol/L"), ("≈140", "≈140 mmol/L"), ("± 5", "± 5 mmol/L"), ("менее 5", "менее 5 mmol/L"),
    ("><5", "><5 mmol/L"), ("+1", "+1 mmol/L"), ("2+", "2+ mmol/L"), ("5.", "5. mmol/L"), ("1/40", "1/40 mmol/L"),
    ("120/80", "120/80 mmol/L"), ("５", "５ mmol/L"),
    # words have no amount
    ("negative", "negative"), ("****", "****"), ("----", "----"), ("++", "++"),
    # what may be one number or another, or several
    ("1 234", ValueFault.DIGITS_APART), ("12 5", ValueFault.DIGITS_APART), ("1.2.3", ValueFault.DIGITS_APART),
    ("5..10", ValueFault.DIGITS_APART), ("1\xa023", ValueFault.DIGITS_APART),
    # a character between or beside the digits that nobody sees
    ("5\x9610", ValueFault.INVISIBLE), ("5\x0110", ValueFault.INVISIBLE), ("5\u200b10", ValueFault.INVISIBLE),
    ("5\xad10", ValueFault.INVISIBLE), ("5.4\u200b", ValueFault.INVISIBLE), ("<\u200e5", ValueFault.INVISIBLE),
    ("see 5\x9610 cells", ValueFault.INVISIBLE), ("\x965", ValueFault.INVISIBLE), ("5\x1f", ValueFault.INVISIBLE),
    # what a spreadsheet did
    ("3-May", ValueFault.DATE), ("3. Mrz", ValueFault.DATE), ("05.Okt", ValueFault.DATE), ("Mai 26", ValueFault.DATE),
    ("Dez 2026", ValueFault.DATE), ("12-Sept", ValueFault.DATE), ("03.май", ValueFault.DATE), ("янв.26", ValueFault.DATE),
    ("3 мая 2026 г.", ValueFault.DATE), ("3-May-26", ValueFault.DATE), ("01.02.2026", ValueFault.DATE),
    ("1.2.26", ValueFault.DATE), ("2026-02-01", ValueFault.DATE), ("2/1/2026", ValueFault.DATE), ("03.05.", ValueFault.DATE),
    ("05.2026", ValueFault.DATE), ("01.02.2026 00:00", ValueFault.DATE), ("2026-02-01T00:00:00", ValueFault.DATE),
    ("01:40", ValueFault.TIME), ("1:40:00", ValueFault.TIME), ("1:40 AM", ValueFault.TIME), ("2:20", ValueFault.TIME),
    ("26:40:00", ValueFault.TIME), ("1:05", ValueFault.TIME), ("0:40", ValueFault.TIME),
    ("#N/A", ValueFault.SPREADSHEET_ERROR), ("#WERT!", ValueFault.SPREADSHEET_ERROR), ("#Н/Д", ValueFault.SPREADSHEET_ERROR),
    ("#####", ValueFault.SPREADSHEET_ERROR), ("Err:502", ValueFault.SPREADSHEET_ERROR),
)  # fmt: skip
"""With a decimal point and with a decimal comma alike."""
WITH_POINT: tuple[Case, ...] = (
    ("1.234", "=1.234"), ("<5.000", "=<5.000"), ("12\xa0345.5", "=12345.5"),
    ("5,4", ValueFault.DECIMAL_COMMA), ("≤0,5", ValueFault.DECIMAL_COMMA), ("161,152", ValueFault.DECIMAL_COMMA),
    ("1,234.5", ValueFault.DECIMAL_COMMA), ("1 234,5", ValueFault.DECIMAL_COMMA), ("5,", ValueFault.DECIMAL_COMMA),
    ("1.234.567", ValueFault.DIGITS_APART), ("1 234.5", ValueFault.DIGITS_APART),
)  # fmt: skip
WITH_COMMA: tuple[Case, ...] = (
    ("5,4", "=5.4"), ("≤0,5", "=<=0.5"), (",5", "=0.5"), ("4,2E+3", "=4200"), ("161,152", "=161.152"),
    ("1234.567", "=1234.567"),
    (">= 1 000,5", "=>=1000.5"), ("1.234,5", "=1234.5"), ("1.234.567", "=1234567"), ("12\xa0345,5", "=12345.5"),
    ("1.234", ValueFault.THOUSANDS_POINT), ("<5.000", ValueFault.THOUSANDS_POINT), ("-1.234", ValueFault.THOUSANDS_POINT),
    ("1,234,567", ValueFault.DIGITS_APART), ("1,234.5", ValueFault.DIGITS_APART), ("5,", ValueFault.DIGITS_APART),
)  # fmt: skip
POINT, COMMA = ValueRules(), ValueRules(decimal_comma=True)
TABLE = [
    *((POINT, *case) for case in (*ALIKE, *WITH_POINT)),
    *((COMMA, *case) for case in (*ALIKE, *WITH_COMMA)),
]  # fmt: skip


def outcome(text: str, unit: str | None, rules: ValueRules, declared: Declared) -> str | ValueFault:
    """What a value becomes, in the writing of the table."""
    try:
        read = read_value(text, unit, rules, declared)
    except UnreadableValueError as refused:
        return refused.fault
    return f"={read.comparator or ''}{read.value:f}" if isinstance(read, Number) else read


@pytest.mark.parametrize("declared", Declared)
def test_value_beside_a_unit_is_read_alike(declared: Declared) -> None:
    found = [(rules, text, outcome(text, UNIT, rules, declared)) for rules, text, _ in TABLE]
    assert [each for each, row in zip(found, TABLE, strict=True) if each != row] == []
    with pytest.raises(UnreadableValueError) as refused:
        read_value("5,4", UNIT, POINT, declared)
    assert refused.value.hint


def test_value_without_unit_is_a_text_where_declared() -> None:
    meant = {"5.4": "=5.4", "1:64": "1:64", "5-10": "5-10", "16,18": ValueFault.DECIMAL_COMMA, "01:40": ValueFault.TIME}
    for text, read in {**meant, "3-May": ValueFault.DATE, "#N/A": ValueFault.SPREADSHEET_ERROR}.items():
        assert {outcome(text, None, POINT, declared) for declared in (Declared.NOTHING, Declared.NUMBER)} == {read}
        assert outcome(text, None, POINT, Declared.TEXT) == text


@pytest.mark.parametrize(
    ("text", "unit", "meant"),
    [
        *(("02:30", "min:s", "02:30 min:s"), ("12.5 L", "l", "12.5 L l"), ("5 g", "g", "5 g"), ("5\n6 x", "mg", "5\n6 x mg")),
        *(("1:40 Titre", "titre", "1:40 Titre"), ("50 cells/HPF", "/HPF", "50 cells/HPF /HPF")),
    ],
)
def test_unit_is_said_once(text: str, unit: str, meant: str) -> None:
    assert read_value(text, unit, POINT, Declared.TEXT) == meant


def test_text_for_people_keeps_no_invisible_characters() -> None:
    assert read_text("caf\x07e\xa0noir\u2028end\u200b") == "cafe noir\nend"


@pytest.mark.parametrize("filling", ["\x1c", " ", "\u200b", "m ", "1,", "1 234 "])
def test_long_text_is_read_in_linear_time(filling: str) -> None:
    started = process_time()
    with suppress(UnreadableValueError):
        read_value("5" + filling * 100_000 + "x", UNIT, COMMA, Declared.NUMBER)
    assert process_time() - started < 1


@pytest.mark.parametrize(
    ("texts", "meant"),
    [
        *((["5.4", "neg"], False), (["5,4"], True), (["161,152"], None), (["161,152", "5,4"], True), (["0,125"], True)),
        (["5,4", "1,234.5"], None),
    ],
)
def test_decimal_comma_is_proposed_only_where_certain(texts: list[str], meant: bool | None) -> None:
    assert suggests_decimal_comma(texts) is meant


VALUE = {"code": "GLU", "value": "5.4", "unit": UNIT}


@pytest.mark.parametrize(
    ("fields", "tree"),
    [
        ({"comparator": "≥"}, {"value_quantity": {"value": "5.4", "comparator": ">=", "unit": UNIT}}),
        ({"comparator": "<", "value": "<=5.4"}, "value"),
        ({"comparator": "<=", "value": "≤5.4"}, {"value_quantity": {"value": "5.4", "comparator": "<=", "unit": UNIT}}),
        ({"comparator": "<", "value": "neg"}, "value"),
        ({"value_type": "text"}, {"value_string": f"5.4 {UNIT}"}),
        ({"value_type": "quantity", "value": "neg"}, "value"),
        ({"value_type": "datetime", "value": "2026-02-01"}, {"value_date_time": "2026-02-01"}),
        ({"value_type": "time", "value": "01:40"}, {"value_time": "01:40"}),
        ({"value_type": "code", "value": "POS"}, {"value_codeable_concept": {"coding": [{"code": "POS"}]}}),
        ({"low": "3-May"}, "low"),
        ({"high": "1 234"}, "high"),
        ({"range_text": "03. Mai"}, "range_text"),
        ({"unit": "#N/A"}, "unit"),
    ],
)
def test_fields_beside_a_value(fields: dict[str, str], tree: dict[str, Any] | str) -> None:
    read = read_observations([VALUE, {**VALUE, **fields}], POINT)
    if isinstance(tree, str):
        assert [problem.where for problem in read.problems] == [f"observations[1].{tree}"]
    else:
        assert tree.items() <= {**read.observations[1]}.items()


def test_documented_examples_become_what_the_page_says() -> None:
    page = (ROOT / "docs" / "adapters.md").read_text(encoding="utf-8").partition("### Values as text")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| `")]
    documented = [(text, re.split(r"\W", meant)[0]) for examples, meant in rows for text in re.findall("`([^`]+)`", examples)]
    for text, meant in documented:
        found = outcome(text, UNIT, POINT, Declared.NOTHING)
        assert meant == ("refused" if isinstance(found, ValueFault) else "number" if found.startswith("=") else "text"), text
    assert {meant for _, meant in documented} == {"number", "text", "refused"}
