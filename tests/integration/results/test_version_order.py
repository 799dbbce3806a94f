"""The versions of one report go in one order, each once, whatever the order in which they and their jobs meet."""

from __future__ import annotations

from datetime import timedelta
from random import Random

import pytest

from lab_agent.queue.claiming import ClaimedJob
from lab_agent.queue.job_records import JobKind
from lab_agent.shared.state_machines import ReportState
from tests.harness.jobs import claim_jobs
from tests.harness.results import ResultsBench, haemoglobin, make_report, refused

SERVICE_AWAY = refused(None, status=503)


async def run_next(bench: ResultsBench, kind: JobKind, limit: int = 1) -> None:
    """Do the first due jobs of a kind, and no other."""
    for job in await claim_jobs(bench.runner, (kind,), limit):
        await bench.runner.run(job)


async def accept_version(bench: ResultsBench, number: int) -> None:
    await bench.accept(make_report(haemoglobin(str(number)), version=number))


async def deliver_first_of_three(bench: ResultsBench) -> ClaimedJob:
    """Versions 1 and 3 came during an outage; 1 is delivered now, and while 3 has its turn, 2 comes and is on its way.

    Gives the job that matches 3.
    """
    bench.inject_faults(SERVICE_AWAY)
    for number in (1, 3):
        await accept_version(bench, number)
        await bench.run_due_jobs()
    bench.inject_faults()
    bench.clock.time += timedelta(seconds=60)
    await run_next(bench, JobKind.DELIVER_REPORT)
    (queued,) = await claim_jobs(bench.runner, (JobKind.MATCH_REPORT,), 1)
    await accept_version(bench, 2)
    await run_next(bench, JobKind.MATCH_REPORT)
    assert await bench.report_states() == [ReportState.DELIVERED, ReportState.RECEIVED, ReportState.MATCHED]
    return queued


async def test_version_matched_too_early_goes_in_its_turn(bench: ResultsBench) -> None:
    """A version that finds an older one on its way gets a new place in the queue; one that came meanwhile stays behind it."""
    queued = await deliver_first_of_three(bench)
    await accept_version(bench, 4)
    await run_next(bench, JobKind.MATCH_REPORT)
    await bench.runner.run(queued)
    await bench.run_until_idle()
    assert await bench.values() == ["1", "2", "3", "4"]


@pytest.mark.slow
async def test_version_whose_worker_was_killed_keeps_its_turn(bench: ResultsBench) -> None:
    """Its job is claimed again once the lease is over, and finds that it has to wait for another version."""
    await deliver_first_of_three(bench)
    bench.clock.time += bench.runner.lease
    await run_next(bench, JobKind.MATCH_REPORT)
    await bench.run_until_idle()
    assert await bench.values() == ["1", "2", "3"]


@pytest.mark.slow
@pytest.mark.parametrize(("numbers", "matches"), [([1, 6, 3, 5, 2, 4], 36), (list(range(15)), 30)])
async def test_many_versions_behind_one_go_in_order(bench: ResultsBench, numbers: list[int], matches: int) -> None:
    """Those that came in order are matched twice: no delivery lets all that wait behind it be matched again."""
    bench.inject_faults(SERVICE_AWAY)
    for number in numbers:
        await accept_version(bench, number)
        await bench.run_due_jobs()
    assert await bench.report_states() == [ReportState.MATCHED, *[ReportState.RECEIVED] * (len(numbers) - 1)]
    assert await bench.store.transact(lambda uow: uow.reports.needing_operator()) == ()
    bench.inject_faults()
    await bench.run_until_idle(100)
    assert await bench.values() == [str(number) for number in sorted(numbers)]
    assert [each.kind for each in await bench.jobs(open_only=False)].count(JobKind.MATCH_REPORT) <= matches


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
async def test_versions_go_in_order_however_their_jobs_meet(bench: ResultsBench, seed: int) -> None:
    """Jobs run in any order while versions arrive, the service fails now and then, and workers are killed."""
    rng = Random(seed)
    numbers = list(range(1, 8))
    for number in numbers:
        bench.inject_faults(*[SERVICE_AWAY] * rng.randrange(2))
        await accept_version(bench, number)
        await run_next(bench, JobKind.MATCH_REPORT, 10)  # as the worker does at once; whatever else is due stays so
        for _ in range(rng.randrange(4)):
            jobs = list(await claim_jobs(bench.runner, tuple(JobKind), 10))
            rng.shuffle(jobs)
            for job in jobs:
                if rng.random() < 0.8:  # else its worker is killed before it does anything
                    await bench.runner.run(job)
            bench.clock.time += rng.choice([timedelta(0), timedelta(seconds=5), bench.runner.lease])
    bench.inject_faults()
    await bench.run_until_idle(200)
    assert await bench.values() == [str(number) for number in numbers]
    assert await bench.jobs() == ()
