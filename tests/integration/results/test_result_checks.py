"""What an operator is asked before a report goes to the clinic, and what is sent when the operator releases it."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from lab_agent.lis.lab_messages import Document, ReferenceRange
from lab_agent.results.records import HoldReason
from lab_agent.shared.state_machines import ReportState
from lab_agent.shared.values import Coding, Quantity
from tests.harness.documents import PDF
from tests.harness.results import ResultsBench, haemoglobin, make_report, open_bench
from tests.integration.workflow.conftest import parametrize_first

HTML = b"<html>sorry</html>"
UPSIDE = ReferenceRange(low=Quantity(value=Decimal(9), unit="g/dL"), high=Quantity(value=Decimal(2), unit="g/dL"))


def report_of(content: bytes, content_type: str = "application/pdf", **more: Any) -> Any:
    return make_report(documents=(Document(content=content, content_type=content_type),), **more)


@parametrize_first(
    "how, content, sent_as",
    [
        ("upload", HTML, "text/html"),
        ("host", HTML, "text/html"),
        ("upload", PDF[:-12], "application/pdf"),
        ("upload", b"\x01\x02", "application/octet-stream"),
    ],
    quick=2,
)
async def test_document_is_held_then_released_as_what_it_is(how: str, content: bytes, sent_as: str) -> None:
    """Under the content type that its bytes show; one that is cut off, as it came."""
    async with open_bench({"documents": how}, api={"public_url": "https://lab.example/v1"}) as bench:
        held = await bench.receive(report_of(content))
        assert held.hold_reason is HoldReason.DOCUMENT_MISMATCH
        assert await bench.clinic_reports() == []
        decided = await bench.release(held)
        (found,) = await bench.clinic_reports()
        assert [form["contentType"] for form in found.resource["presentedForm"]] == [sent_as]
        if sent_as == "text/html":
            assert decided.report.reason == "documents[0] is sent as text/html, not as application/pdf"
            assert decided.report.reason in bench.event_texts("operator")[0]
        if how == "upload":
            assert (await bench.partner.download_document(found.documents[0], accept="*/*")).content == content


async def test_undeliverable_document_cannot_be_released() -> None:
    """A document that cannot be described truthfully stays held even when an operator releases it; the next report goes."""
    undeliverable = (
        Document(content=b""),
        Document(content=b"%PDF-" + b"x" * 5000),
        Document(file="0" * 64),
        Document(url="http://[::1"),
        Document(url="file:///etc/passwd"),
    )
    async with open_bench({"max_document": 4000}) as bench:
        for number, document in enumerate(undeliverable):
            documents = (Document(content=HTML), document)
            held = await bench.receive(make_report(report_id=str(number), documents=documents))
            decided = await bench.release(held)
            assert (decided.moved, decided.report.hold_reason) == (False, HoldReason.DEFECT), document
            assert "documents[1]" in (decided.report.reason or "")
        assert (await bench.receive(make_report(report_id="good", lines=("L1",)))).state is ReportState.DELIVERED


@pytest.mark.slow
async def test_release_helps_questions_but_not_defects(bench: ResultsBench) -> None:
    form = await bench.receive(make_report(haemoglobin("1", specimen="no such tube"), report_id="form"))
    html = await bench.receive(report_of(HTML, report_id="html"))
    assert [held.hold_reason for held in (form, html)] == [HoldReason.DEFECT, HoldReason.DOCUMENT_MISMATCH]
    assert [(await bench.release(held)).moved for held in (form, html)] == [False, True]


@parametrize_first(
    "code, words",
    [
        (Coding(system="urn:lab", code="HGB"), "code 'HGB' is not mapped"),
        (Coding(system="http://snomed.info/sct", code="718-7"), "code '718-7' is not mapped"),
        (Coding(system="http://loinc.org", code="718-0"), "718-7 would be"),
    ],
)
async def test_code_of_other_system_is_held_without_tables(bench: ResultsBench, code: Coding, words: str) -> None:
    """The code of an Observation is LOINC (interface: Observation): nothing else leaves, with or without mapping tables."""
    held = await bench.receive(make_report(haemoglobin("1", code=code)))
    assert (held.state, words in (held.reason or "")) == (ReportState.UNMAPPED, True)
    assert await bench.clinic_reports() == []


@pytest.mark.slow
async def test_unknown_reference_beside_known_one_warns(bench: ResultsBench) -> None:
    """An unknown accession number warns where the order has another one."""
    assert (await bench.receive(make_report(barcode="9" * 150))).state is ReportState.DELIVERED
    await bench.receive(make_report(report_id="second", accession="B-2", lines=("L0",)))
    barcode, accession = bench.event_texts("warning")
    assert ("barcode 9999" in barcode, len(barcode) < 200, "accession B-2" in accession) == (True, True, True)
    await bench.change_work_order(accession=None)
    await bench.receive(make_report(report_id="next", accession="B-3", lines=("L1",)))
    assert len(bench.event_texts("warning")) == 2, "a laboratory that gave no number may give one with its results"


@pytest.mark.slow
async def test_reason_quotes_little_of_the_message(bench: ResultsBench) -> None:
    long = "x" * 100_000
    for sent in (
        make_report(order=long),
        make_report(items=(long,)),
        make_report(lines=tuple(f"{long}{n}" for n in range(50)), order=None),
        make_report(*(haemoglobin("1", id=str(number), reference_ranges=(UPSIDE,)) for number in range(300))),
    ):
        held = await bench.receive(sent)
        assert held.state in {ReportState.UNMATCHED, ReportState.HELD}
        assert 10 < len(held.reason or "") < 1000
    assert max(map(len, bench.event_texts("result_held"))) < 1100
