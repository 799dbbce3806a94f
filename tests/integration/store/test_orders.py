"""Orders, lines and labels."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest

from lab_agent.orders.records import OrderHold, WorkOrder
from lab_agent.shared.errors import AlreadyExistsError, StoreError
from lab_agent.shared.state_machines import LineState, OrderState, WorkOrderState
from lab_agent.shared.values import Identifier


async def test_order_round_trips(transact, factory):
    """In UTC, and without the characters that no database takes."""
    there = datetime(2026, 3, 1, 15, 0, 0, 123456, tzinfo=timezone(timedelta(hours=3)))
    times = {"seen_at": there, "expected_at": there + timedelta(2), "recheck_at": factory.now, "unreadable_since": factory.now}
    content = {"received": b'{"value":1.20}', "lab_order": b"{}", "reason": "ждём", "seen_lines": ("b", "a"), "reopened": 2}
    ended = {"state": OrderState.FETCHED, "sent_statuses": ("accepted", "completed"), "ended_as": "completed"}
    whose = {"contract": "C-1", "counterparty": "guid", "patient_reference": "patient/7"}
    order = factory.order(requisition=Identifier(system="http://x", value="00123"), **times, **content, **ended, **whose)
    await transact.orders.add(order)
    found = await transact.orders.get_for_update(order.key)
    assert found == order
    assert found.seen_at.utcoffset() is not None
    changed = replace(order.hold(factory.now, OrderHold("no_contract", "no")), requisition=Identifier(value="9"), seen_lines=())
    await transact.orders.save(changed)
    assert await transact.orders.get_for_update(order.key) == changed
    await transact.orders.save(replace(changed, reason="a\x00b\ud800c"))
    assert (await transact.orders.get_for_update(order.key)).reason == "a\ufffdb\ufffdc"
    with pytest.raises(StoreError, match="time zone"):
        await transact.orders.add(factory.order(seen_at=datetime.now(UTC).replace(tzinfo=None)))


async def test_same_order_is_added_once(transact, factory):
    """By its key, and by its Task; the unit of work goes on after that."""
    known, new = factory.order(), factory.order()
    same_task = replace(factory.order(), task_id=known.task_id)
    await transact.orders.add(known)
    with pytest.raises(AlreadyExistsError):
        await transact.orders.add(replace(known, key="R-other"))

    def work(uow):
        with pytest.raises(AlreadyExistsError):
            uow.orders.add(known)
        uow.key_values.set("went", "on")

    await transact(work)
    assert await transact.key_values.get("went") == "on"
    assert await transact.orders.add_new([known, new, same_task]) == {new.key}
    assert await transact.orders.get(new.key) == new
    assert await transact.orders.add_new([known]) == frozenset()


async def test_existing_tasks_are_found_among_thousands(transact, factory):
    orders = [factory.order() for _ in range(3)]
    await transact.orders.add_new(orders)
    asked = [f"other-{number}" for number in range(3000)] + [order.task_id for order in orders[:2]]
    assert await transact.orders.existing(asked) == {order.task_id for order in orders[:2]}
    assert await transact.orders.existing([]) == frozenset()


async def test_ended_and_open_orders_and_those_to_recheck(transact, factory):
    """Ended ones are closed, with a Task that ended; open ones come in pages, those to look at again by time."""
    open_order = factory.order("R1", state=OrderState.HANDED_OVER, ended_as="cancelled")
    ended = factory.order("R2", state=OrderState.CLOSED, ended_as="cancelled")
    later, due, first = (
        factory.order(state=OrderState.CLOSED, recheck_at=factory.now + timedelta(seconds=seconds)) for seconds in (1, 0, -5)
    )
    taken_up = factory.order("R3", state=OrderState.SEEN, recheck_at=factory.now)
    all_orders = [ended, open_order, later, due, first, taken_up]
    await transact.orders.add_new(all_orders)
    tasks = [order.task_id for order in all_orders]
    assert await transact.orders.ended_orders(tasks) == (ended,)
    assert await transact.orders.ended_orders(tasks[1:]) == ()
    assert await transact.orders.orders_to_recheck(now=factory.now, limit=5) == (first, due)
    assert await transact.orders.orders_to_recheck(now=factory.now, limit=1) == (first,)
    assert [each.key for each in await transact.orders.open_orders(limit=1)] == ["R1"]
    assert [each.key for each in await transact.orders.open_orders(limit=3, after="R1")] == ["R3"]


async def test_other_lines_are_those_of_other_orders(transact, factory):
    """By what they ordered, but for those that ended without a result: that may be ordered again. By their keys, in any state."""
    own, other = factory.order(), factory.order()
    mine = factory.line(own.key, key="L1", procedure_request_id="p1")
    theirs = [factory.line(other.key, key=f"L-{state}", procedure_request_id="p1", state=state) for state in LineState]

    def work(uow):
        uow.orders.add_new([own, other])
        for line in (mine, *theirs):
            uow.orders.add_line(line)

    await transact(work)
    found = await transact.orders.other_lines([], ["p1", "p2"], except_order=own.key)
    undone = {LineState.REJECTED, LineState.WITHDRAWN, LineState.CANCELLED}
    assert {line.state for line in found} == set(LineState) - undone
    assert await transact.orders.other_lines([], ["p2"], except_order=own.key) == ()
    many = [f"L{number}" for number in range(1200)] + [f"L-{LineState.WITHDRAWN}"]
    assert [line.state for line in await transact.orders.other_lines(many, [], except_order=own.key)] == [LineState.WITHDRAWN]


async def test_unknown_orders_and_lines_are_reported(transact, factory):
    line = factory.line("R-none")
    orders = transact.orders
    part = WorkOrder(order="R-none", adapter="folder", changed_at=factory.now)
    for call, given in (
        (orders.get_for_update, "R-none"),
        (orders.save, factory.order()),
        (orders.save_line, line),
        (orders.add_line, line),
        (orders.save_work_order, part),
    ):
        with pytest.raises(StoreError):
            await call(given)
    assert await orders.line("L-none") is None
    assert await orders.lines("R-none") == ()


async def test_lines_keep_their_insertion_order(transact, factory):
    order = factory.order()
    lines = [factory.line(order.key, key=key) for key in ("L3", "L1", "L2")]
    await transact(lambda uow: (uow.orders.add(order), [uow.orders.add_line(line) for line in lines]))
    rejected = lines[0].transition_to(LineState.REJECTED, factory.now, ("too old",))
    changed = replace(rejected, sent_statuses=("cancelled",), item="042.1")
    await transact.orders.save_line(changed)
    assert await transact.orders.lines(order.key) == (changed, *lines[1:])
    assert await transact.orders.line("L3") == changed
    with pytest.raises(AlreadyExistsError):
        await transact.orders.add_line(lines[1])


async def _ordered(do, make, barcode, state, **fields):
    order = make.order(**fields)
    line = make.line(order.key, state=state)

    def work(uow):
        uow.orders.add(order)
        uow.orders.add_line(line)
        uow.orders.set_labels(order.key, [make.label(barcode, line)])

    await do(work)
    return order, line


async def test_labels_in_use_excludes_own_order(transact, factory):
    """Labels in use by other orders; those of rejected and withdrawn lines are free."""
    order, line = await _ordered(transact, factory, "111", LineState.ACCEPTED)
    await _ordered(transact, factory, "222", LineState.REJECTED)
    await _ordered(transact, factory, "333", LineState.WITHDRAWN)
    asked = ("111", "222", "333", "444")
    assert await transact.orders.labels_in_use(asked, except_order="R-x") == (factory.label("111", line),)
    assert await transact.orders.labels_in_use(asked, except_order=line.order) == ()
    await transact.orders.set_labels(order.key, [factory.label(each, line) for each in ("555", "666", "555")])
    found = await transact.orders.labels_in_use([*asked, "555", "666"], except_order="R-x")
    assert [label.barcode for label in found] == ["555", "666"]
    await transact.orders.set_labels(order.key, [])
    assert await transact.orders.by_barcode("555", "folder") == ()


async def test_orders_of_barcode_are_newest_first(transact, factory):
    """Those with lines that the laboratory took on; where all were withdrawn, before the others."""
    old, _ = await _ordered(transact, factory, "111", LineState.COMPLETED, seen_at=factory.now - timedelta(days=9))
    new, _ = await _ordered(transact, factory, "111", LineState.ACCEPTED)
    for barcode, state in (("111", LineState.REJECTED), ("111", LineState.REQUESTED), ("112", LineState.ACCEPTED)):
        await _ordered(transact, factory, barcode, state)
    assert await transact.orders.by_barcode("111", "folder") == (new.key, old.key)
    gone, _ = await _ordered(transact, factory, "7", LineState.WITHDRAWN)
    assert await transact.orders.by_barcode("7", "folder") == (gone.key,)
    new, _ = await _ordered(transact, factory, "7", LineState.ACCEPTED, seen_at=factory.now - timedelta(days=9))
    assert await transact.orders.by_barcode("7", "folder") == (gone.key, new.key)


async def test_numbers_of_two_laboratory_systems_do_not_collide(transact, factory):
    """The same accession number and the same tube mean another order at another laboratory system."""
    order, line = await _ordered(transact, factory, "111", LineState.ACCEPTED)
    other, second = await _ordered(transact, factory, "111", LineState.ACCEPTED, seen_at=factory.now + timedelta(hours=1))
    await transact.orders.save_line(replace(line, accession="A7"))
    await transact.orders.save_line(replace(second, accession="A7", adapter="micro"))
    assert await transact.orders.by_accession("A7", "folder") == (order.key,)
    assert await transact.orders.by_accession("A7", "micro") == (other.key,)
    assert await transact.orders.by_accession("A8", "folder") == ()
    assert await transact.orders.by_barcode("111", "micro") == (other.key,)
    assert await transact.orders.by_barcode("111", "third") == ()
    part = WorkOrder(order=other.key, adapter="folder", changed_at=factory.now, accession="A7")
    await transact.orders.save_work_order(part)
    assert await transact.orders.by_accession("A7", "folder") == (other.key, order.key)


async def test_work_orders_round_trip(transact, factory):
    order = factory.order()
    await transact.orders.add(order)
    first = WorkOrder(order=order.key, adapter="micro", changed_at=factory.now, accession="M1", reason="why")
    second = WorkOrder(order=order.key, adapter="chemistry", changed_at=factory.now)
    await transact(lambda uow: [uow.orders.save_work_order(each) for each in (first, second)])
    assert await transact.orders.work_orders(order.key) == (second, first)
    handed_over = first.transition_to(WorkOrderState.HANDED_OVER, factory.now)
    await transact.orders.save_work_order(handed_over)
    assert await transact.orders.work_orders(order.key) == (second, handed_over)


async def test_unassessed_since_returns_oldest_pending_order(transact, factory):
    assert await transact.orders.unassessed_since() is None
    states = (OrderState.CLOSED, OrderState.REJECTED, OrderState.HELD, OrderState.SEEN, OrderState.HANDED_OVER)
    for days, state in enumerate(states):
        await transact.orders.add(factory.order(state=state, seen_at=factory.now + timedelta(days=days)))
    assert await transact.orders.unassessed_since() == factory.now + timedelta(days=2)
