"""Claims and pages stay fast beside 100,000 finished jobs: the plan of a claim reads only open ones."""

from __future__ import annotations

import time

import pytest
from sqlalchemy import text

from lab_agent.domain.job_records import JobKind
from lab_agent.store import job_statements
from lab_agent.store.queries import SqlQueries
from lab_agent.worker.job_queues import JOB_QUEUES
from tests.harness.clock import DEADLINE

FINISHED = 100_000
FILL = """
    INSERT INTO jobs
        (kind, dedup_key, ordering_key, target, order_key, payload, state, started, attempts, due_at, created_at, changed_at,
         fencing_token, system, first_due_at, failures)
    WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :finished)
    SELECT 'update_line_task', 'done-' || n, 'key-' || n % 1000, 's', 'R' || n % 5000, '{}', 'done', true, 1,
        '2026-03-01 12:00:00.000000', '2026-03-01 12:00:00.000000', '2026-03-01 12:00:00.000000', 1, '',
        '2026-03-01 12:00:00.000000', 0
    FROM numbers
"""


@pytest.fixture
async def bulk(transact, store, factory):
    def fill(uow):
        uow._session.connection().execute(text(FILL), {"finished": FINISHED})
        for number in range(100):
            uow.jobs.add(factory.job(f"due-{number}", ordering_key=f"key-{number % 50}"))

    def analyze(connection, _):  # as autovacuum does sooner or later; meanwhile PostgreSQL plans for a small table
        if connection.dialect.name == "postgresql":
            connection.execute(text("ANALYZE"))

    await transact(fill)
    await store.write(analyze)


async def test_claims_and_pages_stay_fast_beside_finished_jobs(bulk, transact, store, factory):
    for name, statement in _looks_for_work():
        plan = await store.read(lambda connection, statement=statement: _plan(connection, statement, factory.now))
        assert "ix_jobs_claimable" in plan, name
        assert "ix_jobs_ordering_key" in plan, name
        assert "SCAN jobs" not in plan, f"{name}: {plan}"
        assert "Seq Scan on jobs" not in plan, f"{name}: {plan}"

    start = time.perf_counter()
    done = 0
    while found := await transact.claim(limit=10):
        for job in found:
            await transact.jobs.save(job.complete(factory.now))
            done += 1
    assert done == 100
    assert time.perf_counter() - start < DEADLINE  # a scan of the table for each claim and save would take minutes

    queries = SqlQueries(store)
    start = time.perf_counter()
    await queries.overview(now=factory.now)
    await queries.needs_attention()
    assert (await queries.jobs(offset=90_000)).total_text == "more than 10000"
    assert time.perf_counter() - start < DEADLINE / 3


def _looks_for_work():
    queues = tuple(JOB_QUEUES.values())
    return (
        ("claim", job_statements.select_claimable(queues)),
        ("look", job_statements.select_pending(frozenset(JobKind)).statement),
    )


def _plan(connection, query, now):
    compiled = query.compile(connection, compile_kwargs={"render_postcompile": True})
    values = compiled.construct_params({"at": now, **{name: 5 for name in compiled.binds if name.startswith("limit_")}})
    processors = compiled._bind_processors
    bound = {name: processors[name](value) if name in processors else value for name, value in values.items()}
    if connection.dialect.name == "sqlite":
        rows = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {compiled}", tuple(bound[name] for name in compiled.positiontup))
        return "\n".join(row[3] for row in rows)
    return "\n".join(row[0] for row in connection.exec_driver_sql(f"EXPLAIN {compiled}", bound))
