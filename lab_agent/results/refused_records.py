"""Messages of laboratory systems that were refused: what is kept of each, and how its raw text is shown."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from lab_agent.shared.ids import RefusedKey
from lab_agent.shared.text import escape_unprintable


class RefusedState(StrEnum):
    """Where a refused message stands; a dismissed one stays so however often the same message comes again."""

    WAITING = "waiting"
    REPLAYED = "replayed"
    DISMISSED = "dismissed"


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedMessage:
    """A message that an adapter (`source`) refused `count` times; `reason` is that of the last time, or of the last replay.

    `size` is that of its bytes; None where the adapter did not give them. `is_kept`: its content is in the vault still.
    """

    key: RefusedKey
    source: str
    state: RefusedState = RefusedState.WAITING
    reason: str
    count: int = 1
    size: int | None = None
    is_kept: bool = True
    first_seen_at: datetime
    last_seen_at: datetime
    changed_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedContent:
    """What may name a patient in a refused message: the id that its adapter gave it (such as a file's name), and its bytes."""

    message_id: str
    raw: bytes | None = None


_ID_ENDING = re.compile(r"(?::\d+:\d+)?:(?:[0-9a-f]{16}|-)$")
"""What adapters put behind a name so that each arrival has an id of its own: time, size and digest of a file."""


def sender_name(content: RefusedContent) -> str:
    """What the sender called the message, such as a file's name; it may name the patient."""
    return _ID_ENDING.sub("", content.message_id)


_CHARSET_NAMES = {"8859": "iso8859-", "UNICODE UTF-8": "utf-8", "ASCII": "ascii"}
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_LINE_END = re.compile("\r\n|\r|\n")
_MAX_CONTROL_SHARE = 0.1
_HEX_BYTES_A_LINE = 16
_JUDGED_BYTES = 4_096
_BINARY = re.compile(rb"[\x00-\x08\x0e-\x1b\x1d-\x1f\x7f]")
"""Control characters that no text has, but for those of a frame."""


def is_noise(raw: bytes | None) -> bool:
    """Whether bytes are no text in any encoding, and so no message of anybody: what a port scanner or a wrong peer sends."""
    if raw is None or raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return False
    start = raw[:_JUDGED_BYTES]
    wide = start.count(0) * 3 > len(start) and not _BINARY.search(start.replace(b"\0", b""))
    return not wide and _BINARY.search(start) is not None


def raw_lines(raw: bytes, encoding: str | None = None) -> Iterator[str]:
    r"""Give the bytes of a message as lines that can be shown: a segment of HL7, or a line of a file, on one line each.

    Control characters are shown as such (␋), bytes that are no text in `encoding` (default: what the message says of itself, or
    UTF-8) as `\xe4`. What is not text at all is given in hexadecimal.
    """
    text = _decode(raw, encoding)
    controls = len(_CONTROL.findall(text)) + text.count("\\x") - raw.count(b"\\x")
    if controls > 4 + _MAX_CONTROL_SHARE * len(text):
        yield from _hex_lines(raw)
        return
    lines = _LINE_END.split(text)
    for line in lines[:-1] if len(lines) > 1 and not lines[-1] else lines:
        yield escape_unprintable(_CONTROL.sub(_control_picture, line))


def _decode(raw: bytes, encoding: str | None) -> str:
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return raw.decode("utf-16", "backslashreplace")
    for name in ("utf-8-sig", _stated_encoding(raw), encoding):
        if name is not None:
            try:
                return raw.decode(name)
            except (UnicodeDecodeError, LookupError):
                continue
    return raw.decode("utf-8", "backslashreplace")


def _stated_encoding(raw: bytes) -> str | None:
    """Give the code page that MSH-18 of a message in HL7 names, in Python's spelling; None if it names none."""
    header = re.split(rb"[\r\n]", raw.lstrip(b"\x0b\r\n"), maxsplit=1)[0].decode("ascii", "replace")
    fields = header.split(header[3:4] or "|")
    if not header.startswith("MSH") or len(fields) <= 17:
        return None
    stated, _, part = fields[17].split("~")[0].strip().partition("/")
    return _CHARSET_NAMES.get(stated.upper(), stated) + part or None


def _control_picture(found: re.Match[str]) -> str:
    code = ord(found[0])
    return "␡" if code == 0x7F else chr(0x2400 + code)


def _hex_lines(raw: bytes) -> Iterator[str]:
    for start in range(0, len(raw), _HEX_BYTES_A_LINE):
        part = raw[start : start + _HEX_BYTES_A_LINE]
        shown = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in part)
        yield f"{start:08x}  {part.hex(' '):<{3 * _HEX_BYTES_A_LINE - 1}}  {shown}"
