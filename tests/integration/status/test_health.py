"""The three addresses for machines."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any
from unittest.mock import AsyncMock, Mock

from lab_agent.accounts import Role
from lab_agent.conditions.ids import ConditionId
from lab_agent.conditions.model import OpenCondition
from lab_agent.conditions.table import CONDITIONS
from lab_agent.domain.job_records import JobKind
from lab_agent.errors import StoreUnreachableError
from lab_agent.status.sessions import SESSION_COOKIE
from tests.integration.status.conftest import NOW

AWAY = Mock(overview=AsyncMock(side_effect=StoreUnreachableError))
"""Views of a store that does not answer."""


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
    rule, system = "Rule line.specimen rejected too many orders and was stopped", "The laboratory system folder does not answer"
    conditions = [
        {"id": "rule.stopped", "severity": "critical", "since": "2026-03-01T02:53:00+00:00"},
        {"id": "lis.unavailable", "severity": "critical", "since": NOW.isoformat()},
    ]
    full = [
        {"subject": "line.specimen", "title": rule, "affected": [{"number": 2, "text": "2 orders", "is_exact": True}]},
        {"subject": "folder", "title": system, "affected": [{"number": 1, "text": "1 order to hand over", "is_exact": True}]},
    ]
    told = {"status": "ready", "mode": "normal", "store": "ok", "last_poll": "2026-03-01T02:59:48+00:00"}
    assert answer.json() == {**told, "conditions": [one | more for one, more in zip(conditions, full, strict=True)]}
    assert "gone" not in answer.text
    assert (await seeded.new_client().get("/readyz")).json() == {**told, "conditions": conditions}


async def test_stranger_sees_no_path_in_readyz(pages: Any):
    subject = "/srv/lab/secret"
    for condition in (ConditionId.DISK_LOW, ConditionId.LIS_UNAVAILABLE, ConditionId.STORE_READ_ONLY):
        found = OpenCondition(condition=CONDITIONS[condition], subject=subject, detail=subject, since=NOW)
        pages.context = replace(pages.context, observed_conditions=lambda found=found: (found,))
        forged = pages.new_client(headers={"cookie": f"{SESSION_COOKIE}=forged"})
        for client in (pages.new_client(), forged):
            answer = await client.get("/readyz")
            told = [{"id": condition.value, "severity": found.condition.severity.value, "since": NOW.isoformat()}]
            assert (answer.json()["conditions"], "secret" in answer.text) == (told, False)
        full = (await (await pages.signed_in_client(Role.VIEWER)).get("/readyz")).json()["conditions"]
        assert [each["subject"] for each in full] == [subject]


async def test_readyz_is_unready_without_store(pages: Any):
    pages.context = replace(pages.context, queries=AWAY)
    answer = await pages.new_client().get("/readyz")
    told, fault = answer.json(), "store.unreachable"
    assert (answer.status_code, [each["id"] for each in told.pop("conditions")]) == (503, [fault])
    assert told == {"status": "not ready", "mode": "normal", "store": fault, "last_poll": None, "reason": fault}
    assert (await pages.new_client().get("/healthz")).status_code == 200


async def test_agent_that_cannot_work_or_write_is_unready(pages: Any):
    """The overview says so, with since when; a path stays in the page."""
    no_work, read_only = CONDITIONS[ConditionId.AGENT_CANNOT_WORK], CONDITIONS[ConditionId.STORE_READ_ONLY]
    for entry, subject, detail, store, told in (
        (no_work, "poll", "ValueError", "ok", "The agent cannot work: new orders cannot be asked for"),
        (read_only, "", "/srv/lab.db", "store.read_only", "The database cannot be written, for 12 min."),
    ):
        found = OpenCondition(condition=entry, subject=subject, detail=detail, since=NOW - timedelta(minutes=12))
        pages.context = replace(pages.context, observed_conditions=lambda found=found: (found,))
        answer = await pages.new_client().get("/readyz")
        said = answer.json()
        assert (answer.status_code, said["store"], said["reason"]) == (503, store, entry.id.value)
        assert detail not in answer.text
        client = await pages.signed_in_client(Role.VIEWER)
        assert "mend" in (await client.get("/readyz")).json()
        overview = (await client.get("/")).text
        assert [each for each in (told, detail) if each not in overview] == []


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
    """They are missing rather than old."""
    assert 'lab_agent_orders{state="held"}' in (await seeded.new_client().get("/metrics")).text
    seeded.context = replace(seeded.context, queries=AWAY)
    answer = await seeded.new_client().get("/metrics")
    assert (answer.status_code, "lab_agent_orders{" in answer.text) == (200, False)
    for line in ("lab_agent_store_reachable 0.0", "lab_agent_alerts_open NaN"):
        assert line in answer.text


async def test_probes_need_no_login_and_set_no_cookie(seeded: Any):
    for path in ("/healthz", "/readyz", "/metrics"):
        answer = await seeded.new_client().get(path)
        assert (answer.status_code, "set-cookie" in answer.headers) == (200, False)
        secrets = ("Petrova", "2603-0", "R0000000000GOOD", "partner-guid")
        assert [each for each in secrets if each in answer.text] == [], path
