"""When the service counts as slow."""

from __future__ import annotations

import pytest

from lab_agent.errors import ServiceUnavailable
from lab_agent.metrics import CallOutcome
from lab_agent.monitoring.exchange_probes import CallDurations, SlownessProbe


def probe_after(*seconds: float, outcome: str = "ok") -> tuple[SlownessProbe, list[float]]:
    time = [1000.0]
    calls = CallDurations(lambda: time[0])
    for each in seconds:
        calls.record("GET Task", outcome, each)
    return SlownessProbe(calls, 10.0), time


async def test_slow_when_half_of_the_calls_are() -> None:
    probe, _ = probe_after(12.5, 0.1, 13.0, 12.3, 0.2)
    (finding,) = await probe.look()
    assert (finding.condition.value, finding.detail) == ("exchange.slow", "median 12.3 s of the last 5 calls")


async def test_fast_with_one_slow_call() -> None:
    probe, _ = probe_after(60.0, 0.1, 0.1, 0.2, 0.2)
    assert await probe.look() == ()


@pytest.mark.parametrize(("number", "outcome"), [(4, CallOutcome.OK), (9, CallOutcome.NOT_SENT)])
async def test_few_calls_cannot_tell(number: int, outcome: str) -> None:
    probe, _ = probe_after(*[60.0] * number, outcome=outcome)
    with pytest.raises(ServiceUnavailable):
        await probe.look()


async def test_calls_of_long_ago_do_not_count() -> None:
    probe, time = probe_after(*[60.0] * 9)
    time[0] += 301.0
    with pytest.raises(ServiceUnavailable):
        await probe.look()
