r"""Parses a message into segments, fields, repetitions, components and sub-components, addressed by paths such as `OBR-4.1`.

A parser of our own, so that the library which the tests and the simulated laboratory system use remains a second opinion.

The code page is that of MSH-18, or the configured one. Escaping is lossless both ways: out, the five separators become
`\F\ \S\ \T\ \R\ \E\` and every control character, line ends included, becomes `\Xhh\`, so that no text can begin a segment,
a field or a frame; in, the formatting commands of FT (`\.br\`, `\.sp2\`, …) are interpreted, and unknown ones stay as they are.
Highlighting (`\H\`, `\N\`) is left out, and so is a switch (`\C…\`, `\M…\`) to the character set that the message has anyway.
"""

from __future__ import annotations

import codecs
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

from lab_agent.lis.hl7v2.code_pages import UnknownCharsetError, decode_text, find_codec, without_switched_text

_BYTE_ORDER_MARK = codecs.BOM_UTF8
_PADDING_BEFORE = b" \t\r\n"
_PADDING_BEHIND = b"\x00\x1a \t\r\n"


def strip_padding(data: bytes) -> bytes:
    """A message without what some systems send around it: a byte order mark, blanks, line ends, NUL or SUB at the end."""
    return data.lstrip(_PADDING_BEFORE).removeprefix(_BYTE_ORDER_MARK).lstrip(_PADDING_BEFORE).rstrip(_PADDING_BEHIND)


_BATCH_SEGMENT = re.compile(rb"(?:\A|(?<=[\r\n]))(?:FHS|BHS|BTS|FTS)[^\w\s][^\r\n]*[\r\n]*")
_LATER_MSH = re.compile(rb"(?<=[\r\n])(?=MSH[^\w\s])")


def split_batch(data: bytes) -> list[bytes]:
    """The messages of a frame: of a batch (HL7 2.10.3) each, without FHS, BHS, BTS and FTS; anything else stays as it is."""
    bare, batch_segments = _BATCH_SEGMENT.subn(b"", strip_padding(data))
    return split_at_headers(bare) if batch_segments and bare else [data]


def split_at_headers(data: bytes) -> list[bytes]:
    """The pieces that each begin with an MSH."""
    return _LATER_MSH.split(data)


def declared_charsets(data: bytes) -> tuple[str, ...]:
    """Read the repetitions of MSH-18 of a message that is not decoded yet; none if it is empty."""
    header = without_switched_text(re.split(rb"[\r\n]", strip_padding(data), maxsplit=1)[0])
    separator = header[3:4]
    fields = header.split(separator) if separator else []
    field = fields[17] if len(fields) > 17 else b""
    repetition = header[5:6]
    names = field.split(repetition) if repetition else [field]
    return tuple(name.decode("ascii", "replace").strip() for name in names) if field.strip() else ()


_CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f]")
_HEX_ESCAPE = re.compile(r"X((?:[0-9A-Fa-f]{2})+)\Z")
_FORMATTING_COMMAND = re.compile(r"\.(br|sp|in|ti|sk|fi|nf|ce)\s*([+-]?\d{0,3})\Z", re.IGNORECASE | re.ASCII)
_CHARSET_SWITCH = re.compile(r"(?:C[0-9A-Fa-f]{4}|M[0-9A-Fa-f]{4}(?:[0-9A-Fa-f]{2})?)\Z")
_CHARSETS_BY_SWITCH = {
    "2D41": "iso8859-1",
    "2D42": "iso8859-2",
    "2D43": "iso8859-3",
    "2D44": "iso8859-4",
    "2D46": "iso8859-7",
    "2D47": "iso8859-6",
    "2D48": "iso8859-8",
    "2D4C": "iso8859-5",
    "2D4D": "iso8859-9",
}
"""ISO 2022 designations after `\\C` (HL7 2.7.2), for the upper half of a single-byte code page."""
_SWITCH_TO_ASCII = "2842"
_NO_TEXT = frozenset({"Cc", "Cn", "Co", "Cs"})
_MAX_SKIP = 100


@dataclass(frozen=True, slots=True)
class Separators:
    """The separators of one message (MSH-1 and MSH-2)."""

    field: str = "|"
    component: str = "^"
    repetition: str = "~"
    escape: str = "\\"
    subcomponent: str = "&"

    @property
    def encoding_characters(self) -> str:
        """MSH-2."""
        return self.component + self.repetition + self.escape + self.subcomponent


STANDARD_SEPARATORS = Separators()


def escape(text: str, separators: Separators = STANDARD_SEPARATORS) -> str:
    """Escape a text as one value."""
    mark = separators.escape
    names = {
        separators.field: "F",
        separators.component: "S",
        separators.subcomponent: "T",
        separators.repetition: "R",
        mark: "E",
    }
    escaped = "".join(f"{mark}{names[char]}{mark}" if char in names else char for char in text)
    return _CONTROL_CHARACTER.sub(lambda found: f"{mark}X{ord(found[0]):02X}{mark}", escaped)


def unescape(value: str, separators: Separators = STANDARD_SEPARATORS, encoding: str = "utf-8") -> str:
    r"""Unescape one value. `encoding` is the code page of the bytes in `\Xhh..\`."""
    mark = separators.escape
    if not mark or mark not in value:
        return value
    first, *pieces = value.split(mark)
    found, place = [first], 0
    while place < len(pieces):
        is_closed = place + 1 < len(pieces)
        meant = _unescape_sequence(pieces[place], separators, encoding) if is_closed else None
        if meant is None:
            found += (mark, pieces[place])  # an unknown escape, or a lone mark: leave it as it is
            place += 1
        else:
            found += (meant, pieces[place + 1])
            place += 2
    return "".join(found)


def _unescape_sequence(name: str, separators: Separators, encoding: str) -> str | None:
    one = {
        "F": separators.field,
        "S": separators.component,
        "T": separators.subcomponent,
        "R": separators.repetition,
        "E": separators.escape,
        "P": "#",
        "H": "",
        "N": "",
    }.get(name)
    if one is not None:
        return one
    if found := _HEX_ESCAPE.match(name):
        return _decode_hex(bytes.fromhex(found[1]), encoding)
    if _CHARSET_SWITCH.match(name):
        return "" if _is_charset_unchanged(name[1:].upper(), encoding) else None
    return _unescape_formatting(name)


def _decode_hex(data: bytes, encoding: str) -> str | None:
    r"""Decode the bytes of `\Xhh..\`: in the code page of the message, or as UTF-16 where they are no text in that.

    Some write the number of a character (`\X00E9\` is é), which no code page but UTF-16 has as two bytes.
    """
    text, character = _try_decode(data, encoding), _try_decode(data, "utf-16-be") if len(data) > 1 else None
    if character is not None and _is_text(character) and (text is None or not _is_text(text)):
        return character
    return text


def _is_text(text: str) -> bool:
    return all(char in "\t\r\n" or unicodedata.category(char) not in _NO_TEXT for char in text)


def _try_decode(data: bytes, encoding: str) -> str | None:
    try:
        return decode_text(data, encoding)
    except UnicodeDecodeError:
        return None


def _is_charset_unchanged(switch: str, encoding: str) -> bool:
    """Whether what follows a switch is read right all the same; else it stays in sight, since the letters would be wrong."""
    return encoding == "utf-8" or switch == _SWITCH_TO_ASCII or _CHARSETS_BY_SWITCH.get(switch) == encoding


def _unescape_formatting(name: str) -> str | None:
    found = _FORMATTING_COMMAND.match(name)
    if found is None:
        return None
    number = int(found[2]) if found[2] not in {"", "+", "-"} else 1
    match found[1].lower():
        case "br" | "ce":
            return "\n"
        case "sp":
            return "\n" * max(1, min(number, _MAX_SKIP))
        case "sk":
            return " " * max(1, min(number, _MAX_SKIP))
        case _:
            return ""


_SEGMENT_NAME = re.compile(r"[A-Z][A-Z0-9]{2}\Z")
_FIELD_PATH = re.compile(r"([A-Z][A-Z0-9]{2})-(\d{1,3})(?:\.(\d{1,3}))?(?:\.(\d{1,3}))?\Z")
HL7_NULL = '""'
ACK_CONDITIONS = frozenset({"AL", "NE", "ER", "SU"})
"""When a sender wants an acknowledgement (HL7 table 0155)."""


class InvalidMessageError(ValueError):
    """The bytes are not an HL7 message; the text says why without quoting it."""


class UndecodableMessageError(InvalidMessageError):
    """The bytes are no text in the code page of the message."""


@dataclass(frozen=True, slots=True)
class FieldPath:
    """Where a value is: segment, field, component and sub-component, counted from 1; `component` None is the whole field."""

    segment: str
    field: int
    component: int | None = None
    subcomponent: int | None = None

    @classmethod
    def parse(cls, text: str) -> FieldPath:
        """Parse a path such as `OBR-4.1`. Raises `ValueError`."""
        found = _FIELD_PATH.match(text.strip())
        if found is None or not all(int(number) for number in found.groups()[1:] if number):
            raise ValueError(f"{text!r} is not a field path such as OBR-4 or OBR-4.1")
        name, *numbers = found.groups()
        field, component, subcomponent = (int(number) if number else None for number in numbers)
        return cls(name, field or 0, component, subcomponent)


@dataclass(frozen=True, slots=True)
class FieldValue:
    """One repetition of a field, still escaped."""

    raw: str
    separators: Separators
    encoding: str

    def __bool__(self) -> bool:
        """Whether it has a value; `""` means explicitly none."""
        return self.raw not in {"", HL7_NULL} and bool(
            self.raw.strip(self.separators.component + self.separators.subcomponent + " ")
        )

    @property
    def text(self) -> str:
        """The whole repetition as text, separators included."""
        return unescape(self.raw, self.separators, self.encoding)

    @property
    def components(self) -> tuple[FieldValue, ...]:
        """Its components."""
        return tuple(FieldValue(raw, self.separators, self.encoding) for raw in self.raw.split(self.separators.component))

    def component_text(self, component: int, subcomponent: int | None = None) -> str:
        """The text of a component, or of its first sub-component if it has several; empty if it is missing."""
        return _component_text(self.raw, self.separators, self.encoding, component, subcomponent or 1)


def _component_text(raw: str, separators: Separators, encoding: str, component: int, subcomponent: int) -> str:
    part = _nth(_nth(raw, separators.component, component), separators.subcomponent, subcomponent)
    return "" if not part or part == HL7_NULL else unescape(part, separators, encoding)


def _nth(text: str, mark: str, number: int) -> str:
    if mark not in text:  # as most are: this is what the reader does most often
        return text if number == 1 else ""
    parts = text.split(mark, number)
    return parts[number - 1] if number <= len(parts) else ""


@dataclass(frozen=True, slots=True)
class Segment:
    """One segment; `fields[1]` is its first field, `MSH-1` among them."""

    name: str
    fields: tuple[str, ...]
    separators: Separators
    encoding: str

    def raw(self, field: int) -> str:
        """A field as it stands; empty if it is missing."""
        return self.fields[field] if field < len(self.fields) else ""

    def repetitions(self, field: int) -> tuple[FieldValue, ...]:
        """The repetitions of a field that have a value."""
        if not (raw := self.raw(field)):
            return ()
        pieces = raw.split(self.separators.repetition)
        return tuple(value for value in (FieldValue(piece, self.separators, self.encoding) for piece in pieces) if value)

    def first_repetition(self, field: int) -> FieldValue:
        """The first repetition of a field."""
        return FieldValue(self.raw(field).split(self.separators.repetition)[0], self.separators, self.encoding)

    def text(self, field: int, component: int = 1, subcomponent: int | None = None) -> str:
        """The text of a component, stripped."""
        if not (raw := self.raw(field)):
            return ""  # most fields of most segments
        first = _nth(raw, self.separators.repetition, 1)
        return _component_text(first, self.separators, self.encoding, component, subcomponent or 1).strip()

    def texts_at(self, path: FieldPath) -> Iterator[str]:
        """The values at a path, one for each repetition that has one."""
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

    @property
    def continues(self) -> str:
        """The pointer of the message that this one continues (MSH-14); empty for none.

        What says when to acknowledge (HL7 table 0155) stands there by mistake, one field too early.
        """
        pointer = self.header.text(14)
        return "" if pointer.upper() in ACK_CONDITIONS else pointer

    def first_segment(self, name: str) -> Segment | None:
        """The first segment with that name."""
        return next((segment for segment in self.segments if segment.name == name), None)


def decode_message(data: bytes, encoding: str) -> Message:
    """Decode and parse a message, in `encoding` unless MSH-18 names another. Raises `InvalidMessageError`."""
    data = strip_padding(data)
    if not data.startswith(b"MSH"):
        raise InvalidMessageError("the message does not begin with MSH")
    try:
        encoding = find_codec(declared_charsets(data), data, encoding)
        text = decode_text(data, encoding)
    except UnknownCharsetError as exc:
        raise InvalidMessageError(str(exc)) from exc
    except UnicodeDecodeError as exc:
        raise UndecodableMessageError(f"the message contains bytes that are not valid {encoding}") from exc
    message = parse_message(text, encoding)
    if (encoding != "utf-8" or data.isascii()) and _switches_bytes(text, message.header.separators):
        raise InvalidMessageError("the message switches to another character set within a text, whose bytes may be separators")
    return message


def _switches_bytes(text: str, separators: Separators) -> bool:
    """Whether a text switches to a set whose bytes are those of ASCII: a multi-byte one, or another one in its lower half."""
    mark = re.escape(separators.escape)
    return (
        bool(separators.escape) and re.search(rf"{mark}(?:M[0-9A-Fa-f]{{4,6}}|C28(?!42)[0-9A-Fa-f]{{2}}){mark}", text) is not None
    )


def parse_message(text: str, encoding: str = "utf-8") -> Message:
    """Parse a text as a message. Raises `InvalidMessageError`."""
    separators = _parse_separators(text)
    lines = _split_lines(text, separators)
    segments = tuple(_parse_segment(line, number, separators, encoding) for number, line in enumerate(lines, 1) if line.strip())
    if sum(segment.name == "MSH" for segment in segments) != 1:
        raise InvalidMessageError("the message has more than one MSH: each message needs a frame of its own")
    return Message(segments)


def _split_lines(text: str, separators: Separators) -> list[str]:
    """Split at CR; at LF too where a segment begins behind it, since some join parts with other line ends. Others are text."""
    if "\r" not in text:
        return text.split("\n")
    return re.split(rf"\r\n?|(?<!\n)\n++(?=[A-Z][A-Z0-9]{{2}}{re.escape(separators.field)})", text)


def _parse_separators(text: str) -> Separators:
    header = re.split(r"[\r\n]", text, maxsplit=1)[0]
    field = header[3:4]
    encoding = header[4:].split(field)[0] if field else ""
    marks = field + encoding[:4]
    usable = marks.isprintable() and not any(char.isalnum() or char.isspace() for char in marks)
    if len(encoding) not in {4, 5} or len(set(marks)) != len(marks) or not usable:
        raise InvalidMessageError("MSH-1 and MSH-2 do not define five separators")
    return Separators(field, *encoding[:4])


def _parse_segment(line: str, number: int, separators: Separators, encoding: str) -> Segment:
    name, *fields = line.lstrip("\n").split(separators.field)
    if not _SEGMENT_NAME.match(name):
        raise InvalidMessageError(f"line {number} does not begin with a segment name")
    if name == "MSH":
        fields = [separators.field, *fields]
    return Segment(name, (name, *fields), separators, encoding)
