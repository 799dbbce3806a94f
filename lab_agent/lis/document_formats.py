"""Formats of documents: which one the bytes show, whether they are whole by its structure, and documents in Base64. Pure.

A document that was cut off on its way shows its format by its first bytes all the same; only its end, or an address within it,
tells. What real producers leave behind the end (line ends, blanks, NUL, SUB) counts as nothing. The work is bounded by the size.
"""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Callable, Mapping
from itertools import chain
from xml.parsers import expat

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_HTML_STARTS = (b"<!doctype html", b"<html", b"<head", b"<body")
_SKIPPED_MARKUP = ((b"<?", b"?>"), (b"<!--", b"-->"))
"""What may stand before the HTML: the prolog of XHTML, and comments."""
_SIGNATURES: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"II*\x00", "image/tiff"),
    (b"MM\x00*", "image/tiff"),
    (b"II+\x00", "image/tiff"),
    (b"MM\x00+", "image/tiff"),
    (b"{\\rtf", "application/rtf"),
    (b"PK\x03\x04", "application/zip"),
)
_ALIASES = {
    "text/rtf": "application/rtf",
    "image/jpg": "image/jpeg",
    "application/xhtml+xml": "text/html",
    "text/xml": "application/xml",
}
RECOGNISED_TYPES = frozenset(kind for _, kind in _SIGNATURES) | {"application/pdf", "text/html"}
"""The types that `detect_media_type` knows by more than their declaration."""
_PDF_SEARCH_BYTES = 1024
_HTML_SEARCH_BYTES = 16 * 1024
_PADDING = b"\0\x1a \t\r\n"


def detect_media_type(content: bytes) -> str | None:
    """The media type by the first bytes; None if it is not one of those known here."""
    for sign, kind in _SIGNATURES:
        if content.startswith(sign):
            return kind
    if b"%PDF-" in content[:_PDF_SEARCH_BYTES]:
        return "application/pdf"
    text = content[:_HTML_SEARCH_BYTES].removeprefix(_BYTE_ORDER_MARK).lstrip()
    if _skip_markup(text).lower().startswith(_HTML_STARTS):
        return "text/html"
    return "application/xml" if text.startswith(b"<?xml") else None


def _skip_markup(text: bytes) -> bytes:
    """What follows prologs and comments; nothing if one of them does not end."""
    while end := next((end for start, end in _SKIPPED_MARKUP if text.startswith(start)), None):
        text = text.partition(end)[2].lstrip()
    return text


def plain_media_type(content_type: str) -> str:
    """A media type as it is compared: without parameters, in lower case, under the usual one of its names."""
    declared = content_type.partition(";")[0].strip().lower()
    return _ALIASES.get(declared, declared)


def is_whole(content: bytes, media_type: str) -> bool:
    """Whether a document has all that its format says, its end above all; True for a format that has no such structure.

    `media_type` is one of `detect_media_type`, or a type that is XML by its name.
    """
    check = _CHECKS.get("application/xml" if media_type.endswith("+xml") else media_type)
    if check is None:
        return True
    try:
        return check(content)
    except (struct.error, IndexError, OverflowError):
        return False  # an address leads behind the end


_START_XREF = re.compile(rb"startxref\s*(\d{1,12})\s*(?:%[^\r\n]*[\r\n]\s*)*\Z")
_XREF = re.compile(rb"\s{0,16}(?:xref\b|\d{1,10}\s+\d{1,5}\s+obj\b)")
_PDF_UPDATE = re.compile(rb"\s+[1-9]|.*\d\s+\d+\s+obj\b", re.DOTALL)


def find_pdf_start(content: bytes) -> int | None:
    """Where a PDF begins that is whole: the place that its addresses count from. None where its end is missing.

    It ends in `startxref`, the address of a cross-reference table or stream, and `%%EOF` (ISO 32000-1, 7.5.5); Acrobat reads the
    mark within the last 1024 bytes. An object behind it is the beginning of an update whose end is missing.
    """
    before, _, behind = content.rstrip(_PADDING)[-2 * _PDF_SEARCH_BYTES :].rpartition(b"%%EOF")
    found = _START_XREF.search(before)
    if found is None or len(behind) >= _PDF_SEARCH_BYTES or _PDF_UPDATE.match(behind):
        return None
    starts = (content[:_PDF_SEARCH_BYTES].find(b"%PDF-"), 0)
    return next((start for start in starts if _XREF.match(content, start + int(found[1]))), None)


def _is_whole_pdf(content: bytes) -> bool:
    return find_pdf_start(content) is not None


def _is_whole_png(content: bytes) -> bool:
    """Follow the chunks to IEND (PNG, 5.3)."""
    place = 8
    while True:
        length, name = struct.unpack_from(">L4s", content, place)
        place += 12 + length
        if not name.isalpha() or place > len(content):
            return False
        if name == b"IEND":
            return True


_JPEG_MARK = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")
"""A marker within the compressed data: neither a stuffed byte nor one of those that restart it."""
_JPEG_END = 0xD9


def _is_whole_jpeg(content: bytes) -> bool:
    """Follow the segments and scans to EOI (T.81, B.1): a preview within the picture has an end of its own."""
    place = 2
    while found := _JPEG_MARK.search(content, place):
        code = content[found.start() + 1]
        if code == _JPEG_END:
            return True
        place = found.end() if code == 0x01 else found.end() + struct.unpack_from(">H", content, found.end())[0]
    return False


_GIF_EXTENSION, _GIF_IMAGE, _GIF_END = 0x21, 0x2C, 0x3B


def _is_whole_gif(content: bytes) -> bool:
    """Follow the blocks to the trailer (GIF89a, 27)."""
    place = 13 + _gif_table_length(content[10])
    while (code := content[place]) != _GIF_END:
        if code == _GIF_IMAGE:
            place += 11 + _gif_table_length(content[place + 9])
        elif code == _GIF_EXTENSION:
            place += 2
        else:
            return False
        while length := content[place]:
            place += 1 + length
        place += 1
    return True


def _gif_table_length(flags: int) -> int:
    """The bytes of a table of colours; none where the flags say that there is none."""
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


_TIFF_SIZES = {1: 1, 3: 2, 4: 4, 16: 8}
_TIFF_CODES = {1: "B", 3: "H", 4: "L", 16: "Q"}
_TIFF_DATA = ((273, 279), (324, 325))
"""The tags of the places and the lengths of strips, and of tiles."""
_TIFF_TAGS = frozenset(chain(*_TIFF_DATA))
_MAX_TIFF_VALUES = 100_000


def _is_whole_tiff(content: bytes) -> bool:
    """Follow the directories, and look whether the strips or tiles that they name end within the file (TIFF 6.0, 2)."""
    order, is_big = "<" if content.startswith(b"II") else ">", b"+" in content[2:4]
    address = f"{order}Q" if is_big else f"{order}L"
    (place,) = struct.unpack_from(address, content, 8 if is_big else 4)
    unread = len(content)
    while unread > 0:  # directories that lie within each other are read no longer than the file is
        tags, behind = _read_tiff_directory(content, place, order, is_big=is_big)
        unread -= behind - place + sum(8 * len(values) for values in tags.values())
        for starts, lengths in _TIFF_DATA:
            ends = map(sum, zip(tags.get(starts, ()), tags.get(lengths, ()), strict=False))
            if max(ends, default=0) > len(content):
                return False
        (place,) = struct.unpack_from(address, content, behind)
        if not place:
            return True
    return False


def _read_tiff_directory(content: bytes, place: int, order: str, *, is_big: bool) -> tuple[dict[int, tuple[int, ...]], int]:
    """The values of the tags about data, and where the address of the next directory is."""
    head, entry, room = ("Q", "HHQ", 8) if is_big else ("H", "HHL", 4)
    (count,) = struct.unpack_from(order + head, content, place)
    place += struct.calcsize(order + head)
    length = struct.calcsize(order + entry) + room
    tags: dict[int, tuple[int, ...]] = {}
    struct.unpack_from(f"{count * length}x", content, place)
    for start in range(place, place + count * length, length):
        tag, kind, number = struct.unpack_from(order + entry, content, start)
        if tag in _TIFF_TAGS and kind in _TIFF_CODES and number <= _MAX_TIFF_VALUES and tag not in tags:
            values = start + length - room
            if number * _TIFF_SIZES[kind] > room:
                (values,) = struct.unpack_from(order + ("Q" if is_big else "L"), content, values)
            tags[tag] = struct.unpack_from(f"{order}{number}{_TIFF_CODES[kind]}", content, values)
    return tags, place + count * length


def _is_whole_rtf(content: bytes) -> bool:
    """The outermost group is closed at the end (RTF 1.9.1); raw data (`\\bin`) may hold braces that say nothing."""
    text = content.rstrip(_PADDING)
    if b"\\bin" in text:
        return text.endswith(b"}")
    bare = text.replace(b"\\\\", b"").replace(b"\\{", b"").replace(b"\\}", b"")
    return bare.endswith(b"}") and bare.count(b"{") <= bare.count(b"}")


_ZIP_END = b"PK\5\6"
_ZIP64_LOCATOR = b"PK\6\7"


def _is_whole_zip(content: bytes) -> bool:
    """The end of the central directory stands behind the directory that it describes (APPNOTE 4.3.16)."""
    before, mark, behind = content.rpartition(_ZIP_END)
    size, start = struct.unpack_from("<8xLL2x", behind)
    return bool(mark) and (start + size == len(before) or before[-20:].startswith(_ZIP64_LOCATOR))


class _EntityDeclaredError(Exception):
    """The XML declares entities of its own, whose expansion nobody has to do."""


def _is_whole_xml(content: bytes) -> bool:
    """Whether it is well-formed; entities are not expanded. True where the encoding is one that only other readers know."""

    def refuse_entity(*_: object) -> None:
        raise _EntityDeclaredError

    parser = expat.ParserCreate()
    parser.EntityDeclHandler = refuse_entity
    try:
        parser.Parse(content.rstrip(b"\0\x1a"), True)
    except expat.ExpatError as exc:
        return exc.code == expat.errors.codes[expat.errors.XML_ERROR_UNKNOWN_ENCODING]
    except _EntityDeclaredError:
        return False
    except (ValueError, LookupError):  # an encoding that is unknown, or has several bytes for a letter
        pass
    return True


_HTML_OPENS, _HTML_ENDS = re.compile(rb"<html[\s>]", re.IGNORECASE), re.compile(rb"</html\s*>", re.IGNORECASE)


def _is_whole_html(content: bytes) -> bool:
    """Whether `<html>` is closed where it is opened: both may be left out, but hardly one of them."""
    return _HTML_OPENS.search(content[:_HTML_SEARCH_BYTES]) is None or _HTML_ENDS.search(content) is not None


_CHECKS: Mapping[str, Callable[[bytes], bool]] = {
    "application/pdf": _is_whole_pdf,
    "image/png": _is_whole_png,
    "image/jpeg": _is_whole_jpeg,
    "image/gif": _is_whole_gif,
    "image/tiff": _is_whole_tiff,
    "application/rtf": _is_whole_rtf,
    "application/zip": _is_whole_zip,
    "application/xml": _is_whole_xml,
    "text/html": _is_whole_html,
}

_DATA_URL = re.compile(r"\A\s*data:[^,]{0,200};base64,", re.IGNORECASE)
_BASE64_START = re.compile(r"\s*[A-Za-z0-9+/_-](?:\s*[A-Za-z0-9+/_-]){5}")
_NO_BASE64 = re.compile(r"[^A-Za-z0-9+/]")
_URL_SAFE = str.maketrans("-_", "+/")


def is_document_in_base64(text: str) -> bool:
    """Whether a text begins as a document in Base64, or as its data: URL: it is never a text, even if it is damaged."""
    begin = _DATA_URL.match(text)
    place = begin.end() if begin else 0
    if not _BASE64_START.match(text, place):
        return False
    packed = "".join(text[place : place + 2 * _HTML_SEARCH_BYTES].split()).translate(_URL_SAFE)
    return detect_media_type(_decode(_NO_BASE64.split(packed)[0])) is not None


def decode_document(text: str) -> bytes | None:
    """The document that a whole text is in Base64, or as a data: URL, with whatever white space; None if it is none.

    One that is cut off is given as far as it goes.
    """
    if not is_document_in_base64(text):
        return None
    packed = "".join(_DATA_URL.sub("", text).split()).translate(_URL_SAFE)
    try:
        return _decode(packed.rstrip("="))
    except ValueError:
        return None


def _decode(packed: str) -> bytes:
    """Decode Base64 without its padding, but for a last character that is no byte yet. Raises `ValueError` for damaged text."""
    packed = packed[: len(packed) - (len(packed) % 4 == 1)]
    return base64.b64decode(packed + "=" * (-len(packed) % 4), validate=True)
