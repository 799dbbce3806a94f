"""Orders, lines and labels."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest

from lab_agent.domain.order_holds import OrderHold
from lab_agent.domain.state_machines import LineState, OrderState, WorkOrderState
from lab_agent.domain.values import Identifier
from lab_agent.domain.work_orders import WorkOrder
from lab_agent.errors import AlreadyExistsError, StoreError


async def test_order_round_trips(transact, factory):
    order = factory.order(
        state=OrderState.FETCHED,
        contract="C-1",
        requisition=Identifier(system="http://x", value="00123"),
        counterparty="guid",
        patient_reference="patient/7",
        expected_at=factory.now + timedelta(hours=30),
        reason="ждём",
        seen_lines=("b", "a"),
        received=b'{"value":1.20}',
        lab_order=b"{}",
        sent_statuses=("accepted", "completed"),
        ended_as="completed",
        recheck_at=factory.now + timedelta(minutes=5),
        reopened=2,
        unreadable_since=factory.now,
    )
    await transact(lambda uow: uow.orders.add(order))
    assert await transact(lambda uow: uow.orders.get_for_update(order.key)) == order


async def test_timestamps_return_in_utc(transact, factory):
    there = datetime(2026, 3, 1, 15, 0, 0, 123456, tzinfo=timezone(timedelta(hours=3)))
    order = factory.order(seen_at=there)
    await transact(lambda uow: uow.orders.add(order))
    seen = (await transact(lambda uow: uow.orders.get_for_update(order.key))).seen_at
    assert seen == there
    assert seen.utcoffset() is not None


async def test_same_order_is_added_once(transact, factory):
    order = factory.order()
    await transact(lambda uow: uow.orders.add(order))
    with pytest.raises(AlreadyExistsError):
        await transact(lambda uow: uow.orders.add(order))
    with pytest.raises(AlreadyExistsError):
        await transact(lambda uow: uow.orders.add(replace(order, key="R-other")))


async def test_only_new_orders_of_a_list_are_added(transact, factory):
    known, same_task, new = factory.order(), factory.order(), factory.order()
    same_task = replace(same_task, task_id=known.task_id)
    await transact(lambda uow: uow.orders.add(known))
    assert await transact(lambda uow: uow.orders.add_new([known, new, same_task])) == {new.key}
    assert await transact(lambda uow: uow.orders.get(new.key)) == new
    assert await transact(lambda uow: uow.orders.add_new([known])) == frozenset()


async def test_unit_of_work_continues_after_already_known(transact, factory):
    order = factory.order()
    await transact(lambda uow: uow.orders.add(order))

    def work(uow):
        with pytest.raises(AlreadyExistsError):
            uow.orders.add(order)
        uow.key_values.set("went", "on")

    await transact(work)
    assert await transact(lambda uow: uow.key_values.get("went")) == "on"


async def test_existing_tasks_are_found_among_thousands(transact, factory):
    orders = [factory.order() for _ in range(3)]
    await transact(lambda uow: [uow.orders.add(order) for order in orders])
    asked = [f"other-{number}" for number in range(3000)] + [order.task_id for order in orders[:2]]
    assert await transact(lambda uow: uow.orders.existing(asked)) == {order.task_id for order in orders[:2]}
    assert await transact(lambda uow: uow.orders.existing([])) == frozenset()


async def test_ended_orders_are_closed_with_an_ended_task(transact, factory):
    left_alone = factory.order(state=OrderState.CLOSED)
    open_order = factory.order(state=OrderState.HANDED_OVER, ended_as="cancelled")
    ended = factory.order(state=OrderState.CLOSED, ended_as="cancelled")
    tasks = [order.task_id for order in (left_alone, open_order, ended)]
    await transact(lambda uow: [uow.orders.add(order) for order in (left_alone, open_order, ended)])
    assert await transact(lambda uow: uow.orders.ended_orders(tasks)) == (ended,)
    assert await transact(lambda uow: uow.orders.ended_orders(tasks[:2])) == ()


async def test_orders_to_recheck_come_by_time(transact, factory):
    later, due, first = (
        factory.order(state=OrderState.CLOSED, recheck_at=factory.now + timedelta(seconds=seconds)) for seconds in (1, 0, -5)
    )
    taken_up = factory.order(state=OrderState.SEEN, recheck_at=factory.now)
    await transact(lambda uow: [uow.orders.add(order) for order in (later, due, first, taken_up, factory.order())])
    assert await transact(lambda uow: uow.orders.orders_to_recheck(now=factory.now, limit=5)) == (first, due)
    assert await transact(lambda uow: uow.orders.orders_to_recheck(now=factory.now, limit=1)) == (first,)


async def test_other_lines_about_requests_are_those_of_other_orders(transact, factory):
    """Lines that ended without a result are left out: what they ordered may be ordered again."""
    own, other = factory.order(), factory.order()
    mine = replace(factory.line(own.key, key="L1"), procedure_request_id="p1")
    theirs = [replace(factory.line(other.key, key=f"L-{state}"), procedure_request_id="p1", state=state) for state in LineState]

    def work(uow):
        uow.orders.add(own)
        uow.orders.add(other)
        for line in (mine, *theirs):
            uow.orders.add_line(line)

    await transact(work)
    found = await transact(lambda uow: uow.orders.other_lines([], ["p1", "p2"], except_order=own.key))
    undone = {LineState.REJECTED, LineState.WITHDRAWN, LineState.CANCELLED}
    assert {line.state for line in found} == set(LineState) - undone
    assert await transact(lambda uow: uow.orders.other_lines([], ["p2"], except_order=own.key)) == ()


async def test_other_lines_with_keys_are_found_in_any_state(transact, factory):
    own, other = factory.order(), factory.order()
    mine = factory.line(own.key, key="L1")
    withdrawn = replace(factory.line(other.key, key="L2"), procedure_request_id="p1", state=LineState.WITHDRAWN)

    def work(uow):
        uow.orders.add(own)
        uow.orders.add(other)
        uow.orders.add_line(mine)
        uow.orders.add_line(withdrawn)

    await transact(work)
    many = [f"L{number}" for number in range(1200)]
    assert await transact(lambda uow: uow.orders.other_lines(many, ["p1"], except_order=own.key)) == (withdrawn,)
    assert await transact(lambda uow: uow.orders.other_lines([], ["p1"], except_order=own.key)) == ()


async def test_save_writes_every_field(transact, factory):
    order = factory.order()
    await transact(lambda uow: uow.orders.add(order))
    later = factory.now + timedelta(minutes=5)
    changed = replace(
        order.hold(later, OrderHold("no_contract", "no contract")), requisition=Identifier(value="9"), seen_lines=()
    )
    await transact(lambda uow: uow.orders.save(changed))
    assert await transact(lambda uow: uow.orders.get_for_update(order.key)) == changed


async def test_unknown_orders_and_lines_are_reported(transact, factory):
    with pytest.raises(StoreError):
        await transact(lambda uow: uow.orders.get_for_update("R-none"))
    with pytest.raises(StoreError):
        await transact(lambda uow: uow.orders.save(factory.order()))
    with pytest.raises(StoreError):
        await transact(lambda uow: uow.orders.save_line(factory.line("R-none")))
    with pytest.raises(StoreError):
        await transact(lambda uow: uow.orders.add_line(factory.line("R-none")))
    assert await transact(lambda uow: uow.orders.line("L-none")) is None
    assert await transact(lambda uow: uow.orders.lines("R-none")) == ()


async def test_lines_keep_their_insertion_order(transact, factory):
    order = factory.order()
    lines = [factory.line(order.key, key=key) for key in ("L3", "L1", "L2")]

    def work(uow):
        uow.orders.add(order)
        for line in lines:
            uow.orders.add_line(line)

    await transact(work)
    changed = replace(
        lines[0].transition_to(LineState.REJECTED, factory.now, ("too old",)), sent_statuses=("cancelled",), item="042.1"
    )
    await transact(lambda uow: uow.orders.save_line(changed))
    assert await transact(lambda uow: uow.orders.lines(order.key)) == (changed, *lines[1:])
    assert await transact(lambda uow: uow.orders.line("L3")) == changed
    with pytest.raises(AlreadyExistsError):
        await transact(lambda uow: uow.orders.add_line(lines[1]))


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
    _, line = await _ordered(transact, factory, "111", LineState.ACCEPTED)
    await _ordered(transact, factory, "222", LineState.REJECTED)
    await _ordered(transact, factory, "333", LineState.WITHDRAWN)
    asked = ("111", "222", "333", "444")
    assert await transact(lambda uow: uow.orders.labels_in_use(asked, except_order="R-x")) == (factory.label("111", line),)
    assert await transact(lambda uow: uow.orders.labels_in_use(asked, except_order=line.order)) == ()


async def test_labels_are_replaced(transact, factory):
    order, line = await _ordered(transact, factory, "111", LineState.ACCEPTED)
    twice = [factory.label("222", line), factory.label("333", line), factory.label("222", line)]
    await transact(lambda uow: uow.orders.set_labels(order.key, twice))
    found = await transact(lambda uow: uow.orders.labels_in_use(["111", "222", "333"], except_order="R-x"))
    assert [label.barcode for label in found] == ["222", "333"]
    await transact(lambda uow: uow.orders.set_labels(order.key, []))
    assert await transact(lambda uow: uow.orders.by_barcode("222", "folder")) == ()


async def test_orders_of_barcode_are_newest_first(transact, factory):
    old, _ = await _ordered(transact, factory, "111", LineState.COMPLETED, seen_at=factory.now - timedelta(days=9))
    new, _ = await _ordered(transact, factory, "111", LineState.ACCEPTED)
    await _ordered(transact, factory, "111", LineState.REJECTED)
    await _ordered(transact, factory, "111", LineState.REQUESTED)
    await _ordered(transact, factory, "112", LineState.ACCEPTED)
    assert await transact(lambda uow: uow.orders.by_barcode("111", "folder")) == (new.key, old.key)


async def test_barcode_of_withdrawn_lines_finds_its_order(transact, factory):
    gone, _ = await _ordered(transact, factory, "111", LineState.WITHDRAWN)
    assert await transact(lambda uow: uow.orders.by_barcode("111", "folder")) == (gone.key,)
    new, _ = await _ordered(transact, factory, "111", LineState.ACCEPTED, seen_at=factory.now - timedelta(days=9))
    assert await transact(lambda uow: uow.orders.by_barcode("111", "folder")) == (gone.key, new.key)


async def test_orders_are_found_by_accession(transact, factory):
    order, line = await _ordered(transact, factory, "1", LineState.ACCEPTED)
    other = factory.order(seen_at=factory.now + timedelta(hours=1))
    await transact(lambda uow: uow.orders.save_line(replace(line, accession="A7")))
    await transact(lambda uow: uow.orders.add(other))
    part = WorkOrder(order=other.key, adapter="folder", changed_at=factory.now, accession="A7")
    await transact(lambda uow: uow.orders.save_work_order(part))
    assert await transact(lambda uow: uow.orders.by_accession("A7", "folder")) == (other.key, order.key)
    assert await transact(lambda uow: uow.orders.by_accession("A8", "folder")) == ()


async def test_numbers_of_two_laboratory_systems_do_not_collide(transact, factory):
    """The same accession number and the same tube mean another order at another laboratory system."""
    order, line = await _ordered(transact, factory, "111", LineState.ACCEPTED)
    other, second = await _ordered(transact, factory, "111", LineState.ACCEPTED)
    await transact(lambda uow: uow.orders.save_line(replace(line, accession="A7")))
    await transact(lambda uow: uow.orders.save_line(replace(second, accession="A7", adapter="micro")))
    assert await transact(lambda uow: uow.orders.by_accession("A7", "folder")) == (order.key,)
    assert await transact(lambda uow: uow.orders.by_accession("A7", "micro")) == (other.key,)
    assert await transact(lambda uow: uow.orders.by_barcode("111", "micro")) == (other.key,)
    assert await transact(lambda uow: uow.orders.by_barcode("111", "third")) == ()


async def test_work_orders_round_trip(transact, factory):
    order = factory.order()
    await transact(lambda uow: uow.orders.add(order))
    first = WorkOrder(order=order.key, adapter="micro", changed_at=factory.now, accession="M1", reason="why")
    second = WorkOrder(order=order.key, adapter="chemistry", changed_at=factory.now)
    await transact(lambda uow: [uow.orders.save_work_order(each) for each in (first, second)])
    assert await transact(lambda uow: uow.orders.work_orders(order.key)) == (second, first)
    handed_over = first.transition_to(WorkOrderState.HANDED_OVER, factory.now)
    await transact(lambda uow: uow.orders.save_work_order(handed_over))
    assert await transact(lambda uow: uow.orders.work_orders(order.key)) == (second, handed_over)
    with pytest.raises(StoreError):
        await transact(lambda uow: uow.orders.save_work_order(replace(first, order="R-nobody")))


async def test_open_orders_are_paged(transact, factory):
    orders = [factory.order(key=f"R{number}") for number in range(5)]
    orders.append(factory.order(key="R2x", state=OrderState.CLOSED))
    await transact(lambda uow: [uow.orders.add(order) for order in reversed(orders)])
    first = await transact(lambda uow: uow.orders.open_orders(limit=3))
    rest = await transact(lambda uow: uow.orders.open_orders(limit=3, after=first[-1].key))
    assert [order.key for order in (*first, *rest)] == ["R0", "R1", "R2", "R3", "R4"]


async def test_unstorable_text_is_replaced(transact, factory):
    """Characters that no database takes are replaced and stop nothing."""
    order = factory.order(reason="a\x00b\ud800c")
    await transact(lambda uow: uow.orders.add(order))
    assert (await transact(lambda uow: uow.orders.get_for_update(order.key))).reason == "a\ufffdb\ufffdc"


async def test_naive_timestamp_is_rejected(transact, factory):
    naive = datetime.now(UTC).replace(tzinfo=None)
    with pytest.raises(StoreError, match="time zone"):
        await transact(lambda uow: uow.orders.add(factory.order(seen_at=naive)))
