"""After an erasure nothing in the database names the patient, and nothing is done twice."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import select

from lab_agent.lis.lab_messages import Document, LabReport, ReportedObservation, ReportStatus
from lab_agent.lis.serialization import dump_message, load_stored_message
from lab_agent.operations.patient_erasure import erase_order, erase_refused, erase_report, look_at_orders
from lab_agent.queue.job_records import ServiceMessage
from lab_agent.results.records import HostedDocument
from lab_agent.results.refused_messages import record_refusal
from lab_agent.results.refused_records import RefusedContent
from lab_agent.shared.errors import CryptoError, InvalidTransitionError
from lab_agent.shared.ids import OrderKey, ReportKey
from lab_agent.shared.state_machines import JobState, LineState, OrderState, ReportState
from lab_agent.shared.values import Coding
from lab_agent.store.audit_records import AuditAction, AuditEntry
from lab_agent.store.audit_verification import verify_audit
from lab_agent.store.crypto import Cipher
from lab_agent.store.event_records import Event
from lab_agent.store.queries import Queries
from lab_agent.store.table_base import METADATA
from tests.integration.store.conftest import NOW

CANARY = "Petrova"
MINE, OTHER = OrderKey("R-MINE"), OrderKey("R-OTHER")


def fill(uow, make, key, name=CANARY, *, state=OrderState.CLOSED, report=ReportState.DELIVERED):
    texts = {"reason": name, "received": name.encode(), "lab_order": name.encode()}
    order = make.order(key=key, state=state, patient_reference=f"Patient/{name}", **texts)
    line = make.line(key, key=f"L-{key}", state=LineState.COMPLETED, outputs=(f"{name} did not come",))
    uow.orders.add(order)
    uow.orders.add_line(line)
    uow.orders.set_labels(key, [make.label(f"barcode-{key}", line, patient=f"Patient/{name}")])
    uow.vault.save_identity(key, name.encode(), at=NOW)
    uow.vault.save_service_message(len(key), key, ServiceMessage(at=NOW, text=f"{name} is unknown"))
    document = uow.vault.save_document(f"%PDF {name}".encode(), "application/pdf", at=NOW)
    where = {"address": f"a-{key}", "document": document, "content_type": "application/pdf"}
    uow.hosted_documents.save(HostedDocument(**where, order=key, kept_at=NOW))
    found = {"observations": (ReportedObservation(code=Coding(code="HGB"), value_string=name),)}
    found |= {"documents": (Document(file=document),), "effective": NOW, "issued": NOW}
    body = dump_message(LabReport(report_id="1", status=ReportStatus.FINAL, order=key, **found))
    record = make.report(f"P-{key}", order=key, state=report, body=body, outgoing_body=body, reason=name, message=f"m-{key}")
    uow.reports.add(record)
    uow.vault.save_reported_patient(record.key, name.encode(), at=NOW)
    uow.jobs.add(make.job(f"j-{key}", order=key, payload={"adapter": "lis", "reason": name}, due_at=NOW))
    for about in ({"order": key}, {"order": None, "report": record.key}):
        uow.events.add(Event(**about, at=NOW, action="operator", text=f"asked {name}", by="anna"))
    for action, about in (
        (AuditAction.ORDER_RELEASED, {"subject": key, "order": key}),
        (AuditAction.RESULT_RELEASED, {"subject": record.key}),
    ):
        uow.audit.add(AuditEntry(at=NOW, action=action, **about, note=f"it is {name}", by="anna"))


async def finish_jobs(do):
    for job in await do.claim(now=NOW):
        ended = replace(job, started=True).dead_letter(NOW, f"{CANARY} is unknown").dismiss(NOW, f"{CANARY} has moved")
        await do.jobs.save(ended)


def names_in(connection, cipher: Cipher) -> dict[str, int]:
    """By table, in how many rows the patient is named; what is encrypted is read."""
    found = {}
    for table in METADATA.sorted_tables:
        rows = connection.execute(select(table)).all()
        count = sum(any(CANARY in _plain(value, cipher) for value in row) for row in rows)
        found |= {table.name: count} if count else {}
    return found


def _plain(value: object, cipher: Cipher) -> str:
    if isinstance(value, bytes):
        with suppress(CryptoError):  # it is not encrypted, or with the key of the audit: it is looked at as it is
            value = cipher.decrypt(value)
        return bytes(value).decode("utf-8", "replace")
    return str(value)


@pytest.fixture
async def filled(store, transact, factory):
    await transact(lambda uow: (fill(uow, factory, MINE), fill(uow, factory, OTHER, "Ivanova")))
    await finish_jobs(transact)
    return store


async def test_erased_order_names_nobody_anywhere(filled, transact, cipher):
    """Its keys and states stay, and other orders as they are; the audit tells of it, and is whole."""
    before = await filled.read(lambda connection: names_in(connection, cipher))
    assert {"identities", "events", "reports", "orders", "documents", "audit_notes", "jobs", "lines"} <= before.keys()
    assert await erase_order(filled, MINE, include_open=False, by="anna", now=NOW) == 1
    after = await filled.read(lambda connection: names_in(connection, cipher))
    assert after == {"jobs": 1}  # the other order's job was dismissed with that word by this test
    (job,) = (await Queries(filled).order(MINE)).jobs
    order, (line,) = await transact.orders.get(MINE), await transact.orders.lines(MINE)
    report, others = [await transact.reports.get_for_update(ReportKey(f"P-{key}")) for key in (MINE, OTHER)]
    states = (order.state, line.state, job.state, report.state)
    assert states == (OrderState.CLOSED, LineState.COMPLETED, JobState.DISMISSED, ReportState.DELIVERED)
    message = load_stored_message(report.body)
    assert (job.payload, message.report_id, message.observations) == ({"adapter": "lis"}, "1", ())
    assert await transact.orders.existing(["task-1"]) == {"task-1"}
    assert await transact.reports.find("folder", f"m-{MINE}")
    assert await transact.vault.identity(OTHER) == b"Ivanova"
    assert len(load_stored_message(others.body).observations) == 1
    verdict = await filled.read(lambda connection: verify_audit(connection, cipher, None))
    assert (verdict.broken, verdict.records, verdict.notes, verdict.erased_notes) == (None, 5, 4, 2)


async def test_order_before_handover_is_never_erased(store, transact, factory):
    states = (OrderState.SEEN, OrderState.HELD, OrderState.FETCHED)
    for state in states:
        await transact(lambda uow, state=state: fill(uow, factory, OrderKey(f"R-{state}"), state=state))
    await finish_jobs(transact)
    for state in states:
        with pytest.raises(InvalidTransitionError, match=state.value):
            await erase_order(store, OrderKey(f"R-{state}"), include_open=True, by="anna", now=NOW)
        assert await transact.vault.identity(OrderKey(f"R-{state}")) == CANARY.encode()


async def test_open_order_is_erased_only_where_said(store, transact, factory):
    await transact(lambda uow: fill(uow, factory, MINE, state=OrderState.HANDED_OVER))
    await finish_jobs(transact)
    (target,) = await look_at_orders(store, [MINE])
    assert target.is_open
    with pytest.raises(InvalidTransitionError, match="--include-open"):
        await erase_order(store, MINE, include_open=False, by="anna", now=NOW)
    await erase_order(store, MINE, include_open=True, by="anna", now=NOW)
    assert await transact.vault.identity(MINE) is None


async def test_unfinished_result_or_job_keeps_the_order(store, transact, factory):
    await transact(lambda uow: fill(uow, factory, MINE, report=ReportState.UNMATCHED))
    await transact(lambda uow: fill(uow, factory, OTHER))
    for key in (MINE, OTHER):
        with pytest.raises(InvalidTransitionError, match="not finished"):
            await erase_order(store, key, include_open=True, by="anna", now=NOW)


async def test_document_that_another_delivery_needs_stays(store, transact, factory):
    await transact(lambda uow: fill(uow, factory, MINE))
    await transact(lambda uow: fill(uow, factory, OTHER, report=ReportState.MATCHED))  # with the same document
    await finish_jobs(transact)
    assert await erase_order(store, MINE, include_open=False, by="anna", now=NOW) == 0


async def test_refused_message_and_result_without_order_are_erased(store, transact, factory, cipher):
    content = RefusedContent(message_id=f"{CANARY}.hl7", raw=f"PID|{CANARY}".encode())
    message = await transact(lambda uow: record_refusal(uow, "lis", content, "an unknown code", NOW))
    report = factory.report("P9", state=ReportState.DISMISSED, reason=CANARY, body=b'{"a": "Petrova"}')
    await transact.reports.add(report)
    await erase_refused(store, message.key, by="anna", now=NOW)
    await erase_report(store, report.key, by="anna", now=NOW)
    assert await store.read(lambda connection: names_in(connection, cipher)) == {}
    await transact.reports.add(replace(report, key=ReportKey("P8"), message="m8", state=ReportState.UNMATCHED))
    with pytest.raises(InvalidTransitionError, match="unmatched"):
        await erase_report(store, ReportKey("P8"), by="anna", now=NOW + timedelta(1))
