"""Documents in results: OBX of type ED (the bytes, in the field's several spellings) and RP (a link).

A document in Base64 in an OBX for a text (ST, TX, FT) is read as if it were ED, over as many OBX as it is broken into.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections import deque
from collections.abc import Iterator

from lab_agent.lis.document_formats import decode_document, detect_media_type, is_document_in_base64, is_whole
from lab_agent.lis.hl7v2.code_pages import encode_text
from lab_agent.lis.hl7v2.parser import FieldValue, Segment
from lab_agent.lis.hl7v2.results.obx_values import TEXT_TYPES, InvalidValueError
from lab_agent.lis.hl7v2.results.segment_groups import ObrGroup, ObxEntry, rewrite_field
from lab_agent.lis.lab_messages import Document
from lab_agent.lis.report_documents import is_openable_url

DOCUMENT_TYPES = frozenset({"ED", "RP"})
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
_BELIEVED_TYPES = frozenset({"application/pdf", "image/png", "image/jpeg", "application/rtf"})
"""Types of which the bytes are believed more than what the LIS writes; an HTML page, say, may be an error instead of a report."""
_URL_SCHEMES = ("http://", "https://")
_WHITESPACE = re.compile(r"\s+")
_BASE64_LINE = re.compile(r"[A-Za-z0-9+/_-]+={0,2}\Z")
_SHORTEST_LINE = 40
"""Characters of a line that is not the last one of a document: a shorter one may as well be a word."""


def read_documents(obx: Segment, encoding: str) -> list[Document]:
    """Read the documents of an OBX of type ED or RP. Raises `InvalidValueError`."""
    read = _read_embedded if obx.text(2).upper() == "ED" else _read_link
    title = obx.text(3, 2) or None
    found = [read(value, title, encoding) for value in obx.repetitions(5)]
    if not found:
        raise InvalidValueError("has no document")
    return found


def name_documents(group: ObrGroup) -> None:
    """Make an OBX of type ED of each text that is a document in Base64, together with the OBX in which it goes on.

    What cannot be decoded, or is broken into lines that make no whole document, stays a text, which the inbox refuses.
    """
    rest, kept = deque(group.obx_entries), list[ObxEntry]()
    while rest:
        first = rest.popleft()
        text = _encoded_text(first.obx)
        if is_document_in_base64(text):
            lines = list(_further_lines(first.obx, text, rest))
            content = decode_document("".join((text, *(_encoded_text(line.obx) for line in lines))))
            if content is not None and (not lines or is_whole(content, detect_media_type(content) or "")):
                mark = first.obx.separators.component
                data = f"{mark * 3}Base64{mark}{base64.b64encode(content).decode()}"
                first.obx = rewrite_field(rewrite_field(first.obx, 2, "ED"), 5, data)
                first.notes += [note for line in lines for note in line.notes]
                for _ in lines:
                    rest.popleft()
        kept.append(first)
    group.obx_entries = kept


def _encoded_text(obx: Segment) -> str:
    """The text of an OBX for a text; where it has the components of ED, its data. Empty for any other."""
    values = obx.repetitions(5)
    if obx.text(2).upper() not in TEXT_TYPES or not values:
        return ""
    words = [component.text.strip() for component in values[0].components]
    place = _find_encoding(words)
    return "".join((values[0].text if place is None else words[place + 1], *(value.text for value in values[1:])))


def _further_lines(first: Segment, text: str, rest: deque[ObxEntry]) -> Iterator[ObxEntry]:
    """The OBX of the same test and status that go on with a document. A short one ends it, if it is not whole before."""
    texts = [text]
    last = _WHITESPACE.sub("", text)
    for entry in rest:
        line = _WHITESPACE.sub("", _encoded_text(entry.obx))
        is_same = all(entry.obx.raw(field) == first.raw(field) for field in (3, 11))
        if not is_same or len(last) < _SHORTEST_LINE or last.endswith("=") or not _BASE64_LINE.match(line):
            return
        if is_document_in_base64(line) or (len(line) < _SHORTEST_LINE and _is_whole_text("".join(texts))):
            return
        yield entry
        texts.append(line)
        last = line


def _is_whole_text(text: str) -> bool:
    content = decode_document(text)
    return content is not None and is_whole(content, detect_media_type(content) or "")


def _find_encoding(words: list[str]) -> int | None:
    """The place of the word for the encoding before the data."""
    return next((place for place, word in enumerate(words[:-1]) if word.lower() in _DATA_ENCODINGS and words[place + 1]), None)


def _read_embedded(value: FieldValue, title: str | None, encoding: str) -> Document:
    parts = [component.text.strip() for component in value.components]
    words, place = [part.lower() for part in parts], _find_encoding(parts)
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
                return encode_text(data, encoding)
    except (binascii.Error, ValueError) as exc:
        raise InvalidValueError("has data that does not match its encoding") from exc


def _detect_content_type(kind: str, subtype: str, content: bytes) -> str:
    """The media type, by the bytes where they are believed, or nothing is said; else as the LIS wrote it."""
    found = detect_media_type(content)
    if found is not None and (found in _BELIEVED_TYPES or not subtype):
        return found
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
