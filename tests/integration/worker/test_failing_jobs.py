"""Jobs that fail again and again: what is told of them, when it ends, and that the service's own words stay sealed."""

from __future__ import annotations

from datetime import timedelta

import pytest

from lab_agent.operations.attention_alerts import AttentionAlerts
from lab_agent.queue.failure_causes import FailureCause
from lab_agent.queue.job_handler import Lease
from lab_agent.queue.job_records import JobKind
from lab_agent.queue.outages import OutageTracker
from lab_agent.shared.conditions.model import AlertKey, ConditionId
from lab_agent.shared.errors import (
    Failure,
    ForeignLink,
    InvalidResponse,
    LisOutcomeUnknown,
    LisUnavailable,
    OutcomeIssue,
    OutcomeUnknown,
    PermanentFailure,
    ServicePaused,
    ServiceRejected,
    ServiceUnavailable,
)
from lab_agent.shared.ids import JobId, OrderKey
from lab_agent.shared.state_machines import JobState
from tests.fakes.exchange_service import service_reachable
from tests.integration.worker.conftest import Outcome, WorkerBench

TASKS_OUTAGE = AlertKey(ConditionId.EXCHANGE_PART_UNAVAILABLE, "update_line_task")
ALERT_AFTER = timedelta(minutes=30)


class Bench:
    """A worker whose service can be read; jobs named in `failing` fail with that failure, after they were started."""

    def __init__(self, bench: WorkerBench) -> None:
        self.worker = bench
        self.failing: dict[str, Failure] = {}
        bench.handler.behaviour = self._behave
        self.restart("one")

    def restart(self, name: str) -> None:
        """Another process, which knows of no outage."""
        self.worker.outages = OutageTracker(self.worker.store, self.worker.clock, service_reachable)
        self.worker.runner = self.worker.make_runner(name)

    async def _behave(self, lease: Lease) -> Outcome:
        await lease.mark_started()
        if failure := self.failing.get(lease.job.dedup_key):
            raise failure
        return None

    async def add_job(self, name: str, failure: Failure | None = None, kind: JobKind = JobKind.UPDATE_LINE_TASK) -> None:
        if failure is not None:
            self.failing[name] = failure
        await self.worker.add_job(name, kind=kind, order=OrderKey(f"R{name}"))

    async def run(self, *, minutes: float = 0.0) -> None:
        """Run what is due, and again until so many minutes are over."""
        end = self.worker.clock.now() + timedelta(minutes=minutes)
        await self.worker.run_due_jobs()
        while self.worker.clock.now() < end:
            self.worker.clock.advance(minutes=min(minutes, 5))
            await self.worker.run_due_jobs()

    async def attend(self) -> set[AlertKey]:
        """Do what a worker does every half minute; the alerts that are open then."""
        await AttentionAlerts(self.worker.store, self.worker.clock, ALERT_AFTER).run()
        await self.worker.outages.end_settled_parts()
        return set(await self.worker.open_alerts())

    async def details(self) -> dict[AlertKey, str | None]:
        return {key: each.detail for key, each in (await self.worker.open_alerts()).items()}

    async def recover(self, minutes: float = 10) -> None:
        """Nothing fails any more, and no alert is left after a while."""
        self.failing.clear()
        await self.run(minutes=minutes)
        assert await self.attend() == set()


@pytest.fixture
def failing(bench: WorkerBench) -> Bench:
    return Bench(bench)


FAILURES = [OutcomeUnknown("500"), InvalidResponse("page"), ServiceUnavailable("503"), ForeignLink("302")]


@pytest.mark.parametrize("failure", [*FAILURES, ServiceRejected("search answered with 418", status=418, may_pass=True)])
async def test_failing_writes_begin_outage_while_reads_work(failing: Bench, failure: Failure) -> None:
    await failing.add_job("a", failure)
    await failing.run(minutes=10)
    assert await failing.details() == {TASKS_OUTAGE: str(failure)}
    assert (await failing.worker.get_job()).state in {JobState.DUE, JobState.OUTCOME_UNKNOWN}
    await failing.recover()


async def test_outage_of_a_kind_of_job_tells_how_many_fail_and_since_when(failing: Bench) -> None:
    """Also to a process that comes after the one that told it; the newest time to wait until is in its text."""
    began = failing.worker.clock.now()
    for name in ("a", "b"):
        await failing.add_job(name, ServiceUnavailable("500"))
    await failing.run(minutes=10)
    await failing.worker.outages.end_settled_parts()
    ((key, alert),) = (await failing.worker.open_alerts()).items()
    assert (key, alert.count, alert.since) == (TASKS_OUTAGE, 2, began)
    failing.restart("two")
    for text in ("until 12:01", "until 12:02"):
        await failing.worker.outages.record_failure(ServiceUnavailable(text, retry_after=60), "update_line_task")
        assert await failing.details() == {TASKS_OUTAGE: text}
    await failing.recover()


async def test_what_passes_is_no_outage(failing: Bench) -> None:
    """A single lost reply, or a request that was not sent."""
    await failing.add_job("a", OutcomeUnknown("lost"))
    await failing.run()
    await failing.recover(minutes=5)
    assert (await failing.worker.get_job()).state is JobState.DONE
    await failing.add_job("b", ServicePaused("it asks to wait", retry_after=60))
    await failing.run(minutes=5)
    assert await failing.details() == {}
    assert (await failing.worker.get_job(2)).failure_cause is FailureCause.SERVICE_ASKS_TO_WAIT


async def test_outage_ends_only_by_success_of_what_failed(failing: Bench) -> None:
    """The success of another job of the kind proves nothing: there is one outage, from the first failure to the last success."""
    await failing.add_job("bad", ServiceUnavailable("500"))
    for number in range(8):
        await failing.add_job(f"good{number}")
        await failing.run(minutes=5)
        assert await failing.details() == {TASKS_OUTAGE: "500"}
    await failing.recover(minutes=5)


async def test_outage_ends_when_operator_settles_job(failing: Bench) -> None:
    await failing.add_job("bad", ServiceUnavailable("500"))
    await failing.run()
    now = failing.worker.clock.now()
    await failing.worker.write(lambda uow: uow.jobs.save(uow.jobs.get(JobId(1)).mark_obsolete(now, "not needed")))  # type: ignore[union-attr]
    assert await failing.attend() == set()


async def test_job_failing_for_long_opens_alert_by_cause(failing: Bench) -> None:
    for name in ("a", "b"):
        await failing.add_job(name, OutcomeUnknown("500"))
    await failing.add_job("c", LisUnavailable("away"), JobKind.SUBMIT_ORDER)
    await failing.run(minutes=25)
    assert await failing.attend() == {TASKS_OUTAGE}
    await failing.run(minutes=6)
    unknown, lis = (AlertKey(cause.condition) for cause in (FailureCause.OUTCOME_UNKNOWN, FailureCause.LIS_UNAVAILABLE))
    assert await failing.attend() == {TASKS_OUTAGE, unknown, lis}
    assert "2 update_line_task" in str((await failing.details())[unknown])
    await failing.recover()


async def test_unknown_outcome_that_is_never_settled_is_told_and_sent_seldom(failing: Bench) -> None:
    """A LIS that confirms nothing: each check finds that the order has to be sent again, which mends nothing."""
    worker, sent = failing.worker, []

    async def behave(lease: Lease) -> Outcome:
        if worker.handler.calls[-1].startswith("verify"):
            now = worker.clock.now()
            return lambda _, job: job.reschedule(now, now, "the laboratory system does not have it")
        await lease.mark_started()
        sent.append(worker.clock.now())
        raise LisOutcomeUnknown("no answer") if len(sent) % 2 else LisUnavailable("AE with error 207")

    worker.handler.behaviour = behave
    await failing.add_job("a", kind=JobKind.SUBMIT_ORDER)
    for _ in range(35):
        await failing.run(minutes=1)
    [alert] = await failing.attend()
    assert alert in {AlertKey(ConditionId.JOBS_LIS_OUTCOME_UNKNOWN), AlertKey(ConditionId.JOBS_LIS_UNAVAILABLE)}
    assert len(sent) < 20
    worker.handler.behaviour = None
    await failing.recover()
    assert (await worker.get_job()).state is JobState.DONE


async def test_wait_that_decides_nothing_is_no_failure(failing: Bench) -> None:
    """A handler that lets its job wait (a held order) has not failed; an earlier failure is over then."""
    await failing.add_job("a", ServiceUnavailable("500"))
    await failing.run()
    assert (await failing.worker.get_job()).failing_since is not None

    async def wait(_: Lease) -> Outcome:
        return lambda _, job: job.reschedule(failing.worker.clock.now(), failing.worker.clock.now(), "held")

    failing.worker.handler.behaviour = wait
    failing.worker.clock.advance(10)
    await failing.run()
    assert ((await failing.worker.get_job()).failing_since, await failing.details()) == (None, {})


async def test_dead_letter_keeps_its_cause_and_is_tried_no_longer(failing: Bench) -> None:
    await failing.add_job("a", ServiceUnavailable("500"))
    await failing.run()
    failing.failing["a"] = PermanentFailure("no")
    await failing.run(minutes=5)
    job = await failing.worker.get_job()
    assert (job.state, job.failure_cause, job.failures, job.is_failing) == (JobState.DEAD_LETTER, FailureCause.OTHER, 2, False)
    assert await failing.worker.store.transact(lambda uow: uow.jobs.failing(since=failing.worker.clock.now())) == ()
    assert await failing.attend() == {AlertKey(ConditionId.JOBS_OTHER)}, "a person has to decide about it"


async def test_service_words_sealed_with_job(failing: Bench, caplog: pytest.LogCaptureFixture) -> None:
    said = (OutcomeIssue("error", "processing", "Anna Sample\n has no\x1b right"), OutcomeIssue("error", "invalid", ""))
    await failing.add_job("a", ServiceRejected("POST was answered with 422", status=422, issues=said))
    await failing.run()
    words = await failing.worker.store.transact(lambda uow: uow.vault.service_messages(OrderKey("Ra")))
    assert {job: each[-1].text for job, each in words.items()} == {1: "error processing: Anna Sample has no? right"}
    assert "Anna" not in str(await failing.worker.get_job())
    assert "Anna" not in caplog.text
