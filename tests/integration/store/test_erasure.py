"""After an erasure nothing in the database names the patient, and nothing is done twice."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import select

from lab_agent.crypto import Cipher
from lab_agent.domain.audit import AuditAction, AuditEntry
from lab_agent.domain.ids import OrderKey, ReportKey
from lab_agent.domain.job_records import ServiceMessage
from lab_agent.domain.lab_messages import Document, LabReport, ReportedObservation, ReportStatus
from lab_agent.domain.records import Event
from lab_agent.domain.refused_messages import RefusedContent
from lab_agent.domain.report_records import HostedDocument
from lab_agent.domain.state_machines import JobState, LineState, OrderState, ReportState
from lab_agent.domain.values import Coding
from lab_agent.errors import CryptoError, InvalidTransitionError
from lab_agent.serialization import dump_message, load_stored_message
from lab_agent.store.audit_verification import verify_audit
from lab_agent.store.queries import SqlQueries
from lab_agent.store.table_base import METADATA
from lab_agent.workflow.patient_erasure import erase_order, erase_refused, erase_report, look_at_orders
from lab_agent.workflow.refused_messages import record_refusal
from tests.integration.store.conftest import NOW

CANARY = "Petrova"
MINE, OTHER = OrderKey("R-MINE"), OrderKey("R-OTHER")


def fill(uow, make, key, name=CANARY, *, state=OrderState.CLOSED, report=ReportState.DELIVERED):
    order = make.order(
        key=key, state=state, patient_reference=f"Patient/{name}", reason=name, received=name.encode(), lab_order=name.encode()
    )
    line = make.line(key, key=f"L-{key}", state=LineState.COMPLETED, outputs=(f"{name} did not come",))
    uow.orders.add(order)
    uow.orders.add_line(line)
    uow.orders.set_labels(key, [make.label(f"barcode-{key}", line, patient=f"Patient/{name}")])
    uow.vault.save_identity(key, name.encode(), at=NOW)
    uow.vault.save_service_message(len(key), key, ServiceMessage(at=NOW, text=f"{name} is unknown"))
    document = uow.vault.save_document(f"%PDF {name}".encode(), "application/pdf", at=NOW)
    uow.hosted_documents.save(
        HostedDocument(address=f"a-{key}", document=document, content_type="application/pdf", order=key, kept_at=NOW)
    )
    value = ReportedObservation(code=Coding(code="HGB"), value_string=name)
    message = LabReport(
        report_id="1",
        status=ReportStatus.FINAL,
        order=key,
        effective=NOW,
        issued=NOW,
        observations=(value,),
        documents=(Document(file=document),),
    )
    body = dump_message(message)
    record = make.report(f"P-{key}", order=key, state=report, body=body, outgoing_body=body, reason=name, message=f"m-{key}")
    uow.reports.add(record)
    uow.vault.save_reported_patient(record.key, name.encode(), at=NOW)
    uow.jobs.add(make.job(f"j-{key}", order=key, payload={"adapter": "lis", "reason": name}, due_at=NOW))
    uow.events.add(Event(order=key, at=NOW, action="operator", text=f"asked {name}", by="anna"))
    uow.events.add(Event(order=None, report=record.key, at=NOW, action="operator", text=f"asked {name}", by="anna"))
    uow.audit.add(AuditEntry(at=NOW, action=AuditAction.ORDER_RELEASED, subject=key, order=key, note=f"asked {name}", by="anna"))
    note = f"it is {name}"
    uow.audit.add(AuditEntry(at=NOW, action=AuditAction.RESULT_RELEASED, subject=record.key, note=note, by="anna"))


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


async def test_erased_order_names_nobody_anywhere(filled, cipher):
    before = await filled.read(lambda connection: names_in(connection, cipher))
    assert {"identities", "events", "reports", "orders", "documents", "audit_notes", "jobs", "lines"} <= before.keys()
    assert await erase_order(filled, MINE, include_open=False, by="anna", now=NOW) == 1
    after = await filled.read(lambda connection: names_in(connection, cipher))
    assert after == {"jobs": 1}  # the other order's job was dismissed with that word by this test


async def test_keys_and_states_stay(filled):
    await erase_order(filled, MINE, include_open=False, by="anna", now=NOW)

    (job,) = (await SqlQueries(filled).order(MINE)).jobs

    def look(uow):
        order, (line,) = uow.orders.get(MINE), uow.orders.lines(MINE)
        report = uow.reports.get_for_update(ReportKey(f"P-{MINE}"))
        message = load_stored_message(report.body)
        return order.state, line.state, job.state, job.payload, report.state, message.report_id, message.observations

    assert await filled.run(look) == (
        OrderState.CLOSED,
        LineState.COMPLETED,
        JobState.DISMISSED,
        {"adapter": "lis"},
        ReportState.DELIVERED,
        "1",
        (),
    )
    assert await filled.run(lambda uow: uow.orders.existing(["task-1"])) == {"task-1"}
    assert await filled.run(lambda uow: uow.reports.find("folder", f"m-{MINE}"))


async def test_other_orders_are_left_alone(filled):
    await erase_order(filled, MINE, include_open=False, by="anna", now=NOW)

    def look(uow):
        report = uow.reports.get_for_update(ReportKey(f"P-{OTHER}"))
        return uow.vault.identity(OTHER), len(load_stored_message(report.body).observations)

    assert await filled.run(look) == (b"Ivanova", 1)


async def test_erasure_is_in_the_audit_which_stays_whole(filled, cipher):
    await erase_order(filled, MINE, include_open=False, by="anna", now=NOW)
    verdict = await filled.read(lambda connection: verify_audit(connection, cipher, None))
    assert (verdict.broken, verdict.records, verdict.notes, verdict.erased_notes) == (None, 5, 4, 2)


@pytest.mark.parametrize("state", [OrderState.SEEN, OrderState.HELD, OrderState.FETCHED])
async def test_order_before_handover_is_never_erased(store, transact, factory, state):
    await transact(lambda uow: fill(uow, factory, MINE, state=state))
    await finish_jobs(transact)
    with pytest.raises(InvalidTransitionError, match=state.value):
        await erase_order(store, MINE, include_open=True, by="anna", now=NOW)
    assert await store.run(lambda uow: uow.vault.identity(MINE)) == CANARY.encode()


async def test_open_order_is_erased_only_where_said(store, transact, factory):
    await transact(lambda uow: fill(uow, factory, MINE, state=OrderState.HANDED_OVER))
    await finish_jobs(transact)
    (target,) = await look_at_orders(store, [MINE])
    assert target.is_open
    with pytest.raises(InvalidTransitionError, match="--include-open"):
        await erase_order(store, MINE, include_open=False, by="anna", now=NOW)
    await erase_order(store, MINE, include_open=True, by="anna", now=NOW)
    assert await store.run(lambda uow: uow.vault.identity(MINE)) is None


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
