"""A delivery of which nobody knows whether it happened, and a matching that failed: what waits for it, and in which list."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lab_agent.domain.report_records import HoldReason
from lab_agent.domain.state_machines import JobState, ReportState
from lab_agent.exchange.client import ExchangeClient
from lab_agent.workflow.operator_jobs import dismiss_job, retry_job
from lab_agent.workflow.result_matching import ReportMatcher
from tests.harness.results import ResultsBench, haemoglobin, make_report


async def deliver_with_bug(bench: ResultsBench) -> None:
    """Let an internal error meet the first delivery after something was sent."""

    async def create(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ExchangeClient, "create", create)
        first = await bench.receive(make_report(haemoglobin("1"), version=1, lines=("L0",)))
    assert (first.state, [each.state for each in await bench.jobs()]) == (ReportState.MATCHED, [JobState.NEEDS_REVIEW])


async def test_delivery_in_review_does_not_stop_other_reports(bench: ResultsBench) -> None:
    await deliver_with_bug(bench)
    other = await bench.receive(make_report(haemoglobin("2"), report_id="other", lines=("L1",)))
    assert other.state is ReportState.DELIVERED


async def test_versions_wait_for_delivery_in_review_and_follow(bench: ResultsBench) -> None:
    """Neither a newer nor an older version goes before anybody has looked; both are in the list, and follow in their order."""
    await deliver_with_bug(bench)
    newer = await bench.receive(make_report(haemoglobin("2"), version=2, lines=("L0",)))
    older = await bench.receive(make_report(haemoglobin("0"), version=0, lines=("L0",)))
    assert {newer.hold_reason, older.hold_reason} == {HoldReason.WAITS_FOR_VERSION}
    (stuck,) = await bench.jobs()
    await retry_job(bench.store, stuck.id, by="ann", now=bench.clock.now())
    await bench.run_until_idle()
    assert await bench.report_states() == [ReportState.SUPERSEDED, ReportState.DELIVERED, ReportState.SUPERSEDED]
    values = [each["valueQuantity"]["value"] for each in await bench.resource_versions("Observation", "RORDER.rep.hb")]
    assert values == [1, 2]


async def test_dismissed_matching_dismisses_its_result(bench: ResultsBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A result that could not even be matched is not left in a state that no list shows."""

    def fail(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(ReportMatcher, "_match", fail)
    failed = await bench.receive(make_report())
    assert failed.state is ReportState.RECEIVED
    (stuck,) = await bench.store.run(lambda uow: uow.jobs.needing_operator(limit=9))
    await dismiss_job(bench.store, stuck.id, by="ann", note="a test", now=bench.clock.now())
    gone = await bench.get_report("m1")
    assert (gone.state, gone.reason) == (ReportState.DISMISSED, "a test")
    assert bench.event_texts("operator"), "who dismissed it, and why, stands in its history"


async def test_unknown_reference_is_warned_of_once(bench: ResultsBench) -> None:
    """A version that is matched again says nothing twice."""
    await deliver_with_bug(bench)
    await bench.receive(replace(make_report(version=2, lines=("L0",)), accession="A-2"))
    (stuck,) = await bench.jobs()
    await retry_job(bench.store, stuck.id, by="ann", now=bench.clock.now())
    await bench.run_until_idle()
    assert (await bench.get_report("m2")).state is ReportState.DELIVERED
    assert len(bench.event_texts("warning")) == 1
