"""JSON whose numbers keep their digits.

`1.20` is a different laboratory statement from `1.2`: fractional numbers are read as `Decimal` and written with the digits
that they came with. NaN and infinities have no JSON form and are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import msgspec

from lab_agent.errors import DataInvalidError, Problem

_decoder = msgspec.json.Decoder(float_hook=Decimal)
_encoder = msgspec.json.Encoder(decimal_format="number")
_sorted_encoder = msgspec.json.Encoder(decimal_format="number", order="sorted")


def loads(data: bytes | str) -> Any:
    """Read JSON; fractional numbers become `Decimal`. Raises `DataInvalidError` for what is not JSON."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ArithmeticError) as exc:
        raise DataInvalidError((Problem("document", f"not JSON: {exc}", "send one JSON value in UTF-8"),)) from exc


def dumps(value: Any, *, sort_keys: bool = False) -> bytes:
    """Write JSON; a `Decimal` becomes a number with its own digits. Raises `DataInvalidError` for NaN and infinities."""
    _refuse_not_finite(value, "document")
    return (_sorted_encoder if sort_keys else _encoder).encode(value)


def _refuse_not_finite(value: Any, where: str) -> None:
    if isinstance(value, Decimal | float):
        if not Decimal(value).is_finite():
            raise DataInvalidError((Problem(where, f"{value} has no JSON form", "give a finite number"),))
    elif isinstance(value, Mapping):
        for key, item in value.items():
            _refuse_not_finite(item, f"{where}.{key}")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            _refuse_not_finite(item, f"{where}[{index}]")
