"""The three addresses for machines."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from lab_agent.accounts import Role
from lab_agent.conditions.ids import ConditionId
from lab_agent.conditions.model import OpenCondition
from lab_agent.conditions.table import CONDITIONS
from lab_agent.domain.job_records import JobKind
from lab_agent.errors import StoreUnreachableError
from lab_agent.status.sessions import SESSION_COOKIE
from tests.integration.status.conftest import NOW


class Away:
    """Views of a store that does not answer."""

    def __getattr__(self, name: str) -> Any:
        async def fail(*_: Any, **__: Any) -> Any:
            raise StoreUnreachableError

        return fail


async def test_healthz_names_the_stopped_worker_part(pages: Any):
    client = pages.new_client()
    answer = await client.get("/healthz")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok", "missing": []})
    pages.missing.append("delivery")
    answer = await client.get("/healthz")
    assert (answer.status_code, answer.json()) == (503, {"status": "failing", "missing": ["delivery"]})


async def test_readyz_names_outage_and_stays_ready(seeded: Any):
    """It tells which remote system is unavailable and is ready all the same; what was found may name a path, and is not told."""
    signed_in = await seeded.signed_in_client(Role.VIEWER)
    answer = await signed_in.get("/readyz")
    assert answer.status_code == 200
    told = {
        "status": "ready",
        "mode": "normal",
        "store": "ok",
        "last_poll": "2026-03-01T02:59:48+00:00",
        "conditions": [
            {
                "id": "rule.stopped",
                "subject": "line.specimen",
                "severity": "critical",
                "since": "2026-03-01T02:53:00+00:00",
                "title": "Rule line.specimen rejected too many orders and was stopped",
                "affected": [{"number": 2, "text": "2 orders", "is_exact": True}],
            },
            {
                "id": "lis.unavailable",
                "subject": "folder",
                "severity": "critical",
                "since": NOW.isoformat(),
                "title": "The laboratory system folder does not answer",
                "affected": [{"number": 1, "text": "1 order to hand over", "is_exact": True}],
            },
        ],
    }
    assert answer.json() == told
    assert "gone" not in answer.text
    for each in told["conditions"]:
        for key in ("subject", "title", "affected"):
            del each[key]
    assert (await seeded.new_client().get("/readyz")).json() == told


@pytest.mark.parametrize(
    ("condition", "subject"),
    [
        (ConditionId.DISK_LOW, "/srv/lab/secret"),
        (ConditionId.LIS_UNAVAILABLE, "/srv/lab/secret"),
        (ConditionId.STORE_READ_ONLY, "/srv/lab/secret"),
    ],
)
async def test_stranger_sees_no_path_in_readyz(pages: Any, condition: ConditionId, subject: str):
    found = OpenCondition(condition=CONDITIONS[condition], subject=subject, detail=subject, since=NOW)
    pages.context = replace(pages.context, observed_conditions=lambda: (found,))
    forged = pages.new_client(headers={"cookie": f"{SESSION_COOKIE}=forged"})
    for client in (pages.new_client(), forged):
        answer = await client.get("/readyz")
        told = [{"id": condition.value, "severity": found.condition.severity.value, "since": NOW.isoformat()}]
        assert (answer.json()["conditions"], "secret" in answer.text) == (told, False)
    full = (await (await pages.signed_in_client(Role.VIEWER)).get("/readyz")).json()["conditions"]
    assert [each["subject"] for each in full] == [subject]


async def test_readyz_is_unready_without_store(pages: Any):
    pages.context = replace(pages.context, queries=Away())
    answer = await pages.new_client().get("/readyz")
    assert answer.status_code == 503
    told = answer.json()
    assert [each["id"] for each in told.pop("conditions")] == ["store.unreachable"]
    assert told == {
        "status": "not ready",
        "mode": "normal",
        "store": "store.unreachable",
        "last_poll": None,
        "reason": "store.unreachable",
    }
    assert (await pages.new_client().get("/healthz")).status_code == 200


async def test_agent_that_cannot_work_is_unready(pages: Any):
    """The database is in order then."""
    fault = OpenCondition(condition=CONDITIONS[ConditionId.AGENT_CANNOT_WORK], subject="poll", detail="ValueError", since=NOW)
    pages.context = replace(pages.context, observed_conditions=lambda: (fault,))
    answer = await pages.new_client().get("/readyz")
    told = answer.json()
    assert (answer.status_code, told["store"], told["reason"]) == (503, "ok", "agent.cannot_work")
    overview = (await (await pages.signed_in_client(Role.VIEWER)).get("/")).text
    assert "The agent cannot work: new orders cannot be asked for" in overview


async def test_read_only_store_is_unready_and_on_overview(pages: Any):
    """A store that takes no writes is unready, and the overview says so, with since when; its path stays in the page."""
    read_only = OpenCondition(
        condition=CONDITIONS[ConditionId.STORE_READ_ONLY], detail="/srv/lab.db", since=NOW - timedelta(minutes=12)
    )
    pages.context = replace(pages.context, observed_conditions=lambda: (read_only,))
    answer = await pages.new_client().get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["reason"] == "store.read_only"
    assert "/srv/lab.db" not in answer.text
    signed_in = await pages.signed_in_client(Role.VIEWER)
    entry, told = CONDITIONS[ConditionId.STORE_READ_ONLY], (await signed_in.get("/readyz")).json()
    assert (told["title"], told["mend"]) == (entry.title, entry.mend)
    overview = (await signed_in.get("/")).text
    assert "The database cannot be written, for 12 min." in overview
    assert "/srv/lab.db" in overview


async def test_metrics_are_computed_on_request(seeded: Any):
    client = seeded.new_client()
    seeded.context.metrics.record_attempt("deliver_report", "done")
    answer = await client.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    for line in (
        'lab_agent_orders{state="held"} 1.0',
        'lab_agent_jobs{kind="submit_order",state="needs_review"} 1.0',
        'lab_agent_reports{state="unmatched"} 1.0',
        "lab_agent_alerts_open 2.0",
        "lab_agent_store_reachable 1.0",
        f'lab_agent_oldest_age_seconds{{what="order"}} {(4 * 60 + 58) * 60}.0',
        "lab_agent_last_poll_timestamp_seconds 1.772333988e+09",
        'lab_agent_job_attempts_total{kind="deliver_report",outcome="done"} 1.0',
    ):
        assert line in answer.text
    job = await seeded.get_job(JobKind.SUBMIT_ORDER)
    await seeded.write(lambda uow: uow.jobs.save(uow.jobs.get(job.id).complete(seeded.clock.now())))
    again = await client.get("/metrics")
    assert 'kind="submit_order",state="needs_review"' not in again.text
    assert 'state="done"' not in again.text, "what is finished grows for years, and is not counted"


async def test_metrics_omit_values_of_unavailable_store(seeded: Any):
    """Metrics of an unavailable store are missing rather than old."""
    assert 'lab_agent_orders{state="held"}' in (await seeded.new_client().get("/metrics")).text
    seeded.context = replace(seeded.context, queries=Away())
    answer = await seeded.new_client().get("/metrics")
    assert answer.status_code == 200
    assert "lab_agent_store_reachable 0.0" in answer.text
    assert "lab_agent_orders{" not in answer.text
    assert "lab_agent_alerts_open NaN" in answer.text


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
async def test_probes_need_no_login_and_set_no_cookie(seeded: Any, path: str):
    answer = await seeded.new_client().get(path)
    assert answer.status_code == 200
    assert "set-cookie" not in answer.headers
    for secret in ("Petrova", "2603-0", "R0000000000GOOD", "partner-guid"):
        assert secret not in answer.text
