"""A service that can be read and confirms no write: it is told, with its mend, and the results arrive once it works again."""

from __future__ import annotations

from datetime import timedelta

import pytest

from lab_agent.conditions.ids import ConditionId
from lab_agent.conditions.model import AlertKey
from lab_agent.domain.failure_causes import FailureCause
from lab_agent.domain.state_machines import ReportState
from lab_agent.workflow.attention_alerts import AttentionAlerts
from lab_sandbox.faults.plan import FaultRule
from tests.harness.results import ORDER, ResultsBench, make_report

OUTAGE = AlertKey(ConditionId.EXCHANGE_PART_UNAVAILABLE, "deliver_report")
UNKNOWN, WAITING, INVALID = (
    AlertKey(cause.condition)
    for cause in (FailureCause.OUTCOME_UNKNOWN, FailureCause.SERVICE_ASKS_TO_WAIT, FailureCause.INVALID_RESPONSE)
)


async def open_alerts(bench: ResultsBench) -> dict[AlertKey, str]:
    await AttentionAlerts(bench.store, bench.clock, timedelta(minutes=30)).run()
    await bench.runner.outages.end_settled_parts()
    return {alert.key: alert.detail for alert in bench.store._data.alerts if alert.closed_at is None}


async def run_for(bench: ResultsBench, minutes: int) -> None:
    for _ in range(minutes):
        await bench.run_due_jobs()
        bench.clock.advance(minutes=1)


@pytest.mark.parametrize(
    ("fault", "alert"),
    [
        ({"kind": "status", "status": 500}, UNKNOWN),
        ({"kind": "status", "status": 502}, UNKNOWN),
        ({"kind": "status", "status": 503}, UNKNOWN),
        ({"kind": "status", "status": 503, "retry_after": 20}, WAITING),
        ({"kind": "reset"}, UNKNOWN),
        ({"kind": "html"}, INVALID),
    ],
)
async def test_unconfirmed_writes_are_told_until_they_succeed(
    bench: ResultsBench, fault: dict[str, object], alert: AlertKey
) -> None:
    writes = [FaultRule.model_validate({**fault, "route": f"{method} /fhir/*"}) for method in ("POST", "PUT")]
    bench.inject_faults(*writes)
    await bench.accept(make_report())
    await run_for(bench, 5)
    assert set(await open_alerts(bench)) == {OUTAGE}
    await run_for(bench, 30)
    alerts = await open_alerts(bench)
    assert set(alerts) == {OUTAGE, alert}
    assert "1 deliver_report" in alerts[alert]
    bench.inject_faults()
    await bench.run_until_idle()
    assert await open_alerts(bench) == {}
    assert await bench.report_states() == [ReportState.DELIVERED]
    assert len(await bench.clinic_reports()) == 1


async def test_rejected_searches_are_tried_again(bench: ResultsBench) -> None:
    """A proxy's 418 to the search after a lost reply makes no dead letter."""
    bench.inject_faults(
        FaultRule(kind="lost_reply", route="POST /fhir/Observation", count=1),
        FaultRule(kind="status", status=418, route="GET /fhir/*", count=6),
    )
    await bench.receive(make_report())
    assert await bench.report_states() == [ReportState.DELIVERED]
    assert await open_alerts(bench) == {}


async def test_words_of_service_sealed_and_not_logged(bench: ResultsBench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.inject_faults(FaultRule(kind="status", status=422, route="POST /fhir/DiagnosticReport"))
    await bench.receive(make_report())
    said = await bench.store.run(lambda uow: uow.vault.service_messages(ORDER))
    (message,) = [each[-1].text for each in said.values()]
    diagnostics = message.partition(": ")[2]
    assert diagnostics
    assert diagnostics not in capsys.readouterr().out
    assert all(diagnostics not in str(job.reason) for job in await bench.jobs())
