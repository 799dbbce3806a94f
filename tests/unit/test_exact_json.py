"""JSON keeps its digits, and what is not our JSON is rejected in one way."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lab_agent.shared import exact_json
from lab_agent.shared.errors import DataInvalidError

FHIR_DECIMAL = re.compile(r"-?([0]|([1-9][0-9]*))(\.[0-9]+)?", re.ASCII)


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**60), max_value=10**60))
@example(Decimal("1.20"))
@example(Decimal("0.0000000"))
def test_any_decimal_keeps_digits_in_fhir_form(value: Decimal) -> None:
    written = exact_json.dumps(value).decode()
    assert FHIR_DECIMAL.fullmatch(written)
    assert written == f"{value:f}"
    assert exact_json.loads(written.encode()) == value
    assert str(exact_json.loads(written.encode())) == str(Decimal(written))


@pytest.mark.parametrize("sort_keys", [True, False])
def test_no_number_has_an_exponent(sort_keys: bool) -> None:
    plain = {"1E-7": "0.0000001", "1.5E+6": "1500000", "1E+2": "100", "0E+5": "0", "-1.20E-8": "-0.0000000120", "5": "5"}
    for value, written in plain.items():
        said = exact_json.dumps({"b": [Decimal(value)], "a": (Decimal(value),)}, sort_keys=sort_keys).decode()
        assert said == (f'{{"a":[{written}],"b":[{written}]}}' if sort_keys else f'{{"b":[{written}],"a":[{written}]}}')
    for value in ("1E+999999", "1E-999999", "9E+401", "0E-401"):  # beyond all measure: no million digits
        short = exact_json.dumps([Decimal(value)])
        assert (len(short) < 20, exact_json.loads(short)) == (True, [Decimal(value)])


def test_invalid_json_rejected() -> None:
    for data in (b"", b"{", b"\xff", b"nan", b"1e99999999999999999999", b"[" * 100_000):
        with pytest.raises(DataInvalidError, match="not JSON"):
            exact_json.loads(data)


@pytest.mark.parametrize(("opened", "closed"), [("[", "]"), ('{"a":', "}")])
def test_nesting_is_bounded(opened: str, closed: str) -> None:
    """What is read can be walked through and written again, however deep it is nested."""

    def nested(levels: int) -> str:
        return opened * levels + "1" + closed * levels

    deepest = nested(exact_json.MAX_DEPTH)
    assert exact_json.dumps(exact_json.loads(deepest)).decode() == deepest
    with pytest.raises(DataInvalidError, match="levels deep"):
        exact_json.loads(nested(exact_json.MAX_DEPTH + 1))


def test_value_json_cannot_express_is_named() -> None:
    for value in (Decimal("NaN"), Decimal("Infinity"), float("nan")):
        with pytest.raises(DataInvalidError, match=r"document\.a\[1\]"):
            exact_json.dumps({"a": [1, value]})


def test_large_object_divided_into_items() -> None:
    divider = exact_json.ArrayDivider("entry", ("a", "d", "missing"))
    rest, items = divider.divide(b'{"a": 1.20, "entry": [{"b": 2.50}, [], "c"], "d": {}, "other": 7}')
    assert rest == {"a": Decimal("1.20"), "d": {}}
    assert [exact_json.loads_large(each) for each in items] == [{"b": Decimal("2.50")}, [], "c"]


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        ("", []),
        (', "entry": null', []),
        (', "entry": []', []),
        (', "entry": {"b": []}', [b'{"b": []}']),
        (', "entry": "[]"', [b'"[]"']),
        (', "entry": nullify', None),
        (', "entry": 0', [b"0"]),
    ],
)
def test_single_value_in_place_of_array_is_item(array: str, expected: list[bytes] | None) -> None:
    divider, text = exact_json.ArrayDivider("entry", ("a",)), f'{{"a": 1{array}}}'.encode()
    if expected is None:
        with pytest.raises(DataInvalidError):
            divider.divide(text)
    else:
        rest, items = divider.divide(text)
        assert (rest, list(items)) == ({"a": 1}, expected)


def test_values_are_bounded_before_they_are_read() -> None:
    """The limit holds for every size, although only large documents are counted."""
    assert exact_json.LARGE <= exact_json.MAX_VALUES
    assert len(exact_json.loads(b"[" + b",".join([b"1"] * (exact_json.LARGE // 2 - 1)) + b"]")) < exact_json.MAX_VALUES
    with pytest.raises(exact_json.TooManyValues):
        exact_json.loads_large(b"[" + b"0," * exact_json.MAX_VALUES + b"0]")


@pytest.mark.parametrize("read", [exact_json.loads, exact_json.loads_large, exact_json.loads_strictly])
def test_byte_order_mark_before_json_is_skipped(read: Callable[[bytes], Any]) -> None:
    assert read(b'\xef\xbb\xbf{"a": 1.20}') == {"a": Decimal("1.20")}
