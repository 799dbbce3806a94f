"""A laboratory that sends only what is new (`results.left_out = "keep"`): what a version keeps is not what it says."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from lab_agent.domain.lab_messages import LabReport, ReportStatus
from lab_agent.domain.report_records import HoldReason
from lab_agent.domain.state_machines import ReportState
from lab_agent.serialization import load_stored_message
from lab_agent.status.formatting import load_result
from lab_sandbox.faults.plan import FaultRule
from tests.harness.results import ResultsBench, haemoglobin, make_report, open_bench

UPDATE_REFUSED = FaultRule(kind="status", status=422, route="PUT /fhir/*", count=1)


@pytest.fixture
async def bench() -> AsyncIterator[ResultsBench]:
    async with open_bench({"left_out": "keep"}) as opened:
        yield opened


async def receive_values(bench: ResultsBench, version: int, **values: str) -> None:
    said = (haemoglobin(value, id=name) for name, value in values.items())
    await bench.receive(make_report(*said, version=version, lines=("L0",)))


async def values_on_service(bench: ResultsBench, name: str) -> list[str]:
    return [str(each["valueQuantity"]["value"]) for each in await bench.resource_versions("Observation", f"RORDER.rep.{name}")]


async def test_late_correction_of_kept_value_is_asked_about(bench: ResultsBench) -> None:
    """The newest version repeats the old value without saying it: that supersedes no correction in silence."""
    await receive_values(bench, 1, k="4.0", na="140")
    await receive_values(bench, 3, na="141")
    await receive_values(bench, 2, k="5.0")
    late = await bench.get_report("m3")
    assert late.hold_reason is HoldReason.SUPERSEDED_BY_NEWER
    assert "without k" in (late.reason or "")
    await receive_values(bench, 4, k="5.0")
    assert (await bench.get_report("m3")).state is ReportState.SUPERSEDED
    assert await values_on_service(bench, "k") == ["4.0", "5.0"]


async def test_late_version_with_kept_value_is_superseded(bench: ResultsBench) -> None:
    """What the newest version keeps just as it is has not been lost."""
    await receive_values(bench, 1, k="4.0", na="140")
    await receive_values(bench, 3, na="141")
    await receive_values(bench, 2, k="4.0")
    assert (await bench.get_report("m3")).state is ReportState.SUPERSEDED


async def test_rematched_version_keeps_the_correction_delivered_meanwhile(bench: ResultsBench) -> None:
    """A version whose delivery failed had kept an old value; matched again, it does not send that after the correction."""
    await receive_values(bench, 1, k="4.0", na="140")
    bench.inject_faults(UPDATE_REFUSED)
    await receive_values(bench, 3, na="141")
    bench.inject_faults()
    await receive_values(bench, 2, k="5.0")
    assert await bench.report_states() == [ReportState.SUPERSEDED, ReportState.DELIVERED, ReportState.SUPERSEDED]
    assert await values_on_service(bench, "k") == ["4.0", "5.0"]
    assert (await values_on_service(bench, "na"))[-1] == "141"


async def test_late_end_of_kept_line_is_asked_about(bench: ResultsBench) -> None:
    """A line that the newest version keeps, and does not complete, is not completed by superseding who did."""
    await bench.receive(make_report(haemoglobin("1", id="a"), version=1, lines=("L0",), status=ReportStatus.PARTIAL))
    await bench.receive(make_report(haemoglobin("3", id="c"), version=3, lines=("L1",)))
    late = await bench.receive(make_report(haemoglobin("1", id="a"), version=2, lines=("L0",)))
    assert late.hold_reason is HoldReason.SUPERSEDED_BY_NEWER
    assert "L0" in (late.reason or "")


async def test_delivered_version_shows_what_was_sent(bench: ResultsBench) -> None:
    await receive_values(bench, 1, k="4.0", na="140")
    await receive_values(bench, 2, na="141")
    delivered = await bench.get_report("m2")
    sent, whole = load_stored_message(delivered.body), load_stored_message(delivered.outgoing_body or b"")
    assert isinstance(sent, LabReport)
    assert isinstance(whole, LabReport)
    assert ([one.id for one in sent.observations], [one.id for one in whole.observations]) == (["na"], ["na", "k"])
    assert load_result(delivered).kept == ("k",), "people see both"
