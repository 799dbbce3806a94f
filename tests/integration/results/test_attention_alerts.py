"""One alert while results wait for an operator, one while jobs do: opened once, whoever checks, with the current numbers."""

from __future__ import annotations

from datetime import timedelta

from lab_agent.conditions.ids import ConditionId
from lab_agent.conditions.model import AlertKey
from lab_agent.domain.lab_messages import AccessionUpdate
from lab_agent.domain.records import Alert
from lab_agent.domain.values import Coding
from lab_agent.workflow import operator_results
from lab_agent.workflow.attention_alerts import AttentionAlerts
from lab_agent.workflow.result_inbox import StoreInbox
from lab_sandbox.faults.plan import FaultRule
from tests.harness.results import ResultsBench, haemoglobin, make_report

ALERT_AFTER = timedelta(minutes=30)


async def check_alerts(bench: ResultsBench) -> list[Alert]:
    """Check as two workers do, each twice; the alerts that are open then."""
    for _ in range(2):
        for watch in (
            AttentionAlerts(bench.store, bench.clock, ALERT_AFTER),
            AttentionAlerts(bench.store, bench.clock, ALERT_AFTER),
        ):
            await watch.run()
    return [alert for alert in bench.store._data.alerts if alert.closed_at is None]


async def test_held_reports_keep_one_alert_open(bench: ResultsBench) -> None:
    """Reports that wait for an operator open one alert until none waits."""
    assert await check_alerts(bench) == []
    lost = await bench.receive(make_report(order=None, barcode="Anna Sample"))
    await bench.receive(make_report(haemoglobin("1", code=Coding(code="HGB")), report_id="code"))
    alert, unmapped = await check_alerts(bench)
    assert (alert.condition, alert.count) == (ConditionId.RESULTS_UNMATCHED, 1)
    assert (unmapped.condition, unmapped.count) == (ConditionId.RESULTS_UNMAPPED, 1)
    assert "Anna" not in alert.detail
    await bench.receive(make_report(order="RNOBODY", report_id="third"))
    same, _ = await check_alerts(bench)
    assert (same.opened_at, same.count) == (alert.opened_at, 2), "one alert, which says how many now"
    for held in await operator_results.waiting_results(bench.store):
        await operator_results.dismiss_result(bench.store, held.key, by="ann", note="wrong", now=bench.clock.now())
    assert await check_alerts(bench) == []
    assert len(bench.store._data.alerts) == 2
    assert lost.order is None


async def test_alert_begins_with_the_oldest_that_still_waits(bench: ResultsBench) -> None:
    first = await bench.receive(make_report(order=None, barcode="one"))
    bench.clock.advance(hours=5)
    second = await bench.receive(make_report(order=None, barcode="two", report_id="second"))
    (alert,) = await check_alerts(bench)
    assert (alert.since, alert.count) == (first.received_at, 2)
    await operator_results.dismiss_result(bench.store, first.key, by="ann", note="wrong", now=bench.clock.now())
    (left,) = await check_alerts(bench)
    assert (left.since, left.opened_at, left.count) == (second.received_at, alert.opened_at, 1)


async def test_dead_lettered_delivery_keeps_alert_open_until_decided(bench: ResultsBench) -> None:
    bench.inject_faults(FaultRule(kind="status", status=422, route="POST /fhir/DiagnosticReport"))
    stuck = await bench.receive(make_report(lines=("L0",)))
    (alert,) = await check_alerts(bench)
    assert (alert.key, alert.detail) == (AlertKey(ConditionId.JOBS_WRITE_REJECTED), "1 deliver_report")
    await operator_results.dismiss_result(bench.store, stuck.key, by="ann", note="wrong", now=bench.clock.now())
    assert await check_alerts(bench) == []


async def test_held_accession_update_opens_results_alert(bench: ResultsBench) -> None:
    """An accession update that waits is a result that waits."""
    await bench.receive(AccessionUpdate(order="RNOBODY", accession="A-9"))
    assert [alert.condition for alert in await check_alerts(bench)] == [ConditionId.RESULTS_UNMATCHED]


async def test_alert_of_an_adapter_names_its_laboratory_system(bench: ResultsBench) -> None:
    """One of a key is open; another text replaces the first, and the adapter closes it."""
    inbox = StoreInbox(bench.store, bench.clock, "main")
    for text in ("a peer leaks", "another leaks"):
        await inbox.alert("connections", text)
    (alert,) = await check_alerts(bench)
    assert (alert.key, alert.detail) == (AlertKey(ConditionId.LIS_CONNECTIONS, "main"), "another leaks")
    await inbox.alert("connections", None)
    await inbox.alert("connections", None)
    assert await check_alerts(bench) == []
