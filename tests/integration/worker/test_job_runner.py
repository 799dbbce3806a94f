"""The runner: what follows each failure, and who may write."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from lab_agent.call_trace import note_call
from lab_agent.domain.failure_causes import FailureCause
from lab_agent.domain.job_records import KEPT_ATTEMPTS, Job, JobKind
from lab_agent.domain.state_machines import JobState
from lab_agent.errors import (
    Failure,
    InvalidTransitionError,
    LabAgentError,
    OutcomeIssue,
    OutcomeUnknown,
    PermanentFailure,
    ServiceUnavailable,
    StoreError,
    StoreUnreachableError,
    TemporaryFailure,
)
from lab_agent.ports.job_handler import Lease
from lab_agent.ports.repositories import UnitOfWork
from lab_agent.worker.job_lease import JobLease
from lab_agent.worker.outages import EXCHANGE_OUTAGE, OutageTracker
from tests.harness.clock import DEADLINE
from tests.harness.jobs import claim_jobs
from tests.integration.worker.conftest import LEASE, Outcome, WorkerBench


def raising(failure: BaseException, *, started: bool = False) -> object:
    async def behave(lease: Lease) -> Outcome:
        if started:
            await lease.mark_started()
        raise failure

    return behave


async def test_done_job_runs_once(bench: WorkerBench) -> None:
    await bench.add_job()
    assert await bench.run_due_jobs() == 1
    assert await bench.run_due_jobs() == 0
    assert bench.handler.calls == ["perform e"]
    assert bench.attempts == [("update_line_task", "done")]


@pytest.mark.parametrize(
    ("failure", "started", "state", "wait"),
    [
        (TemporaryFailure("busy"), False, JobState.DUE, 2),
        (TemporaryFailure("busy", retry_after=77), False, JobState.DUE, 77),
        (TemporaryFailure("busy"), True, JobState.DUE, 2),
        (OutcomeUnknown("silence"), True, JobState.OUTCOME_UNKNOWN, 2),
        (PermanentFailure("no"), True, JobState.DEAD_LETTER, 0),
    ],
)
async def test_each_failure_has_its_consequence(
    bench: WorkerBench, failure: Failure, started: bool, state: JobState, wait: int
) -> None:
    await bench.add_job()
    bench.handler.behaviour = raising(failure, started=started)  # type: ignore[assignment]
    await bench.run_due_jobs()
    job = await bench.get_job()
    assert (job.state, job.reason) == (state, str(failure))
    assert job.due_at == bench.clock.now() + timedelta(seconds=wait)
    assert job.started is (started and state is not JobState.DUE), "nothing happened outside: the next attempt starts afresh"


async def test_unknown_outcome_is_verified_before_repeating(bench: WorkerBench) -> None:
    await bench.add_job()
    bench.handler.behaviour = raising(OutcomeUnknown("silence"), started=True)  # type: ignore[assignment]
    await bench.run_due_jobs()
    bench.clock.advance(3)
    bench.handler.behaviour = raising(TemporaryFailure("cannot verify"), started=False)  # type: ignore[assignment]
    await bench.run_due_jobs()
    assert (await bench.get_job()).state is JobState.OUTCOME_UNKNOWN, "a failed verification proves nothing"
    bench.clock.advance(10)
    bench.handler.behaviour = None
    await bench.run_due_jobs()
    assert bench.handler.calls == ["perform e", "verify e", "verify e"]
    assert (await bench.get_job()).state is JobState.DONE


@pytest.mark.parametrize(("started", "state"), [(False, JobState.DEAD_LETTER), (True, JobState.NEEDS_REVIEW)])
async def test_bug_dead_letters_its_job_only(bench: WorkerBench, started: bool, state: JobState) -> None:
    """A bug dead-letters its job, and the good ones proceed."""
    await bench.add_job("bad")
    await bench.add_job("good")

    async def behave(lease: Lease) -> Outcome:
        if lease.job.dedup_key == "bad":
            if started:
                await lease.mark_started()
            raise ZeroDivisionError
        return None

    bench.handler.behaviour = behave
    await bench.run_due_jobs()
    assert (await bench.get_job(1)).state is state
    assert "internal error ZeroDivisionError" in str((await bench.get_job(1)).reason)
    assert (await bench.get_job(2)).state is JobState.DONE


async def test_completion_with_invalid_transition_writes_nothing(bench: WorkerBench) -> None:
    """A completion that makes an invalid transition writes nothing of itself."""
    await bench.add_job()

    def complete(uow: UnitOfWork, job: Job) -> Job:
        uow.key_values.set("half", "written")
        raise InvalidTransitionError("no such move")

    async def behave(_: Lease) -> Outcome:
        return complete

    bench.handler.behaviour = behave
    await bench.run_due_jobs()
    job = await bench.get_job()
    assert job.state is JobState.DEAD_LETTER
    assert "no such move" in str(job.reason)
    assert await bench.store.run(lambda uow: uow.key_values.get("half")) is None


async def test_completion_after_lost_lease_is_dropped(bench: WorkerBench) -> None:
    await bench.add_job()
    (job,) = await claim_jobs(bench.runner, [JobKind.UPDATE_LINE_TASK], 1)
    bench.clock.advance(LEASE.total_seconds() + 1)
    other = bench.make_runner("two")
    assert await bench.run_due_jobs(other) == 1

    async def behave(_: Lease) -> Outcome:
        def complete(uow: UnitOfWork, late: Job) -> Job:
            uow.key_values.set("late", "written")
            return late.dead_letter(bench.clock.now(), "late")

        return complete

    bench.handler.behaviour = behave
    await bench.runner.run(job)
    assert (await bench.get_job()).state is JobState.DONE
    assert await bench.store.run(lambda uow: uow.key_values.get("late")) is None


async def test_unstarted_job_of_dead_worker_needs_no_verification(bench: WorkerBench) -> None:
    await bench.add_job()
    await claim_jobs(bench.runner, [JobKind.UPDATE_LINE_TASK], 1)
    bench.clock.advance(LEASE.total_seconds() + 1)
    await bench.run_due_jobs(bench.make_runner("two"))
    assert bench.handler.calls == ["perform e"]


async def test_started_job_of_dead_worker_is_verified(bench: WorkerBench) -> None:
    await bench.add_job()
    died = asyncio.Event()

    async def behave(lease: Lease) -> Outcome:
        await lease.mark_started()
        died.set()
        await asyncio.Event().wait()
        raise AssertionError

    bench.handler.behaviour = behave
    (job,) = await claim_jobs(bench.runner, [JobKind.UPDATE_LINE_TASK], 1)
    work = asyncio.create_task(bench.runner.run(job))
    await asyncio.wait_for(died.wait(), DEADLINE)
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    bench.handler.behaviour = None
    bench.clock.advance(LEASE.total_seconds() + 1)
    await bench.run_due_jobs(bench.make_runner("two"))
    assert bench.handler.calls == ["perform e", "verify e"]


async def test_jobs_of_one_ordering_key_run_in_order(bench: WorkerBench) -> None:
    for name in ("a", "b", "c"):
        await bench.add_job(name, ordering_key="one")
    while await bench.run_due_jobs():
        pass
    assert bench.handler.calls == ["perform a", "perform b", "perform c"]


async def test_dead_lettered_job_does_not_block_ordering_key(bench: WorkerBench) -> None:
    await bench.add_job("a", ordering_key="one")
    await bench.add_job("b", ordering_key="one")
    bench.handler.behaviour = raising(PermanentFailure("no"))  # type: ignore[assignment]
    await bench.run_due_jobs()
    bench.handler.behaviour = None
    await bench.run_due_jobs()
    assert (await bench.get_job(2)).state is JobState.DONE


async def test_exchange_outage_is_reported_once(bench: WorkerBench) -> None:
    """An unavailable exchange is reported once, however many jobs wait."""
    for number in range(5):
        await bench.add_job(f"e{number}")
    bench.handler.behaviour = raising(ServiceUnavailable("nobody there"))  # type: ignore[assignment]
    await bench.run_due_jobs()
    closed = await bench.write(lambda uow: [uow.alerts.close(EXCHANGE_OUTAGE, now=bench.clock.now()) for _ in range(2)])
    assert closed == [True, False]


async def test_job_that_has_ended_has_no_lease_to_lose(bench: WorkerBench) -> None:
    """To tell of an outage takes a request to a service that may not answer; a heartbeat meanwhile finds no lease any more."""
    asked, answer = asyncio.Event(), asyncio.Event()

    async def probe() -> bool:
        asked.set()
        await answer.wait()
        return False

    bench.outages = OutageTracker(bench.store, bench.clock, probe)
    bench.runner = bench.make_runner("one")
    await bench.add_job()
    bench.handler.behaviour = raising(ServiceUnavailable("nobody there"))  # type: ignore[assignment]
    work = asyncio.create_task(bench.run_due_jobs())
    await asyncio.wait_for(asked.wait(), DEADLINE)
    await bench.runner.heartbeat._renew()
    answer.set()
    await work
    assert bench.attempts == [("update_line_task", "due")]
    assert bench.outages.is_known(ServiceUnavailable("again"))


@pytest.mark.parametrize("error", [StoreUnreachableError(), StoreError("SQLSTATE 25006")])
async def test_store_that_refuses_an_end_leaves_job_to_its_lease(bench: WorkerBench, error: StoreError) -> None:
    await bench.add_job()
    (job,) = await claim_jobs(bench.runner, [JobKind.UPDATE_LINE_TASK], 1)

    async def refuse(_: object) -> Any:
        raise error

    run, bench.store.run = bench.store.run, refuse  # type: ignore[method-assign]
    await bench.runner.run(job)
    bench.store.run = run  # type: ignore[method-assign]
    assert (await bench.get_job()).state is JobState.IN_FLIGHT
    bench.clock.advance(LEASE.total_seconds() + 1)
    await bench.run_due_jobs()
    assert (await bench.get_job()).state is JobState.DONE


async def test_two_workers_share_due_jobs_without_duplicates(bench: WorkerBench) -> None:
    for number in range(40):
        await bench.add_job(f"e{number}")
    other = bench.make_runner("two")

    async def all_of(engine: object) -> None:
        while jobs := await claim_jobs(engine, [JobKind.UPDATE_LINE_TASK], 3):  # type: ignore[attr-defined]
            await asyncio.gather(*(engine.run(job) for job in jobs))  # type: ignore[attr-defined]

    await asyncio.gather(all_of(bench.runner), all_of(other))
    assert sorted(bench.handler.calls) == sorted(f"perform e{number}" for number in range(40))


def test_every_failure_derives_from_our_error() -> None:
    assert issubclass(Failure, LabAgentError)


async def test_attempts_are_kept_with_the_job(bench: WorkerBench) -> None:
    """The call that says most, its status, how long it took, and why it failed: in the row that ends it, the newest ten."""
    await bench.add_job()

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
    assert (failed.call, failed.status, failed.milliseconds) == ("PUT Task", 503, 400)
    assert failed.cause is FailureCause.SERVICE_UNAVAILABLE
    assert (done.call, done.status, done.cause) == ("PUT Task", 200, None)
    assert "Petrova" not in repr(job.attempt_log)


async def test_attempt_that_calls_nobody_is_kept_too(bench: WorkerBench) -> None:
    await bench.add_job()

    async def break_down(lease: Lease) -> Outcome:
        raise ValueError("Anna Petrova")

    bench.handler.behaviour = break_down
    await bench.run_due_jobs()
    (attempt,) = (await bench.get_job()).attempt_log
    assert (attempt.call, attempt.status, attempt.cause) == ("", None, FailureCause.INTERNAL_ERROR)


async def test_job_whose_end_cannot_be_written_is_told(bench: WorkerBench, monkeypatch: pytest.MonkeyPatch) -> None:
    await bench.add_job()

    def break_down(*_: object) -> None:
        raise ValueError("Anna Petrova")

    monkeypatch.setattr(JobLease, "end", break_down)
    for _ in range(2):
        await bench.run_due_jobs()
        bench.clock.advance(LEASE.total_seconds() + 1)
        await bench.runner.claimer.expire_leases()
        (told,) = await bench.store.run(lambda uow: uow.alerts.all_open())
        assert (str(told.key), "ValueError" in told.detail, "Petrova" in told.detail) == ("agent.part_fails/jobs", True, False)
    monkeypatch.undo()
    await bench.run_due_jobs()
    assert (await bench.get_job()).state is JobState.DONE
    assert await bench.store.run(lambda uow: uow.alerts.all_open()) == ()
