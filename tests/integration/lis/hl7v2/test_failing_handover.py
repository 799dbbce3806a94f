"""An order that a LIS never takes, seen by the worker: sent seldom, and told of once it fails for long."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from lab_agent.conditions.ids import ConditionId
from lab_agent.conditions.model import AlertKey
from lab_agent.crypto import Cipher, new_key
from lab_agent.domain.job_records import JobKind, NewJob
from lab_agent.lis.testing import make_order
from lab_agent.ports.job_handler import Lease
from lab_agent.store.unit_of_work import SqlStore
from lab_agent.workflow.attention_alerts import AttentionAlerts
from tests.harness.databases import create_database
from tests.harness.hl7_wire import Wire, build_ack, listening_peer, running
from tests.integration.worker.conftest import Outcome, WorkerBench

ORDER = make_order(6)
UNAVAILABLE = AlertKey(ConditionId.JOBS_LIS_UNAVAILABLE)
UNKNOWN = AlertKey(ConditionId.JOBS_LIS_OUTCOME_UNKNOWN)


@pytest.mark.parametrize("every", [1, 2, pytest.param(0, marks=pytest.mark.slow)])
async def test_order_that_is_never_taken_is_sent_seldom_and_told(tmp_path: Path, every: int) -> None:
    """AE with error 207 to each attempt, to every second one, or no answer at all: half an hour later there is an alert."""

    def answer(_: Wire, frame: bytes) -> bytes | None:
        return build_ack(ORDER.key, "AE", error="207") if every and len(peer.frames) % every == 0 else None

    bench = WorkerBench(SqlStore(create_database(tmp_path / "lab.db"), Cipher(new_key())))
    keys = {"answer_timeout": 0.2}
    async with listening_peer(answer) as peer:
        orders = {"role": "client", "port": peer.port}
        async with running(tmp_path, orders=orders, results={"role": "server", "port": 0}, **keys) as adapter:

            async def hand_over(lease: Lease) -> Outcome:
                if bench.handler.calls[-1].startswith("verify") and not await adapter.was_received(ORDER.key):
                    now = bench.clock.now()
                    return lambda _, job: job.reschedule(now, now, "it is sent again")
                await lease.mark_started()
                await adapter.submit(ORDER)
                return None

            bench.handler.behaviour = hand_over
            now = bench.clock.now()
            kind = JobKind.SUBMIT_ORDER
            job = NewJob(kind=kind, dedup_key="a", ordering_key="a", target=ORDER.key, order=ORDER.key, due_at=now)
            await bench.write(lambda uow: uow.jobs.add(job))
            for _ in range(35):
                bench.clock.advance(60)
                await bench.run_due_jobs()
            await AttentionAlerts(bench.store, bench.clock, timedelta(minutes=30)).run()
    alerts = {alert.key for alert in await bench.store.run(lambda uow: uow.alerts.all_open())}
    assert len(alerts) == 1
    assert alerts <= {UNAVAILABLE, UNKNOWN}
    assert 3 < len(peer.frames) < 20
