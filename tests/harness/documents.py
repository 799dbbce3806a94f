"""Small documents that are whole: a PDF with one empty page, and pictures; and a report, as a laboratory system writes it."""

from __future__ import annotations

import struct
import zlib
from datetime import datetime
from typing import Any


def make_pdf(mark: str = "", *, newline: bytes = b"\n") -> bytes:
    """A PDF that opens; `mark` makes it another one, and is found in its bytes."""
    bodies = (
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]>>",
    )
    page, places = b"%PDF-1.4\n%" + mark.encode() + b"\n", []
    for number, body in enumerate(bodies, 1):
        places.append(len(page))
        page += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    head = b"xref\n0 4\n0000000000 65535 f \n"
    return page + head + table + b"trailer\n<</Size 4/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF" % len(page) + newline


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">L", len(data)) + name + data + struct.pack(">L", zlib.crc32(name + data))


PDF = make_pdf()
PNG = (
    b"\x89PNG\r\n\x1a\n"
    + _chunk(b"IHDR", struct.pack(">LLBBBBB", 1, 1, 8, 0, 0, 0, 0))
    + _chunk(b"IDAT", zlib.compress(b"\0\0"))
    + _chunk(b"IEND", b"")
)


def final_report(name: str, order: str, line: str, now: datetime, **more: Any) -> dict[str, Any]:
    """A final report of one value, in the published form."""
    value = {"code": {"system": "http://loinc.org", "code": "718-7"}, "value_quantity": {"value": "1.20", "unit": "g/L"}}
    head = {"kind": "report", "report_id": name, "version": 1, "status": "final", "order": order, "lines": [line]}
    times = dict.fromkeys(("effective", "issued"), now.isoformat())
    return {**head, **times, "observations": [{"id": "x", "status": "final", **value}], **more}
