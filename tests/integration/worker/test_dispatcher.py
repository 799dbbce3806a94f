"""The dispatcher: slots for each queue, one claim for all, chains in one transaction a link, and nothing forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta

import pytest

from lab_agent.queue.claiming import ClaimedJob, JobClaimer
from lab_agent.queue.dispatcher import JobDispatcher
from lab_agent.queue.job_handler import Lease
from lab_agent.queue.job_queues import JOB_QUEUES
from lab_agent.queue.job_records import Job, JobKind, JobLimits, NewJob
from lab_agent.queue.store_watch import StoreWatch
from lab_agent.shared.errors import PermanentFailure, StoreError, TemporaryFailure
from lab_agent.shared.state_machines import JobState
from lab_agent.store.unit_of_work import UnitOfWork
from tests.harness.clock import DEADLINE, wait_until
from tests.harness.jobs import claim_jobs
from tests.harness.store_counts import count_store
from tests.integration.worker.conftest import Outcome, WorkerBench


@asynccontextmanager
async def dispatching(bench: WorkerBench, concurrency: int = 2) -> AsyncIterator[JobDispatcher]:
    """A running dispatcher of all queues, which is told by the store and does not look by itself."""
    dispatcher = JobDispatcher(JOB_QUEUES, bench.runner, bench.outages, concurrency=concurrency)
    bench.store.on_jobs_due = dispatcher.wake
    running = asyncio.create_task(dispatcher.run())
    try:
        yield dispatcher
    finally:
        dispatcher.stop()
        await asyncio.wait_for(running, DEADLINE)


def adding(*added: NewJob) -> Outcome:
    def complete(uow: UnitOfWork, job: Job) -> Job:
        uow.jobs.add_all(added)
        return job.complete(job.changed_at)

    return complete


def new_job(kind: JobKind, name: str, bench: WorkerBench, ordering_key: str | None = None) -> NewJob:
    return NewJob(kind=kind, dedup_key=name, ordering_key=ordering_key or name, target="x", due_at=bench.clock.now())


async def test_jobs_of_queue_run_up_to_its_slots(bench: WorkerBench) -> None:
    for number in range(7):
        await bench.add_job(f"fetch{number}", kind=JobKind.FETCH_ORDER)
    gate, running = bench.hold_jobs()
    async with dispatching(bench, concurrency=3) as dispatcher:
        await wait_until(lambda: len(running) == 3)
        await dispatcher.look()
        assert len(running) == 3
        gate.set()
        await wait_until(lambda: len(bench.attempts) == 7)
    assert [call.removeprefix("perform ") for call in bench.handler.calls] == [f"fetch{number}" for number in range(7)]


async def test_slow_job_stalls_only_its_own_queue(bench: WorkerBench) -> None:
    await bench.add_job("slow", kind=JobKind.SUBMIT_ORDER)
    await bench.add_job("waits", kind=JobKind.CANCEL_AT_LIS)
    await bench.add_job("quick", kind=JobKind.UPDATE_LINE_TASK)
    gate, _ = bench.hold_jobs("slow")
    async with dispatching(bench, concurrency=1):
        await wait_until(lambda: ("update_line_task", "done") in bench.attempts)
        assert bench.handler.calls == ["perform slow", "perform quick"]
        gate.set()
        await wait_until(lambda: ("cancel_at_lis", "done") in bench.attempts)


async def test_stop_finishes_running_jobs_and_starts_none(bench: WorkerBench) -> None:
    for name in ("first", "second"):
        await bench.add_job(name)
    gate, running = bench.hold_jobs()
    async with dispatching(bench, concurrency=1) as dispatcher:
        await wait_until(lambda: running == ["first"])
        dispatcher.stop()
        gate.set()
    assert bench.attempts == [("update_line_task", "done")]
    assert (await bench.get_job(2)).state is JobState.DUE


@pytest.mark.parametrize("fails", [False, True])
async def test_end_frees_the_next_job_of_its_ordering_key(bench: WorkerBench, fails: bool) -> None:
    """Also one of another queue, and after a failed attempt; nobody looks, and nothing was added."""
    kinds = (JobKind.DELIVER_REPORT, JobKind.MATCH_REPORT)
    await bench.write(lambda uow: uow.jobs.add_all([new_job(kind, kind.value, bench, "one") for kind in kinds]))

    async def behave(lease: Lease) -> Outcome:
        if fails and lease.job.kind is kinds[0]:
            raise PermanentFailure("no")
        return None

    bench.handler.behaviour = behave
    async with dispatching(bench, concurrency=1):
        await wait_until(lambda: len(bench.attempts) == 2)
    assert bench.attempts == [("deliver_report", "dead_letter" if fails else "done"), ("match_report", "done")]


async def test_lost_lease_claims_nothing(bench: WorkerBench) -> None:
    await bench.add_job("late")
    gate, running = bench.hold_jobs()
    async with dispatching(bench, concurrency=1):
        await wait_until(lambda: running == ["late"])
        await bench.lose_lease()
        bench.handler.behaviour = None
        await bench.write(lambda uow: uow.jobs.save((uow.jobs.get(1)).complete(bench.clock.now())))  # type: ignore[arg-type, union-attr]
        await bench.add_job("next")
        gate.set()
        await wait_until(lambda: bench.attempts == [("update_line_task", "done")])
    assert (await bench.get_job(2)).attempts == 1


@pytest.mark.parametrize(
    ("error", "state"), [(TemporaryFailure("busy"), JobState.DUE), (ZeroDivisionError(), JobState.DEAD_LETTER)]
)
@pytest.mark.parametrize("chained", [False, True])
async def test_load_that_fails_ends_its_job_alone(
    bench: WorkerBench, monkeypatch: pytest.MonkeyPatch, error: Exception, state: JobState, chained: bool
) -> None:
    """Whether it is claimed by the dispatcher or by the end of another job, which is kept."""

    def load(uow: UnitOfWork, job: Job) -> None:
        if job.dedup_key == "bad":
            raise error

    monkeypatch.setattr(bench.handler, "load", load)
    following = [new_job(JobKind.UPDATE_LINE_TASK, name, bench) for name in ("bad", "good")]

    async def behave(lease: Lease) -> Outcome:
        return adding(*following) if lease.job.kind is JobKind.FETCH_ORDER else None

    bench.handler.behaviour = behave
    if chained:
        await bench.add_job("before", kind=JobKind.FETCH_ORDER)
    else:
        await bench.write(lambda uow: uow.jobs.add_all(following))
    async with dispatching(bench):
        await wait_until(lambda: len(bench.attempts) == 2 + chained)
    ends = {job.dedup_key: job.state for job in [await bench.get_job(number + 1) for number in range(2 + chained)]}
    assert ends == {**({"before": JobState.DONE} if chained else {}), "bad": state, "good": JobState.DONE}
    assert "perform bad" not in bench.handler.calls


async def test_claim_that_fails_is_no_fault_of_the_job_that_ends(bench: WorkerBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends as it would have alone, and the dispatcher claims what comes next."""
    for name in ("a", "b"):
        await bench.add_job(name, ordering_key="one")
    claim_in, refused = JobClaimer.claim_in, list[StoreError]()

    def refuse_at_an_end(self: JobClaimer, uow: UnitOfWork, limits: JobLimits, *, load: bool) -> tuple[ClaimedJob, ...]:
        if bench.handler.calls and not refused:
            refused.append(StoreError("SQLSTATE 22P02"))
            raise refused[0]
        return claim_in(self, uow, limits, load=load)

    monkeypatch.setattr(JobClaimer, "claim_in", refuse_at_an_end)
    async with dispatching(bench, concurrency=1):
        await wait_until(lambda: len(bench.attempts) == 2)
    assert refused
    assert bench.handler.calls == ["perform a", "perform b"]
    assert bench.attempts == [("update_line_task", "done")] * 2


async def look_until(dispatcher: JobDispatcher, condition: Callable[[], bool]) -> None:
    """Look again and again, as a worker does every second: a look leaves out what is being claimed."""

    async def look() -> bool:
        await dispatcher.look()
        return condition()

    await wait_until(look)


async def test_look_finds_what_time_has_made_due(bench: WorkerBench) -> None:
    """Also the job of a worker that is gone."""
    await bench.add_job("e")
    await bench.claim(bench.make_runner("gone"))
    later = replace(new_job(JobKind.FETCH_ORDER, "later", bench), due_at=bench.clock.now() + timedelta(hours=1))
    async with dispatching(bench) as dispatcher:
        await bench.write(lambda uow: uow.jobs.add(later))
        await dispatcher.look()
        assert bench.attempts == []
        bench.clock.advance(3600)
        await look_until(dispatcher, lambda: sorted(bench.attempts) == [("fetch_order", "done"), ("update_line_task", "done")])


async def test_idle_look_takes_no_write_transaction(bench: WorkerBench) -> None:
    """Also beside a job that waits for another one, which an operator has to settle."""
    for name in ("a", "b"):
        await bench.add_job(name, ordering_key="one", kind=JobKind.SUBMIT_ORDER)
    (first,) = await claim_jobs(bench.runner, [JobKind.SUBMIT_ORDER], 1)
    await bench.write(lambda uow: uow.jobs.save(first.job.needs_review(bench.clock.now(), "who knows")))
    async with dispatching(bench) as dispatcher:
        with count_store(bench.store) as begun:
            await wait_until(lambda: begun.commits == 1, "the claim of the start, which finds nothing")
        await dispatcher.look()
        with count_store(bench.store) as counts:
            for _ in range(3):
                await dispatcher.look()
                await asyncio.sleep(0)
    assert (counts.read_only, counts.transactions) == (3, 3), counts.report()


async def test_claim_goes_on_after_an_outage_of_the_store(bench: WorkerBench) -> None:
    async with dispatching(bench) as dispatcher:
        await asyncio.sleep(0)
        with bench.refusing():
            dispatcher.wake({JobKind.UPDATE_LINE_TASK})
            await wait_until(lambda: bench.outages.is_store_down)
        await bench.add_job("e")
        assert bench.attempts == []
        await StoreWatch(bench.store, bench.clock, dispatcher.look).look()
        assert not bench.outages.is_store_down
        await wait_until(lambda: bench.attempts == [("update_line_task", "done")])


async def test_held_queue_claims_nothing_until_released(bench: WorkerBench) -> None:
    submit, cancel = JobKind.SUBMIT_ORDER, JobKind.CANCEL_AT_LIS

    def kinds() -> list[str]:
        return [kind for kind, _ in bench.attempts]

    async with dispatching(bench) as dispatcher:
        dispatcher.hold({submit})
        await bench.add_job("held", kind=submit)
        await bench.add_job("of the same queue", kind=cancel)
        for number in range(4):  # each end of a job claims what comes next
            await bench.add_job(f"e{number}", kind=JobKind.MATCH_REPORT)
        await wait_until(lambda: kinds().count(JobKind.MATCH_REPORT.value) == 4, "the others are done")
        assert set(kinds()) == {JobKind.MATCH_REPORT.value}
        dispatcher.hold(())
        await wait_until(lambda: {submit.value, cancel.value} <= set(kinds()), "the held ones are done")
