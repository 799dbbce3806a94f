"""A version whose delivery waits for a person: dead-lettered, of unknown outcome, or never matched; what waits for it."""

from __future__ import annotations

from typing import Any

import pytest

from lab_agent.exchange.client import ExchangeClient
from lab_agent.lis.lab_messages import LabReport, NotPerformed
from lab_agent.orders.job_actions import dismiss_job, retry_job
from lab_agent.results.records import HoldReason
from lab_agent.results.result_matching import ReportMatcher
from lab_agent.shared.errors import InvalidTransitionError
from lab_agent.shared.state_machines import JobState, ReportState
from lab_sandbox.faults.plan import FaultRule
from tests.harness.results import ResultsBench, haemoglobin, make_report, refused
from tests.integration.results.histories import RETRY, Step, act, dismiss, faults, get, lines, now, play, reads, states, values
from tests.integration.workflow.conftest import parametrize_first

DELIVERED, SUPERSEDED, DISMISSED = ReportState.DELIVERED, ReportState.SUPERSEDED, ReportState.DISMISSED
MATCHED, WAITS, QUESTION = ReportState.MATCHED, HoldReason.WAITS_FOR_VERSION, HoldReason.QUESTION
L0, L1 = {"lines": ("L0",)}, {"lines": ("L1",)}
ABSENT = (NotPerformed(line="L2", reason="clotted"),)
LOST_UPDATE = (
    FaultRule(kind="lost_reply", route="PUT /fhir/Observation/*", count=1),
    FaultRule(kind="status", status=403, route="GET /fhir/Observation/*", count=1, skip=1),
)
"""The response to an update is lost and the check is refused."""


def hb(value: str, name: str = "hb") -> Any:
    return haemoglobin(value, id=name)


def v(version: int, *observations: Any, **more: Any) -> LabReport:
    return make_report(*observations, version=version, **more)


async def deliver_with_bug(bench: ResultsBench) -> None:
    """Let an internal error meet the first delivery after something was sent."""

    async def create(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ExchangeClient, "create", create)
        first = await bench.receive(v(1, hb("1"), **L0))
    assert (first.state, (await bench.stuck_job()).state) == (MATCHED, JobState.NEEDS_REVIEW)


async def dismiss_stuck_job(bench: ResultsBench) -> None:
    await dismiss_job(bench.store, (await bench.stuck_job()).id, **bench.who)
    await bench.run_until_idle()


HISTORIES: dict[str, tuple[Step, ...]] = {
    "a version with less asks after the dead-lettered one": (
        faults(refused()), get(v(1, **L0), MATCHED), get(v(2, **L1), WAITS), lines("resulted"), RETRY, now(1, DELIVERED),
        now(2, QUESTION, "leave out L0"), lines("completed")),
    "a dismissed job lets the next version go": (
        faults(refused()), get(v(1, **L0), MATCHED), get(v(2, **L1), WAITS), act(dismiss_stuck_job),
        states(DISMISSED, DELIVERED)),
    # the first try had brought the value, and was refused with the report
    "an older version goes before the dead-lettered newer one, which follows by itself": (
        faults(refused()), get(v(2, hb("2")), MATCHED), get(v(1, hb("1")), SUPERSEDED), states(DELIVERED, SUPERSEDED),
        values("2", "1", "2"), reads("2")),
    "a dead-lettered version asks about values delivered meanwhile": (
        faults(refused()), get(v(2, hb("2", "b"), **L1), MATCHED), get(v(1, hb("1", "a"), **L0)),
        now(1, QUESTION, "leave out a, final"), reads("1")),
    "a version that was taken back goes when the newer one is dismissed": (
        faults(refused(2)), get(v(1, hb("1")), MATCHED), get(v(2, hb("2")), MATCHED), dismiss(2), states(DELIVERED, DISMISSED),
        reads("1")),
    "a retried update of unknown outcome is verified first": (
        get(v(1, hb("13.2"))), faults(*LOST_UPDATE), get(v(2, hb("14.0")), MATCHED), faults(), RETRY, now(2, DELIVERED),
        values("13.2", "14.0")),
    "the version after an update of unknown outcome verifies it first": (
        get(v(1, hb("13.2"))), faults(*LOST_UPDATE), get(v(2, hb("14.0")), MATCHED), faults(), get(v(3, hb("13.2"))),
        values("13.2", "14.0", "13.2")),
    # neither a newer nor an older version goes before anybody has looked; another report does
    "versions wait for a delivery in review, and follow in their order": (
        act(deliver_with_bug), get(v(2, hb("2"), **L0), WAITS), get(v(0, hb("0"), **L0), WAITS),
        get(make_report(report_id="other", **L1)), RETRY, states(SUPERSEDED, DELIVERED, SUPERSEDED, DELIVERED), values("1", "2")),
}  # fmt: skip
FIRST_PART, SECOND_PART = v(1, hb("1", "a"), **L0, not_performed=ABSENT), v(2, hb("2", "b"), **L1)
KEEPING: dict[str, tuple[Step, ...]] = {
    "a part waits for a dead-lettered part that is retried": (
        faults(refused()), get(FIRST_PART, MATCHED), get(SECOND_PART, WAITS), RETRY, states(SUPERSEDED, DELIVERED),
        lines("completed", "completed", "cancelled"), reads("1", "2")),
    "a part takes nothing along of one that is dismissed": (
        faults(refused()), get(FIRST_PART, MATCHED), get(SECOND_PART, WAITS), dismiss(1), states(DISMISSED, DELIVERED),
        reads("2")),
    "a dead-lettered version keeps values delivered meanwhile": (
        faults(refused()), get(SECOND_PART, MATCHED), get(v(1, hb("1", "a"), **L0), SUPERSEDED), now(1, DELIVERED),
        reads("1", "2"),
        lines("completed", "completed")),
}  # fmt: skip


@parametrize_first("case", [*HISTORIES, *KEEPING], quick=3)
async def test_version_that_is_stuck_loses_nothing(case: str) -> None:
    await play({**HISTORIES, **KEEPING}[case], left_out="keep" if case in KEEPING else "hold")


@pytest.mark.slow
async def test_dead_lettered_older_version_taken_back_for_newer(bench: ResultsBench) -> None:
    """Taken back when a newer version that says all of it goes, it cannot be retried; that it is superseded is told once."""
    bench.inject_faults(refused())
    first = await bench.receive(v(1, hb("1")))
    stuck = await bench.stuck_job()
    bench.inject_faults(refused(status=503))
    await bench.accept(v(2, hb("2")))
    for _ in range(2):
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


@pytest.mark.slow
async def test_unknown_reference_is_warned_of_once(bench: ResultsBench) -> None:
    """A version that is matched again says nothing twice."""
    await deliver_with_bug(bench)
    await bench.receive(v(2, accession="A-2", **L0))
    await bench.retry_stuck()
    assert (await bench.get_report("m2")).state is DELIVERED
    assert len(bench.event_texts("warning")) == 1


@pytest.mark.slow
async def test_dismissed_matching_dismisses_its_result(bench: ResultsBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A result that could not even be matched is not left in a state that no list shows."""

    def broken(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(ReportMatcher, "_match", broken)
    assert (await bench.receive(make_report())).state is ReportState.RECEIVED
    (stuck,) = await bench.store.transact(lambda uow: uow.jobs.needing_operator(limit=9))
    await dismiss_job(bench.store, stuck.id, **bench.who)
    gone = await bench.get_report("m1")
    assert (gone.state, gone.reason) == (DISMISSED, "I asked")
    assert bench.event_texts("operator"), "who dismissed it, and why, stands in its history"
