"""Documents that are uploaded: once for each type, and named when the service rejects them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from lab_agent.domain.ids import report_key
from lab_agent.domain.lab_messages import Document
from lab_agent.domain.state_machines import JobState, ReportState
from lab_sandbox.faults.plan import FaultRule
from tests.harness.results import NOW, ResultsBench, haemoglobin, make_report, open_bench

TABLE = b"a;b\n1;2\n"
CURVE = b"\x89PNG\r\n\x1a\nrest"


def table(kind: str) -> Document:
    return Document(content=TABLE, content_type=kind)


async def test_corrected_content_type_makes_a_new_document(bench: ResultsBench) -> None:
    await bench.receive(make_report(documents=(table("text/plain"),), version=1))
    await bench.receive(make_report(documents=(table("text/csv"),), version=2, issued=NOW + timedelta(hours=1)))
    (found,) = await bench.clinic_reports()
    assert found.resource["presentedForm"][0]["contentType"] == "text/csv"
    assert (await bench.partner.download_document(found.documents[0], accept="text/csv")).content == TABLE


async def test_kept_attachment_needs_no_bytes_once_uploaded() -> None:
    """An attachment kept from the previous version needs no bytes of ours once it is on the exchange."""
    async with open_bench({"left_out": "keep"}) as bench:
        curve = replace(
            haemoglobin("1", value_quantity=None, value_attachment=Document(content=CURVE, content_type="image/png")), id="ecg"
        )
        await bench.receive(make_report(curve, version=1))
        (before,) = await bench.clinic_reports()

        def forget(uow: Any) -> None:
            assert uow.purge.documents(before=bench.clock.now() + timedelta(days=1)) == 1
            uow.commit()

        await bench.store.run(forget)
        kept = await bench.receive(make_report(haemoglobin("2"), version=2, issued=NOW + timedelta(hours=1)))
        assert (kept.state, kept.reason) == (ReportState.DELIVERED, None)
        (found,) = await bench.clinic_reports()
        attached = [one["valueAttachment"] for one in found.observations if "valueAttachment" in one]
        assert attached == [before.observations[0]["valueAttachment"]]


@pytest.mark.parametrize(
    ("route", "skip", "status", "words"),
    [
        ("POST *Binary", 1, 413, "documents[1]: POST Binary was answered with 413"),
        ("POST *observation", 0, 422, "observations[0]: POST Observation was answered with 422"),
        ("POST *diagnosticreport", 0, 422, "the report itself: POST DiagnosticReport was answered with 422"),
    ],
)
async def test_rejected_upload_names_the_failing_part(
    bench: ResultsBench, route: str, skip: int, status: int, words: str
) -> None:
    bench.inject_faults(FaultRule(kind="status", route=route, skip=skip, status=status))
    documents = (Document(content=b"%PDF-1"), Document(content=b"%PDF-2"))
    await bench.receive(make_report(haemoglobin("1"), documents=documents), "refused")
    (stuck,) = [each for each in await bench.jobs() if each.state is JobState.DEAD_LETTER]
    assert (stuck.reason or "").startswith(words)
    assert ("results.max_document" in (stuck.reason or "")) == (status == 413)
    assert (
        await bench.store.run(lambda uow: uow.reports.get_for_update(report_key("lis", "refused")))
    ).state is ReportState.MATCHED
