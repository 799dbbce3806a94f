"""Whether a document is what its media type says, by its first bytes. Pure.

A clinic that gets an HTML error page as a PDF has no result at all: it is held here, where somebody can correct it.
"""

from __future__ import annotations

from lab_agent.domain.report_documents import MEDIA_TYPE_HINT, OCTET_STREAM, is_media_type
from lab_agent.domain.text import shorten
from lab_agent.exact_json import strip_byte_order_mark
from lab_agent.ports.documents import DocumentDefect

_HTML_STARTS = (b"<!doctype html", b"<html", b"<head", b"<body")
_SKIPPED_MARKUP = ((b"<?", b"?>"), (b"<!--", b"-->"))
"""What may stand before the HTML: the prolog of XHTML, and comments."""
_MAGIC_NUMBERS: tuple[tuple[bytes, str], ...] = (
    (b"%PDF-", "application/pdf"),
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
_ALIASES = {"text/rtf": "application/rtf", "image/jpg": "image/jpeg", "application/xhtml+xml": "text/html"}
_ZIP_BASED_TYPES = ("application/vnd.", "application/epub", "application/x-zip")
_RECOGNISED = frozenset(kind for _, kind in _MAGIC_NUMBERS) | {"text/html"}
_PDF_SEARCH_BYTES = 1024
_HTML_SEARCH_BYTES = 16 * 1024


def detect_media_type(content: bytes) -> str | None:
    """The media type by the first bytes; None if it is not one of those known here."""
    start = content[:_PDF_SEARCH_BYTES]
    for sign, kind in _MAGIC_NUMBERS:
        if start.startswith(sign):
            return kind
    if b"%PDF-" in start:
        return "application/pdf"
    return "text/html" if _skip_markup(content[:_HTML_SEARCH_BYTES]).lower().startswith(_HTML_STARTS) else None


def _skip_markup(text: bytes) -> bytes:
    """What follows byte order mark, white space, prologs and comments; nothing if one of them does not end."""
    text = strip_byte_order_mark(text).lstrip()
    while end := next((end for start, end in _SKIPPED_MARKUP if text.startswith(start)), None):
        text = text.partition(end)[2].lstrip()
    return text


def find_content_defect(content: bytes, content_type: str, limit: int) -> DocumentDefect | None:
    """Why a document cannot be sent; None if it can. `limit` is in bytes."""
    if not content:
        return DocumentDefect("is empty", hint="send it with its content, or leave it out")
    if len(content) > limit:
        text = f"has {len(content)} bytes, more than results.max_document = {limit}"
        return DocumentDefect(text, hint="send a smaller one, or raise the setting if the service takes it")
    declared = content_type.partition(";")[0].strip().lower()
    declared = _ALIASES.get(declared, declared)
    actual = detect_media_type(content)
    if not is_media_type(content_type):
        text = f"says that it is '{shorten(content_type)}', which is not a media type"
        return DocumentDefect(text, actual or OCTET_STREAM, MEDIA_TYPE_HINT)
    if actual == "application/zip" and declared.startswith(_ZIP_BASED_TYPES):
        return None
    odd = declared.startswith("text/") and b"\0" in content
    if actual != declared and (odd or declared in _RECOGNISED or actual in {"text/html", "application/pdf"}):
        text = f"says that it is {shorten(declared)}, and is {actual or 'nothing of that kind'}"
        return DocumentDefect(
            text, actual or OCTET_STREAM, f"send the document itself, or release it to go as {actual or OCTET_STREAM}"
        )
    return None
