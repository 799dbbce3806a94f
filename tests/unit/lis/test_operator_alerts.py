"""Alerts about peers: written seldom, closed once the trouble is over, whoever opened them."""

from __future__ import annotations

from lab_agent.lis.operator_alerts import QUIET_SECONDS, OperatorAlerts, Trouble
from lab_agent.lis.testing import MemoryInbox


async def test_alert_is_written_once_a_minute_and_closed_when_quiet() -> None:
    now, inbox = [0.0], MemoryInbox()
    alerts = OperatorAlerts(inbox, lambda: now[0])
    for seconds, told in ((0.0, "0"), (59.0, "0"), (61.0, "61")):
        now[0] = seconds
        await alerts.report(Trouble.CONNECTIONS, f"{seconds:g}")
        assert inbox.alerts == {"connections": told}
    now[0] = QUIET_SECONDS
    await alerts.close_quiet()
    assert inbox.alerts == {"connections": "61"}
    now[0] = 61 + QUIET_SECONDS
    await alerts.close_quiet()
    assert inbox.alerts == {}
    await alerts.report(Trouble.CONNECTIONS, "again")
    assert inbox.alerts == {"connections": "again"}


async def test_alert_of_an_earlier_process_is_closed() -> None:
    now, inbox = [0.0], MemoryInbox(alerts={"unfinished_input": "long ago", "unnamed_lines": "long ago"})
    alerts = OperatorAlerts(inbox, lambda: now[0])
    await alerts.close_quiet()
    assert inbox.alerts
    now[0] = QUIET_SECONDS
    await alerts.close_quiet()
    assert set(inbox.alerts) == {"unnamed_lines"}
    await alerts.close(Trouble.UNNAMED_LINES)
    assert inbox.alerts == {}
