"""The hold reason of a report, in the journal and in what needs attention."""

from __future__ import annotations

from lab_agent.domain.ids import ReportKey
from lab_agent.domain.report_records import HoldReason
from lab_agent.domain.state_machines import ReportState
from lab_agent.store.queries import SqlQueries


async def test_hold_reason_is_kept_and_listed(store, transact, factory):
    held = factory.report("P1", state=ReportState.HELD, hold_reason=HoldReason.DEFECT)
    free = factory.report("P2", state=ReportState.UNMATCHED)
    await transact(lambda uow: (uow.reports.add(held), uow.reports.add(free)))
    kept = await transact(lambda uow: [uow.reports.get_for_update(ReportKey(key)).hold_reason for key in ("P1", "P2")])
    assert kept == [HoldReason.DEFECT, None]
    items = (await SqlQueries(store).needs_attention()).items
    assert {item.ref: item.hold_reason for item in items} == {"P1": HoldReason.DEFECT, "P2": None}
