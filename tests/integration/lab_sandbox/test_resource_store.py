"""The resource store: a transaction that fails leaves nothing."""

import pytest

from lab_sandbox.access_rights import AccessRights
from lab_sandbox.references import Ref
from lab_sandbox.resource_store import ResourceStore
from lab_sandbox.search_index import Term
from tests.integration.lab_sandbox.world import diagnostics


def test_failed_transaction_leaves_nothing(tmp_path):
    store = ResourceStore(tmp_path / "resources.db")

    def insert_and_fail():
        with store.transaction():
            store.insert(Ref("Task", "1"), AccessRights("a-new-party"), b"{}", {Term("colour", "red")})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        insert_and_fail()
    assert store.counts() == {}
    assert store.find("Task", [("colour", ["red"])], lambda _: True) == []
    # The id of the text "a-new-party" was assigned in the failed transaction; it must not survive in memory.
    store.insert(Ref("Task", "1"), AccessRights("a-new-party"), b"{}", {Term("colour", "red")})
    store.close()
    again = ResourceStore(tmp_path / "resources.db")
    assert again.get(Ref("Task", "1")).access == AccessRights("a-new-party")
    again.close()


async def test_failure_within_bundle_stores_nothing(world, monkeypatch):
    await world.order()
    service = world.app.state.service
    before, inserted, insert = world.counts(), [], service.store.insert

    def failing_insert(ref, *rest):
        inserted.append(ref)
        if len(inserted) == 5:
            raise OSError("disk full")
        return insert(ref, *rest)

    monkeypatch.setattr(service.store, "insert", failing_insert)
    answer = await world.order(3)
    assert answer.status_code == 500
    assert "disk full" not in answer.text
    assert diagnostics(answer)
    assert world.counts() == before
    monkeypatch.undo()
    assert (await world.order(3)).status_code == 200
