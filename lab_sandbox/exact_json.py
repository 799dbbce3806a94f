"""JSON with exact decimals: `1.20` stays `1.20`, since the digits of a result carry its precision."""

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import msgspec

from lab_sandbox.errors import HttpError

Json = dict[str, Any]

MAX_DEPTH = 64

_decoder = msgspec.json.Decoder(float_hook=Decimal)
_encoder = msgspec.json.Encoder(decimal_format="number")


def decode(data: bytes) -> Any:
    """Parses JSON with fractions as `Decimal`; `HttpError` (400) if it is invalid or nested too deeply."""
    try:
        value = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise HttpError.of(400, "structure", f"body: not JSON ({exc})") from exc
    except ArithmeticError as exc:
        raise HttpError.of(400, "structure", "body: a number has too large an exponent") from exc
    except RecursionError as exc:
        raise HttpError.of(400, "structure", f"body: nested deeper than {MAX_DEPTH} levels") from exc
    _check_depth(value)
    return value


def decode_stored(data: bytes) -> Json:
    """Parses a stored resource, which was checked when it was received."""
    stored: Json = _decoder.decode(data)
    return stored


def encode(value: Any) -> bytes:
    """Serialises plain JSON values; a `Decimal` keeps its digits."""
    return _encoder.encode(value)


def decode_object(data: bytes, expected_type: str | None = None) -> Json:
    """Parses a JSON object, with this resourceType if one is given; `HttpError` (400) for anything else."""
    value = decode(data)
    if not isinstance(value, dict):
        raise HttpError.of(400, "structure", "body: must be a JSON object")
    if expected_type is not None and value.get("resourceType") != expected_type:
        raise HttpError.of(400, "structure", f"resourceType: must be {expected_type}, not {value.get('resourceType')!r}")
    return value


def _check_depth(value: Any) -> None:
    """Checks the depth without recursion, so that later code may recurse."""
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [child for node in level for child in _children(node)]
        if not level:
            return
    raise HttpError.of(400, "structure", f"body: nested deeper than {MAX_DEPTH} levels")


def _children(node: Any) -> Iterator[Any]:
    if isinstance(node, dict):
        yield from (child for child in node.values() if isinstance(child, dict | list))
    elif isinstance(node, list):
        yield from (child for child in node if isinstance(child, dict | list))
