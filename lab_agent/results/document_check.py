"""Whether a document can be sent: it is what its media type says, and whole.

A clinic that gets an HTML error page as a PDF, or half of a PDF, has no result at all: it is held here, where somebody can
correct it.
"""

from __future__ import annotations

import logging
import time
from io import BytesIO
from typing import Any

from typing_extensions import override

from lab_agent.lis.document_formats import RECOGNISED_TYPES, detect_media_type, find_pdf_start, is_whole, plain_media_type
from lab_agent.lis.report_documents import MEDIA_TYPE_HINT, OCTET_STREAM, is_media_type
from lab_agent.results.documents import DocumentDefect
from lab_agent.shared.text import shorten

_ZIP_BASED_TYPES = ("application/vnd.", "application/epub", "application/x-zip")
_CUT_OFF = "is cut off or damaged"
_UNREADABLE = "cannot be opened"
_LOCKED = "opens only with a password"
_DAMAGE_HINT = "have it sent again, whole and open; or look at it, and release it to go as it is"
_MAX_SECONDS = 2.0
"""CPU time in which a PDF must be open: a book of 20,000 pages takes half of it."""
_MAX_XREF_ENTRIES = 200_000
_MAX_TREE_DEPTH = 50


def find_content_defect(content: bytes, content_type: str, limit: int) -> DocumentDefect | None:
    """Why a document cannot be sent; None if it can. `limit` is in bytes."""
    if not content:
        return DocumentDefect("is empty", hint="send it with its content, or leave it out")
    if len(content) > limit:
        text = f"has {len(content)} bytes, more than results.max_document = {limit}"
        return DocumentDefect(text, hint="send a smaller one, or raise the setting if the service takes it")
    actual = detect_media_type(content)
    if not is_media_type(content_type):
        text = f"says that it is '{shorten(content_type)}', which is not a media type"
        return DocumentDefect(text, actual or OCTET_STREAM, MEDIA_TYPE_HINT)
    declared = plain_media_type(content_type)
    damage = _find_damage(content, actual or declared)
    if _is_other_type(content, declared, actual):
        text = (
            f"says that it is {shorten(declared)}, and is {actual or 'nothing of that kind'}{f', and {damage}' if damage else ''}"
        )
        return DocumentDefect(
            text, actual or OCTET_STREAM, f"send the document itself, or release it to go as {actual or OCTET_STREAM}"
        )
    return DocumentDefect(damage, content_type, _DAMAGE_HINT) if damage else None


def _is_other_type(content: bytes, declared: str, actual: str | None) -> bool:
    if actual == declared or (actual == "application/zip" and declared.startswith(_ZIP_BASED_TYPES)):
        return False
    odd = declared.startswith("text/") and b"\0" in content
    return odd or declared in RECOGNISED_TYPES or actual in {"text/html", "application/pdf"}


def _find_damage(content: bytes, media_type: str) -> str:
    """Why a document of this type cannot be read to its end; empty where it can, or nobody can tell."""
    if not is_whole(content, media_type):
        return _CUT_OFF
    return _open_pdf(content) if media_type == "application/pdf" else ""


class _BoundedBytes(BytesIO):
    """Bytes for a reader that reads them in small pieces: it gets no more after `_MAX_SECONDS` of its work."""

    def __init__(self, content: bytes) -> None:
        super().__init__(content)
        self._end = time.thread_time() + _MAX_SECONDS

    @override
    def read(self, size: int | None = -1, /) -> bytes:
        if time.thread_time() > self._end:
            raise TimeoutError
        return super().read(size)


def _open_pdf(content: bytes) -> str:
    """Open a PDF up to its first page; why that fails, empty if it does not.

    A password that everybody has, the empty one, counts as none: such a file may only be not to be changed.
    """
    from pypdf import PasswordType, PdfReader  # noqa: PLC0415 - takes a while to import, and few commands see a document

    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # its warnings quote the content
    try:
        stream = _BoundedBytes(content[find_pdf_start(content) :])
        reader = PdfReader(stream, xref_stream_maximum_entries=_MAX_XREF_ENTRIES)
        if reader.is_encrypted and reader.decrypt("") is PasswordType.NOT_DECRYPTED:
            return _LOCKED
        root: Any = reader.trailer["/Root"]
        return "" if _has_pages(root["/Pages"]) else _UNREADABLE
    except Exception:  # noqa: BLE001 - whatever a damaged or hostile file makes the reader raise
        return _UNREADABLE


def _has_pages(node: Any) -> bool:
    """Whether the first page of the tree can be reached, or the tree says that there is none."""
    for _ in range(_MAX_TREE_DEPTH):
        if "/Kids" not in node:
            return True
        if not node["/Kids"]:
            return bool(node["/Count"] == 0)
        node = node["/Kids"][0].get_object()
    return False
