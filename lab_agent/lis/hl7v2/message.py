"""A message as segments, fields, repetitions, components and sub-components: read by its own separators, asked by `OBR-4.1`.

A parser of our own, so that the library with which the tests and the stand-in laboratory system read and write HL7 is a second
opinion and not the same one twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from lab_agent.lis.hl7v2.charset import UnknownCharsetError, codec_name, declared_charset
from lab_agent.lis.hl7v2.escapes import Separators, unescape

_SEGMENT_NAME = re.compile(r"[A-Z][A-Z0-9]{2}\Z")
_FIELD_PATH = re.compile(r"([A-Z][A-Z0-9]{2})-(\d{1,3})(?:\.(\d{1,3}))?(?:\.(\d{1,3}))?\Z")
HL7_NULL = '""'


class InvalidMessageError(ValueError):
    """The bytes are no HL7 message; the text says why, and quotes nothing of it."""


@dataclass(frozen=True, slots=True)
class FieldPath:
    """Where a value stands: segment, field, component and sub-component, counted from 1; `component` None is the whole field."""

    segment: str
    field: int
    component: int | None = None
    subcomponent: int | None = None

    @classmethod
    def parse(cls, text: str) -> FieldPath:
        """Read a place such as `OBR-4.1`. Raises `ValueError`."""
        found = _FIELD_PATH.match(text.strip())
        if found is None or not all(int(number) for number in found.groups()[1:] if number):
            raise ValueError(f"{text!r} is no place such as OBR-4 or OBR-4.1")
        name, *numbers = found.groups()
        field, component, subcomponent = (int(number) if number else None for number in numbers)
        return cls(name, field or 0, component, subcomponent)


@dataclass(frozen=True, slots=True)
class FieldValue:
    """One repetition of a field, not yet unescaped."""

    raw: str
    separators: Separators
    encoding: str

    def __bool__(self) -> bool:
        """Whether it says anything; `""` says that there is nothing."""
        return self.raw not in {"", HL7_NULL} and bool(
            self.raw.strip(self.separators.component + self.separators.subcomponent + " ")
        )

    @property
    def text(self) -> str:
        """The whole as text, whatever separators stand in it."""
        return unescape(self.raw, self.separators, self.encoding)

    @property
    def components(self) -> tuple[FieldValue, ...]:
        """Its components."""
        return tuple(FieldValue(raw, self.separators, self.encoding) for raw in self.raw.split(self.separators.component))

    def component_text(self, component: int, subcomponent: int | None = None) -> str:
        """Give a component's text, or its first sub-component's where it has several; empty if it is not there."""
        parts = self.raw.split(self.separators.component)
        part = parts[component - 1] if component <= len(parts) else ""
        pieces = part.split(self.separators.subcomponent)
        wanted = (subcomponent or 1) - 1
        raw = pieces[wanted] if wanted < len(pieces) else ""
        return "" if raw == HL7_NULL else unescape(raw, self.separators, self.encoding)


@dataclass(frozen=True, slots=True)
class Segment:
    """One segment; `fields[1]` is its first field, `MSH-1` among them."""

    name: str
    fields: tuple[str, ...]
    separators: Separators
    encoding: str

    def raw(self, field: int) -> str:
        """Give a field as it stands; empty if it is not there."""
        return self.fields[field] if field < len(self.fields) else ""

    def repetitions(self, field: int) -> tuple[FieldValue, ...]:
        """Give the repetitions of a field that say anything."""
        pieces = self.raw(field).split(self.separators.repetition)
        return tuple(value for value in (FieldValue(piece, self.separators, self.encoding) for piece in pieces) if value)

    def first_repetition(self, field: int) -> FieldValue:
        """Give the first repetition of a field."""
        return FieldValue(self.raw(field).split(self.separators.repetition)[0], self.separators, self.encoding)

    def text(self, field: int, component: int = 1, subcomponent: int | None = None) -> str:
        """Give a component's text, without blanks around it."""
        return self.first_repetition(field).component_text(component, subcomponent).strip()

    def texts_at(self, path: FieldPath) -> Iterator[str]:
        """Give what stands at a place in each repetition, where it says anything."""
        for value in self.repetitions(path.field):
            found = (value.text if path.component is None else value.component_text(path.component, path.subcomponent)).strip()
            if found and found != HL7_NULL:
                yield found


@dataclass(frozen=True, slots=True)
class Message:
    """A message; its first segment is MSH."""

    segments: tuple[Segment, ...]

    @property
    def header(self) -> Segment:
        """MSH."""
        return self.segments[0]

    @property
    def message_type(self) -> tuple[str, str]:
        """Type and trigger (MSH-9)."""
        return self.header.text(9, 1), self.header.text(9, 2)

    @property
    def control_id(self) -> str:
        """MSH-10 as it stands."""
        return self.header.raw(10).strip()

    def first_segment(self, name: str) -> Segment | None:
        """Give the first segment of that name."""
        return next((segment for segment in self.segments if segment.name == name), None)


def decode_message(data: bytes, encoding: str) -> Message:
    """Read a message; in `encoding`, unless MSH-18 names another. Raises `MessageError`."""
    if not data.startswith(b"MSH"):
        raise InvalidMessageError("the message does not begin with MSH")
    named = declared_charset(data)
    try:
        encoding = codec_name(named) if named else encoding
        text = data.decode(encoding)
    except UnknownCharsetError as exc:
        raise InvalidMessageError("the code page in MSH-18 is not known") from exc
    except UnicodeDecodeError as exc:
        raise InvalidMessageError(f"the message holds bytes that are no {encoding}") from exc
    return parse_message(text, encoding)


def parse_message(text: str, encoding: str = "utf-8") -> Message:
    """Read a text as a message. Raises `MessageError`."""
    separators = _parse_separators(text)
    lines = re.split(r"\r\n?" if "\r" in text else r"\n", text)
    segments = tuple(_parse_segment(line, number, separators, encoding) for number, line in enumerate(lines, 1) if line.strip())
    if sum(segment.name == "MSH" for segment in segments) != 1:
        raise InvalidMessageError("the message holds more than one MSH: each message needs a frame of its own")
    return Message(segments)


def _parse_separators(text: str) -> Separators:
    header = re.split(r"[\r\n]", text, maxsplit=1)[0]
    field = header[3:4]
    encoding = header[4:].split(field)[0] if field else ""
    marks = field + encoding[:4]
    usable = marks.isprintable() and not any(char.isalnum() or char.isspace() for char in marks)
    if len(encoding) not in {4, 5} or len(set(marks)) != len(marks) or not usable:
        raise InvalidMessageError("MSH-1 and MSH-2 do not name five separators")
    return Separators(field, *encoding[:4])


def _parse_segment(line: str, number: int, separators: Separators, encoding: str) -> Segment:
    name, *fields = line.lstrip("\n").split(separators.field)
    if not _SEGMENT_NAME.match(name):
        raise InvalidMessageError(f"line {number} does not begin with a segment's name")
    if name == "MSH":
        fields = [separators.field, *fields]
    return Segment(name, (name, *fields), separators, encoding)
