"""Documents that our own API serves: kept as long as they are served, and no longer."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from lab_agent.domain.ids import OrderKey
from lab_agent.domain.report_records import HostedDocument
from lab_agent.domain.state_machines import OrderState

DAY = timedelta(days=1)


def hosted(make, document, address="a", **fields):
    given = {
        "address": address,
        "document": document,
        "content_type": "application/pdf",
        "order": OrderKey("R1"),
        "kept_at": make.now,
    }
    return HostedDocument(**{**given, **fields})


async def test_hosted_document_is_found_by_address_alone(transact, factory):
    document = await transact.vault.save_document(b"x", "application/pdf", at=factory.now)
    put = hosted(factory, document, expires_at=factory.now + DAY)
    await transact.hosted_documents.save(put)
    assert await transact.hosted_documents.get("a") == put
    assert await transact.hosted_documents.get("A") is None
    later = replace(put, expires_at=None)
    await transact.hosted_documents.save(later)
    assert await transact.hosted_documents.get("a") == later


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


async def test_hosted_document_ends_with_its_order(transact, factory):
    await transact.orders.add(factory.order("R1", state=OrderState.CLOSED, changed_at=factory.now - 100 * DAY))
    await transact.hosted_documents.save(hosted(factory, "0" * 64))
    assert await transact.purge.closed_orders(before=factory.now - 90 * DAY) == 1
    assert await transact.hosted_documents.get("a") is None
