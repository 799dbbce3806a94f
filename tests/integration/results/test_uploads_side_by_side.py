"""Observations go up side by side: whatever becomes of one, what the service answered to the others is known from then on."""

from __future__ import annotations

from collections import Counter

import pytest

from lab_agent.domain.job_records import JobKind
from lab_agent.domain.state_machines import JobState, ReportState
from lab_sandbox.faults.plan import FaultRule
from tests.harness.results import PART, ResultsBench, haemoglobin, make_report
from tests.harness.sent_bodies import record_writes

NAMES = [f"o{number}" for number in range(7)]
REPORT = make_report(*(haemoglobin("13.20", id=name) for name in NAMES))
REFUSED = FaultRule(kind="status", status=422, route="POST /fhir/Observation", count=1)
LOST = FaultRule(kind="lost_reply", route="POST /fhir/Observation", count=1)


def second(rule: FaultRule) -> FaultRule:
    """The same fault of the request after the first."""
    return rule.model_copy(update={"skip": 1})


async def recorded(bench: ResultsBench) -> set[str]:
    """The observations of which the store knows that the service has them."""
    found = await bench.store.run(lambda uow: uow.uploads.find([f"{PART}.rep.{name}" for name in NAMES]))
    return {name.rpartition(".")[2] for name in found}


async def on_service(bench: ResultsBench) -> set[str]:
    found = await bench.partner.search("Observation", {})
    return {str(each["identifier"][0]["value"]).rpartition(".")[2] for each in found}


async def delivery_state(bench: ResultsBench) -> JobState:
    (job,) = [each for each in await bench.jobs() if each.kind is JobKind.DELIVER_REPORT]
    return job.state


async def deliver_once(bench: ResultsBench) -> None:
    """Match the report, and try once to deliver it."""
    await bench.accept(REPORT)
    await bench.run_due_jobs()
    await bench.run_due_jobs()


async def test_refused_observation_hides_no_answer_to_others(bench: ResultsBench) -> None:
    bench.inject_faults(REFUSED)
    await deliver_once(bench)
    assert await delivery_state(bench) is JobState.DEAD_LETTER
    assert await recorded(bench) == await on_service(bench) != set()
    (job,) = [each for each in await bench.jobs() if each.kind is JobKind.DELIVER_REPORT]
    assert (job.reason or "").startswith("observations[")


@pytest.mark.parametrize("faults", [[LOST], [LOST, second(REFUSED)], [REFUSED, second(LOST)]], ids=["alone", "first", "second"])
async def test_unknown_outcome_is_settled_first(
    bench: ResultsBench, faults: list[FaultRule], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lost reply decides, also beside an upload that was refused; each observation is there once in the end."""
    bench.inject_faults(*faults)
    writes = record_writes(monkeypatch)
    await deliver_once(bench)
    assert await delivery_state(bench) is JobState.OUTCOME_UNKNOWN
    known = await recorded(bench)
    writes.clear()
    await bench.run_until_idle()
    assert await bench.report_states() == [ReportState.DELIVERED]
    assert Counter(writes)["POST observation"] <= len(NAMES) - len(known)
    (report,) = await bench.clinic_reports()
    assert [str(each["identifier"][0]["value"]).rpartition(".")[2] for each in report.observations] == NAMES


async def test_observations_keep_their_order(bench: ResultsBench) -> None:
    """The answers come in any order."""
    bench.inject_faults(FaultRule(kind="latency", route="POST /fhir/Observation", count=2, seconds=0.05))
    await bench.receive(REPORT)
    (report,) = await bench.clinic_reports()
    assert [str(each["identifier"][0]["value"]).rpartition(".")[2] for each in report.observations] == NAMES
