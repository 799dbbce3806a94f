"""What a new state of an order, a line, a work order and a report keeps and what it forgets."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lab_agent.catalogue.records import CATALOGUE_CHANGE_STAMP, ApiToken
from lab_agent.orders.records import LineRecord, OrderHold, OrderRecord, WorkOrder, route_line
from lab_agent.results.records import HoldReason, ReportRecord, result_alert_key
from lab_agent.shared.conditions.model import AlertKey, ConditionId
from lab_agent.shared.errors import InvalidTransitionError
from lab_agent.shared.ids import LineKey, OrderKey, ReportKey, ResourceId, work_order_key
from lab_agent.shared.state_machines import LineState, OrderState, ReportState, WorkOrderState
from lab_agent.store.event_records import Alert
from lab_agent.store.notification_records import Notification

NOW = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
LATER, LAST = NOW + timedelta(minutes=5), NOW + timedelta(minutes=9)
ORDER = OrderRecord(key=OrderKey("R1"), task_id=ResourceId("1"), seen_at=NOW, changed_at=NOW, task_unreadable_since=NOW)
HELD = ORDER.hold(LATER, OrderHold("no_contract", "no contract"))
LINE = LineRecord(
    key=LineKey("L1"),
    order=OrderKey("R1"),
    task_id=ResourceId("7"),
    state=LineState.ACCEPTED,
    changed_at=NOW,
    outputs=("said",),
    task_unreadable_since=NOW,
)
WORK_ORDER = WorkOrder(order=OrderKey("R1"), adapter="lis", changed_at=NOW, waits_since=NOW)
REPORT = ReportRecord(key=ReportKey("P1"), source="lis", message="m", received_at=NOW, changed_at=NOW, body=b"{}")


def test_held_order_keeps_since_when_and_takes_the_new_cause() -> None:
    held = ORDER.hold(LATER, OrderHold("no_contract", "no contract"))
    assert held == replace(
        ORDER, state=OrderState.HELD, changed_at=LATER, reason="no contract", held_since=LATER, hold_cause="no_contract"
    )
    again = held.hold(LAST, OrderHold("order.item", "no such test"))
    assert again == replace(held, changed_at=LAST, reason="no such test", hold_cause="order.item")


def test_order_that_goes_on_is_held_no_more() -> None:
    assert HELD.transition_to(OrderState.FETCHED, LAST, "released") == replace(
        ORDER, state=OrderState.FETCHED, changed_at=LAST, reason="released"
    )


@pytest.mark.parametrize(("state", "since"), [(OrderState.CLOSED, None), (OrderState.WITHDRAWN, NOW)])
def test_closed_order_forgets_its_unreadable_task(state: OrderState, since: datetime | None) -> None:
    assert ORDER.transition_to(state, LATER).task_unreadable_since == since


def test_order_is_held_with_a_cause_alone() -> None:
    with pytest.raises(ValueError, match="hold"):
        ORDER.transition_to(OrderState.HELD, NOW)
    with pytest.raises(InvalidTransitionError):
        replace(ORDER, state=OrderState.HANDED_OVER).hold(NOW, OrderHold("x", "x"))


@pytest.mark.parametrize(
    ("outputs", "state", "expected"),
    [
        (None, LineState.RESULTED, {"outputs": ("said",), "task_unreadable_since": NOW}),
        ((), LineState.RESULTED, {"outputs": (), "task_unreadable_since": NOW}),
        (("done",), LineState.COMPLETED, {"outputs": ("done",), "task_unreadable_since": None}),
    ],
)
def test_line_moves_with_its_outputs(outputs: tuple[str, ...] | None, state: LineState, expected: dict[str, Any]) -> None:
    assert LINE.transition_to(state, LATER, outputs) == replace(LINE, state=state, changed_at=LATER, **expected)


def test_reopened_line_forgets_what_was_sent() -> None:
    ended = replace(LINE, state=LineState.CANCELLED, sent_statuses=("cancelled",), ended_as="cancelled", reopened=1)
    assert ended.reopen(LineState.REQUESTED, LATER) == replace(
        ended, state=LineState.REQUESTED, changed_at=LATER, outputs=(), sent_statuses=(), ended_as=None, reopened=2
    )
    with pytest.raises(InvalidTransitionError):
        LINE.transition_to(LineState.REJECTED, NOW)


def test_work_order_waits_no_more_once_it_moves() -> None:
    assert WORK_ORDER.key == work_order_key(OrderKey("R1"), "lis")
    assert WORK_ORDER.transition_to(WorkOrderState.HANDED_OVER, LATER, "sent") == replace(
        WORK_ORDER, state=WorkOrderState.HANDED_OVER, changed_at=LATER, reason="sent", waits_since=None
    )
    with pytest.raises(InvalidTransitionError):
        WORK_ORDER.transition_to(WorkOrderState.HANDED_OVER, NOW).transition_to(WorkOrderState.CANCELLED, NOW)


@pytest.mark.parametrize(("adapter", "accession"), [("lis", "17"), ("other", None)])
def test_routed_line_keeps_the_number_of_its_own_system(adapter: str, accession: str | None) -> None:
    numbered = replace(LINE, adapter="lis", accession="17")
    assert route_line(numbered, adapter) == replace(numbered, adapter=adapter, accession=accession)


def test_report_is_held_with_a_reason_alone() -> None:
    held = REPORT.transition_to(ReportState.HELD, LATER, "strange", HoldReason.QUESTION)
    assert held == replace(REPORT, state=ReportState.HELD, changed_at=LATER, reason="strange", hold_reason=HoldReason.QUESTION)
    assert held.transition_to(ReportState.MATCHED, LAST) == replace(REPORT, state=ReportState.MATCHED, changed_at=LAST)
    with pytest.raises(ValueError, match="held"):
        REPORT.transition_to(ReportState.HELD, NOW, "strange")
    with pytest.raises(ValueError, match="matched"):
        REPORT.transition_to(ReportState.MATCHED, NOW, "strange", HoldReason.QUESTION)
    with pytest.raises(InvalidTransitionError):
        REPORT.transition_to(ReportState.DELIVERED, NOW)
    assert (REPORT.adapter, replace(REPORT, matched_adapter="other").adapter) == ("lis", "other")


def test_waiting_results_have_an_alert_of_their_cause() -> None:
    assert result_alert_key(ReportState.UNMATCHED, None) == (ConditionId.RESULTS_UNMATCHED, "")
    assert result_alert_key(ReportState.UNMAPPED, None) == (ConditionId.RESULTS_UNMAPPED, "")
    assert result_alert_key(ReportState.HELD, HoldReason.QUESTION) == (ConditionId.RESULTS_HELD, "question")
    with pytest.raises(KeyError):
        result_alert_key(ReportState.DELIVERED, None)
    about = {"condition": ConditionId.RESULTS_HELD, "subject": "question", "since": NOW}
    alert, told = Alert(**about, opened_at=NOW), Notification(channel="mail", **about, noticed_at=NOW)
    assert alert.key == told.key == AlertKey(ConditionId.RESULTS_HELD, "question")


@pytest.mark.parametrize(
    ("changes", "valid"),
    [({}, True), ({"expires_at": LATER}, True), ({"expires_at": NOW}, False), ({"revoked_at": LATER}, False)],
)
def test_token_is_valid_until_revoked_or_expired(changes: dict[str, Any], valid: bool) -> None:
    token = ApiToken(**{"id": "1", "name": "clinic", "sha256": "", "contracts": None, "created_at": NOW, **changes})
    assert token.is_valid(NOW) is valid
    assert CATALOGUE_CHANGE_STAMP == "catalogue.change_stamp"
