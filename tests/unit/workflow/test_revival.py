from datetime import UTC, datetime
from typing import Any

import pytest

from lab_agent.orders.ended_orders import Revival, decide_revival
from lab_agent.orders.order_tasks import KnownOrder, OrderTasks
from lab_agent.orders.records import LineRecord, OrderRecord
from lab_agent.orders.reopening import find_lines_put_back
from lab_agent.orders.task_standing import waiting_reason
from lab_agent.shared.ids import LineKey, OrderKey, ResourceId
from lab_agent.shared.state_machines import LineState, OrderState

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
OURS = {"coding": [{"code": "OrderProcessingTask"}]}


def line(state: LineState, ended_as: str | None = None) -> LineRecord:
    keys: dict[str, Any] = {"key": LineKey("L1"), "order": OrderKey("R1"), "task_id": ResourceId("t1")}
    return LineRecord(**keys, state=state, changed_at=NOW, ended_as=ended_as)


def known(*, submitted: bool, sent: tuple[str, ...] = ()) -> KnownOrder:
    at: dict[str, Any] = {"task_id": ResourceId("o1"), "state": OrderState.CLOSED, "seen_at": NOW, "changed_at": NOW}
    return KnownOrder(OrderRecord(key=OrderKey("R1"), **at, sent_statuses=sent, ended_as="cancelled"), (), submitted)


def tasks(status: str, *, open_lines: bool) -> OrderTasks:
    new = ({"id": "t1", "status": "requested"},) if open_lines else ()
    return OrderTasks({"status": status, "code": OURS}, new, (), new)


@pytest.mark.parametrize(
    ("status", "sent", "submitted", "open_lines", "expected"),
    [
        ("requested", (), False, True, Revival.ASSESS_AGAIN),
        ("requested", (), False, False, Revival.ASSESS_AGAIN),
        ("requested", (), True, True, Revival.HOLD_LINES),
        ("requested", (), True, False, Revival.HOLD_ORDER),
        ("cancelled", ("cancelled",), False, True, Revival.HOLD_ORDER),
        ("completed", ("completed",), True, True, Revival.HOLD_LINES),
        ("cancelled", ("cancelled",), False, False, Revival.NONE),
        ("completed", ("completed",), True, False, Revival.NONE),
        ("cancelled", (), False, True, Revival.NONE),
        ("cancelled", ("completed",), True, True, Revival.NONE),
        ("on-hold", (), False, True, Revival.NONE),
        ("accepted", ("accepted", "cancelled"), True, False, Revival.HOLD_ORDER),
        ("accepted", ("accepted", "cancelled"), True, True, Revival.HOLD_LINES),
    ],
)
def test_each_revival_is_decided(
    status: str, sent: tuple[str, ...], submitted: bool, open_lines: bool, expected: Revival
) -> None:
    assert decide_revival(known(submitted=submitted, sent=sent), tasks(status, open_lines=open_lines)) is expected


@pytest.mark.parametrize(
    ("state", "ended_as", "status", "offered", "back"),
    [
        (LineState.COMPLETED, "completed", "requested", False, True),
        (LineState.REJECTED, "cancelled", "requested", False, True),
        (LineState.REJECTED, "cancelled", "cancelled", True, False),
        (LineState.REJECTED, None, "requested", True, False),  # its update is still on its way
        (LineState.WITHDRAWN, None, "requested", False, False),  # withdrawn with its order, and left open by the partner
        (LineState.WITHDRAWN, None, "requested", True, True),
        (LineState.WITHDRAWN, "cancelled", "on-hold", True, False),
        (LineState.ACCEPTED, None, "requested", True, False),
    ],
)
def test_only_an_ended_line_is_put_back(state: LineState, ended_as: str | None, status: str, offered: bool, back: bool) -> None:
    assert bool(find_lines_put_back([line(state, ended_as)], {"t1": status}, order_offered=offered)) is back


BILLING = {"coding": [{"code": "BillingTask"}]}


def task(**fields: Any) -> dict[str, Any]:
    return {"id": "t1", "status": "requested", **fields}


@pytest.mark.parametrize(
    ("order", "order_line", "waits"),
    [
        ({"code": OURS}, {}, False),
        ({"code": OURS}, {"code": OURS}, False),
        ({"code": OURS}, {"status": "cancelled"}, False),
        ({"code": OURS}, {"status": "cancelled", "code": BILLING}, False),
        ({"code": OURS}, {"status": "accepted"}, True),
        ({"code": OURS}, {"status": None}, True),
        ({"code": OURS}, {"code": BILLING}, True),
        ({"code": OURS, "status": "draft"}, {}, True),
        ({"code": BILLING}, {}, True),
        ({}, {}, True),
    ],
)
def test_only_requested_processing_tasks_are_ours(order: dict[str, Any], order_line: dict[str, Any], waits: bool) -> None:
    assert bool(waiting_reason(task(**order), [task(**order_line)], ("OrderProcessingTask",))) is waits


@pytest.mark.parametrize(
    ("lines", "waits"),
    [
        ((("on-hold", None), ("requested", None)), False),
        ((("draft", None), ("requested", OURS), ("in-progress", OURS)), False),
        ((("on-hold", None), ("cancelled", None)), True),
        ((("on-hold", None), ("draft", None)), True),
        ((("cancelled", None), ("completed", None)), False),
        (((None, None), ("requested", None)), True),
        ((("on-hold", BILLING), ("requested", None)), True),
        ((("requested", BILLING), ("on-hold", None)), True),
    ],
)
def test_lines_set_aside_hold_no_requested_one(lines: tuple[tuple[str | None, Any], ...], waits: bool) -> None:
    tasks = [task(status=status, **({} if code is None else {"code": code})) for status, code in lines]
    assert bool(waiting_reason(task(code=OURS), tasks, ("OrderProcessingTask",))) is waits
