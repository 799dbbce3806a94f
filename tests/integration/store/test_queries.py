"""Read models for pages, commands and metrics."""

from __future__ import annotations

from datetime import timedelta

import pytest

from lab_agent.orders.records import WorkOrder
from lab_agent.queue.job_records import JobKind
from lab_agent.shared.conditions.model import AlertKey, ConditionId
from lab_agent.shared.state_machines import JobState, LineState, OrderState, ReportState, WorkOrderState
from lab_agent.shared.values import Identifier
from lab_agent.store.event_records import Alert, Event
from lab_agent.store.queries import Queries
from lab_agent.store.read_models import LAST_POLL_KEY, AttentionKind

HOUR = timedelta(hours=1)


@pytest.fixture
def queries(store):
    return Queries(store)


@pytest.fixture
async def day(transact, factory):
    """A small day: three orders, of which one is held and one has a dead letter and an unmapped report."""
    now = factory.now
    hold = {"held_since": now - 5 * HOUR, "hold_cause": "order.contract-known"}
    held = factory.order("RHELD", state=OrderState.HELD, reason="unknown contract", contract="C9", changed_at=now, **hold)
    times = {"seen_at": now + HOUR, "expected_at": now - HOUR}
    given = factory.order("RGIVEN", state=OrderState.HANDED_OVER, requisition=Identifier(system="s", value="0042"), **times)
    closed = factory.order("RCLOSED", state=OrderState.CLOSED, seen_at=now - HOUR)
    lines = [
        factory.line("RGIVEN", "L1", state=LineState.ACCEPTED, accession="A7-1"),
        factory.line("RGIVEN", "L2", state=LineState.REJECTED),
        factory.line("RCLOSED", "L3", state=LineState.COMPLETED),
    ]

    def work(uow):
        for order in (held, given, closed):
            uow.orders.add(order)
        handed_over = {"state": WorkOrderState.HANDED_OVER, "changed_at": now, "accession": "A7"}
        uow.orders.save_work_order(WorkOrder(order="RGIVEN", adapter="folder", **handed_over))
        for line in lines:
            uow.orders.add_line(line)
        uow.orders.set_labels("RGIVEN", [factory.label("0001", lines[0])])
        uow.jobs.add(factory.job("dead_letter", order="RGIVEN", target="L1", due_at=now - 2 * HOUR))
        uow.jobs.add(factory.job("waits", order="RGIVEN", due_at=now - HOUR, kind=JobKind.SUBMIT_ORDER))
        uow.jobs.add(factory.job("later", due_at=now + HOUR))
        uow.reports.add(factory.report("P1", order="RGIVEN", state=ReportState.UNMAPPED, report_id="7", reason="GLU?"))
        uow.reports.add(factory.report("P2", state=ReportState.DELIVERED, order="RCLOSED"))
        uow.alerts.open(Alert(condition=ConditionId.DISK_LOW, since=now, opened_at=now))
        uow.alerts.close(AlertKey(ConditionId.DISK_LOW), now=now)
        uow.alerts.open(Alert(condition=ConditionId.EXCHANGE_POLL, since=now, opened_at=now))
        uow.events.add(Event(order="RGIVEN", at=now + HOUR, action="second", text="2"))
        uow.events.add(Event(order="RGIVEN", at=now, action="first", text="1", by="anna"))
        uow.key_values.set(LAST_POLL_KEY, now.isoformat())

    await transact(work)
    (dead_letter,) = await transact.claim(limit=1)
    await transact.jobs.save(dead_letter.dead_letter(now - 2 * HOUR, "no right"))
    return now


async def test_overview_counts_states_ages_and_alerts(queries, day):
    overview = await queries.overview(now=day)
    assert overview.orders == {OrderState.HELD: 1, OrderState.HANDED_OVER: 1}
    assert overview.closed_orders == 1
    assert overview.lines == {LineState.ACCEPTED: 1}
    assert overview.jobs == {JobState.DEAD_LETTER: 1, JobState.DUE: 2}
    assert overview.reports == {ReportState.UNMAPPED: 1}
    assert overview.oldest_orders == {OrderState.HELD: day - 5 * HOUR, OrderState.HANDED_OVER: day}
    assert overview.oldest_jobs[JobState.DEAD_LETTER] == day - 2 * HOUR
    assert overview.oldest_reports == {ReportState.UNMAPPED: day}
    assert (overview.due_since, overview.overdue_orders, overview.last_poll) == (day - HOUR, 1, day)
    assert [alert.condition for alert in overview.alerts] == [ConditionId.EXCHANGE_POLL]
    assert overview.jobs_by_kind == {
        (JobKind.UPDATE_LINE_TASK, JobState.DEAD_LETTER): 1,
        (JobKind.UPDATE_LINE_TASK, JobState.DUE): 1,
        (JobKind.SUBMIT_ORDER, JobState.DUE): 1,
    }
    assert overview.affected == await queries.affected_numbers()


async def test_needs_attention_lists_longest_waiting_first(queries, day):
    page = await queries.needs_attention()
    found = [(each.attention_kind, each.ref, each.state, each.kind, each.order, each.reason) for each in page.items]
    assert found == [
        (AttentionKind.ORDER, "RHELD", "held", "C9", "RHELD", "unknown contract"),
        (AttentionKind.JOB, "1", "dead_letter", "update_line_task", "RGIVEN", "no right"),
        (AttentionKind.REPORT, "P1", "unmapped", "folder", "RGIVEN", "GLU?"),
    ]
    assert [each.since for each in page.items] == [day - 5 * HOUR, day - 2 * HOUR, day], "since it was first due"
    assert [each.attempts for each in page.items] == [0, 1, 0]
    second = await queries.needs_attention(offset=1, limit=1)
    assert [each.ref for each in second.items] == ["1"]
    assert second.total == 3
    assert second.has_more


async def test_orders_are_listed_newest_first(queries, day):
    page = await queries.orders()
    assert [each.key for each in page.items] == ["RGIVEN", "RHELD", "RCLOSED"]
    given = page.items[0]
    assert (given.lines, given.ended_lines, given.open_jobs, given.attention_count) == (2, 1, 2, 2)
    assert given.requisition == Identifier(system="s", value="0042")
    assert [(each.adapter, each.accession) for each in given.work_orders] == [("folder", "A7")]
    assert page.items[1].work_orders == ()
    ended = await queries.orders(states=[OrderState.HELD, OrderState.CLOSED])
    assert [each.key for each in ended.items] == ["RHELD", "RCLOSED"]
    last = await queries.orders(offset=2, limit=2)
    assert [each.key for each in last.items] == ["RCLOSED"]
    assert last.total == 3
    assert not last.has_more


async def test_order_is_found_by_any_reference(queries, day):
    for search in ("RGIVEN", "rgiven", " task-2 ", "0042", "A7", "A7-1", "0001", "L2", "line-task-4"):
        assert [each.key for each in (await queries.orders(search=search)).items] == ["RGIVEN"], search
    for search in ("42", "%", "'", "0001; --"):
        assert (await queries.orders(search=search)).items == (), search
    assert (await queries.orders(search="0042", states=[OrderState.HELD])).total == 0
    assert (await queries.orders(search="  ")).total == 3


async def test_order_detail_lists_its_records(queries, day):
    detail = await queries.order("RGIVEN")
    assert detail.order.key == "RGIVEN"
    assert [line.key for line in detail.lines] == ["L1", "L2"]
    assert [label.barcode for label in detail.labels] == ["0001"]
    assert [job.dedup_key for job in detail.jobs] == ["dead_letter", "waits"]
    assert [report.key for report in detail.reports] == ["P1"]
    assert [(event.action, event.by) for event in detail.events] == [("first", "anna"), ("second", None)]
    assert await queries.order("RNONE") is None


async def test_jobs_reports_and_alerts_are_filtered(queries, day):
    for asked, names in (
        ({}, ["dead_letter", "waits", "later"]),
        ({"states": [JobState.DEAD_LETTER]}, ["dead_letter"]),
        ({"kinds": [JobKind.SUBMIT_ORDER], "states": [JobState.DUE]}, ["waits"]),
    ):
        assert [each.dedup_key for each in (await queries.jobs(**asked)).items] == names
    assert (await queries.job(1)).dedup_key == "dead_letter"
    assert await queries.job(99) is None
    assert [each.key for each in (await queries.reports()).items] == ["P2", "P1"]
    assert [each.key for each in (await queries.reports(states=[ReportState.UNMAPPED])).items] == ["P1"]
    assert (await queries.report("P1")).body == b"{}"
    assert await queries.report("P9") is None
    assert [each.condition for each in (await queries.alerts()).items] == [ConditionId.EXCHANGE_POLL, ConditionId.DISK_LOW]


async def test_history_of_report_without_known_order(queries, day, transact):
    first = Event(order=None, report="P7", at=day, action="result_held", text="held")
    second = Event(order="RGIVEN", report="P7", at=day + HOUR, action="operator", text="matched", by="ann")
    other = Event(order=None, report="P8", at=day, action="operator", text="gone", by="ann")
    await transact(lambda uow: [uow.events.add(event) for event in (second, first, other)])
    assert await queries.report_events("P7") == (first, second)
    assert second in (await queries.order("RGIVEN")).events
    assert await queries.report_events("P9") == ()


async def test_late_lines_are_listed_with_their_orders(queries, transact, factory):
    await transact(
        lambda uow: [
            uow.orders.add(factory.order("RLATE", state=OrderState.HANDED_OVER)),
            uow.orders.add_line(factory.line("RLATE", "1", state=LineState.HELD)),
            uow.orders.add_line(factory.line("RLATE", "2", state=LineState.ACCEPTED)),
        ]
    )
    listed = await queries.needs_attention(cause=AlertKey(ConditionId.LINES_HELD))
    assert [(each.attention_kind, each.order, each.state) for each in listed.items] == [(AttentionKind.LINE, "RLATE", "held")]
    assert (await queries.needs_attention()).items == listed.items


async def test_match_desk_lists_longest_waiting_with_content(queries, transact, factory):
    states = (ReportState.HELD, ReportState.MATCHED, ReportState.UNMATCHED, ReportState.DISMISSED, ReportState.UNMAPPED)

    def work(uow):
        for number, state in enumerate(states):
            changed = factory.now - number * HOUR  # tried again since: what counts is since when the clinic waits
            uow.reports.add(factory.report(f"P{number}", state=state, body=b"%d" % number, changed_at=changed))

    await transact(work)
    page = await queries.unmatched_reports()
    assert [(each.key, each.body) for each in page.items] == [("P0", b"0"), ("P2", b"2"), ("P4", b"4")]
    second = await queries.unmatched_reports(offset=1, limit=1)
    assert [each.key for each in second.items] == ["P2"]
    assert second.total == 3
    assert second.has_more


async def test_report_versions_are_listed(queries, transact, factory):
    def work(uow):
        for key in ("RA", "RB"):
            uow.orders.add(factory.order(key))
        of_orders = [("RA", "7", "folder"), ("RA", "7", "hl7"), ("RA", "8", "folder"), ("RB", "7", "folder")]
        of_nobody = [(None, name, source) for name, source in (("7", "folder"), ("7", "folder"), ("7", "hl7"))]
        unnamed = [(None, None, "folder")] * 2
        for number, (order, name, source) in enumerate((*of_orders, *of_nobody, *unnamed), 1):
            uow.reports.add(factory.report(f"P{number}", order=order, report_id=name, source=source))

    await transact(work)

    async def versions(key, **options):
        return [each.key for each in await queries.versions(await queries.report(key), **options)]

    assert await versions("P1") == ["P1"], "another laboratory system may give the same report id"
    assert await versions("P5") == ["P6", "P5"]
    assert await versions("P7") == ["P7"]
    assert await versions("P8") == ["P8"]
    assert await versions("P5", limit=1) == ["P6"]


async def test_document_size_is_known_without_decryption(queries, transact, factory):
    for size in (0, 1, 15, 16, 17, 4_000, 1_000_001):
        name = await transact.vault.save_document(b"x" * size, "application/pdf", at=factory.now)
        sizes = await queries.document_sizes([name, "0" * 64])
        assert list(sizes) == [name]
        assert abs(sizes[name] - size) <= 16
    assert await queries.document_sizes([]) == {}
