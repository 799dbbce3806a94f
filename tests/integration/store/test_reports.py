"""Reports, uploads, the vault, and the documents that our own API serves."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from lab_agent.orders.records import WorkOrder
from lab_agent.results.records import HoldReason, HostedDocument
from lab_agent.shared.errors import AlreadyExistsError, CryptoError, StoreError
from lab_agent.shared.ids import OrderKey
from lab_agent.shared.state_machines import OrderState, ReportState

DAY = timedelta(days=1)


async def test_report_round_trips_and_keeps_its_sequence(transact, factory):
    bodies = {"body": b'{"v":1.20}', "outgoing_body": b'{"v":1.20,"w":3.0}'}
    report = factory.report(report_id="7", version=2, issued=factory.now, order="R1", lines=("L1", "L2"), **bodies)
    assert await transact.reports.add(report) is True
    kept = await transact.reports.get_for_update(report.key)
    assert kept == replace(report, sequence=kept.sequence)
    assert kept.sequence > 0
    held = replace(report, state=ReportState.HELD, hold_reason=HoldReason.DEFECT, lines=("L1",))
    await transact.reports.save(held)
    assert await transact.reports.get_for_update(report.key) == replace(held, sequence=kept.sequence)
    for call, given in ((transact.reports.get_for_update, "P-none"), (transact.reports.save, factory.report())):
        with pytest.raises(StoreError):
            await call(given)


async def test_message_is_stored_once(transact, factory):
    report = factory.report(message="file-1")
    assert [await transact.reports.add(each) for each in (report, replace(report, body=b"other"))] == [True, False]
    assert (await transact.reports.get_for_update(report.key)).body == b"{}"
    assert (await transact.reports.find("folder", "file-1")).key == report.key
    assert await transact.reports.find("other", "file-1") is None


async def test_versions_are_ordered_by_arrival(transact, factory):
    bodies = [b"A", b"B", b"A"]
    for body in bodies:
        await transact.reports.add(factory.report(order="R1", report_id="7", body=body))
    await transact.reports.add(factory.report(order="R2", report_id="7"))
    moved = factory.report(order="R1", report_id="7", source="micro", matched_adapter="folder", body=b"by hand")
    await transact.reports.add(moved)
    versions = await transact.reports.versions("R1", "folder", "7")
    assert [version.body for version in versions] == bodies
    assert [each.key for each in await transact.reports.versions("R1", "micro", "7")] == [moved.key]
    assert [version.sequence for version in versions] == sorted({version.sequence for version in versions})


async def test_reports_are_listed_by_state_order_and_time(transact, factory):
    now, later = factory.now, factory.now + timedelta(hours=1)
    keys = []
    for order, state, at in (
        ("R1", ReportState.DELIVERED, now),
        ("R1", ReportState.SUPERSEDED, now),
        ("R2", ReportState.DELIVERED, later),
        (None, ReportState.DELIVERED, later),
        (None, ReportState.HELD, now),
        (None, ReportState.MATCHED, now),
        (None, ReportState.UNMATCHED, now),
        (None, ReportState.UNMAPPED, now),
        (None, ReportState.DISMISSED, now),
    ):
        report = factory.report(order=order, state=state, changed_at=at)
        keys.append(report.key)
        await transact.reports.add(report)
    assert [each.key for each in await transact.reports.needing_operator()] == [keys[4], *keys[6:8]]
    (first,) = await transact.reports.delivered_of("R1")
    assert first.key == keys[0]
    for since, until, after, limit, expected in (
        (now, later, 0, 9, [keys[0], keys[2]]),
        (now, later, 0, 1, [keys[0]]),
        (now, later, first.sequence, 9, [keys[2]]),
        (later, later, 0, 9, [keys[2]]),
    ):
        found = await transact.reports.delivered_between(since, until, after=after, limit=limit)
        assert [each.key for each in found] == expected


async def test_uploads_are_replaced_and_found_in_parts(transact, factory):
    """No statement has more parameters than PostgreSQL takes, 65,535."""
    for identifier in ("1", "69999"):
        await transact.uploads.save(factory.upload(identifier))
    second = replace(factory.upload("1"), version="2", digest="e")
    await transact.uploads.save(second)
    assert await transact(lambda uow: (uow.uploads.get("1"), uow.uploads.get("j"))) == (second, None)
    assert sorted(await transact.uploads.find([str(number) for number in range(70_000)])) == ["1", "69999"]


async def test_vault_round_trips(transact, factory):
    for identity in ("Иванова".encode(), b"second"):
        await transact.vault.save_identity("R1", identity, at=factory.now)
    assert await transact(lambda uow: (uow.vault.identity("R1"), uow.vault.identity("R2"))) == (b"second", None)
    content = bytes(range(256)) * 50
    first, again = [await transact.vault.save_document(content, "application/pdf", at=factory.now) for _ in range(2)]
    assert again == first
    assert await transact.vault.document(first) == (content, "application/pdf")
    assert await transact.vault.document("none") is None
    sealed = await transact.vault.seal(b"PID|1||X")
    assert b"PID" not in sealed
    assert await transact.vault.unseal(sealed) == b"PID|1||X"
    with pytest.raises(CryptoError):
        await transact.vault.unseal(b"altered" + sealed)


def hosted(make, document, address="a", **fields):
    given = {"address": address, "document": document, "content_type": "application/pdf", "order": OrderKey("R1")}
    return HostedDocument(**given, kept_at=make.now, **fields)


async def test_hosted_document_is_found_by_address_alone(transact, factory):
    """As long as its order is kept."""
    document = await transact.vault.save_document(b"x", "application/pdf", at=factory.now)
    for put in (hosted(factory, document, expires_at=factory.now + DAY), hosted(factory, document)):
        await transact.hosted_documents.save(put)
        assert await transact.hosted_documents.get("a") == put
    assert await transact.hosted_documents.get("A") is None
    await transact.orders.add(factory.order("R1", state=OrderState.CLOSED, changed_at=factory.now - 100 * DAY))
    assert await transact.purge.closed_orders(before=factory.now - 90 * DAY) == 1
    assert await transact.hosted_documents.get("a") is None


async def test_hosted_document_is_kept_until_expiry(transact, factory):
    long_ago = factory.now - 100 * DAY

    def keep(uow):
        names = [uow.vault.save_document(bytes([n]), "application/pdf", at=long_ago) for n in range(3)]
        uow.hosted_documents.save(hosted(factory, names[0], "lasting"))
        uow.hosted_documents.save(hosted(factory, names[1], "ended", expires_at=factory.now - 60 * DAY))
        return names

    names = await transact(keep)
    assert await transact.purge.documents(before=factory.now - 30 * DAY) == 2
    assert await transact(lambda uow: [uow.vault.document(name) is not None for name in names]) == [True, False, False]


async def test_very_long_identifiers_are_stored(transact, factory):
    """PostgreSQL takes no index entry over 2,700 bytes; a malformed order must be stored to be rejected."""
    long = "".join(chr(0x4E00 + number * 7919 % 20000) for number in range(20_000))
    order = factory.order(task_id=long)
    line = factory.line(order.key, accession=long)
    part = WorkOrder(order=order.key, adapter="folder", changed_at=factory.now, accession=long)

    def work(uow):
        uow.orders.add(order)
        uow.orders.add_line(line)
        uow.orders.save_work_order(part)
        uow.orders.set_labels(order.key, [factory.label(long, line)])
        uow.jobs.add(factory.job(long, ordering_key=long, target=long))
        uow.reports.add(factory.report(message=long, report_id=long, order=order.key))

    await transact(work)
    with pytest.raises(AlreadyExistsError):
        await transact.orders.add(factory.order(task_id=long))
    assert await transact.orders.existing([long, long + "x"]) == {long}
    assert await transact.orders.by_accession(long, "folder") == (order.key,)
    assert await transact.orders.by_accession(long + "x", "folder") == ()
    assert await transact.reports.find("folder", long)
    assert await transact.jobs.add(factory.job(long)) is False
