"""Is a document what it says, and whole?"""

from __future__ import annotations

import io

import pytest
from pypdf import PdfReader, PdfWriter

from lab_agent.results.document_check import find_content_defect
from lab_agent.settings.groups import ResultsSettings
from lab_sandbox.config import RuleSettings
from tests.harness.documents import PDF, PNG

LIMIT = 1000
ZIP_END = b"PK\5\6" + bytes(8) + bytes(4) + b"\4\0\0\0" + bytes(2)


@pytest.mark.parametrize(
    ("content", "content_type"),
    [
        (PDF, "Application/PDF; version=1"),
        (b"<html></html>", "text/html; charset=utf-8"),
        (b"words", "text/plain"),
        (b"<a/>", "application/xml"),
        (b"PK\x03\x04" + ZIP_END, "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
        (b"\xff\xd8\xff\xd9", "image/jpg"),
    ],
)
def test_matching_content_accepted(content: bytes, content_type: str) -> None:
    assert find_content_defect(content, content_type, LIMIT) is None


OCTETS = "application/octet-stream"


@pytest.mark.parametrize(
    ("content", "content_type", "words", "actual"),
    [
        (b"", "application/pdf", "is empty", None),
        (b"x" * 1001, "text/plain", "more than results.max_document = 1000", None),
        (b"<!doctype html><h1>502</h1>", "application/pdf", "says that it is application/pdf, and is text/html", "text/html"),
        (b"nothing", "application/pdf", "nothing of that kind", OCTETS),
        (PDF, "image/png", "and is application/pdf", "application/pdf"),
        (PDF[:-9], "image/png", "and is application/pdf, and is cut off or damaged", "application/pdf"),
        (b"a\0b", "text/plain", "nothing of that kind", OCTETS),
        (PDF, "pdf", "not a media type", "application/pdf"),
        (PDF, "application/pdf;\r\nX-Evil: 1", "not a media type", "application/pdf"),
        (PDF, "x" * 100_000, "not a media type", "application/pdf"),
    ],
)
def test_mismatched_content_gets_true_type_or_none(content: bytes, content_type: str, words: str, actual: str | None) -> None:
    fault = find_content_defect(content, content_type, LIMIT)
    assert fault is not None
    assert (words in fault.text, len(fault.text) < 200, fault.actual_type) == (True, True, actual)


def test_largest_document_fits_exchange_limit_when_encoded() -> None:
    encoded = (ResultsSettings().max_document + 2) // 3 * 4
    assert encoded + 1000 < RuleSettings().max_body_bytes
    assert encoded + 1000 > RuleSettings().max_body_bytes * 0.9


def encrypted(password: str) -> bytes:
    writer, page = PdfWriter(clone_from=PdfReader(io.BytesIO(PDF))), io.BytesIO()
    writer.encrypt(password, "owner", algorithm="AES-256")
    writer.write(page)
    return page.getvalue()


NO_PAGES = PDF.replace(b"/Pages 2 0 R", b"/Pages 9 0 R")
LOOP = PDF.replace(b"[3 0 R]", b"[2 0 R]")
SLOW = (
    b"%PDF-1.4\nxref\n0 600000\n" + b"0000000009 00000 n \n" * 600_000 + b"trailer\n<</Root 1 0 R/Size 1>>\nstartxref\n9\n%%EOF"
)
BOMB = PDF.replace(b"trailer", b"trailer " + b"[" * 100_000)


@pytest.mark.parametrize(
    ("content", "content_type", "words"),
    [
        (PDF[:-9], "application/pdf; v=1", "is cut off or damaged"),
        (PNG[:-9], "application/octet-stream", "is cut off or damaged"),
        (NO_PAGES, "application/pdf", "cannot be opened"),
        (LOOP, "application/pdf", "cannot be opened"),
        (SLOW, "application/pdf", "cannot be opened"),
        (BOMB, "application/pdf", "cannot be opened"),
        (encrypted("secret"), "application/pdf", "opens only with a password"),
    ],
    ids=["pdf", "untyped", "no pages", "loop", "slow", "bomb", "locked"],
)
def test_unreadable_document_may_be_released_as_it_is(content: bytes, content_type: str, words: str) -> None:
    fault = find_content_defect(content, content_type, 20_000_000)
    assert fault is not None
    assert (fault.text, fault.actual_type) == (words, content_type)


def test_pdf_that_only_forbids_changes_is_accepted() -> None:
    assert find_content_defect(encrypted(""), "application/pdf", 10_000) is None
