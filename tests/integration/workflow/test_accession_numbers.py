"""The laboratory's own numbers: at the handover or later, of the order, its lines and its tubes; reports are found by them."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from lab_agent import serialization
from lab_agent.domain.ids import LineKey, ResourceId, report_key
from lab_agent.domain.job_records import Job, JobKind
from lab_agent.domain.lab_messages import Accession, AccessionUpdate, LabMessage, LabRejection, NotPerformed
from lab_agent.domain.records import LineRecord, OrderRecord
from lab_agent.domain.report_records import ReportRecord
from lab_agent.domain.state_machines import LineState, OrderState, ReportState, WorkOrderState
from lab_agent.domain.work_orders import WorkOrder
from lab_agent.errors import DataInvalidError, LisOutcomeUnknown
from lab_agent.lis.adapter_checks import check_submit_result as checked
from lab_agent.lis.testing import make_order
from lab_agent.mappings.tables import MappingTables
from lab_agent.ports.lis import SubmitResult
from lab_agent.ports.repositories import UnitOfWork
from lab_agent.settings.groups import ResultsSettings
from lab_agent.worker.job_lease import JobLease
from lab_agent.workflow.accession_numbers import rematch_waiting_reports, save_submit_accessions
from lab_agent.workflow.result_matching import MatchReportHandler, ReportMatcher
from tests.fakes.memory_store import MemoryStore
from tests.harness.clock import VirtualClock

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
ORDER = next(
    order for order in map(make_order, range(200)) if len(order.lines) > 2 and len({line.specimens for line in order.lines}) == 2
)
TUBES = {specimen.id: specimen.containers[0].barcode or "" for specimen in ORDER.specimens}
_SETTINGS = SimpleNamespace(planner=SimpleNamespace(settings=ResultsSettings(), tables=MappingTables()))
MATCHER = ReportMatcher(checks=_SETTINGS)  # type: ignore[arg-type]  # of the checks, receipts and refusals need the settings


@pytest.fixture
async def store() -> MemoryStore:
    made = MemoryStore()

    def write(uow: UnitOfWork) -> None:
        medical, _ = serialization.split_identity(ORDER)
        start: dict[str, Any] = {"seen_at": NOW, "changed_at": NOW, "state": OrderState.HANDED_OVER, "lab_order": medical}
        uow.orders.add(OrderRecord(key=ORDER.key, task_id=ResourceId("t"), **start))
        uow.orders.save_work_order(WorkOrder(order=ORDER.key, adapter="lis", state=WorkOrderState.HANDED_OVER, changed_at=NOW))
        for line in ORDER.lines:
            at: dict[str, Any] = {
                "task_id": ResourceId(line.key),
                "changed_at": NOW,
                "state": LineState.ACCEPTED,
                "adapter": "lis",
            }
            uow.orders.add_line(LineRecord(key=line.key, order=ORDER.key, **at))
        uow.commit()

    await made.run(write)
    return made


async def numbers(store: MemoryStore) -> tuple[str | None, dict[LineKey, str | None]]:
    def read(uow: UnitOfWork) -> tuple[str | None, dict[LineKey, str | None]]:
        (part,) = uow.orders.work_orders(ORDER.key)
        return part.accession, {line.key: line.accession for line in uow.orders.lines(ORDER.key)}

    return await store.run(read)


async def matched(store: MemoryStore, name: str, message: LabMessage) -> ReportRecord:
    def write(uow: UnitOfWork) -> ReportRecord:
        key = report_key("lis", name)
        uow.reports.add(
            ReportRecord(
                key=key, source="lis", message=name, received_at=NOW, changed_at=NOW, body=serialization.dump_message(message)
            )
        )
        MATCHER.match(uow, key, NOW)
        uow.commit()
        return uow.reports.get_for_update(key)

    return await store.run(write)


async def test_submit_result_numbers_stored(store: MemoryStore) -> None:
    first = ORDER.lines[0]
    tubes = {barcode: f"T-{barcode}" for barcode in TUBES.values()}
    receipt = SubmitResult(accession="A7", line_accessions={first.key: "A7-1"}, tube_accessions={**tubes, "unknown": "T0"})

    def write(uow: UnitOfWork) -> None:
        save_submit_accessions(uow, ORDER.key, "lis", receipt)
        uow.commit()

    await store.run(write)
    expected = {line.key: f"T-{TUBES[line.specimens[0]]}" for line in ORDER.lines}
    assert await numbers(store) == ("A7", {**expected, first.key: "A7-1"})
    assert await store.run(lambda uow: uow.orders.by_accession("A7-1", "lis")) == (ORDER.key,)


async def test_later_update_overwrites_earlier_numbers(store: MemoryStore) -> None:
    first, second, *_ = ORDER.lines
    entries = (Accession(number="1", line=first.key), Accession(number="2", item=second.item))
    record = await matched(store, "m1", AccessionUpdate(order=ORDER.key, accession="A7", accessions=entries))
    assert (record.state, record.order) == (ReportState.DELIVERED, ORDER.key)
    await matched(store, "m2", AccessionUpdate(order=ORDER.key, accessions=(Accession(number="3", line=first.key),)))
    accession, lines = await numbers(store)
    assert (accession, lines[first.key], lines[second.key]) == ("A7", "3", "2")


async def test_update_with_unknown_barcode_held_writes_nothing(store: MemoryStore) -> None:
    """A number of a tube that the order does not have holds the whole update for the operator; nothing is written."""
    entries = (Accession(number="1", line=ORDER.lines[0].key), Accession(number="2", barcode="nobody's"))
    record = await matched(store, "m1", AccessionUpdate(order=ORDER.key, accession="A7", accessions=entries))
    assert record.state is ReportState.UNMATCHED
    assert "nobody's" in (record.reason or "")
    accession, lines = await numbers(store)
    assert accession is None
    assert set(lines.values()) == {None}


async def match_again(store: MemoryStore) -> ReportRecord:
    """Do the one job that matches a report again; gives the first message as it stands then."""

    def claim(uow: UnitOfWork) -> tuple[Job, ...]:
        duties = uow.jobs.claim({frozenset((JobKind.MATCH_REPORT,)): 9}, owner="me", now=NOW, lease=timedelta(minutes=1))
        uow.commit()
        return duties

    (job,) = await store.run(claim)
    handler = MatchReportHandler(VirtualClock(NOW), MATCHER)
    lease = JobLease(job, store, VirtualClock(NOW), timedelta(minutes=1))
    decided = await handler.perform(lease, None)  # type: ignore[func-returns-value]

    def complete(uow: UnitOfWork) -> ReportRecord:
        handler.complete(uow, job, decided)
        return uow.reports.get_for_update(report_key("lis", "m1"))

    return await store.run(complete)


async def test_message_before_its_number_matched_later(store: MemoryStore) -> None:
    refusal = LabRejection(accession="A7", not_performed=(NotPerformed(reason="haemolysed"),))
    assert (await matched(store, "m1", refusal)).state is ReportState.UNMATCHED
    await matched(store, "m2", AccessionUpdate(order=ORDER.key, accession="A7"))
    early = await match_again(store)
    assert (early.state, early.order) == (ReportState.DELIVERED, ORDER.key)


async def test_message_before_submit_number_matched_later(store: MemoryStore) -> None:
    refusal = LabRejection(accession="A7", not_performed=(NotPerformed(reason="haemolysed"),))
    assert (await matched(store, "m1", refusal)).state is ReportState.UNMATCHED

    def handed_over(uow: UnitOfWork) -> None:
        save_submit_accessions(uow, ORDER.key, "lis", SubmitResult(accession="A7"))
        for _ in range(2):  # a handover that is done twice is harmless
            rematch_waiting_reports(uow, ORDER.key, "lis", SubmitResult(accession="A7"), NOW)
        uow.commit()

    await store.run(handed_over)
    early = await match_again(store)
    assert (early.state, early.order) == (ReportState.DELIVERED, ORDER.key)


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({"order": "R1"}, "gives no number"),
        ({"accession": "A7"}, "names no order"),
        ({"order": "R1", "accessions": [{"number": "1"}]}, "names nothing"),
        ({"order": "R1", "accessions": [{"number": "1", "line": "L", "item": "I"}]}, "2 at once"),
        ({"order": "R1", "accessions": [{"number": " ", "line": "L"}]}, "is empty"),
    ],
)
def test_update_without_content_rejected(body: dict[str, Any], word: str) -> None:
    with pytest.raises(DataInvalidError, match=word):
        serialization.load_message(json.dumps({"kind": "accession_update", **body}).encode())


def test_update_survives_serialization() -> None:
    receipt = AccessionUpdate(barcode="0042", accession="A7", accessions=(Accession(number="1", barcode="0042"),))
    assert serialization.load_message(serialization.dump_message(receipt)) == receipt


@pytest.mark.parametrize("wrong", [{"tube_accessions": {"1": ""}}, {"line_accessions": {"1": 7}}, {"accession": "a\nb"}])
def test_invalid_submit_numbers_leave_outcome_unknown(wrong: dict[str, Any]) -> None:
    """Numbers of a submit that are no short text leave its outcome unknown."""
    with pytest.raises(LisOutcomeUnknown):
        checked(replace(SubmitResult(), **wrong), "lis")
