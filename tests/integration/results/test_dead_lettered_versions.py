"""A version whose delivery was dead-lettered: what of the others waits for it, and what goes before it."""

from __future__ import annotations

from typing import Any

import pytest

from lab_agent.domain.lab_messages import NotPerformed
from lab_agent.domain.report_records import HoldReason
from lab_agent.domain.state_machines import JobState, ReportState
from lab_agent.errors import InvalidTransitionError
from lab_agent.workflow import operator_results
from lab_agent.workflow.operator_jobs import dismiss_job, retry_job
from lab_sandbox.faults.plan import FaultRule
from tests.harness.results import ResultsBench, haemoglobin, make_report, open_bench


async def test_part_waits_for_dead_lettered_part() -> None:
    """A part waits for an older part that was dead-lettered, and follows once that is retried."""
    async with open_bench({"left_out": "keep"}) as bench:
        bench.inject_faults(FaultRule(kind="status", status=422, route="POST /fhir/DiagnosticReport", count=1))
        absent = (NotPerformed(line="L2", reason="clotted"),)
        first = await bench.receive(make_report(haemoglobin("1", id="a"), version=1, lines=("L0",), not_performed=absent))
        assert first.state is ReportState.MATCHED
        second = await bench.receive(make_report(haemoglobin("2", id="b"), version=2, lines=("L1",)))
        assert second.hold_reason is HoldReason.WAITS_FOR_VERSION
        (stuck,) = await bench.jobs()
        await retry_job(bench.store, stuck.id, by="ann", now=bench.clock.now())
        await bench.run_until_idle()
        assert await bench.report_states() == [ReportState.SUPERSEDED, ReportState.DELIVERED]
        assert await bench.line_states() == ["completed", "completed", "cancelled"]
        assert (await bench.order_status()).order == "completed"


async def test_dismissed_part_is_not_sent_with_next_part() -> None:
    """What an operator dismissed goes with no other part."""
    async with open_bench({"left_out": "keep"}) as bench:
        bench.inject_faults(FaultRule(kind="status", status=422, route="POST /fhir/DiagnosticReport", count=1))
        first = await bench.receive(make_report(haemoglobin("1", id="a"), version=1, lines=("L0",)))
        await bench.receive(make_report(haemoglobin("2", id="b"), version=2, lines=("L1",)))
        await operator_results.dismiss_result(bench.store, first.key, by="ann", note="wrong tube", now=bench.clock.now())
        await bench.run_until_idle()
        assert await bench.report_states() == [ReportState.DISMISSED, ReportState.DELIVERED]
        (found,) = await bench.clinic_reports()
        assert [str(one["valueQuantity"]["value"]) for one in found.observations] == ["2"]


@pytest.mark.parametrize("how", ["result", "job"])
async def test_dismissed_delivery_lets_next_version_go(bench: ResultsBench, how: str) -> None:
    """A version that waits for a dead-lettered one follows when an operator dismisses the result, or its job."""
    bench.inject_faults(FaultRule(kind="status", status=422, route="POST /fhir/DiagnosticReport", count=1))
    first = await bench.receive(make_report(version=1, lines=("L0",)))
    await bench.receive(make_report(version=2, lines=("L1",)))
    (stuck,) = await bench.jobs()
    who: dict[str, Any] = {"by": "ann", "note": "wrong", "now": bench.clock.now()}
    await (
        operator_results.dismiss_result(bench.store, first.key, **who)
        if how == "result"
        else dismiss_job(bench.store, stuck.id, **who)
    )
    await bench.run_until_idle()
    assert await bench.report_states() == [ReportState.DISMISSED, ReportState.DELIVERED]


async def test_version_waits_for_dead_lettered_one_with_more_content(bench: ResultsBench) -> None:
    bench.inject_faults(FaultRule(kind="status", status=422, route="POST /fhir/DiagnosticReport", count=1))
    first = await bench.receive(make_report(version=1, lines=("L0",)))
    second = await bench.receive(make_report(version=2, lines=("L1",)))
    assert second.hold_reason is HoldReason.WAITS_FOR_VERSION
    assert await bench.line_states() == ["resulted", "accepted", "accepted"]
    (stuck,) = await bench.jobs()
    await retry_job(bench.store, stuck.id, by="ann", now=bench.clock.now())
    await bench.run_until_idle()
    assert (await bench.get_report("m1")).state is ReportState.DELIVERED, first.key
    asked = await bench.get_report("m2")
    assert asked.hold_reason is HoldReason.QUESTION
    assert "leave out L0" in (asked.reason or "")
    assert await bench.line_states() == ["completed", "accepted", "accepted"]


async def test_older_version_goes_before_dead_lettered_newer(bench: ResultsBench) -> None:
    """An older version that comes late goes first; the delivery that was dead-lettered is taken back and follows by itself."""
    bench.inject_faults(FaultRule(kind="status", status=422, route="POST /fhir/DiagnosticReport", count=1))
    await bench.receive(make_report(haemoglobin("2"), version=2))
    (stuck,) = await bench.jobs()
    await bench.receive(make_report(haemoglobin("1"), version=1))
    assert await bench.report_states() == [ReportState.DELIVERED, ReportState.SUPERSEDED]
    assert stuck.id not in {each.id for each in await bench.jobs()}
    values = [each["valueQuantity"]["value"] for each in await bench.resource_versions("Observation", "RORDER.rep.hb")]
    assert values == [2, 1, 2], "the first try had brought the value, and was refused with the report"
    assert len(await bench.clinic_reports()) == 1


@pytest.mark.parametrize("left_out", ["hold", "keep"])
async def test_dead_lettered_version_keeps_values_delivered_meanwhile(left_out: str) -> None:
    """A version whose delivery was dead-lettered drops nothing of an older one that was delivered meanwhile."""
    async with open_bench({"left_out": left_out}) as bench:
        bench.inject_faults(FaultRule(kind="status", status=422, route="POST /fhir/DiagnosticReport", count=1))
        await bench.receive(make_report(haemoglobin("2", id="b"), version=2, lines=("L1",)))
        await bench.receive(make_report(haemoglobin("1", id="a"), version=1, lines=("L0",)))
        (found,) = await bench.clinic_reports()
        newer = await bench.get_report("m1")
        if left_out == "hold":
            assert newer.hold_reason is HoldReason.QUESTION
            assert "leave out a, final" in (newer.reason or "")
            assert len(found.observations) == 1
        else:
            assert newer.state is ReportState.DELIVERED
            assert len(found.observations) == 2
            assert await bench.line_states() == ["completed", "completed", "accepted"]


async def test_dead_lettered_older_version_taken_back_for_newer(bench: ResultsBench) -> None:
    """A dead-lettered delivery is taken back when a newer version that says all of it goes, and cannot be retried then."""
    bench.inject_faults(FaultRule(kind="status", status=422, route="POST /fhir/DiagnosticReport", count=1))
    await bench.receive(make_report(haemoglobin("1"), version=1))
    (first,) = await bench.jobs()
    bench.inject_faults(FaultRule(kind="status", status=503, route="POST /fhir/DiagnosticReport", count=1))
    await bench.accept(make_report(haemoglobin("2"), version=2))
    await bench.run_due_jobs()
    await bench.run_due_jobs()
    assert {each.state for each in await bench.jobs()} == {JobState.OUTCOME_UNKNOWN}
    assert (await bench.get_report("m1")).hold_reason is HoldReason.WAITS_FOR_VERSION
    with pytest.raises(InvalidTransitionError):
        await retry_job(bench.store, first.id, by="ann", now=bench.clock.now())
    await bench.run_until_idle()
    assert await bench.report_states() == [ReportState.SUPERSEDED, ReportState.DELIVERED]
    values = [each["valueQuantity"]["value"] for each in await bench.resource_versions("Observation", "RORDER.rep.hb")]
    assert values == [1, 2]
    assert await bench.jobs() == ()


async def test_taken_back_version_goes_when_newer_is_dismissed(bench: ResultsBench) -> None:
    """A version that was taken back for a newer one goes after all when that one does not."""
    bench.inject_faults(FaultRule(kind="status", status=422, route="POST /fhir/DiagnosticReport", count=2))
    await bench.receive(make_report(haemoglobin("1"), version=1))
    second = await bench.receive(make_report(haemoglobin("2"), version=2))
    assert second.state is ReportState.MATCHED
    await operator_results.dismiss_result(bench.store, second.key, by="ann", note="wrong", now=bench.clock.now())
    await bench.run_until_idle()
    assert await bench.report_states() == [ReportState.DELIVERED, ReportState.DISMISSED]
    (found,) = await bench.clinic_reports()
    assert [each["valueQuantity"]["value"] for each in found.observations] == [1]


async def test_update_with_unknown_outcome_is_verified_first(bench: ResultsBench) -> None:
    """The response to an update is lost and the check is refused: the next attempt reads what is there."""
    await bench.receive(make_report(haemoglobin("13.2"), version=1))
    bench.inject_faults(
        FaultRule(kind="lost_reply", route="PUT /fhir/Observation/*", count=1),
        FaultRule(kind="status", status=403, route="GET /fhir/Observation/*", count=1, skip=1),
    )
    stuck = await bench.receive(make_report(haemoglobin("14.0"), version=2))
    assert (stuck.state, [each.state.value for each in await bench.jobs()]) == (ReportState.MATCHED, ["dead_letter"])
    bench.inject_faults()
    assert (await bench.receive(make_report(haemoglobin("13.2"), version=3))).state is ReportState.DELIVERED
    values = [str(each["valueQuantity"]["value"]) for each in await bench.resource_versions("Observation", "RORDER.rep.hb")]
    assert values == ["13.2", "14.0", "13.2"]


async def test_retried_update_with_unknown_outcome_happens_once(bench: ResultsBench) -> None:
    """An update of unknown outcome that an operator retries is not made twice."""
    await bench.receive(make_report(haemoglobin("13.2"), version=1))
    bench.inject_faults(
        FaultRule(kind="lost_reply", route="PUT /fhir/Observation/*", count=1),
        FaultRule(kind="status", status=403, route="GET /fhir/Observation/*", count=1, skip=1),
    )
    await bench.receive(make_report(haemoglobin("14.0"), version=2))
    bench.inject_faults()
    (stuck,) = await bench.jobs()
    await retry_job(bench.store, stuck.id, by="ann", now=bench.clock.now())
    await bench.run_until_idle()
    assert (await bench.get_report("m2")).state is ReportState.DELIVERED
    values = [str(each["valueQuantity"]["value"]) for each in await bench.resource_versions("Observation", "RORDER.rep.hb")]
    assert values == ["13.2", "14.0"]
