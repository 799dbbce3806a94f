"""Claims stay fast beside finished jobs: their plans read only open ones."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from lab_agent.domain.job_records import JobKind
from lab_agent.store import job_statements
from lab_agent.worker.job_queues import JOB_QUEUES

FINISHED = 20_000
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
QUERIES = {
    "claim": job_statements.select_claimable(tuple(JOB_QUEUES.values())),
    "look": job_statements.select_pending(frozenset(JobKind)).statement,
}


@pytest.mark.parametrize("name", QUERIES)
async def test_claim_reads_open_jobs_alone(transact, store, factory, name):
    await transact.jobs.add_all([factory.job(f"due-{number}", ordering_key=f"key-{number % 50}") for number in range(100)])

    def fill(connection, _):
        connection.execute(text(FILL), {"finished": FINISHED})
        connection.execute(text("ANALYZE"))  # as PostgreSQL does sooner or later; meanwhile it plans for a small table

    await store.write(fill)
    plan = await store.read(lambda connection: _plan(connection, QUERIES[name], factory.now))
    assert "ix_jobs_claimable" in plan
    assert "ix_jobs_ordering_key" in plan
    assert "SCAN jobs" not in plan
    assert "Seq Scan on jobs" not in plan


def _plan(connection, query, now):
    compiled = query.compile(connection, compile_kwargs={"render_postcompile": True})
    values = compiled.construct_params({"at": now, **{name: 5 for name in compiled.binds if name.startswith("limit_")}})
    processors = compiled._bind_processors
    bound = {name: processors[name](value) if name in processors else value for name, value in values.items()}
    if connection.dialect.name == "sqlite":
        rows = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {compiled}", tuple(bound[name] for name in compiled.positiontup))
        return "\n".join(row[3] for row in rows)
    return "\n".join(row[0] for row in connection.exec_driver_sql(f"EXPLAIN {compiled}", bound))
