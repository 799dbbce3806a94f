"""Documents in results: OBX of type ED (the bytes, in the field's several spellings) and RP (a link)."""

from __future__ import annotations

import base64
import binascii
import re

from lab_agent.domain.lab_messages import Document
from lab_agent.domain.report_documents import is_openable_url
from lab_agent.lis.hl7v2.parser import FieldValue, Segment
from lab_agent.lis.hl7v2.results.obx_values import InvalidValueError

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
