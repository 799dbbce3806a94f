"""JSON in and out with every digit kept: `1.20` stays `1.20`, since a result's digits carry its precision."""

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
    """Bytes to plain dicts and lists, decimals as `Decimal`; a `Refusal` (400) when they are not JSON or too deep."""
    try:
        value = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise HttpError.of(400, "structure", f"body: not JSON ({exc})") from exc
    except ArithmeticError as exc:
        raise HttpError.of(400, "structure", "body: a number with an exponent beyond all bounds") from exc
    except RecursionError as exc:
        raise HttpError.of(400, "structure", f"body: nested deeper than {MAX_DEPTH} levels") from exc
    _check_depth(value)
    return value


def decode_stored(data: bytes) -> Json:
    """A resource as the shelf keeps it; it was checked when it came in."""
    stored: Json = _decoder.decode(data)
    return stored


def encode(value: Any) -> bytes:
    """Plain JSON values to bytes, decimals as numbers with the digits they have."""
    return _encoder.encode(value)


def decode_object(data: bytes, expected_type: str | None = None) -> Json:
    """A JSON object, and of the given resourceType when one is named; anything else is a `Refusal` (400)."""
    value = decode(data)
    if not isinstance(value, dict):
        raise HttpError.of(400, "structure", "body: a JSON object is expected")
    if expected_type is not None and value.get("resourceType") != expected_type:
        raise HttpError.of(400, "structure", f"resourceType: {expected_type} is expected, {value.get('resourceType')!r} came")
    return value


def _check_depth(value: Any) -> None:
    """Walks without recursion, so that the walkers after it may recurse."""
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
