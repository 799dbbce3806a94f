"""A CSV file of which one row was refused: replayed with mended settings, what was accepted before is recognised."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lab_agent.lis.registry import AdapterRegistry, load_adapters
from lab_agent.results.records import ReportRecord
from lab_agent.results.refused_message_actions import PartOutcome, RefusedMessageDesk
from lab_agent.results.refused_records import RefusedState
from lab_agent.results.result_inbox import StoreInbox
from tests.harness.clock import VirtualClock
from tests.harness.databases import InlineStore

COLUMNS = {"report_id": "Report", "accession": "Sample", "item": "Test", "effective": "Time", "code": "LOINC", "value": "Value"}
ROWS = (
    "Report;Sample;Test;Time;LOINC;Value",
    "B1;A7;010.001;2024-05-17T08:30:00+03:00;718-7;140",
    "B2;A8;010.001;2024-05-17T08:30:00;718-7;141",
)


def load(folder: Path, **keys: Any) -> AdapterRegistry:
    table = {"orders": str(folder / "orders"), "results": str(folder / "results"), "settle": 0, "csv": {"columns": COLUMNS}}
    return load_adapters({"folder": {**table, **keys}}, "folder")


async def test_refused_row_is_replayed_without_repeating_the_good_one(tmp_path: Path) -> None:
    for name in ("orders", "results"):
        (tmp_path / name).mkdir()
    store, clock = InlineStore(), VirtualClock(datetime.now(UTC))
    adapter = load(tmp_path).get("folder")
    await adapter.start(StoreInbox(store, clock, "folder"))
    (tmp_path / "results" / "Saltykova.csv").write_text("".join(f"{row}\n" for row in ROWS))
    for _ in range(2):
        await adapter.collect()
    await adapter.stop()
    (message,), _ = await store.transact(lambda uow: uow.refused_messages.list(limit=9))
    desk = RefusedMessageDesk(store, clock, load(tmp_path))
    outcomes = [each.outcome for each in (await desk.preview(message.key)).parts]
    assert outcomes == [PartOutcome.ACCEPTED_BEFORE, PartOutcome.REFUSED]
    done = await desk.replay(message.key, by="ann")
    assert (done.message.state, done.new, done.known) == (RefusedState.WAITING, 0, 1)
    done = await RefusedMessageDesk(store, clock, load(tmp_path, time_zone="Europe/Moscow")).replay(message.key, by="ann")
    assert (done.message.state, done.new, done.known) == (RefusedState.REPLAYED, 1, 1)
    kept = [report.message for report in store.records(ReportRecord)]
    assert len(kept) == 2
    assert not any("Saltykova" in each for each in kept), "a file name may be the patient's, and `results show` shows the id"
