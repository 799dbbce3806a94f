"""Addresses and media types of documents, and where a report has documents."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from lab_agent.domain.lab_messages import Document, LabReport, ReportedObservation, ReportStatus
from lab_agent.domain.report_documents import (
    MAX_MEDIA_TYPE_LENGTH,
    OCTET_STREAM,
    documents_of,
    documents_with_paths,
    is_media_type,
    is_openable_url,
    map_documents,
)
from lab_agent.domain.values import Coding

NOW = datetime(2026, 1, 2, tzinfo=UTC)
PLAIN = ReportedObservation(code=Coding(code="a"), value_string="x")
ATTACHED = ReportedObservation(code=Coding(code="b"), value_attachment=Document(url="b.pdf"))
REPORT = LabReport(
    report_id="1",
    status=ReportStatus.FINAL,
    effective=NOW,
    issued=NOW,
    observations=(PLAIN, ATTACHED),
    documents=(Document(url="a.pdf"), Document(file="c.pdf")),
)


@pytest.mark.parametrize(
    ("url", "openable"),
    [
        ("https://x.example/a.pdf", True),
        ("http://x.example:8080", True),
        ("https://x.example:1/a", True),
        ("documents/a.pdf", True),
        ("documents/a:b.pdf", True),
        ("documents/a:b/c.pdf", True),
        ("/a", True),
        ("?a", True),
        ("", False),
        ("a b", False),
        ("a\\b", False),
        ("a\nb", False),
        ("a:b/c", False),
        ("a:b", False),
        ("ftp://x.example/a", False),
        ("https:///a", False),
        ("//x.example/a", False),
        ("https://x.example:0/a", False),
        ("https://x.example:99999/a", False),
        ("https://[x/a", False),
        ("1:/a", False),
    ],
)
def test_address_can_be_opened_by_a_clinic(url: str, openable: bool) -> None:
    assert is_openable_url(url) is openable


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        ("application/pdf", True),
        ("text/plain; charset=utf-8", True),
        ("text/plain;charset=utf-8", True),
        ("text/plain ; charset=utf-8", True),
        ('text/plain; name="a b"', True),
        ("text/plain;  charset=utf-8", False),
        ('text/plain; name="a  b"', False),
        ("text/plain; charset", False),
        ("text", False),
        ("text/", False),
        ("text/plain\n", False),
        ("text/plän", False),
        ("a/" + "b" * (MAX_MEDIA_TYPE_LENGTH - 2), True),
        ("a/" + "b" * (MAX_MEDIA_TYPE_LENGTH - 1), False),
        (OCTET_STREAM, True),
    ],
)
def test_media_type_has_its_form(text: str, valid: bool) -> None:
    assert is_media_type(text) is valid


def test_limits_are_those_of_the_standards() -> None:
    assert MAX_MEDIA_TYPE_LENGTH == 255
    assert OCTET_STREAM == "application/octet-stream"


def test_documents_are_found_with_their_paths() -> None:
    assert documents_with_paths(REPORT) == (
        ("documents[0]", Document(url="a.pdf")),
        ("documents[1]", Document(file="c.pdf")),
        ("observations[1].value_attachment", Document(url="b.pdf")),
    )
    assert documents_of(REPORT) == (Document(url="a.pdf"), Document(file="c.pdf"), Document(url="b.pdf"))


def test_documents_are_changed_in_their_places() -> None:
    changed = map_documents(REPORT, lambda each: replace(each, title=each.url or each.file))
    assert [each.title for each in documents_of(changed)] == ["a.pdf", "c.pdf", "b.pdf"]
    assert changed.observations[0] is PLAIN
    assert replace(changed, documents=REPORT.documents, observations=REPORT.observations) == REPORT
