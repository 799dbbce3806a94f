"""What an operator is asked before a report goes to the clinic, and what is sent when the operator releases it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from lab_agent.domain.ids import OrderKey
from lab_agent.domain.lab_messages import Document, ObservationStatus, ReferenceRange, ReportStatus
from lab_agent.domain.report_records import HoldReason
from lab_agent.domain.state_machines import LineState, ReportState
from lab_agent.domain.values import Quantity
from tests.harness.documents import PDF, PNG
from tests.harness.results import NOW, ORDER, ResultsBench, haemoglobin, make_report, open_bench

LATER = NOW + timedelta(hours=1)
HTML = b"<html>sorry</html>"
UPSIDE = ReferenceRange(low=Quantity(value=Decimal(9), unit="g/dL"), high=Quantity(value=Decimal(2), unit="g/dL"))


@pytest.mark.parametrize(
    ("odd", "field"),
    [
        (make_report(issued=NOW + timedelta(days=400)), "issued: "),
        (make_report(effective=NOW.replace(year=1026)), "effective: "),
        (make_report(haemoglobin("1", reference_ranges=(UPSIDE,))), "observations[0].reference_ranges[0]: "),
        (make_report(observations=()), "observations: "),
    ],
)
async def test_implausible_report_is_held_then_released(bench: ResultsBench, odd: Any, field: str) -> None:
    held = await bench.receive(odd)
    assert held.hold_reason is HoldReason.QUESTION
    assert field in (held.reason or "")
    assert await bench.clinic_reports() == []
    assert (await bench.release(held)).moved
    assert (await bench.get_report("m1")).state is ReportState.DELIVERED


async def test_many_implausible_values_give_readable_reason(bench: ResultsBench) -> None:
    odd = [haemoglobin("1", id=str(number), reference_ranges=(UPSIDE,)) for number in range(300)]
    held = await bench.receive(make_report(*odd))
    assert len(held.reason or "") < 1000
    assert "and 295 more" in (held.reason or "")


@pytest.mark.parametrize("how", ["upload", "host"])
async def test_released_document_uses_detected_content_type(how: str) -> None:
    """A released document is delivered under the content type that its bytes show."""
    settings = {"results": {"documents": how}, "api": {"public_url": "https://lab.example/v1"}}
    async with open_bench(settings["results"], api=settings["api"]) as bench:
        held = await bench.receive(make_report(documents=(Document(content=HTML),)))
        decided = await bench.release(held)
        assert held.hold_reason is HoldReason.DOCUMENT_MISMATCH
        said = "documents[0] is sent as text/html, not as application/pdf"
        assert decided.report.reason == said
        (found,) = await bench.clinic_reports()
        assert [form["contentType"] for form in found.resource["presentedForm"]] == ["text/html"]
        assert bench.event_texts("operator") == [f"result {held.key} released (I asked): it is matched now: {said}"]
        if how == "upload":
            assert (await bench.partner.download_document(found.documents[0], accept="text/html")).content == HTML


@pytest.mark.parametrize(
    ("content", "content_type"),
    [
        (PDF[:-12], "application/pdf"),
        (PDF[:200], "application/pdf; version=1.4"),
        (PDF[:60] + PDF[80:], "application/pdf"),
        (PNG[:-5], "image/png"),
        (b"<?xml version='1.0'?><ClinicalDocument><title>", "text/xml"),
        (rb"{\rtf1 {\b 5,4", "application/rtf"),
    ],
)
async def test_cut_off_document_is_held_then_sent_as_is(bench: ResultsBench, content: bytes, content_type: str) -> None:
    held = await bench.receive(make_report(documents=(Document(content=content, content_type=content_type),)))
    assert held.hold_reason is HoldReason.DOCUMENT_MISMATCH
    assert await bench.clinic_reports() == []
    decided = await bench.release(held)
    assert decided.report.reason == "documents[0] is sent as it is"
    (found,) = await bench.clinic_reports()
    assert [form["contentType"] for form in found.resource["presentedForm"]] == [content_type]
    assert (await bench.partner.download_document(found.documents[0], accept="*/*")).content == content


@pytest.mark.parametrize("behind", [b"", b"\r\n", b"\0" * 100])
async def test_whole_document_with_padding_is_delivered(bench: ResultsBench, behind: bytes) -> None:
    sent = await bench.receive(make_report(documents=(Document(content=PDF + behind),)))
    assert sent.state is ReportState.DELIVERED


async def test_attachment_value_uses_detected_content_type(bench: ResultsBench) -> None:
    """A document that is a value is delivered under its detected content type, too."""
    curve = haemoglobin("1", value_quantity=None, value_attachment=Document(content=PNG))
    held = await bench.receive(make_report(curve))
    await bench.release(held)
    (found,) = await bench.clinic_reports()
    assert found.observations[0]["valueAttachment"]["contentType"] == "image/png"


async def test_document_of_unknown_type_sent_as_octet_stream(bench: ResultsBench) -> None:
    held = await bench.receive(make_report(documents=(Document(content=b"\x01\x02"),)))
    await bench.release(held)
    (found,) = await bench.clinic_reports()
    assert found.resource["presentedForm"][0]["contentType"] == "application/octet-stream"


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (Document(content=b""), "documents[0]: is empty — send it with its content"),
        (Document(content=b"%PDF-" + b"x" * 5000), "more than results.max_document"),
        (Document(file="0" * 64), "is not kept any more"),
        (Document(url="http://[::1"), "no address that a clinic could open"),
    ],
)
async def test_undeliverable_document_cannot_be_released(document: Document, words: str) -> None:
    """A document that cannot be described truthfully stays held even when an operator releases it."""
    async with open_bench({"max_document": 4000}) as bench:
        held = await bench.receive(make_report(documents=(document,)))
        decided = await bench.release(held)
        assert not decided.moved
        assert decided.report.hold_reason is HoldReason.DEFECT
        assert words in (decided.report.reason or "")


async def test_release_helps_questions_but_not_defects(bench: ResultsBench) -> None:
    odd = await bench.receive(make_report(observations=()))
    form = await bench.receive(make_report(haemoglobin("1", specimen="no such tube"), report_id="form"))
    empty = await bench.receive(make_report(report_id="doc", documents=(Document(content=HTML), Document(content=b""))))
    html = await bench.receive(make_report(report_id="html", documents=(Document(content=HTML),)))
    assert [held.hold_reason for held in (odd, form, empty, html)] == [
        HoldReason.QUESTION,
        HoldReason.DEFECT,
        HoldReason.DEFECT,
        HoldReason.DOCUMENT_MISMATCH,
    ]
    assert not (await bench.release(form)).moved
    assert (await bench.release(html)).moved


async def test_missing_final_value_in_new_version_holds(bench: ResultsBench) -> None:
    other = replace(haemoglobin("7"), id="other")
    await bench.receive(make_report(haemoglobin("13.2"), other, version=1))
    held = await bench.receive(make_report(haemoglobin("13.4"), version=2, issued=LATER))
    assert held.hold_reason is HoldReason.QUESTION
    assert "leave out other, final in a version before" in (held.reason or "")
    assert len((await bench.clinic_reports())[0].observations) == 2, "the clinic still reads what was there"
    await bench.release(held)
    (found,) = await bench.clinic_reports()
    assert len(found.observations) == 1
    assert "other no more" in bench.event_texts("delivered")[-1]
    again = await bench.receive(make_report(haemoglobin("13.5"), version=3, issued=LATER + timedelta(hours=1)))
    assert again.state is ReportState.DELIVERED, "it is asked once"


async def test_missing_preliminary_value_in_new_version_passes(bench: ResultsBench) -> None:
    gram = replace(haemoglobin("7", status=ObservationStatus.PRELIMINARY), id="gram")
    await bench.receive(make_report(haemoglobin("1"), gram, status=ReportStatus.PRELIMINARY, version=1))
    assert (await bench.receive(make_report(haemoglobin("1"), version=2, issued=LATER))).state is ReportState.DELIVERED


async def test_change_from_final_to_preliminary_is_held(bench: ResultsBench) -> None:
    def other(value: str, **more: Any) -> Any:
        return replace(haemoglobin(value, **more), id="other")

    was = {"status": ObservationStatus.PRELIMINARY}
    await bench.receive(make_report(haemoglobin("5.0"), other("6.0"), version=1))
    back = make_report(haemoglobin("50.0", **was), other("6.0", **was), status=ReportStatus.PRELIMINARY, version=2, issued=LATER)
    held = await bench.receive(back)
    assert held.hold_reason is HoldReason.QUESTION
    assert "status: goes from final back to preliminary" in (held.reason or "")
    assert "take hb, other from final back to preliminary" in (held.reason or "")
    assert [each["status"] for each in await bench.resource_versions("Observation", "RORDER.rep.hb")] == ["final"]
    assert (await bench.release(held)).moved
    less = await bench.receive(make_report(haemoglobin("50.0"), version=3, issued=LATER + timedelta(hours=1)))
    assert less.hold_reason is HoldReason.QUESTION, "6.0 was final two versions ago, and is so on the service"
    assert "leave out other, final in a version before" in (less.reason or "")


@pytest.mark.parametrize("status", [ReportStatus.PARTIAL, ReportStatus.PRELIMINARY, ReportStatus.REGISTERED])
async def test_report_once_final_stays_final_or_holds(bench: ResultsBench, status: ReportStatus) -> None:
    await bench.receive(make_report(version=1))
    assert (await bench.receive(make_report(status=status, version=2, issued=LATER))).state is ReportState.HELD
    assert (await bench.receive(make_report(version=3, issued=LATER + timedelta(hours=1)))).state is ReportState.DELIVERED


async def test_partial_report_making_final_value_preliminary_is_held(bench: ResultsBench) -> None:
    """A partial report that takes a final value back to preliminary is held for an operator."""
    await bench.receive(make_report(haemoglobin("1"), status=ReportStatus.PARTIAL, version=1))
    back = make_report(
        haemoglobin("2", status=ObservationStatus.PRELIMINARY), status=ReportStatus.PARTIAL, version=2, issued=LATER
    )
    held = await bench.receive(back)
    assert held.hold_reason is HoldReason.QUESTION
    assert "take hb from final back" in (held.reason or "")


async def test_incremental_report_keeps_previous_values() -> None:
    """A laboratory that sends only what is new keeps what it sent before."""
    unnamed = [haemoglobin(value, id=None) for value in ("1.0", "2.0")]
    async with open_bench({"left_out": "keep"}) as bench:
        await bench.receive(make_report(*unnamed, haemoglobin("7", id="other"), status=ReportStatus.PARTIAL, version=1))
        second = await bench.receive(
            make_report(haemoglobin("1.5", id=None), haemoglobin("9", id="new"), version=2, issued=LATER)
        )
        assert second.state is ReportState.DELIVERED
        (found,) = await bench.clinic_reports()
        assert [str(one["valueQuantity"]["value"]) for one in found.observations] == ["1.5", "9", "2.0", "7"]
        statuses = [
            one["status"]
            for one in await bench.resource_versions("Observation", "RORDER.rep.code.http_3A_2F_2Floinc_2Eorg.718-7.2")
        ]
        assert statuses == ["final"], "what stayed is not written again"


async def test_unknown_barcode_with_right_order_delivers_with_warning(bench: ResultsBench) -> None:
    sent = await bench.receive(make_report(barcode="9" * 150))
    assert sent.state is ReportState.DELIVERED
    (warning,) = bench.event_texts("warning")
    assert "barcode 9999" in warning
    assert len(warning) < 200


async def test_unknown_accession_beside_known_one_warns(bench: ResultsBench) -> None:
    """An unknown accession number warns where the order has another one."""
    await bench.receive(make_report(accession="B-2", lines=("L0",)))
    assert "accession B-2" in bench.event_texts("warning")[0]
    await bench.change_work_order(accession=None)
    await bench.receive(make_report(report_id="next", accession="B-3", lines=("L1",)))
    assert len(bench.event_texts("warning")) == 1, "a laboratory that gave no number may give one with its results"


async def test_reused_barcode_with_unknown_accession_matches_newest_order(bench: ResultsBench) -> None:
    """A reused tube with an accession number that nobody knows means the newest order."""
    old = OrderKey("ROLD")

    def years_ago(uow: Any) -> None:
        order, line = uow.orders.get_for_update(ORDER), uow.orders.line(bench.line_key(0))
        uow.orders.add(replace(order, key=old, task_id="T-old", seen_at=NOW - timedelta(days=900)))
        (part,) = uow.orders.work_orders(ORDER)
        uow.orders.save_work_order(replace(part, order=old, accession="A-0"))
        uow.orders.add_line(replace(line, key="L-old", order=old, task_id="T-old-1", state=LineState.COMPLETED))
        label = bench.store._data.label_uses[0]
        uow.orders.set_labels(old, [replace(label, order=old, line="L-old")])
        uow.commit()

    await bench.store.run(years_ago)
    found = await bench.receive(make_report(order=None, barcode="1000000017", accession="B-7", lines=()))
    assert (found.state, found.order) == (ReportState.DELIVERED, ORDER)
    assert "accession B-7" in bench.event_texts("warning")[0]
    both = await bench.receive(make_report(report_id="old", order=None, barcode="1000000017", accession="A-0"))
    assert both.order == old, "a number that is known says which"


async def test_reason_quotes_little_of_the_message(bench: ResultsBench) -> None:
    long = "x" * 100_000
    for sent in (
        make_report(order=long),
        make_report(items=(long,)),
        make_report(lines=tuple(f"{long}{n}" for n in range(50)), order=None),
    ):
        held = await bench.receive(sent)
        assert held.state is ReportState.UNMATCHED
        assert len(held.reason or "") < 700
    assert max(len(event.text) for event in bench.store._data.events) < 800
