"""What needs attention: alerts while results or jobs wait.

One alert of a kind is opened once, whoever checks, with the current numbers.
"""

from __future__ import annotations

from datetime import timedelta

import pytest

from lab_agent.lis.lab_messages import AccessionUpdate
from lab_agent.operations.attention_alerts import AttentionAlerts
from lab_agent.results import result_actions
from lab_agent.results.result_inbox import StoreInbox
from lab_agent.shared.conditions.model import AlertKey, ConditionId
from lab_agent.shared.values import Coding
from lab_agent.store.event_records import Alert
from tests.harness.results import ORDER, ResultsBench, haemoglobin, make_report, refused

UNMATCHED = ConditionId.RESULTS_UNMATCHED


async def check_alerts(bench: ResultsBench) -> tuple[Alert, ...]:
    """Check as two workers do, each twice; the alerts that are open then."""
    for _ in range(2):
        for watch in [AttentionAlerts(bench.store, bench.clock, timedelta(minutes=30)) for _ in range(2)]:
            await watch.run()
    return await bench.open_alerts()


async def test_held_reports_keep_one_alert_open(bench: ResultsBench) -> None:
    """Reports that wait for an operator open one alert until none waits."""
    assert await check_alerts(bench) == ()
    await bench.receive(make_report(order=None, barcode="Anna Sample"))
    await bench.receive(make_report(haemoglobin("1", code=Coding(code="HGB")), report_id="code"))
    told = {each.condition: each for each in await check_alerts(bench)}
    assert {condition: each.count for condition, each in told.items()} == {UNMATCHED: 1, ConditionId.RESULTS_UNMAPPED: 1}
    assert "Anna" not in told[UNMATCHED].detail
    await bench.receive(make_report(order="RNOBODY", report_id="third"))
    await bench.receive(AccessionUpdate(order="RNOBODY", accession="A-9"))
    (same,) = [each for each in await check_alerts(bench) if each.condition is UNMATCHED]
    assert (same.opened_at, same.count) == (told[UNMATCHED].opened_at, 3), "a number that waits is a result that waits"
    for held in await result_actions.waiting_results(bench.store):
        await bench.dismiss(held)
    assert await check_alerts(bench) == ()


async def test_dead_lettered_delivery_keeps_alert_open_until_decided(bench: ResultsBench) -> None:
    bench.inject_faults(refused(None))
    stuck = await bench.receive(make_report(lines=("L0",)))
    (alert,) = await check_alerts(bench)
    assert (alert.key, alert.detail) == (AlertKey(ConditionId.JOBS_WRITE_REJECTED), "1 deliver_report")
    await bench.dismiss(stuck)
    assert await check_alerts(bench) == ()


@pytest.mark.slow
async def test_words_of_service_sealed_and_not_logged(bench: ResultsBench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.inject_faults(refused(None))
    await bench.receive(make_report())
    said = await bench.store.transact(lambda uow: uow.vault.service_messages(ORDER))
    (message,) = [each[-1].text for each in said.values()]
    diagnostics = message.partition(": ")[2]
    assert diagnostics
    assert diagnostics not in capsys.readouterr().out
    assert all(diagnostics not in str(job.reason) for job in await bench.jobs())


@pytest.mark.slow
async def test_alert_of_an_adapter_names_its_laboratory_system(bench: ResultsBench) -> None:
    """One of a key is open; another text replaces the first, and the adapter closes it."""
    inbox = StoreInbox(bench.store, bench.clock, "main")
    for text in ("a peer leaks", "another leaks"):
        await inbox.alert("connections", text)
    (alert,) = await check_alerts(bench)
    assert (alert.key, alert.detail) == (AlertKey(ConditionId.LIS_CONNECTIONS, "main"), "another leaks")
    for _ in range(2):
        await inbox.alert("connections", None)
    assert await check_alerts(bench) == ()
