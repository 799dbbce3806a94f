"""Is a document what it says?"""

from __future__ import annotations

import pytest

from lab_agent.documents.content_check import detect_media_type, find_content_defect
from lab_agent.settings.groups import ResultsSettings
from lab_sandbox.config import RuleSettings

PDF = b"%PDF-1.4\n%%EOF\n"
LIMIT = 1000


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (PDF, "application/pdf"),
        (b"junk before\n" + PDF, "application/pdf"),
        (b"\xef\xbb\xbf \n<!DOCTYPE HTML><p>", "text/html"),
        (b'<?xml version="1.0"?>\n<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 Strict//EN">', "text/html"),
        (b"<!-- saved from url -->\n<!-- > -->\n<HTML>", "text/html"),
        (b"<!-- " + b"licence " * 500 + b"--><html>", "text/html"),
        (b"<!-- that never ends <html>", None),
        (b'<?xml version="1.0"?><ClinicalDocument xmlns="urn:hl7-org:v3">', None),
        (b"\x89PNG\r\n\x1a\nrest", "image/png"),
        (b"II*\x00rest", "image/tiff"),
        (b"II+\x00\x08\x00\x00\x00", "image/tiff"),
        (b"MM\x00+\x00\x08\x00\x00", "image/tiff"),
        (b"plain words", None),
    ],
)
def test_content_type_detected_from_first_bytes(content: bytes, kind: str | None) -> None:
    assert detect_media_type(content) == kind


@pytest.mark.parametrize(
    ("content", "content_type"),
    [
        (PDF, "application/pdf"),
        (PDF, "Application/PDF; version=1"),
        (b"<html>", "text/html; charset=utf-8"),
        (b"words", "text/plain"),
        (b"<a/>", "application/xml"),
        (b"PK\x03\x04...", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
        (b"\xff\xd8\xff\xe0", "image/jpg"),
        (b"{\\rtf1", "text/rtf"),
    ],
)
def test_matching_content_accepted(content: bytes, content_type: str) -> None:
    assert find_content_defect(content, content_type, LIMIT) is None


@pytest.mark.parametrize(
    ("content", "content_type", "words"),
    [
        (b"", "application/pdf", "is empty"),
        (b"x" * 1001, "text/plain", "more than results.max_document = 1000"),
        (b"<!doctype html><h1>502</h1>", "application/pdf", "says that it is application/pdf, and is text/html"),
        (b"nothing", "application/pdf", "nothing of that kind"),
        (PDF, "image/png", "and is application/pdf"),
        (PDF, "text/plain", "and is application/pdf"),
        (b"a\0b", "text/plain", "nothing of that kind"),
        (PDF, "pdf", "not a media type"),
        (PDF, 'application/pdf; name="отчёт"', "not a media type"),
        (PDF, "application/pdf;\r\nX-Evil: 1", "not a media type"),
        (PDF, "x/y/z", "not a media type"),
        (PDF, "/", "not a media type"),
        (PDF, "a/", "not a media type"),
        (PDF, "application/ pdf", "not a media type"),
        (PDF, "a/" + "b" * 300, "not a media type"),
    ],
)
def test_mismatched_content_reported(content: bytes, content_type: str, words: str) -> None:
    fault = find_content_defect(content, content_type, LIMIT)
    assert fault is not None
    assert words in fault.text


@pytest.mark.parametrize(
    ("content", "content_type", "shown"),
    [
        (b"", "application/pdf", None),
        (b"x" * 1001, "text/plain", None),
        (b"<!doctype html><h1>502</h1>", "application/pdf", "text/html"),
        (PDF, "pdf", "application/pdf"),
        (b"nothing", "application/pdf", "application/octet-stream"),
        (b"a\0b", "text/plain", "application/octet-stream"),
    ],
)
def test_mismatched_content_gets_true_type_or_none(content: bytes, content_type: str, shown: str | None) -> None:
    fault = find_content_defect(content, content_type, LIMIT)
    assert fault is not None
    assert fault.actual_type == shown


def test_long_content_type_shortened_in_message() -> None:
    fault = find_content_defect(PDF, "x" * 100_000, LIMIT)
    assert fault is not None
    assert len(fault.text) < 200


def test_largest_document_fits_exchange_limit_when_encoded() -> None:
    encoded = (ResultsSettings().max_document + 2) // 3 * 4
    assert encoded + 1000 < RuleSettings().max_body_bytes
    assert encoded + 1000 > RuleSettings().max_body_bytes * 0.9
