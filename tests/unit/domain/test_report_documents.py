"""Addresses and media types of documents, and where a report has documents."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from lab_agent.lis.document_formats import plain_media_type
from lab_agent.lis.lab_messages import Document, LabReport, ReportedObservation, ReportStatus
from lab_agent.lis.report_documents import (
    OCTET_STREAM,
    documents_of,
    documents_with_paths,
    is_media_type,
    is_openable_url,
    map_documents,
)
from lab_agent.shared.values import Coding

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


OPENABLE = ("https://x.example/a.pdf", "http://x.example:8080", "https://x.example:1/a", "/a", "?a")
OPENABLE += ("documents/a.pdf", "documents/a:b.pdf", "documents/a:b/c.pdf")
NOT_OPENABLE = ("", "a b", "a\\b", "a\nb", "a:b/c", "a:b", "ftp://x.example/a", "https:///a", "//x.example/a", "1:/a")
NOT_OPENABLE += ("https://x.example:0/a", "https://x.example:99999/a", "https://[x/a")
MEDIA_TYPES = ("application/pdf", "text/plain; charset=utf-8", "text/plain;charset=utf-8", "text/plain ; charset=utf-8")
MEDIA_TYPES += ('text/plain; name="a b"', "a/" + "b" * 253, OCTET_STREAM, "Application/PDF")
NO_MEDIA_TYPES = ("text/plain;  charset=utf-8", 'text/plain; name="a  b"', "text/plain; charset", "text", "text/", "text/plain\n")
NO_MEDIA_TYPES += ("text/plän", "a/" + "b" * 254)


@pytest.mark.parametrize(
    ("check", "right", "wrong"), [(is_openable_url, OPENABLE, NOT_OPENABLE), (is_media_type, MEDIA_TYPES, NO_MEDIA_TYPES)]
)
def test_address_and_media_type_have_their_form(check: Any, right: tuple[str, ...], wrong: tuple[str, ...]) -> None:
    assert [each for each in right if not check(each)] == []
    assert [each for each in wrong if check(each)] == []


def test_type_of_any_bytes_is_spelled_as_types_are_compared() -> None:
    assert plain_media_type(OCTET_STREAM) == OCTET_STREAM


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
