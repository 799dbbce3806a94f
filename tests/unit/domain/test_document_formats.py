"""Which format do the bytes show, are they whole, and is a text a document in Base64?"""

from __future__ import annotations

import io
import struct
import zipfile
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
from random import Random

import pytest
from PIL import Image

from lab_agent.lis.document_formats import (
    RECOGNISED_TYPES,
    decode_document,
    detect_media_type,
    find_pdf_start,
    is_document_in_base64,
    is_whole,
    plain_media_type,
)
from tests.harness.documents import PDF, PNG, make_pdf

XML = '<?xml version="1.0" encoding="{}"?><a>ж</a>'


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"junk before\n" + PDF, "application/pdf"),
        (b"\xef\xbb\xbf \n<!DOCTYPE HTML><p>", "text/html"),
        (b'<?xml version="1.0"?>\n<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 Strict//EN">', "text/html"),
        (b"<!-- saved from url -->\n<!-- > -->\n<HTML>", "text/html"),
        (b"<!-- " + b"licence " * 500 + b"--><html>", "text/html"),
        (b"<!-- that never ends <html>", None),
        (b"<head><title>x", "text/html"),
        (b"<Body>x", "text/html"),
        (b"%pdf-1.4", None),
        (b"x" * 1019 + b"%PDF-", "application/pdf"),
        (b"x" * 1020 + b"%PDF-", None),
        (b'<?xml version="1.0"?><ClinicalDocument xmlns="urn:hl7-org:v3">', "application/xml"),
        (b"MM\x00+\x00\x08\x00\x00", "image/tiff"),
        (b"plain words", None),
    ],
)
def test_content_type_detected_from_first_bytes(content: bytes, kind: str | None) -> None:
    assert detect_media_type(content) == kind


@pytest.mark.parametrize(
    ("declared", "plain"),
    [
        ("Application/PDF", "application/pdf"),
        (" text/HTML ; charset=utf-8; q=1", "text/html"),
        ("text/rtf", "application/rtf"),
        ("image/jpg", "image/jpeg"),
        ("application/xhtml+xml", "text/html"),
        ("text/xml", "application/xml"),
    ],
)
def test_declared_type_is_compared_under_one_name(declared: str, plain: str) -> None:
    assert plain_media_type(declared) == plain


def picture(kind: str, mode: str = "RGB", **more: object) -> bytes:
    page = io.BytesIO()
    drawn = Image.frombytes("L", (64, 48), Random(1).randbytes(64 * 48))
    (Image.new(mode, drawn.size, 7) if ";" in mode else drawn.convert(mode)).save(page, kind, **more)
    return page.getvalue()


def moving_picture() -> bytes:
    page = io.BytesIO()
    first, second = (Image.frombytes("P", (16, 16), Random(seed).randbytes(256)) for seed in (1, 2))
    for each, colour in ((first, 0), (second, 9)):
        each.putpalette(range(colour, colour + 192))
    first.save(page, "GIF", save_all=True, append_images=[second], comment=b"5.4", loop=0)
    return page.getvalue()


def archive() -> bytes:
    page = io.BytesIO()
    with zipfile.ZipFile(page, "w") as written:
        written.writestr("a", "b" * 300)
        inner = io.BytesIO()
        with zipfile.ZipFile(inner, "w") as stored:
            stored.writestr("c", "d")
        written.writestr("inner.zip", inner.getvalue())
    return page.getvalue()


UPDATE = b"7 0 obj\n<<>>\nendobj\n"
UPDATED = PDF + UPDATE + b"xref\n0 0\ntrailer\n<<>>\nstartxref\n%d\n%%%%EOF\n" % (len(PDF) + len(UPDATE))
DOCUMENTS: dict[str, Callable[[], bytes]] = {
    "pdf": lambda: PDF,
    "pdf updated": lambda: UPDATED,
    "png": lambda: picture("PNG"),
    "jpeg": lambda: picture("JPEG"),
    "jpeg with a preview": lambda: b"\xff\xd8\xff\xe1" + struct.pack(">H", 2 + len(small := picture("JPEG"))) + small + small[2:],
    "jpeg progressive": lambda: picture("JPEG", progressive=True),
    "gif": lambda: picture("GIF", "P"),
    "gif that moves": moving_picture,
    "tiff": lambda: picture("TIFF"),
    "tiff of the other byte order": lambda: picture("TIFF", "I;16B"),
    "tiff in strips": lambda: picture("TIFF", compression="tiff_lzw", strip_size=512),
    "tiff big in strips": lambda: picture("TIFF", compression="tiff_lzw", strip_size=512, big_tiff=True),
    "tiff of a fax": lambda: picture("TIFF", "1", compression="group4"),
    "tiff big": lambda: picture("TIFF", big_tiff=True),
    "rtf": lambda: rb"{\rtf1\ansi {\b 5,4} \} \\ end}",
    "zip": archive,
    "xml": lambda: XML.format("utf-8").encode(),
    "html": lambda: b"<!doctype html><html><body><p>5.4</p></body></html>",
}


@pytest.mark.parametrize("name", DOCUMENTS)
@pytest.mark.parametrize("behind", [b"", b"\n", b"\r\n\r\n", b"\0" * 512, b" \x1a"], ids=repr)
def test_whole_document_with_padding_is_whole(name: str, behind: bytes) -> None:
    content = DOCUMENTS[name]()
    if name != "zip" or not behind:
        assert is_whole(content + behind, detect_media_type(content) or "")


@pytest.mark.parametrize("name", DOCUMENTS)
def test_document_cut_off_anywhere_is_not_whole(name: str) -> None:
    content = DOCUMENTS[name]()
    kind = detect_media_type(content) or ""
    first = {"html": 22, "xml": 40}.get(name, 12)
    whole = [length for length in range(first, len(content.rstrip()) - 1) if is_whole(content[:length], kind)]
    before_update = [length for length in whole if name == "pdf updated" and length in range(len(PDF) - 1, len(PDF) + 1)]
    assert whole == before_update


def test_recognised_types_are_those_that_the_bytes_show() -> None:
    """All but XML, which is known by its own declaration alone."""
    assert {detect_media_type(content()) for content in DOCUMENTS.values()} == RECOGNISED_TYPES | {"application/xml"}


def tiff(*tags: tuple[int, int, int, int], behind: bytes = b"", order: str = "<", big: bool = False) -> bytes:
    """One directory of tags (each with type, number, and value or address), and what is `behind` two of them, at 38 or 72."""
    head, entry = (f"{order}HHHQ", f"{order}HHQQ") if big else (f"{order}HL", f"{order}HHLL")
    start = struct.pack(head, 43, 8, 0, 16) if big else struct.pack(head, 42, 8)
    counted = struct.pack(f"{order}Q" if big else f"{order}H", len(tags)) + b"".join(struct.pack(entry, *each) for each in tags)
    return (b"II" if order == "<" else b"MM") + start + counted + bytes(8 if big else 4) + behind


TWO_DIRECTORIES = b"II*\0\x08\0\0\0" + struct.pack("<HHHLLL4x", 1, 273, 1, 2, 0, 24)
"""The second one, without tags, begins within the address of it; both together are as long as the file, with the values."""


@pytest.mark.parametrize(
    ("content", "kind", "whole"),
    [
        (PDF[:60] + PDF[90:], "application/pdf", False),
        (make_pdf(newline=b"\r\n%%EOF\r\n"), "application/pdf", True),
        (b"\r\n" + PDF, "application/pdf", True),
        (PDF.replace(b"startxref\n", b"startxref\n9"), "application/pdf", False),
        (PDF.replace(b"startxref\n", b"startxref\n" + b"9" * 5000), "application/pdf", False),
        (PDF + b"x" * 2000, "application/pdf", False),
        (PDF + b"0\r\n\r\n", "application/pdf", True),
        (PDF.rstrip() + b"x" * 1023, "application/pdf", True),
        (PDF.rstrip() + b"x" * 1024, "application/pdf", False),
        (PDF.replace(b"%%EOF", b"% made by a scanner\n%%EOF"), "application/pdf", True),
        (b"%PDF-1.4\nxref startxref\n9\n%%EOF", "application/pdf", True),
        (b"%PDF-1.4\nxref 9\n%%EOF", "application/pdf", False),
        (b"%PDF-1.4\n7 0 obj\nstartxref\n9\n%%EOF", "application/pdf", True),
        (PDF + b"\0" * 2000, "application/pdf", True),
        (b"%PDF-1.4\nxref\nstartxref\n9\n%" + b"x" * 2048 + b"\n%%EOF", "application/pdf", False),
        (PDF + b"% sent twice\n7 0 obj\n", "application/pdf", False),
        (b"\x89PNG\r\n\x1a\n\xff\xff\xff\xffIEND\0\0\0\0", "image/png", False),
        (b"\xff\xd8\xff\x01\xff\xd9", "image/jpeg", True),
        (b"\xff\xd8\xff\xe0\x90\0" + b"\xff\xd9" * 18431 + b"\xff\xd9", "image/jpeg", True),
        (b"\xff\xd8\xff\xe0\x90\0" + b"\xff\xd9" * 18430, "image/jpeg", False),
        (b"GIF89a\1\0\1\0\0\0\0\x77", "image/gif", False),
        (b"GIF89a\1\0\1\0\1\0\0;", "image/gif", True),
        (XML.format("windows-1251").encode("cp1251"), "application/xml", True),
        (XML.format("gb18030").encode("gb18030"), "application/xml", True),
        (XML.format("x-none").encode(), "application/xml", True),
        (b"<a><b></a>", "application/xml", False),
        (b"<a/>X", "application/xml", False),
        (b"<a><b></a>", "application/hl7-cda+xml", False),
        (b"<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>", "application/xml", False),
        (b"<body>no html to close", "text/html", True),
        (b"<HTML>cut", "text/html", False),
        (b"<html></HTML>", "text/html", True),
        (rb"{\rtf1 {\pict\bin2 {{}}", "application/rtf", True),
        (rb"{\rtf1 {\pict\bin2 }}} cut", "application/rtf", False),
        (rb"{\rtf1 \\{5.4}", "application/rtf", False),
        (rb"{\rtf1 \{5.4}", "application/rtf", True),
        (rb"{\rtf1 {5.4\}}", "application/rtf", False),
        *((rb"{\rtf1 5.4}" + escape, "application/rtf", True) for escape in (rb"\\", rb"\{", rb"\}")),
        (rb"{\rtf1 5.4}X", "application/rtf", False),
        (b"PK\x03\x04" + b"PK\6\7" + b"\0" * 16 + b"PK\5\6" + b"\xff" * 18, "application/zip", True),
        (b"PK\x03\x04" + b"PK\6\7" + b"\0" * 17 + b"PK\5\6" + b"\xff" * 18, "application/zip", False),
        (b"PK\x03\x04" + b"PK\5\6" + struct.pack("<8xLL2x", 2**32 - 1, 5), "application/zip", False),
        (b"half a sen", "text/plain", True),
        (b"\x01\x02", "application/octet-stream", True),
    ],
)
def test_wholeness_is_told_by_structure(content: bytes, kind: str, whole: bool) -> None:
    assert is_whole(content, kind) is whole


@pytest.mark.parametrize(
    ("content", "whole"),
    [
        (tiff((273, 4, 1, 8), (279, 4, 1, 2**32 - 1)), False),
        (tiff((273, 1, 1, 200), (279, 1, 1, 1)), False),
        (tiff((273, 1, 3, 0x10101), (279, 1, 1, 1)), True),
        (tiff((273, 3, 1, 2**15), (279, 3, 1, 1)), False),
        (tiff((273, 3, 2, 0x10001), (279, 3, 1, 1)), True),
        (tiff((273, 16, 1, 2**63), (279, 16, 1, 1), big=True), False),
        (tiff((273, 16, 1, 1), (279, 16, 1, 1), big=True), True),
        (tiff((324, 4, 1, 9999), (325, 4, 1, 1)), False),
        (tiff((273, 4, 2, 38), (279, 4, 1, 1), behind=struct.pack("<LL", 9999, 1)), False),
        (tiff((273, 16, 2, 72), (279, 16, 1, 1), behind=struct.pack(">QQ", 1, 1), order=">", big=True), True),
        (tiff((273, 16, 2, 2**64 - 16), (279, 16, 1, 1), behind=struct.pack("<QQ", 1, 1), big=True), False),  # no place in a file
        (tiff((273, 4, 2, 2**32 - 8), (279, 4, 1, 1), behind=struct.pack("<LL", 1, 1)), False),
        (tiff((273, 4, 2**32 - 1, 0)), True),
        (tiff((273, 16, 2**64 - 1, 0), big=True), True),
        (b"II*\0\x2b\0\0\0" + b"\0" * 41, True),
        (TWO_DIRECTORIES, False),
        (TWO_DIRECTORIES + b"\0", True),
        pytest.param(b"II*\0\x08\0\0\0\0\x80" + b"\0" * (2**15 * 12 + 4), True, id="2^15 tags"),
        pytest.param(tiff((273, 4, 1, 10**6), (279, 1, 100_000, 38), behind=b"\0" * 100_001), False, id="100,000 values"),
        pytest.param(tiff((273, 4, 1, 10**6), (279, 1, 100_001, 38), behind=b"\0" * 100_001), True, id="too many values"),
    ],
)
def test_directories_of_a_picture_are_followed(content: bytes, whole: bool) -> None:
    assert is_whole(content, "image/tiff") is whole


@pytest.mark.parametrize(
    "content",
    [
        b"\x89PNG\r\n\x1a\n" + b"\0\0\0\0IDAT\0\0\0\0" * 100_000,
        b"\xff\xd8\xff\xe0\0\2" + b"\xff\xe0\0\2" * 100_000,
        b"II*\0\x08\0\0\0\xff\xff" + struct.pack("<HHLL", 273, 4, 100_000, 10) * 65_535 + struct.pack("<L", 8) + b"\0" * 400_000,
        b"II+\0\x08\0\0\0\x10\0\0\0\0\0\0\0" + b"\xff" * 8 + b"\0" * 1000,
        b"<?xml version='1.0'?>" + b"<a>" * 300_000,
    ],
    ids=["png", "jpeg", "tiff", "bigtiff", "xml"],
)
def test_hostile_document_is_read_no_longer_than_it_is(content: bytes) -> None:
    assert not is_whole(content, detect_media_type(content) or "")


ENCODED = b64encode(PDF).decode()


LINES = "\r\n".join(ENCODED[start : start + 76] for start in range(0, len(ENCODED), 76))
SPELLINGS = (
    ENCODED,
    ENCODED.rstrip("="),
    f"{ENCODED}====",
    urlsafe_b64encode(PDF).decode(),
    f" data:application/pdf;base64,{ENCODED}",
    f"DATA:application/pdf;BASE64,{ENCODED}",
    LINES,
    " ".join(ENCODED),
)
OTHERS = (PNG, b"%PDF-W", rb"{\rtf1 x}", b"<html>x</html>", b"<?xml version='1.0'?><a/>", b"PK\x03\x04" + b"x" * 20)


@pytest.mark.parametrize(
    ("text", "content"),
    [
        *((text, PDF) for text in SPELLINGS),
        *((b64encode(content).decode(), content) for content in OTHERS),
        *((ENCODED[:length], PDF[: length * 3 // 4]) for length in range(200, 204)),
    ],
)
def test_document_in_base64_is_decoded(text: str, content: bytes) -> None:
    """One that is cut off gives the document so far."""
    assert decode_document(text) == content


@pytest.mark.parametrize(
    "text",
    [
        "",
        "13.4",
        "Negative",
        "JVBER",
        "Escherichia coli",
        "data:,x",
        "SGVsbG8sIHdvcmxkIQ==",
        "A" * 9000,
        pytest.param(" " * 32 * 1024 + ENCODED, id="behind 32 KiB of blanks"),
    ],
)
def test_other_text_is_no_document(text: str) -> None:
    assert not is_document_in_base64(text)
    assert decode_document(text) is None


@pytest.mark.parametrize("damage", ["!", "!!!!"])
def test_damaged_document_is_one_that_cannot_be_decoded(damage: str) -> None:
    damaged = f"{ENCODED[:80]}{damage}{ENCODED[80:]}"
    assert is_document_in_base64(damaged)
    assert decode_document(damaged) is None


@pytest.mark.parametrize(
    ("content", "start"),
    [
        (PDF, 0),
        (b"\r\n" + PDF, 2),
        (b"\r\n" + make_pdf("%PDF-1.7"), 2),
        (b"\r\n%PDF-1.4\nxref\nstartxref\n11\n%%EOF", 0),
        (b"%PDF-1.4\n" + b"x" * 9, None),
    ],
)
def test_addresses_of_a_pdf_count_from_its_header(content: bytes, start: int | None) -> None:
    assert find_pdf_start(content) == start
