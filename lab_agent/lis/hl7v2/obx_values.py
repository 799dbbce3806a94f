"""Converts OBX-5 by its type (OBX-2) into one of the interface's value forms. Decimals keep their digits; nothing is guessed.

Documents in results: ED (the bytes, in the field's several spellings) and RP (a link).
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from decimal import Decimal
from typing import Any

from lab_agent.domain.lab_messages import Document
from lab_agent.domain.report_documents import is_openable_url
from lab_agent.domain.values import CodeableConcept, Coding, Quantity, Range, Ratio
from lab_agent.lis.hl7v2.field_map import FieldMap
from lab_agent.lis.hl7v2.parser import FieldValue, Segment
from lab_agent.lis.hl7v2.timestamps import parse_date_or_time, parse_time_of_day

NUMBER_PATTERN = r"[+-]?(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d{1,3})?"
_NUMBER_WITH_COMPARATOR = re.compile(rf"(<=|>=|<|>|≤|≥|=)?\s*({NUMBER_PATTERN})\Z")
_COMPARATORS = {"≤": "<=", "≥": ">=", "=": None, "": None, None: None}
_UNREADABLE_NUMBER = "has an invalid number"
TEXT_TYPES = frozenset({"ST", "TX", "FT"})
CODED_TYPES = frozenset({"CE", "CWE", "CNE", "CF"})
CODE_STRING_TYPES = frozenset({"IS", "ID"})


class InvalidValueError(ValueError):
    """An invalid value; the text says why without quoting it."""


@dataclass(frozen=True, slots=True)
class ObxValueReader:
    """Reads values. `zone` applies to times without one."""

    field_map: FieldMap
    zone: tzinfo | None

    def read_value(self, obx: Segment) -> dict[str, Any]:
        """Return the value as a field of `ReportedObservation`. Raises `InvalidValueError`, `InvalidTimestampError`."""
        kind, values = obx.text(2).upper(), obx.repetitions(5)
        if not values:
            raise InvalidValueError("has no value")
        if kind in TEXT_TYPES:
            return self._read_text(obx, values, kind)
        if kind in CODED_TYPES:
            return {"value_codeable_concept": self._read_concept(values)}
        if kind in CODE_STRING_TYPES:
            return {"value_string": "\n".join(value.text.strip() for value in values)}
        if len(values) > 1:
            raise InvalidValueError(f"has {len(values)} values of type {kind} instead of one")
        return self._read_single(kind, obx, values[0])

    def read_unit(self, obx: Segment) -> dict[str, str | None]:
        """OBX-6 as the unit of a quantity."""
        value = obx.first_repetition(6)
        coding = self.read_coding(value, 1) if value else None
        if coding is None:
            return {"unit": value.component_text(2).strip() or None} if value else {}
        if coding.system is None or ":" not in coding.system:  # a name such as ISO+: no code can be sent without its address
            return {"unit": coding.display or coding.code}
        return {"unit": coding.display or coding.code, "system": coding.system, "code": coding.code}

    def read_number(self, text: str) -> Decimal | None:
        """Read a decimal; None if it is not one."""
        found = _NUMBER_WITH_COMPARATOR.match(self._normalize_decimal(text))
        return Decimal(found[2]) if found and not found[1] else None

    def read_codings(self, value: FieldValue) -> Iterator[Coding]:
        """The codings of a coded value: the first triple and the alternative one."""
        return (coding for coding in (self.read_coding(value, 1), self.read_coding(value, 4)) if coding is not None)

    def read_coding(self, value: FieldValue, first: int) -> Coding | None:
        """The coding whose code is in component `first`."""
        code, display, system = (value.component_text(first + step).strip() for step in range(3))
        if not code:
            return None
        return Coding(system=self._code_system(system), code=code, display=display or None)

    def _read_single(self, kind: str, obx: Segment, value: FieldValue) -> dict[str, Any]:
        match kind:
            case "NM":
                return {"value_quantity": self._read_quantity(obx, value.text)}
            case "SN":
                return self._read_structured_numeric(obx, value)
            case "DT" | "DTM" | "TS":
                text = value.component_text(1)
                return {"value_date_time": parse_date_or_time(text, self.zone)}
            case "TM":
                return {"value_time": parse_time_of_day(value.component_text(1))}
            case _:
                raise InvalidValueError(f"has the unsupported type {kind or '(none)'} in OBX-2")

    def _read_text(self, obx: Segment, values: Sequence[FieldValue], kind: str) -> dict[str, Any]:
        text = "\n".join(value.text for value in values).strip()
        if (
            self.field_map.results.numeric_text
            and kind == "ST"
            and obx.first_repetition(6)
            and _NUMBER_WITH_COMPARATOR.match(self._normalize_decimal(text))
        ):
            return {"value_quantity": self._read_quantity(obx, text)}
        return {"value_string": text}

    def _read_concept(self, values: Sequence[FieldValue]) -> CodeableConcept:
        codings = tuple(coding for value in values for coding in self.read_codings(value))
        texts = (
            value.component_text(9).strip()
            or value.component_text(2).strip()
            or value.component_text(5).strip()
            or value.component_text(1).strip()
            for value in values
        )
        return CodeableConcept(coding=codings, text="\n".join(text for text in texts if text) or None)

    def _read_quantity(self, obx: Segment, text: str, comparator: str | None = None) -> Quantity:
        found = _NUMBER_WITH_COMPARATOR.match(self._normalize_decimal(text))
        if found is None:
            raise InvalidValueError(_UNREADABLE_NUMBER)
        sign = comparator or _COMPARATORS.get(found[1], found[1])
        return Quantity(value=Decimal(found[2]), comparator=sign, **self.read_unit(obx))

    def _read_structured_numeric(self, obx: Segment, value: FieldValue) -> dict[str, Any]:
        sign, first, separator, second = (value.component_text(number).strip() for number in range(1, 5))
        if sign not in {"", "=", "<", "<=", ">", ">="} or separator not in {"", "-", ":", "/"} or not first:
            return {"value_string": f"{sign}{first}{separator}{second}"}
        if not second:
            if separator:
                return {"value_string": f"{sign}{first}{separator}"}
            return {"value_quantity": self._read_quantity(obx, first, None if sign in {"", "="} else sign)}
        low, high = self._read_quantity(obx, first, None if sign in {"", "="} else sign), self._read_quantity(obx, second)
        if separator == "-":
            return {"value_range": Range(low=low, high=high)}
        bare = Quantity(value=low.value, comparator=low.comparator), Quantity(value=high.value)
        return {"value_ratio": Ratio(numerator=bare[0], denominator=bare[1])}

    def _normalize_decimal(self, text: str) -> str:
        text = text.strip()
        return text.replace(",", ".") if self.field_map.results.decimal_comma and text.count(",") == 1 else text

    def _code_system(self, name: str) -> str | None:
        """The URL of a code system; local codes (`L`, `99…`) have none."""
        known = self.field_map.table("code_systems").get(name.upper()) or self.field_map.table("code_systems").get(name)
        if known:
            return known
        return None if not name or name.upper() == "L" or name.startswith("99") else name


_DATA_ENCODINGS = ("base64", "hex", "a")
_MEDIA_TYPES = {"ap": "application", "application": "application", "im": "image", "image": "image", "text": "text", "tx": "text"}
_CONTENT_TYPES = {
    "pdf": "application/pdf",
    "rtf": "application/rtf",
    "html": "text/html",
    "plain": "text/plain",
    "xml": "application/xml",
    "jpeg": "image/jpeg",
    "jpg": "image/jpeg",
    "png": "image/png",
    "tiff": "image/tiff",
    "gif": "image/gif",
}
_MAGIC_BYTES = (
    (b"%PDF-", "application/pdf"),
    (b"\x89PNG", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"{\\rtf", "application/rtf"),
)
_URL_SCHEMES = ("http://", "https://")
_WHITESPACE = re.compile(r"\s+")


def read_documents(obx: Segment, encoding: str) -> list[Document]:
    """Read the documents of an OBX of type ED or RP. Raises `InvalidValueError`."""
    read = _read_embedded if obx.text(2).upper() == "ED" else _read_link
    title = obx.text(3, 2) or None
    found = [read(value, title, encoding) for value in obx.repetitions(5)]
    if not found:
        raise InvalidValueError("has no document")
    return found


def _read_embedded(value: FieldValue, title: str | None, encoding: str) -> Document:
    parts = [component.text.strip() for component in value.components]
    words = [part.lower() for part in parts]
    place = next((place for place, word in enumerate(words[:-1]) if word in _DATA_ENCODINGS and parts[place + 1]), None)
    if place is None:
        raise InvalidValueError("has no encoding (Base64, Hex or A) before its data")
    content = _decode_data(words[place], parts[place + 1], encoding)
    if not content:
        raise InvalidValueError("is an empty document")
    kind = words[place - 2] if place >= 2 else ""
    return Document(
        content=content, content_type=_detect_content_type(kind, words[place - 1] if place else "", content), title=title
    )


def _decode_data(name: str, data: str, encoding: str) -> bytes:
    packed = _WHITESPACE.sub("", data)
    try:
        match name:
            case "base64":
                return base64.b64decode(packed + "=" * (-len(packed) % 4), validate=True)
            case "hex":
                return bytes.fromhex(packed)
            case _:
                return data.encode(encoding)
    except (binascii.Error, ValueError) as exc:
        raise InvalidValueError("has data that does not match its encoding") from exc


def _detect_content_type(kind: str, subtype: str, content: bytes) -> str:
    """The media type, by the magic bytes if known, else as the LIS wrote it."""
    for magic, known in _MAGIC_BYTES:
        if content.startswith(magic):
            return known
    if subtype in _CONTENT_TYPES:
        return _CONTENT_TYPES[subtype]
    full = subtype if "/" in subtype else f"{_MEDIA_TYPES.get(kind, '')}/{subtype}"
    plain = re.fullmatch(r"[a-z]+/[a-z0-9.+-]+", full)
    return full if plain else "application/octet-stream"


def _read_link(value: FieldValue, title: str | None, encoding: str) -> Document:  # noqa: ARG001 — the same signature as _read_embedded
    address = value.components[0].text.strip()
    if not address.lower().startswith(_URL_SCHEMES) or not is_openable_url(address):
        raise InvalidValueError("is a pointer that is not a web address")
    subtype = value.component_text(4).strip().lower()
    return Document(url=address, content_type=_CONTENT_TYPES.get(subtype, "application/pdf"), title=title)
