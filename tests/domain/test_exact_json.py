"""JSON keeps its digits, and what is no JSON of ours is refused in one way."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab_agent import exact_json
from lab_agent.errors import DataInvalidError


@pytest.mark.parametrize("text", ["1.20", "0.0000000", "123456789012345678901234567890.1", "-3.50", "5"])
def test_a_number_comes_out_as_it_went_in(text: str) -> None:
    assert Decimal(exact_json.dumps(exact_json.loads(text)).decode()).as_tuple() == Decimal(text).as_tuple()


@given(st.decimals(allow_nan=False, allow_infinity=False))
def test_any_decimal_keeps_value_and_digits(value: Decimal) -> None:
    read = exact_json.loads(exact_json.dumps([value]))[0]
    assert Decimal(read) == value
    assert Decimal(read).as_tuple().digits == value.as_tuple().digits


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"\xff", b"nan", b"1e99999999999999999999", b"[" * 100_000],
    ids=["empty", "cut", "utf8", "nan", "huge", "deep"],
)
def test_what_is_no_json_is_refused(data: bytes) -> None:
    with pytest.raises(DataInvalidError, match="not JSON"):
        exact_json.loads(data)


@pytest.mark.parametrize("value", [Decimal("NaN"), Decimal("Infinity"), float("nan")])
def test_what_json_cannot_say_is_named(value: Any) -> None:
    with pytest.raises(DataInvalidError, match=r"document\.a\[1\]"):
        exact_json.dumps({"a": [1, value]})
