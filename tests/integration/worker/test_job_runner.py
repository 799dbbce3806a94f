"""The runner: what follows each failure, and who may write. Which job is claimed when is tried in the store's tests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from lab_agent.queue.failure_causes import FailureCause
from lab_agent.queue.job_handler import Lease
from lab_agent.queue.job_lease import JobLease
from lab_agent.queue.job_records import KEPT_ATTEMPTS, Job
from lab_agent.queue.outages import EXCHANGE_OUTAGE, OutageTracker
from lab_agent.shared.call_trace import note_call
from lab_agent.shared.errors import (
    Failure,
    InvalidResponse,
    InvalidTransitionError,
    OutcomeIssue,
    OutcomeUnknown,
    PermanentFailure,
    ServiceUnavailable,
    StoreError,
    StoreUnreachableError,
    TemporaryFailure,
)
from lab_agent.shared.ids import OrderKey
from lab_agent.shared.state_machines import JobState
from lab_agent.store.unit_of_work import UnitOfWork
from tests.harness.clock import DEADLINE
from tests.integration.worker.conftest import LEASE, Outcome, WorkerBench


def raising(failure: BaseException, *, started: bool = False) -> Callable[[Lease], Awaitable[Outcome]]:
    async def behave(lease: Lease) -> Outcome:
        if started:
            await lease.mark_started()
        raise failure

    return behave


def completing(complete: Outcome) -> Callable[[Lease], Awaitable[Outcome]]:
    async def behave(_: Lease) -> Outcome:
        return complete

    return behave


@pytest.mark.parametrize(
    ("failure", "started", "state", "wait"),
    [
        (TemporaryFailure("busy"), False, JobState.DUE, 2),
        (TemporaryFailure("busy", retry_after=77), False, JobState.DUE, 77),
        (TemporaryFailure("busy"), True, JobState.DUE, 2),
        (InvalidResponse("no JSON"), False, JobState.DUE, 2),  # of a read: nothing was started that could be verified
        (OutcomeUnknown("silence"), True, JobState.OUTCOME_UNKNOWN, 2),
        (PermanentFailure("no"), True, JobState.DEAD_LETTER, 0),
        (ZeroDivisionError(), False, JobState.DEAD_LETTER, 0),
        (ZeroDivisionError(), True, JobState.NEEDS_REVIEW, 0),
    ],
)
async def test_each_failure_has_its_consequence(
    bench: WorkerBench, failure: Exception, started: bool, state: JobState, wait: int
) -> None:
    """A bug, too, ends its own job alone."""
    await bench.add_job("bad")
    await bench.add_job("good")

    async def behave(lease: Lease) -> Outcome:
        return await raising(failure, started=started)(lease) if lease.job.dedup_key == "bad" else None

    bench.handler.behaviour = behave
    await bench.run_due_jobs()
    job = await bench.get_job()
    assert job.state is state
    assert (str(failure) if isinstance(failure, Failure) else "internal error ZeroDivisionError") in str(job.reason)
    assert job.due_at == bench.clock.now() + timedelta(seconds=wait)
    assert job.started is (started and state is not JobState.DUE), "nothing happened outside: the next attempt starts afresh"
    assert (await bench.get_job(2)).state is JobState.DONE


async def test_unknown_outcome_is_verified_before_repeating(bench: WorkerBench) -> None:
    await bench.add_job()
    bench.handler.behaviour = raising(OutcomeUnknown("silence"), started=True)
    await bench.run_due_jobs()
    assert await bench.run_due_jobs() == 0, "not before its time"
    bench.clock.advance(3)
    bench.handler.behaviour = raising(TemporaryFailure("cannot verify"))
    await bench.run_due_jobs()
    assert (await bench.get_job()).state is JobState.OUTCOME_UNKNOWN, "a failed verification proves nothing"
    bench.clock.advance(10)
    bench.handler.behaviour = None
    await bench.run_due_jobs()
    assert bench.handler.calls == ["perform e", "verify e", "verify e"]
    assert (await bench.get_job()).state is JobState.DONE


async def test_completion_with_invalid_transition_writes_nothing(bench: WorkerBench) -> None:
    await bench.add_job()

    def complete(uow: UnitOfWork, job: Job) -> Job:
        uow.key_values.set("half", "written")
        raise InvalidTransitionError("no such move")

    bench.handler.behaviour = completing(complete)
    await bench.run_due_jobs()
    job = await bench.get_job()
    assert (job.state, "no such move" in str(job.reason)) == (JobState.DEAD_LETTER, True)
    assert await bench.store.transact(lambda uow: uow.key_values.get("half")) is None


async def test_completion_after_lost_lease_is_dropped(bench: WorkerBench) -> None:
    await bench.add_job()
    job = await bench.claim()
    bench.clock.advance(LEASE.total_seconds() + 1)
    assert await bench.run_due_jobs(bench.make_runner("two")) == 1
    assert bench.handler.calls == ["perform e"], "it was not started, so that there is nothing to verify"
    await bench.add_job("started")
    await JobLease((await bench.claim()).job, bench.store, bench.clock, LEASE).mark_started()
    bench.clock.advance(LEASE.total_seconds() + 1)
    assert await bench.run_due_jobs(bench.make_runner("two")) == 1
    assert bench.handler.calls == ["perform e", "verify started"]

    def complete(uow: UnitOfWork, late: Job) -> Job:
        uow.key_values.set("late", "written")
        return late.dead_letter(bench.clock.now(), "late")

    bench.handler.behaviour = completing(complete)
    await bench.runner.run(job)
    assert (await bench.get_job()).state is JobState.DONE
    assert await bench.store.transact(lambda uow: uow.key_values.get("late")) is None


async def test_exchange_outage_is_reported_once(bench: WorkerBench) -> None:
    """However many jobs wait. To ask the service may take long: a job that has ended has no lease that a heartbeat could lose."""
    asked, answer = asyncio.Event(), asyncio.Event()

    async def probe() -> bool:
        asked.set()
        await answer.wait()
        return False

    bench.outages = OutageTracker(bench.store, bench.clock, probe)
    bench.runner = bench.make_runner("one")
    for number in range(5):
        await bench.add_job(f"e{number}")
    bench.handler.behaviour = raising(ServiceUnavailable("nobody there"))
    work = asyncio.create_task(bench.run_due_jobs())
    await asyncio.wait_for(asked.wait(), DEADLINE)
    await bench.runner.heartbeat._renew()
    answer.set()
    await work
    assert bench.attempts == [("update_line_task", "due")] * 5
    assert bench.outages.is_known(ServiceUnavailable("again"))
    assert set(await bench.open_alerts()) == {EXCHANGE_OUTAGE}


@pytest.mark.parametrize("error", [StoreUnreachableError(), StoreError("SQLSTATE 25006")])
async def test_store_that_refuses_an_end_leaves_job_to_its_lease(bench: WorkerBench, error: StoreError) -> None:
    await bench.add_job()
    job = await bench.claim()
    with bench.refusing(error):
        await bench.runner.run(job)
    assert (await bench.get_job()).state is JobState.IN_FLIGHT
    bench.clock.advance(LEASE.total_seconds() + 1)
    await bench.run_due_jobs()
    assert (await bench.get_job()).state is JobState.DONE


async def test_attempts_are_kept_with_the_job(bench: WorkerBench) -> None:
    """The call that says most, its status, how long it took, and why it failed: in the row that ends it, the newest ten.

    The words of the service are sealed, also of as many attempts.
    """
    await bench.add_job(order=OrderKey("R1"))

    async def fail(lease: Lease) -> Outcome:
        note_call("GET Task", status=200)
        note_call("PUT Task", status=503, is_failed=True)
        note_call("GET Task", status=200)
        bench.clock.advance(0.4)
        raise ServiceUnavailable("PUT Task was answered with 503", issues=(OutcomeIssue("error", "x", "Anna Petrova"),))

    async def succeed(lease: Lease) -> Outcome:
        note_call("PUT Task", status=200)
        note_call("GET Task", status=200)
        return None

    bench.handler.behaviour = fail
    for _ in range(KEPT_ATTEMPTS + 1):
        await bench.run_due_jobs()
        bench.clock.advance(600)
    bench.handler.behaviour = succeed
    await bench.run_due_jobs()
    job = await bench.get_job()
    assert [each.number for each in job.attempt_log] == list(range(3, KEPT_ATTEMPTS + 3))
    *_, failed, done = job.attempt_log
    cause = FailureCause.SERVICE_UNAVAILABLE
    assert (failed.call, failed.status, failed.milliseconds, failed.cause) == ("PUT Task", 503, 400, cause)
    assert (done.call, done.status, done.cause) == ("PUT Task", 200, None)
    assert "Petrova" not in repr(job.attempt_log)
    (words,) = (await bench.store.transact(lambda uow: uow.vault.service_messages(OrderKey("R1")))).values()
    assert [each.attempt for each in words] == list(range(2, KEPT_ATTEMPTS + 2))
    assert {(each.answer, each.text) for each in words} == {("PUT Task was answered with 503", "error x: Anna Petrova")}
    await bench.add_job("silent")
    bench.handler.behaviour = raising(ValueError("Anna Petrova"))
    await bench.run_due_jobs()
    (attempt,) = (await bench.get_job(2)).attempt_log
    assert (attempt.call, attempt.status, attempt.cause) == ("", None, FailureCause.INTERNAL_ERROR)


async def test_job_whose_end_cannot_be_written_is_told(bench: WorkerBench, monkeypatch: pytest.MonkeyPatch) -> None:
    await bench.add_job()

    def break_down(*_: object) -> None:
        raise ValueError("Anna Petrova")

    with monkeypatch.context() as broken:
        broken.setattr(JobLease, "end", break_down)
        for _ in range(2):
            await bench.run_due_jobs()
            bench.clock.advance(LEASE.total_seconds() + 1)
            await bench.runner.claimer.expire_leases()
            ((key, told),) = (await bench.open_alerts()).items()
            assert str(key) == "agent.part_fails/jobs"
            assert ["ValueError" in str(told.detail), "Petrova" in str(told.detail)] == [True, False]
    await bench.run_due_jobs()
    assert ((await bench.get_job()).state, await bench.open_alerts()) == (JobState.DONE, {})
