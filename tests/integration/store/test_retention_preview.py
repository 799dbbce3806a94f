"""What a purge is said to remove, it removes; by class, on both databases."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from lab_agent.domain.audit import AuditAction, AuditEntry
from lab_agent.domain.catalogue_records import CatalogueVersion, IssuedLabel
from lab_agent.domain.ids import OrderKey
from lab_agent.domain.job_records import ServiceMessage
from lab_agent.domain.refused_messages import RefusedContent, RefusedState
from lab_agent.domain.state_machines import OrderState, ReportState
from lab_agent.settings.groups import RetentionSettings
from lab_agent.store.retention_preview import preview_purge
from lab_agent.workflow.refused_messages import record_refusal
from lab_agent.workflow.retention import MIN_KEPT_CATALOGUES, RetentionPurger, purge_times
from tests.harness.clock import VirtualClock
from tests.integration.store.conftest import NOW

OLD = NOW - timedelta(days=5000)


def fill(uow, factory):
    for key, state, changed in (
        ("R-old", OrderState.CLOSED, OLD),
        ("R-new", OrderState.CLOSED, NOW),
        ("R-open", OrderState.SEEN, OLD),
    ):
        uow.orders.add(factory.order(key=key, state=state, changed_at=changed))
        uow.vault.save_identity(OrderKey(key), b"name", at=changed)
        uow.vault.save_service_message(hash(key) % 1000, OrderKey(key), ServiceMessage(at=changed, text="he is unknown"))
    report = factory.report("P-old", order=OrderKey("R-old"), state=ReportState.DELIVERED, changed_at=OLD)
    waiting = factory.report("P-new", state=ReportState.UNMATCHED, changed_at=OLD)
    for each in (report, waiting):
        uow.reports.add(each)
        uow.vault.save_reported_patient(each.key, b"{}", at=OLD)
    uow.vault.save_document(b"old", "application/pdf", at=OLD)
    uow.vault.save_document(b"new", "application/pdf", at=NOW)
    uow.issued_labels.add_all([IssuedLabel(label="1", pool="p", serial=1, basket="b", tube_slot="t", issued_at=OLD)])
    for number in range(12):
        at = OLD + timedelta(days=number)
        uow.catalogues.add(CatalogueVersion(version=f"v{number}", since=at, content=b"", origin="o"))
    for number in range(4):
        uow.audit.add(AuditEntry(at=OLD + timedelta(days=number), action=AuditAction.SIGNED_IN))
    uow.audit.add(AuditEntry(at=NOW, action=AuditAction.SIGNED_IN))
    for name, seen in (("old", OLD), ("new", NOW)):
        message = record_refusal(uow, "lis", RefusedContent(message_id=name, raw=name.encode()), "unreadable", seen)
        if name == "old":
            uow.refused_messages.save(replace(message, state=RefusedState.DISMISSED, changed_at=OLD))


async def test_preview_counts_what_purge_removes(store, transact, factory):
    await transact(lambda uow: fill(uow, factory))
    settings = RetentionSettings()
    times = purge_times(settings, NOW)
    previewed = await store.read(
        lambda connection: preview_purge(
            connection, times, catalogues_before=times.catalogues, keep_catalogues=MIN_KEPT_CATALOGUES
        )
    )
    found = {each.name: each.number for each in previewed}
    assert found == {
        "identities": 1,
        "service_messages": 1,
        "reported_patients": 1,
        "documents": 1,
        "refused_contents": 1,
        "refused_messages": 1,
        "orders": 1,
        "baskets": 1,
        "catalogues": 2,
        "audit": 4,
    }
    assert {each.name: each.oldest for each in previewed}["identities"] == OLD
    removed = await RetentionPurger(store, VirtualClock(NOW), settings, lambda _, now: now).purge()
    sealed = found.pop("service_messages") + found.pop("reported_patients")
    assert removed == {**found, "identities": found["identities"] + sealed}
    again = await store.read(
        lambda connection: preview_purge(
            connection, times, catalogues_before=times.catalogues, keep_catalogues=MIN_KEPT_CATALOGUES
        )
    )
    assert [each.number for each in again] == [0] * 10
