"""One alert while results wait for a person, one while effects do: told once, whoever looks, with the numbers of now."""

from __future__ import annotations

from lab_agent.domain.journal import Alert
from lab_agent.domain.results import LabReceipt
from lab_agent.domain.values import Coding
from lab_agent.steps import result_desk as desk
from lab_agent.steps.waiting import RESULTS, WORK, Waiting
from lab_sandbox.faults.rule import FaultRule
from tests.results.bench import Bench, hb, report


async def look(bench: Bench) -> list[Alert]:
    """Look as two workers do, each twice; what is open then."""
    for _ in range(2):
        for watch in (Waiting(bench.store, bench.clock), Waiting(bench.store, bench.clock)):
            await watch.run()
    return [alert for alert in bench.store._shelf.alerts if alert.closed_at is None]


async def test_results_that_wait_open_one_alert_until_none_waits(bench: Bench) -> None:
    assert await look(bench) == []
    lost = await bench.send(report(order=None, barcode="Anna Sample"))
    await bench.send(report(hb("1", code=Coding(code="HGB")), report_id="code"))
    (alert,) = await look(bench)
    assert alert.key == RESULTS
    assert "(1 unmatched, 1 unmapped); the first: it fits no order, or no line of its order" in alert.text
    assert "Anna" not in alert.text
    await bench.send(report(order="RNOBODY", report_id="third"))
    (same,) = await look(bench)
    assert (same.opened_at, "(2 unmatched, 1 unmapped)" in same.text) == (alert.opened_at, True), (
        "one alert, which says how many now"
    )
    for held in await desk.waiting(bench.store):
        await desk.dismiss_result(bench.store, held.key, by="ann", note="wrong", now=bench.clock.now())
    assert await look(bench) == []
    assert len(bench.store._shelf.alerts) == 1
    assert lost.order is None


async def test_a_parked_delivery_opens_an_alert_until_it_is_decided(bench: Bench) -> None:
    bench.faults(FaultRule(kind="status", status=422, route="POST /fhir/DiagnosticReport"))
    parked = await bench.send(report(lines=("L0",)))
    (alert,) = await look(bench)
    assert (alert.key, "(1 deliver); the first is parked" in alert.text) == (WORK, True)
    await desk.dismiss_result(bench.store, parked.key, by="ann", note="wrong", now=bench.clock.now())
    assert await look(bench) == []


async def test_a_receipt_that_waits_is_a_result_that_waits(bench: Bench) -> None:
    await bench.send(LabReceipt(order="RNOBODY", accession="A-9"))
    assert [alert.key for alert in await look(bench)] == [RESULTS]
