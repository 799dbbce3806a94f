"""Many orders that fail for three causes: three alerts, three groups, cheap pages, and one decision for each cause."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, text

from lab_agent.operations.attention_alerts import AttentionAlerts
from lab_agent.operations.cause_groups import CauseGroup, read_groups
from lab_agent.orders import held_group_actions, job_actions
from lab_agent.orders.group_actions import GroupAction
from lab_agent.orders.job_actions import JobGroup
from lab_agent.queue.failure_causes import FailureCause
from lab_agent.queue.job_records import JobKind
from lab_agent.shared.conditions.model import AlertKey, ConditionId
from lab_agent.shared.state_machines import OPEN_JOBS, JobState, OrderState
from lab_agent.store.crypto import Cipher
from lab_agent.store.event_records import Alert
from lab_agent.store.queries import Queries
from lab_agent.store.unit_of_work import Store
from tests.harness.clock import VirtualClock
from tests.integration.store.test_growth import StepCounter

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
HELD, HANDOVERS, UPLOADS = 400, 300, 300
UNVERIFIED = 5
RULE = "tube.label-in-use"
HELD_ALERT = AlertKey(ConditionId.ORDERS_HELD, RULE)
DISK_ALERT = AlertKey(ConditionId.JOBS_LIS_DISK_FULL, "chemistry")
UPLOAD_ALERT = AlertKey(ConditionId.JOBS_WRITE_REJECTED)
_NUMBERS = "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < :many) "
_AGE = "strftime('%Y-%m-%d %H:%M:%S.000000', '2026-03-01 11:00:00', '-' || n || ' seconds')"
_ORDERS = f"""
    INSERT INTO orders (key, task_id, state, seen_at, changed_at, reason, held_since, hold_cause, released_findings,
        sent_statuses, reopened)
    {_NUMBERS} SELECT :name || n, :name || n, :state, {_AGE}, '2026-03-01 12:00:00.000000', 'barcode in use',
        CASE :state WHEN 'held' THEN {_AGE} END, CASE :state WHEN 'held' THEN :cause END, '[]', '[]', 0 FROM n
"""
_JOBS = f"""
    INSERT INTO jobs (kind, dedup_key, ordering_key, target, order_key, payload, state, started, attempts, due_at, created_at,
        changed_at, fencing_token, system, first_due_at, failures, failing_since, failure_cause)
    {_NUMBERS} SELECT :kind, :kind || n, :kind || n, :name || n, :name || n, :payload,
        CASE WHEN n <= :unverified THEN 'needs_review' ELSE :state END, true, 9, '2026-03-01 13:00:00.000000', {_AGE},
        '2026-03-01 12:00:00.000000', 1, :system, {_AGE}, 9, CASE WHEN :cause <> '' THEN {_AGE} END, NULLIF(:cause, '') FROM n
"""


def fill(connection: Connection, times: int) -> None:
    held, handovers, uploads = (times * each for each in (HELD, HANDOVERS, UPLOADS))
    orders = text(_ORDERS)
    connection.execute(orders, {"many": held, "name": "H", "state": "held", "cause": RULE})
    connection.execute(orders, {"many": handovers, "name": "S", "state": "fetched", "cause": None})
    connection.execute(orders, {"many": uploads, "name": "U", "state": "handed_over", "cause": None})
    into = "INSERT INTO work_orders (order_key, adapter, state, changed_at)"
    parts = f"{into} {_NUMBERS} SELECT 'S' || n, 'chemistry', 'accepted', {_AGE} FROM n"
    connection.execute(text(parts), {"many": handovers})
    jobs = text(_JOBS)
    start = {"payload": "{}", "system": "", "unverified": 0, "cause": ""}
    connection.execute(jobs, {**start, "many": held, "name": "H", "kind": "fetch_order", "state": "due"})
    adapter = {"payload": '{"adapter": "chemistry", "reopened": 0}', "system": "chemistry", "unverified": UNVERIFIED}
    failing = {"name": "S", "kind": "submit_order", "state": "due", "cause": "lis_disk_full"}
    connection.execute(jobs, {**start, **adapter, **failing, "many": handovers})
    rejected = {"name": "U", "kind": "update_line_task", "state": "dead_letter", "cause": "write_rejected"}
    connection.execute(jobs, {**start, "payload": '{"status": "completed"}', **rejected, "many": uploads})


@pytest.fixture
async def store(request: pytest.FixtureRequest, sqlite_url: str, cipher: Cipher) -> AsyncIterator[Store]:
    """With so many times the orders as it is asked for."""
    made = Store(sqlite_url, cipher)
    await made.write(lambda connection, _: fill(connection, getattr(request, "param", 1)))
    yield made
    await made.close()


@pytest.fixture
def attention(store: Store) -> AttentionAlerts:
    return AttentionAlerts(store, VirtualClock(NOW), timedelta(minutes=30))


async def open_alerts(store: Store) -> dict[AlertKey, Alert]:
    return {each.key: each for each in (await Queries(store).alerts()).items if each.closed_at is None}


async def load_groups(store: Store) -> tuple[CauseGroup, ...]:
    return await store.run_read_only(lambda uow: read_groups(uow, NOW))


async def test_three_causes_are_three_alerts_with_number_and_age(store: Store, attention: AttentionAlerts) -> None:
    await attention.run()
    found = await open_alerts(store)
    numbers = {key: (each.count, each.since) for key, each in found.items()}
    first = datetime(2026, 3, 1, 11, 0, tzinfo=UTC)
    assert numbers == {
        HELD_ALERT: (HELD, first - timedelta(seconds=HELD)),
        DISK_ALERT: (HANDOVERS, first - timedelta(seconds=HANDOVERS)),
        UPLOAD_ALERT: (UPLOADS, first - timedelta(seconds=UPLOADS)),
    }
    assert f"order H{HELD} for longest" in found[HELD_ALERT].detail
    settled = f"UPDATE orders SET state = 'closed', held_since = NULL, hold_cause = NULL WHERE key = 'H{HELD}'"
    await store.write(lambda connection, _: connection.execute(text(settled)))
    await attention.run()
    assert len((await Queries(store).alerts()).items) == 3
    after = (await open_alerts(store))[HELD_ALERT]
    assert (after.since - found[HELD_ALERT].since, after.opened_at) == (timedelta(seconds=1), found[HELD_ALERT].opened_at)


async def test_three_causes_are_three_groups_oldest_first(store: Store) -> None:
    groups = await load_groups(store)
    assert [(each.code, each.system, each.count, each.waiting, each.key) for each in groups] == [
        (RULE, "", HELD, HELD, HELD_ALERT),
        ("lis_disk_full", "chemistry", HANDOVERS, UNVERIFIED, DISK_ALERT),
        ("write_rejected", "", UPLOADS, UPLOADS, UPLOAD_ALERT),
    ]
    oldest = await Queries(store).needs_attention(cause=HELD_ALERT, limit=3)
    assert [each.ref for each in oldest.items] == [f"H{number}" for number in (HELD, HELD - 1, HELD - 2)]
    queries = Queries(store)
    assert (await queries.affected_numbers()).orders_to_hand_over == {"chemistry": HANDOVERS}
    assert (await queries.needs_attention()).items[0].ref == f"H{HELD}"
    assert (await queries.orders(states=[OrderState.HELD])).items[0].key == f"H{HELD}"
    assert (await queries.orders(cause=RULE)).total == HELD
    assert (await queries.jobs(states=OPEN_JOBS)).items[0].order == f"H{HELD}"
    failing = await queries.jobs(cause=FailureCause.LIS_DISK_FULL, system="chemistry")
    assert (failing.items[0].order, failing.total) == (f"S{HANDOVERS}", HANDOVERS)
    overview = await queries.overview(now=NOW)
    assert overview.due_since == datetime(2026, 3, 1, 11, 0, tzinfo=UTC) - timedelta(seconds=HANDOVERS), "it waits for its try"


TOO_MANY = pytest.mark.xfail(strict=True, reason="SQLite walks over all that wait")
PAGES = [
    pytest.param(lambda store, _: Queries(store).needs_attention(), 150_000, id="waiting", marks=TOO_MANY),
    pytest.param(lambda store, _: load_groups(store), 400_000, id="groups"),
    pytest.param(lambda store, _: Queries(store).orders(states=[OrderState.HELD]), 100_000, id="held orders", marks=TOO_MANY),
    pytest.param(lambda store, _: Queries(store).jobs(states=OPEN_JOBS), 120_000, id="open jobs"),
    pytest.param(lambda _, attention: attention.run(), 500_000, id="attention task"),
]


@pytest.mark.slow
@pytest.mark.parametrize("store", [10], indirect=True)
@pytest.mark.parametrize(("read", "limit"), PAGES)
async def test_pages_read_no_more_than_they_show(store: Store, attention: AttentionAlerts, read: Any, limit: int) -> None:
    """Each step is one of SQLite's machine: to look at every row of ten thousand in full would be a million and more."""
    counter = StepCounter(store)
    await read(store, attention)
    assert 0 < counter.steps <= limit


async def test_cause_is_retried_in_portions_but_for_unverified_handovers(store: Store, attention: AttentionAlerts) -> None:
    group = JobGroup(FailureCause.LIS_DISK_FULL, system="chemistry")
    preview = await job_actions.preview_retry(store, group)
    assert (preview.action, preview.number) == (GroupAction.RETRY, HANDOVERS - UNVERIFIED)
    assert [each.number for each in preview.left_out] == [UNVERIFIED]
    outcome = await job_actions.retry_group(store, group, by="anna", now=NOW)
    assert (outcome.done, [each.number for each in outcome.left_out]) == (HANDOVERS - UNVERIFIED, [UNVERIFIED])
    jobs = (await Queries(store).jobs(kinds=[JobKind.SUBMIT_ORDER], limit=1_000)).items
    assert sum(each.state is JobState.DUE and each.due_at == NOW for each in jobs) == HANDOVERS - UNVERIFIED
    assert {each.first_due_at < NOW for each in jobs} == {True}, "its age does not start anew"
    detail = await Queries(store).order(jobs[-1].order)
    assert detail is not None
    assert [(each.action, each.by) for each in detail.events] == [("operator", "anna")]
    again = await job_actions.retry_group(store, group, by="anna", now=NOW)
    assert (again.done, sum(each.number for each in again.left_out)) == (0, HANDOVERS), "after a crash, the rest is done"
    await attention.run()
    assert (await open_alerts(store))[DISK_ALERT].count == HANDOVERS, "it fails until an attempt succeeds"


async def test_held_orders_of_a_cause_are_assessed_now(store: Store) -> None:
    assert (await held_group_actions.preview_assessment(store, RULE)).number == HELD
    outcome = await held_group_actions.assess_held_orders(store, RULE, by="anna", now=NOW)
    assert outcome.done == HELD
    due = await store.transact(lambda uow: uow.jobs.pending([JobKind.FETCH_ORDER], now=NOW))
    assert due.kinds == {JobKind.FETCH_ORDER}
    repeated = await held_group_actions.assess_held_orders(store, RULE, by="anna", now=NOW)
    assert (repeated.done, [each.number for each in repeated.left_out]) == (0, [HELD])


async def test_cause_is_dismissed_and_what_cannot_be_changed_stops_no_other(store: Store, attention: AttentionAlerts) -> None:
    spoilt = "UPDATE jobs SET kind = 'deliver_report', target = 'gone' WHERE target = 'U7'"
    await store.write(lambda connection, _: connection.execute(text(spoilt)))
    group = JobGroup(FailureCause.WRITE_REJECTED)
    assert (await job_actions.preview_dismissal(store, group)).number == UPLOADS
    outcome = await job_actions.dismiss_group(store, group, by="anna", note="entered by hand", now=NOW)
    assert (outcome.done, [each.number for each in outcome.left_out]) == (UPLOADS - 1, [1])
    await attention.run()
    assert (await open_alerts(store))[UPLOAD_ALERT].count == 1
