"""The resource store: atomic transactions, an index consistent with the resources, bodies returned byte for byte."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab_sandbox.access_rights import AccessRights
from lab_sandbox.references import Ref
from lab_sandbox.resource_store import ResourceStore
from lab_sandbox.search_index import Term
from tests.integration.lab_sandbox.world import diagnostics

COLOURS = st.sampled_from(["red", "green", "blue"])
SIZES = st.sampled_from(["s", "m", "l"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("insert"), COLOURS, SIZES, st.booleans()),
        st.tuples(st.just("replace"), st.integers(0, 30), COLOURS, SIZES),
    ),
    max_size=30,
)


def terms(colour, size):
    return {Term("colour", colour), Term("size", size)}


def find_all(store, criteria, is_visible, page):
    found, after = [], 0
    while True:
        rows = store.find("Task", criteria, is_visible, after=after, limit=page)
        if not rows:
            return [one.ref.id for one in found]
        found += rows
        after = rows[-1].pk


@given(steps=STEPS, page=st.integers(1, 5), colours=st.lists(COLOURS, min_size=1, max_size=2, unique=True), size=SIZES)
@settings(max_examples=80, deadline=None)
def test_indexed_search_equals_full_scan(steps, page, colours, size):
    store, model = ResourceStore(), {}
    for step in steps:
        if step[0] == "insert":
            ref = Ref("Task", f"t{len(model)}")
            grants = {("read", "reader")} if step[3] else set()
            stored = store.insert(ref, AccessRights("owner", frozenset(grants)), b"{}", terms(step[1], step[2]))
            model[ref.id] = (stored, step[1], step[2], step[3])
        elif model:
            old, colour, old_size, readable = model[f"t{step[1] % len(model)}"]
            before, after = terms(colour, old_size), terms(step[2], step[3])
            stored = store.replace(
                old, old.version + 1, old.access, b"{}", removed_terms=before - after, added_terms=after - before
            )
            model[old.ref.id] = (stored, step[2], step[3], readable)
    expected = [name for name, (_, colour, own, readable) in model.items() if colour in colours and own == size and readable]
    criteria = [("colour", colours), ("size", [size])]
    assert find_all(store, criteria, lambda access: access.allows("read", "reader"), page) == expected
    for name, (stored, *_) in model.items():
        again = store.get(Ref("Task", name))
        assert again.version == stored.version
        assert again.access == stored.access
    store.close()


def test_failed_transaction_leaves_nothing(tmp_path):
    store = ResourceStore(tmp_path / "resources.db")

    def insert_and_fail():
        with store.transaction():
            store.insert(Ref("Task", "1"), AccessRights("a-new-party"), b"{}", terms("red", "s"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        insert_and_fail()
    assert store.counts() == {}
    assert store.find("Task", [("colour", ["red"])], lambda _: True) == []
    # The id of the text "a-new-party" was assigned in the failed transaction; it must not survive in memory.
    store.insert(Ref("Task", "1"), AccessRights("a-new-party"), b"{}", terms("red", "s"))
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
