r"""HL7 escaping, both ways: whatever a text holds, it is one value on the wire, and comes back as it was.

Out, the five separators become `\F\ \S\ \T\ \R\ \E\`, and every control character, line ends among them, becomes `\Xhh\`, so
that no text can begin a segment, a field or a frame. In, the formatting commands of FT (`\.br\`, `\.sp2\`, …) become what they
mean, and what nobody knows is left as it came.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f]")
_HEX_ESCAPE = re.compile(r"X((?:[0-9A-Fa-f]{2})+)\Z")
_FORMATTING_COMMAND = re.compile(r"\.(br|sp|in|ti|sk|fi|nf|ce)\s*([+-]?\d{0,3})\Z")
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
    """Write a text as one value."""
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
    r"""Read one value. `encoding` is the code page of the message, which the bytes of `\Xhh..\` are in."""
    mark = separators.escape
    if not mark or mark not in value:
        return value
    pieces, rest = [], value
    while mark in rest:
        before, _, after = rest.partition(mark)
        name, closed, behind = after.partition(mark)
        meant = _unescape_sequence(name, separators, encoding) if closed else None
        pieces.append(before)
        if meant is None:
            pieces.append(mark)  # an escape that nobody knows, or a lone mark: left as it came
            rest = after
        else:
            pieces.append(meant)
            rest = behind
    return "".join((*pieces, rest))


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
    return _unescape_formatting(name)


def _decode_hex(data: bytes, encoding: str) -> str | None:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError:
        return None


def _unescape_formatting(name: str) -> str | None:
    found = _FORMATTING_COMMAND.match(name)
    if found is None:
        return None
    number = int(found[2]) if found[2] not in {"", "+", "-"} else 1
    match found[1]:
        case "br" | "ce":
            return "\n"
        case "sp":
            return "\n" * max(1, min(number, _MAX_SKIP))
        case "sk":
            return " " * max(1, min(number, _MAX_SKIP))
        case _:
            return ""
