"""JSON whose numbers keep their digits.

`1.20` is a different laboratory result from `1.2`: fractional numbers are read as `Decimal` and written with the digits that
they came with, and without an exponent, which a decimal of FHIR STU3 cannot have (Data Types: decimal). NaN and infinities have
no JSON form and are rejected.
"""

from __future__ import annotations

import codecs
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from decimal import Decimal
from typing import Any

import msgspec

from lab_agent.shared.errors import DataInvalidError, Problem
from lab_agent.shared.text import shorten

_decoder = msgspec.json.Decoder(float_hook=Decimal)
_encoder = msgspec.json.Encoder(decimal_format="number")
_items_decoder = msgspec.json.Decoder(list[msgspec.Raw])
_sorted_encoder = msgspec.json.Encoder(decimal_format="number", order="sorted")
MAX_DEPTH = 200
"""The most levels of nesting that are read; FHIR resources have some twenty."""
LARGE = 16 * 1024
"""Bytes from which a document is read by `loads_large`, in a thread.

A smaller one has fewer values than `MAX_VALUES`, and takes some 10 ms, one of nothing but invalid entries 80; most have a few kB.
"""
MAX_VALUES = 100_000
"""About how many values a large document may have; a FHIR resource has some hundred."""
MAX_LIST_VALUES = 1_200_000
"""The same of one that is read item by item: 60 for each of 20,000 Tasks. It is divided into this many items in 90 ms."""
MAX_EXPONENT = 400
"""The largest exponent that is written in digits, and that a laboratory value may have."""
_COUNTED_AT_ONCE = 1024 * 1024


class TooManyValues(DataInvalidError):
    """A large document has more values than are read at once."""


def loads(data: bytes | str) -> Any:
    """Read JSON; fractional numbers become `Decimal`, and a byte order mark before it is skipped.

    Raises `DataInvalidError` for what is not JSON, or nested too deep.
    """
    tree = _decode(_decoder, strip_byte_order_mark(data) if isinstance(data, bytes) else data)
    if _has_many_brackets(data) and _is_too_deep(tree):
        raise DataInvalidError((Problem("document", f"more than {MAX_DEPTH} levels deep", "send fewer nested levels"),))
    return tree


def loads_large(data: bytes, most: int = MAX_VALUES) -> Any:
    """Read JSON as `loads` does, in a thread where it is large. Raises `TooManyValues` for more than `most` values.

    The decoder holds the interpreter's lock until it returns, and each value takes memory of its own. It is not the bytes of a
    document that count for both but its values: a long text is read at once, and this many values in some 50 ms.
    """
    _check_number_of_values(data, most)
    return loads(data)


class ArrayDivider:
    """Divides large JSON objects at `array`, and reads of the rest the `fields` only: there may be a million."""

    def __init__(self, array: str, fields: Iterable[str]) -> None:
        self._array, self._fields = array, tuple(fields)
        shape = msgspec.defstruct("Divided", [(name, msgspec.Raw, msgspec.Raw()) for name in (array, *self._fields)])
        self._decoder = msgspec.json.Decoder(shape)

    def divide(self, data: bytes) -> tuple[dict[str, Any], Iterator[bytes]]:
        """Read an object without its array, and give the JSON of each item of that; a single value is an array of one.

        This takes a millisecond of the lock for a megabyte. Raises `DataInvalidError` as `loads_large` does, and `TooManyValues`
        for more than `MAX_LIST_VALUES` in all. The items themselves may still be invalid.
        """
        _check_number_of_values(data, MAX_LIST_VALUES)
        parts = _decode(self._decoder, data)
        array = getattr(parts, self._array)
        head = bytes(memoryview(array)[:5])
        items = _decode(_items_decoder, array) if head[:1] == b"[" else [array] if head not in {b"", b"null"} else []
        read = {name: bytes(text) for name in self._fields if (text := getattr(parts, name))}
        return {name: loads_large(text) for name, text in read.items()}, map(bytes, items)


def _decode(decoder: msgspec.json.Decoder[Any], data: Any) -> Any:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ArithmeticError) as exc:
        raise DataInvalidError((Problem("document", f"not JSON: {exc}", "send one JSON value in UTF-8"),)) from exc


def _check_number_of_values(data: bytes, limit: int) -> None:
    """Count the signs that stand before values; those within texts count, too."""
    count = 0
    for start in range(0, len(data), _COUNTED_AT_ONCE):
        count += sum(data.count(sign, start, start + _COUNTED_AT_ONCE) for sign in (b",", b"{", b"["))
        if count > limit:
            raise TooManyValues((Problem("document", f"more than {limit} values", "send fewer at once"),))


def _has_many_brackets(data: bytes | str) -> bool:
    """Whether there are enough brackets for too many levels: most documents have fewer, and need not be walked through."""
    if isinstance(data, str):
        return data.count("{") + data.count("[") > MAX_DEPTH
    return data.count(b"{") + data.count(b"[") > MAX_DEPTH


def _is_too_deep(tree: Any) -> bool:
    """Whether it is nested deeper than whatever walks through it may be called in itself (Python's limit of recursion)."""
    level = [tree] if isinstance(tree, dict | list) else []
    for _ in range(MAX_DEPTH):
        inner = [each.values() if isinstance(each, dict) else each for each in level]
        level = [child for children in inner for child in children if isinstance(child, dict | list)]
        if not level:
            return False
    return True


def strip_byte_order_mark(data: bytes) -> bytes:
    """Remove the byte order mark that some programs put before UTF-8; JSON does not allow it."""
    return data.removeprefix(codecs.BOM_UTF8)


def loads_strictly(data: bytes | str) -> Any:
    """Read JSON as `loads` does, and reject a duplicate key: nobody could say which of the two was meant."""
    data = strip_byte_order_mark(data) if isinstance(data, bytes) else data
    tree = loads(data)
    if duplicates := _duplicate_keys(data):
        raise DataInvalidError(tuple(Problem(shorten(key), "duplicate key", "remove one of the two") for key in duplicates))
    return tree


def _duplicate_keys(data: bytes | str) -> tuple[str, ...]:
    duplicates: dict[str, None] = {}

    def collect(pairs: list[tuple[str, Any]]) -> None:
        if len(dict(pairs)) < len(pairs):
            counts = Counter(key for key, _ in pairs)
            duplicates.update((key, None) for key, count in counts.items() if count > 1)

    with suppress(RecursionError):  # deeper than anything that is read here: its shape is rejected instead
        json.loads(data, object_pairs_hook=collect, parse_int=str, parse_float=str)
    return tuple(duplicates)


def dumps(value: Any, *, sort_keys: bool = False) -> bytes:
    """Write JSON; a `Decimal` becomes a number with its own digits. Raises `DataInvalidError` for NaN and infinities.

    `1E-7` is written as `0.0000001`. A number out of range (an exponent beyond `MAX_EXPONENT`) keeps its exponent: it is no
    laboratory value, and a line of somebody's JSON must not become a million digits.
    """
    written = value if _is_encodable(value) else _to_encodable(value, "document")
    return (_sorted_encoder if sort_keys else _encoder).encode(written)


def is_out_of_range(value: Decimal) -> bool:
    """Whether a finite number is so large or so small that its digits would fill pages."""
    return max(abs(value.adjusted()), abs(int(value.as_tuple().exponent))) > MAX_EXPONENT


def _is_encodable(value: Any) -> bool:
    """Whether every number in it is written as it is: most documents need no copy with other forms."""
    kind = type(value)
    if kind is str or kind is int or kind is bool or value is None:
        return True
    if kind is dict:
        return all(map(_is_encodable, value.values()))
    if kind is list or kind is tuple:
        return all(map(_is_encodable, value))
    return kind is Decimal and value.is_finite() and "E" not in str(value)


def _to_encodable(value: Any, where: str) -> Any:
    """Give the value with every number in the form in which it is written."""
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, Decimal | float):
        if not Decimal(value).is_finite():
            raise DataInvalidError((Problem(where, f"{value} has no JSON form", "give a finite number"),))
        return _encode_decimal(value) if isinstance(value, Decimal) else value
    if isinstance(value, Mapping):
        return {key: _to_encodable(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_to_encodable(item, f"{where}[{index}]") for index, item in enumerate(value)]
    return value


def _encode_decimal(value: Decimal) -> Decimal | msgspec.Raw:
    written = str(value)
    return value if "E" not in written or is_out_of_range(value) else msgspec.Raw(f"{value:f}".encode())
