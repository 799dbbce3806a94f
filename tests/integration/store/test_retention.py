"""Forgetting on time, and never what is unfinished."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import timedelta

from lab_agent.catalogue.records import CatalogueVersion, IssuedLabel
from lab_agent.operations.retention import MIN_KEPT_CATALOGUES, RetentionPurger, purge_times
from lab_agent.queue.job_records import JobKind, ServiceMessage
from lab_agent.results.refused_messages import record_refusal
from lab_agent.results.refused_records import RefusedContent, RefusedState
from lab_agent.settings.groups import RetentionSettings
from lab_agent.shared.conditions.model import AlertKey, ConditionId
from lab_agent.shared.ids import OrderKey
from lab_agent.shared.state_machines import OrderState, ReportState
from lab_agent.store.audit_records import AuditAction, AuditEntry
from lab_agent.store.event_records import Alert, Event
from lab_agent.store.queries import Queries
from lab_agent.store.retention_preview import preview_purge
from tests.harness.clock import VirtualClock
from tests.integration.store.conftest import NOW

DAY = timedelta(days=1)
OLD = NOW - 5000 * DAY


async def _closed(do, make, key, *, days=100, state=OrderState.CLOSED):
    order = make.order(key=key, state=state, changed_at=make.now - days * DAY)
    line = make.line(key)
    upload = replace(make.upload(f"i-{key}"), order=key)

    def work(uow):
        uow.orders.add(order)
        uow.orders.add_line(line)
        uow.orders.set_labels(key, [make.label(f"b-{key}", line)])
        uow.vault.save_identity(key, b"name", at=order.changed_at)
        uow.uploads.save(upload)
        uow.events.add(Event(order=key, at=make.now, action="a", text="t"))
        uow.rejections.add("rule", key, at=make.now)
        uow.jobs.add(make.job(f"e-{key}", order=key))
        uow.reports.add(make.report(f"P-{key}", order=key, state=ReportState.DELIVERED))

    await do(work)
    (mine,) = [each for each in await do.claim() if each.order == key]
    await do.vault.save_service_message(mine.id, key, ServiceMessage(at=make.now, text="he is unknown"))
    await do.jobs.save(mine.complete(order.changed_at))
    return order, line


async def test_only_identities_of_finished_orders_are_purged(transact, factory):
    await _closed(transact, factory, "R-old")
    await _closed(transact, factory, "R-new", days=1)
    await _closed(transact, factory, "R-open", state=OrderState.REPORTED)
    await _closed(transact, factory, "R-busy")
    await transact.jobs.add(factory.job("more", order="R-busy"))
    assert await transact.purge.identities(before=factory.now - 90 * DAY) >= 1
    assert await transact.purge.identities(before=factory.now - 90 * DAY) == 0
    keys = ("R-old", "R-new", "R-open", "R-busy")
    kept = await transact(lambda uow: [uow.vault.identity(key) for key in keys])
    assert kept == [None, b"name", b"name", b"name"]
    said = await transact(lambda uow: [len(uow.vault.service_messages(key)) for key in keys])
    assert said == [0, 1, 1, 1], "what the service said may name the patient, too"


async def test_order_is_purged_with_all_its_records(transact, factory):
    order, line = await _closed(transact, factory, "R-old")
    await _closed(transact, factory, "R-new", days=1)
    assert await transact.purge.closed_orders(before=factory.now - 90 * DAY) == 1

    def left(uow):
        known = uow.orders.existing([order.task_id])
        what = (uow.orders.line(line.key), uow.uploads.get("i-R-old"), uow.vault.identity("R-old"))
        assert uow.orders.work_orders("R-old") == ()
        assert uow.vault.service_messages("R-old") == {}
        return known, what, uow.orders.by_barcode("b-R-old", "folder"), uow.jobs.list_for_order("R-old", open_only=False)

    assert await transact(left) == (frozenset(), (None, None, None), (), ())
    assert await transact.reports.versions("R-old", "folder", None) == ()
    assert await transact.rejections.count_since("rule", factory.now - DAY) == 1
    assert await transact(lambda uow: uow.orders.get_for_update("R-new").key) == "R-new"
    assert await transact.jobs.add(factory.job("e-R-old")) is True


async def test_reported_patient_goes_on_time_and_with_its_report(transact, factory):
    old = factory.now - 100 * DAY
    states = {
        "P-old": (ReportState.DELIVERED, old),
        "P-new": (ReportState.DISMISSED, factory.now),
        "P-held": (ReportState.UNMATCHED, old),
    }

    def add(uow):
        for key, (state, changed_at) in states.items():
            uow.reports.add(factory.report(key, state=state, changed_at=changed_at))
            uow.vault.save_reported_patient(key, b"whose", at=old)

    await transact(add)
    assert await transact.purge.identities(before=factory.now - 30 * DAY) == 1
    assert await transact(lambda uow: [uow.vault.reported_patient(key) for key in states]) == [None, b"whose", b"whose"]
    await transact.purge.closed_orders(before=factory.now + DAY)
    assert await transact(lambda uow: [uow.vault.reported_patient(key) for key in states]) == [None, None, b"whose"]


async def test_order_with_unfinished_report_is_kept(transact, factory):
    waiting = (ReportState.HELD, ReportState.MATCHED, ReportState.RECEIVED)
    for state in waiting:
        await _closed(transact, factory, f"R-{state}")
        await transact.reports.add(factory.report(order=f"R-{state}", state=state))
    assert await transact.purge.closed_orders(before=factory.now) == 0
    for number in range(5):
        await _closed(transact, factory, f"R{number}", days=100 + number)
    took = [await transact.purge.closed_orders(before=factory.now, limit=2) for _ in range(4)]
    assert took == [2, 2, 1, 0]


async def test_documents_of_unfinished_reports_are_kept(transact, factory):
    def keep(content, days):
        return lambda uow: uow.vault.save_document(content, "application/pdf", at=factory.now - days * DAY)

    old, named, done, new, goes_out = [await transact(keep(bytes([n]), days)) for n, days in enumerate((100, 100, 100, 1, 100))]
    assert named == hashlib.sha256(b"\x01").hexdigest()
    bodies = [f'{{"documents":[{{"file":"{name}"}}]}}'.encode() for name in (named, goes_out)]
    waiting = factory.report(state=ReportState.MATCHED, body=bodies[0], outgoing_body=bodies[1])
    delivered = factory.report(state=ReportState.DELIVERED, body=f'{{"documents":[{{"file":"{done}"}}]}}'.encode())
    await transact(lambda uow: (uow.reports.add(waiting), uow.reports.add(delivered)))
    assert await transact.purge.documents(before=factory.now - 90 * DAY, limit=1) == 1
    assert await transact.purge.documents(before=factory.now - 90 * DAY) == 1
    kept = await transact(lambda uow: [uow.vault.document(name) is not None for name in (old, named, done, new, goes_out)])
    assert kept == [False, True, False, True, True]


async def test_finished_records_without_order_are_purged(store, transact, factory):
    long_ago = factory.now - 100 * DAY

    def work(uow):
        uow.jobs.add(factory.job("done", due_at=long_ago, kind=JobKind.MATCH_REPORT))
        uow.jobs.add(factory.job("waits", due_at=long_ago, kind=JobKind.FETCH_ORDER))
        for key, state in (("P-gone", ReportState.DISMISSED), ("P-held", ReportState.HELD)):
            uow.reports.add(factory.report(key, state=state, changed_at=long_ago))
            uow.events.add(Event(order=None, report=key, at=long_ago, action="operator", text="t", by="ann"))
        uow.rejections.add("rule", "R", at=long_ago)
        uow.alerts.open(Alert(condition=ConditionId.DISK_LOW, since=long_ago, opened_at=long_ago))

    await transact(work)
    (mine,) = await transact.claim(kinds=[JobKind.MATCH_REPORT], now=long_ago)
    await transact.jobs.save(mine.complete(long_ago))
    assert await transact.purge.closed_orders(before=factory.now - 90 * DAY) == 0
    assert await transact.jobs.get(mine.id) is None
    assert [each.dedup_key for each in await transact.claim()] == ["waits"]
    assert [each.key for each in await transact.reports.needing_operator()] == ["P-held"]
    assert [len(await Queries(store).report_events(key)) for key in ("P-gone", "P-held")] == [0, 1]
    assert await transact.rejections.count_since("rule", long_ago) == 0
    assert await transact.alerts.close(AlertKey(ConditionId.DISK_LOW), now=factory.now) is True


async def test_baskets_are_purged_but_barcodes_kept(transact, factory):
    old = factory.now - 100 * DAY
    given = [
        IssuedLabel(label=f"77-{number}", pool="main", serial=number, basket=basket, tube_slot="0", issued_at=at)
        for number, (basket, at) in enumerate((("b1", old), ("b2", old), (None, old), ("b3", factory.now - DAY)))
    ]
    await transact.issued_labels.add_all(given)
    await transact.issued_labels.mark_used(["77-1"], "R1", at=old)
    before = factory.now - 90 * DAY
    assert [await transact.purge.baskets(before=before, limit=1) for _ in range(3)] == [1, 1, 0]
    found = await transact(lambda uow: [uow.issued_labels.list_for_basket(name) for name in ("b1", "b2", "b3")])
    assert found == [(), (), (given[3],)]
    again = [replace(each, pool="other", basket="new", issued_at=factory.now) for each in given]
    assert await transact.issued_labels.add_all(again) == set()
    assert await transact.issued_labels.mark_used(["77-0", "77-1"], "R2", at=factory.now) == 1  # an order that came late


async def test_long_replaced_catalogues_are_purged(transact, factory):
    for number in range(6):
        kept = CatalogueVersion(version=f"v{number}", since=factory.now + number * DAY, content=b"", origin="x")
        await transact.catalogues.add(kept)

    async def purge(days, keep, limit=50):
        took = await transact.purge.catalogues(before=factory.now + days * DAY, keep=keep, limit=limit)
        left = await transact.catalogues.active_since(factory.now - DAY)
        return took, [each.version for each in reversed(left)]

    versions = ["v0", "v1", "v2", "v3", "v4", "v5"]
    assert await purge(-1, 1) == (0, versions)  # nothing was in force
    assert await purge(9, 6) == (0, versions)
    assert await purge(0.5, 1) == (0, versions)  # v0 was in force then
    assert await purge(1, 1) == (1, versions[1:])
    assert await purge(9, 3, limit=1) == (1, versions[2:])
    assert await purge(9, 3) == (1, versions[3:])
    assert await purge(9, 1) == (2, ["v5"])
    assert await purge(9, 1) == (0, ["v5"])


# --- what is said to be removed before


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

    async def preview():
        kept = {"catalogues_before": times.catalogues, "keep_catalogues": MIN_KEPT_CATALOGUES}
        return await store.read(lambda connection: preview_purge(connection, times, **kept))

    previewed = await preview()
    found = {each.name: each.number for each in previewed}
    patients = ("identities", "service_messages", "reported_patients", "documents", "refused_contents", "refused_messages")
    assert found == {**dict.fromkeys((*patients, "orders", "baskets"), 1), "catalogues": 2, "audit": 4}
    assert {each.name: each.oldest for each in previewed}["identities"] == OLD
    removed = await RetentionPurger(store, VirtualClock(NOW), settings, lambda _, now: now).purge()
    sealed = found.pop("service_messages") + found.pop("reported_patients")
    assert removed == {**found, "identities": found["identities"] + sealed}
    assert [each.number for each in await preview()] == [0] * 10
