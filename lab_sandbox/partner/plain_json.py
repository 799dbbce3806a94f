"""JSON of the partner's side, with every digit kept: a clinic must be able to see that `1.20` arrived as `1.20`."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec

Json = dict[str, Any]
"""A JSON object: a resource, a basket, an answer."""

_decoder = msgspec.json.Decoder(float_hook=Decimal)
_encoder = msgspec.json.Encoder(decimal_format="number")


class InvalidJsonError(ValueError):
    """What came is not JSON."""


def decode(data: bytes) -> Any:
    """Read JSON, fractional numbers as `Decimal`. Raises `NotJsonError`."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ArithmeticError) as exc:
        raise InvalidJsonError(str(exc)) from exc


def encode(value: Any) -> bytes:
    """Write JSON; a `Decimal` becomes a number with its own digits."""
    return _encoder.encode(value)
