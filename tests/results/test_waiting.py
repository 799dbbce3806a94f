"""One alert while results wait for a person, one while effects do: told once, whoever looks, with the numbers of now."""

from __future__ import annotations

from lab_agent.domain.journal import Alert
from lab_agent.domain.results import AccessionUpdate
from lab_agent.domain.values import Coding
from lab_agent.steps import result_desk as desk
from lab_agent.steps.waiting import JOBS_ALERT, RESULTS_ALERT, AttentionAlerts
from lab_sandbox.faults.rule import FaultRule
from tests.results.bench import ResultsBench, haemoglobin, make_report


async def look(bench: ResultsBench) -> list[Alert]:
    """Look as two workers do, each twice; what is open then."""
    for _ in range(2):
        for watch in (AttentionAlerts(bench.store, bench.clock), AttentionAlerts(bench.store, bench.clock)):
            await watch.run()
    return [alert for alert in bench.store._data.alerts if alert.closed_at is None]


async def test_results_that_wait_open_one_alert_until_none_waits(bench: ResultsBench) -> None:
    assert await look(bench) == []
    lost = await bench.receive(make_report(order=None, barcode="Anna Sample"))
    await bench.receive(make_report(haemoglobin("1", code=Coding(code="HGB")), report_id="code"))
    (alert,) = await look(bench)
    assert alert.key == RESULTS_ALERT
    assert "(1 unmatched, 1 unmapped); the first: it fits no order, or no line of its order" in alert.text
    assert "Anna" not in alert.text
    await bench.receive(make_report(order="RNOBODY", report_id="third"))
    (same,) = await look(bench)
    assert (same.opened_at, "(2 unmatched, 1 unmapped)" in same.text) == (alert.opened_at, True), (
        "one alert, which says how many now"
    )
    for held in await desk.waiting_results(bench.store):
        await desk.dismiss_result(bench.store, held.key, by="ann", note="wrong", now=bench.clock.now())
    assert await look(bench) == []
    assert len(bench.store._data.alerts) == 1
    assert lost.order is None


async def test_a_parked_delivery_opens_an_alert_until_it_is_decided(bench: ResultsBench) -> None:
    bench.inject_faults(FaultRule(kind="status", status=422, route="POST /fhir/DiagnosticReport"))
    parked = await bench.receive(make_report(lines=("L0",)))
    (alert,) = await look(bench)
    assert (alert.key, "(1 deliver); the first is parked" in alert.text) == (JOBS_ALERT, True)
    await desk.dismiss_result(bench.store, parked.key, by="ann", note="wrong", now=bench.clock.now())
    assert await look(bench) == []


async def test_a_receipt_that_waits_is_a_result_that_waits(bench: ResultsBench) -> None:
    await bench.receive(AccessionUpdate(order="RNOBODY", accession="A-9"))
    assert [alert.key for alert in await look(bench)] == [RESULTS_ALERT]
