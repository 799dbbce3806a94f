"""Messages as people capture them: single or many in a file, in MLLP frames or bare, from a folder or a log.

A file that holds HL7 is cut at its frames, or at its MSH segments; any other file is one message. Where it holds nothing but
messages, their bytes stay as they are, line ends included: the adapter reads them by the code that reads what it receives.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from lab_agent.lis.hl7v2.parser import split_batch
from lab_agent.lis.hl7v2.results.continued_messages import are_parts
from lab_agent.shared.errors import InputError

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_MSH = re.compile(rb"MSH([^\w\s])[^\w\s]{4,5}\1")
_FRAME = re.compile(rb"\x0b([^\x0b\x1c]*)")
_BATCH_SEGMENT = re.compile(rb"(?:FHS|BHS|BTS|FTS)[^\w\s]")
_LOG_PREFIX = re.compile(rb"[^|]{0,200}?(?<![A-Za-z0-9])(?=[A-Z][A-Z0-9]{2}\|)")
_MARKS_IN_WORDS = (
    (re.compile(rb"<(?:CR|0x0D|0D|\\r)>|\[(?:CR|0x0D)\]|\\r(?:\\n)?(?=[A-Z][A-Z0-9]{2}\||\s|$)", re.IGNORECASE), b"\r"),
    (re.compile(rb"<(?:VT|SB|0x0B|0B)>|\[(?:VT|SB|0x0B)\]|\\x0b", re.IGNORECASE), b"\x0b"),
    (re.compile(rb"<(?:FS|EB|0x1C|1C)>|\[(?:FS|EB|0x1C)\]|\\x1c", re.IGNORECASE), b"\x1c"),
)
"""How logs write CR, VT and FS in words."""


@dataclass(frozen=True, slots=True)
class CapturedMessage:
    """One message; `name` is its file, with its number where the file holds several."""

    name: str
    data: bytes


def read_captured(paths: Iterable[Path], read_standard_input: Callable[[], bytes]) -> Iterator[CapturedMessage]:
    """The messages of files, of all files of folders, and of standard input (`-`). Raises `InputError`, `OSError`."""
    for path in paths:
        if str(path) == "-":
            yield from _named("standard input", read_standard_input())
        elif path.is_dir():
            for file in sorted(each for each in path.iterdir() if each.is_file() and not each.name.startswith(".")):
                yield from _named(file.name, file.read_bytes())
        elif path.is_file():
            yield from _named(path.name, path.read_bytes())
        else:
            raise InputError(f"{path}: there is no such file or folder")


def _named(name: str, data: bytes) -> Iterator[CapturedMessage]:
    messages = split_messages(data)
    for number, message in enumerate(messages, 1):
        yield CapturedMessage(name if len(messages) == 1 else f"{name}#{number}", message)


def split_messages(data: bytes) -> list[bytes]:
    """The messages in the bytes of a file; an empty file holds none."""
    if not _MSH.search(data):
        return [data] if data.strip() else []
    data = data.removeprefix(_BYTE_ORDER_MARK)
    if data.lstrip(b"\r\n \t").startswith(b"\x0b"):
        return _join_continued(found[1] for found in _FRAME.finditer(data) if found[1].strip())
    if _is_plain(data):
        return _join_continued(_cut(data))
    for pattern, mark in _MARKS_IN_WORDS:
        data = pattern.sub(mark, data)
    return _join_continued(b"".join(line + b"\r" for line in _segment_lines(piece)) for piece in _cut(data))


def _join_continued(messages: Iterable[bytes]) -> list[bytes]:
    """Leave the parts of a continued message together: DSC-1 names the MSH-14 of the next one (HL7 2.10.2)."""
    joined: list[bytes] = []
    before = b""
    for message in messages:
        if are_parts((before, message)):
            joined[-1] += message
        else:
            joined.append(message)
        before = message
    return joined


def _is_plain(data: bytes) -> bool:
    """Whether nothing but messages stands in the bytes, so that whatever does not look like a segment is the sender's."""
    start = data.lstrip(b"\x0b\x1c\r\n \t")
    return bool(_MSH.match(start) or _BATCH_SEGMENT.match(start)) and not any(
        pattern.search(data) for pattern, _ in _MARKS_IN_WORDS[1:]
    )


def _cut(data: bytes) -> list[bytes]:
    """Cut before each MSH and after each end of a frame; what is outside of messages is left out."""
    starts = [found.start() for found in _MSH.finditer(data) if _begins_line(data, found.start())]
    ends = [*starts[1:], len(data)]
    pieces = (data[start:end].partition(b"\x1c")[0].replace(b"\x0b", b"") for start, end in zip(starts, ends, strict=True))
    return [split_batch(piece)[0] for piece in pieces]


def _begins_line(data: bytes, place: int) -> bool:
    """Whether a segment can begin here: at the start of a line or a frame, or behind the words of a log."""
    before = data[:place]
    line = re.split(rb"[\r\n\x0b]", before[-400:])[-1]
    return b"|" not in line


def _lines(piece: bytes) -> list[bytes]:
    return [line for line in re.split(rb"\r\n|\r|\n", piece) if line.strip()]


def _segment_lines(piece: bytes) -> Iterator[bytes]:
    """The segments in the lines of a log, without the words before them; lines without a segment are the log's own."""
    for line in _lines(piece):
        found = _LOG_PREFIX.match(line)
        if found:
            yield line[found.end() :].rstrip(b" \t\x1c")
