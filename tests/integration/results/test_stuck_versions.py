"""A version whose delivery waits for a person: dead-lettered, of unknown outcome, or never matched; what waits for it."""

from __future__ import annotations

from typing import Any

import pytest

from lab_agent.domain.lab_messages import NotPerformed
from lab_agent.domain.report_records import HoldReason
from lab_agent.domain.state_machines import JobState, ReportState
from lab_agent.errors import InvalidTransitionError
from lab_agent.exchange.client import ExchangeClient
from lab_agent.workflow.operator_jobs import dismiss_job, retry_job
from lab_agent.workflow.result_matching import ReportMatcher
from lab_sandbox.faults.plan import FaultRule
from tests.harness.results import ResultsBench, haemoglobin, make_report, open_bench, refused

DELIVERED, SUPERSEDED, DISMISSED = ReportState.DELIVERED, ReportState.SUPERSEDED, ReportState.DISMISSED
MATCHED, WAITS = ReportState.MATCHED, HoldReason.WAITS_FOR_VERSION


def hb(value: str, name: str = "hb") -> Any:
    return haemoglobin(value, id=name)


async def fail(*_: Any, **__: Any) -> Any:
    raise ZeroDivisionError


async def deliver_with_bug(bench: ResultsBench) -> None:
    """Let an internal error meet the first delivery after something was sent."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ExchangeClient, "create", fail)
        first = await bench.receive(make_report(hb("1"), version=1, lines=("L0",)))
    assert (first.state, [each.state for each in await bench.jobs()]) == (MATCHED, [JobState.NEEDS_REVIEW])


@pytest.mark.parametrize("then", ["retried", "dismissed"])
async def test_part_waits_for_dead_lettered_part(then: str) -> None:
    """It follows once that is retried or dismissed, and takes what was dismissed nowhere."""
    async with open_bench({"left_out": "keep"}) as bench:
        bench.inject_faults(refused())
        absent = (NotPerformed(line="L2", reason="clotted"),)
        first = await bench.receive(make_report(hb("1", "a"), version=1, lines=("L0",), not_performed=absent))
        assert first.state is MATCHED
        assert (await bench.receive(make_report(hb("2", "b"), version=2, lines=("L1",)))).hold_reason is WAITS
        assert await bench.line_states() == ["resulted", "accepted", "accepted"]
        await (bench.retry_stuck() if then == "retried" else bench.dismiss(first))
        assert await bench.report_states() == [SUPERSEDED if then == "retried" else DISMISSED, DELIVERED]
        (found,) = await bench.clinic_reports()
        if then == "retried":
            assert await bench.line_states() == ["completed", "completed", "cancelled"]
            assert (await bench.order_status()).order == "completed"
        else:
            assert [str(one["valueQuantity"]["value"]) for one in found.observations] == ["2"]


async def test_version_with_less_asks_after_the_dead_lettered_one(bench: ResultsBench) -> None:
    bench.inject_faults(refused())
    await bench.receive(make_report(version=1, lines=("L0",)))
    assert (await bench.receive(make_report(version=2, lines=("L1",)))).hold_reason is WAITS
    await bench.retry_stuck()
    asked = await bench.get_report("m2")
    assert ((await bench.get_report("m1")).state, asked.hold_reason) == (DELIVERED, HoldReason.QUESTION)
    assert "leave out L0" in (asked.reason or "")
    assert await bench.line_states() == ["completed", "accepted", "accepted"]


async def test_dismissed_job_lets_next_version_go(bench: ResultsBench) -> None:
    bench.inject_faults(refused())
    for version, line in ((1, "L0"), (2, "L1")):
        await bench.receive(make_report(version=version, lines=(line,)))
    await dismiss_job(bench.store, (await bench.stuck_job()).id, **bench.who)
    await bench.run_until_idle()
    assert await bench.report_states() == [DISMISSED, DELIVERED]


async def test_older_version_goes_before_dead_lettered_newer(bench: ResultsBench) -> None:
    """The delivery that was dead-lettered is taken back and follows by itself."""
    bench.inject_faults(refused())
    await bench.receive(make_report(hb("2"), version=2))
    stuck = await bench.stuck_job()
    await bench.receive(make_report(hb("1"), version=1))
    assert await bench.report_states() == [DELIVERED, SUPERSEDED]
    assert stuck.id not in {each.id for each in await bench.jobs()}
    assert await bench.values() == ["2", "1", "2"], "the first try had brought the value, and was refused with the report"
    assert len(await bench.clinic_reports()) == 1


@pytest.mark.parametrize("left_out", ["hold", "keep"])
async def test_dead_lettered_version_keeps_values_delivered_meanwhile(left_out: str) -> None:
    async with open_bench({"left_out": left_out}) as bench:
        bench.inject_faults(refused())
        await bench.receive(make_report(hb("2", "b"), version=2, lines=("L1",)))
        await bench.receive(make_report(hb("1", "a"), version=1, lines=("L0",)))
        (found,) = await bench.clinic_reports()
        newer = await bench.get_report("m1")
        if left_out == "hold":
            assert (newer.hold_reason, "leave out a, final" in (newer.reason or "")) == (HoldReason.QUESTION, True)
        else:
            assert newer.state is DELIVERED
            assert await bench.line_states() == ["completed", "completed", "accepted"]
        assert len(found.observations) == (1 if left_out == "hold" else 2)


async def test_dead_lettered_older_version_taken_back_for_newer(bench: ResultsBench) -> None:
    """Taken back when a newer version that says all of it goes, it cannot be retried; that one's end is told once."""
    bench.inject_faults(refused())
    first = await bench.receive(make_report(hb("1"), version=1))
    stuck = await bench.stuck_job()
    bench.inject_faults(refused(status=503))
    await bench.accept(make_report(hb("2"), version=2))
    await bench.run_due_jobs()
    await bench.run_due_jobs()
    assert {each.state for each in await bench.jobs()} == {JobState.OUTCOME_UNKNOWN}
    assert (await bench.get_report("m1")).hold_reason is WAITS
    with pytest.raises(InvalidTransitionError):
        await retry_job(bench.store, stuck.id, by="ann", now=bench.clock.now())
    await bench.run_until_idle()
    assert await bench.report_states() == [SUPERSEDED, DELIVERED]
    assert (await bench.values(), await bench.jobs()) == (["1", "2"], ())
    assert (await bench.order_status()).order == "completed"
    assert [first.key in text for text in bench.event_texts("superseded")] == [True]


async def test_taken_back_version_goes_when_newer_is_dismissed(bench: ResultsBench) -> None:
    bench.inject_faults(refused(2))
    await bench.receive(make_report(hb("1"), version=1))
    second = await bench.receive(make_report(hb("2"), version=2))
    assert second.state is MATCHED
    await bench.dismiss(second)
    assert await bench.report_states() == [DELIVERED, DISMISSED]
    (found,) = await bench.clinic_reports()
    assert [each["valueQuantity"]["value"] for each in found.observations] == [1]


@pytest.mark.parametrize("then", ["retried", "newer version"])
async def test_update_with_unknown_outcome_is_verified_first(bench: ResultsBench, then: str) -> None:
    """The response to an update is lost and the check is refused: the next attempt reads what is there."""
    await bench.receive(make_report(hb("13.2"), version=1))
    bench.inject_faults(
        FaultRule(kind="lost_reply", route="PUT /fhir/Observation/*", count=1),
        FaultRule(kind="status", status=403, route="GET /fhir/Observation/*", count=1, skip=1),
    )
    stuck = await bench.receive(make_report(hb("14.0"), version=2))
    assert (stuck.state, [each.state for each in await bench.jobs()]) == (MATCHED, [JobState.DEAD_LETTER])
    bench.inject_faults()
    if then == "retried":
        await bench.retry_stuck()
        assert (await bench.get_report("m2")).state is DELIVERED
    else:
        assert (await bench.receive(make_report(hb("13.2"), version=3))).state is DELIVERED
    assert await bench.values() == ["13.2", "14.0", *(["13.2"] if then != "retried" else [])]


async def test_versions_wait_for_delivery_in_review_and_follow(bench: ResultsBench) -> None:
    """Neither a newer nor an older version goes before anybody has looked, and each follows in its order; another report goes."""
    await deliver_with_bug(bench)
    newer = await bench.receive(make_report(hb("2"), version=2, lines=("L0",), accession="A-2"))
    older = await bench.receive(make_report(hb("0"), version=0, lines=("L0",)))
    assert {newer.hold_reason, older.hold_reason} == {WAITS}
    assert (await bench.receive(make_report(hb("2"), report_id="other", lines=("L1",)))).state is DELIVERED
    await bench.retry_stuck()
    assert await bench.report_states() == [SUPERSEDED, DELIVERED, SUPERSEDED, DELIVERED]
    assert await bench.values() == ["1", "2"]
    assert len(bench.event_texts("warning")) == 1, "an unknown reference is warned of once, however often it is matched"


async def test_dismissed_matching_dismisses_its_result(bench: ResultsBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A result that could not even be matched is not left in a state that no list shows."""

    def broken(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(ReportMatcher, "_match", broken)
    assert (await bench.receive(make_report())).state is ReportState.RECEIVED
    (stuck,) = await bench.store.run(lambda uow: uow.jobs.needing_operator(limit=9))
    await dismiss_job(bench.store, stuck.id, **bench.who)
    gone = await bench.get_report("m1")
    assert (gone.state, gone.reason) == (DISMISSED, "I asked")
    assert bench.event_texts("operator"), "who dismissed it, and why, stands in its history"
