"""Held orders and lines: what a person may decide about them on the order's page, and what comes of it."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from lab_agent.accounts import Role
from lab_agent.domain.ids import LineKey, OrderKey
from lab_agent.domain.job_records import JobKind
from lab_agent.domain.state_machines import JobState, LineState, OrderState
from lab_agent.rules.engine import Assessment
from lab_agent.rules.rule import Finding, Severity
from lab_agent.status.order_page import build_track
from tests.integration.status.conftest import GOOD, HELD, form_token

CLOCKS = "order.clocks-differ"
PATH = f"/orders/{HELD}"
LINE = f"/orders/{GOOD}/lines/L01"
REASON = "The form was not signed; please send the order again."
LINE_TASK = {"basedOn": [{"reference": "ProcedureRequest/1"}], "partOf": [{"reference": "Task/task-1"}]}
RECEIVED = {
    "format": 1,
    "base_url": "http://127.0.0.1/",
    "order_task": {"resourceType": "Task", "id": "task-1", "status": "requested"},
    "line_tasks": [{"resourceType": "Task", "id": "line-task-10", "status": "requested", **LINE_TASK}],
    **{name: [] for name in ("resources", "unreadable", "patients", "questionnaire_responses")},
}


async def find_clocks_differ(key: OrderKey) -> Any:
    finding = Finding(CLOCKS, Severity.HOLD, "specimen/1", "collected after now", digest="d1")
    return SimpleNamespace(assessment=Assessment(holds=(finding,)))


async def operator(pages: Any, path: str) -> tuple[Any, str, str]:
    """Somebody who may act, the token of the forms, and the page of that order."""
    client = await pages.signed_in_client(Role.OPERATOR)
    text = (await client.get(path)).text
    return client, form_token(text), text


async def order_state(pages: Any, key: str = HELD) -> OrderState:
    return (await pages.context.queries.order(OrderKey(key))).order.state


async def line_state(pages: Any) -> LineState:
    detail = await pages.context.queries.order(OrderKey(GOOD))
    return next(each.state for each in detail.lines if each.key == "L01")


@pytest.fixture
async def holding(seeded: Any) -> Any:
    """An order that is held by a rule which a person may override, and whose lines are known."""
    seeded.context = replace(seeded.context, assess_order=find_clocks_differ)

    def write(uow: Any) -> None:
        order = uow.orders.get_for_update(OrderKey(HELD))
        uow.orders.save(replace(order, hold_cause=CLOCKS, received=json.dumps(RECEIVED).encode()))

    await seeded.write(write)
    return seeded


def hold_line(uow: Any) -> None:
    """Have a line of an order that is at the laboratory come later."""
    line = uow.orders.line(LineKey("L01"))
    uow.orders.save_line(replace(line, state=LineState.HELD, outputs=(), procedure_request_id="pr-1"))


@pytest.fixture
async def with_held_line(seeded: Any) -> Any:
    await seeded.write(hold_line)
    return seeded


async def test_held_order_is_released_with_reason(holding: Any):
    """And a tick; by nobody who only looks."""
    assert f'action="{PATH}/re' not in await holding.read(PATH)
    client, token, shown = await operator(holding, PATH)
    assert [each for each in ("release", "reject") if f'action="{PATH}/{each}"' not in shown] == []
    data = {"csrf_token": token, "note": "asked the clinic", "confirmed": "yes"}
    for action in ("release", "reject"):
        for wrong, status in (({"confirmed": ""}, 409), ({"note": ""}, 422)):
            assert (await client.post(f"{PATH}/{action}", data={**data, **wrong})).status_code == status, (action, wrong)
    assert await order_state(holding) is OrderState.HELD
    answer = await client.post(f"{PATH}/release", data=data)
    assert answer.headers["location"] == f"{PATH}?flash=order-released"
    assert (await holding.context.queries.order(OrderKey(HELD))).order.released_findings == ("d1",)
    assert "The order is released" in (await client.get(answer.headers["location"])).text


async def test_held_order_is_rejected_with_reason(holding: Any):
    client, token, _ = await operator(holding, PATH)
    answer = await client.post(f"{PATH}/reject", data={"csrf_token": token, "note": REASON, "confirmed": "yes"})
    assert answer.headers["location"] == f"{PATH}?flash=order-rejected"
    assert await order_state(holding) is OrderState.REJECTED
    jobs = (await holding.context.queries.jobs(kinds=[JobKind.UPDATE_LINE_TASK])).items
    assert any(each.order == HELD for each in jobs)


async def test_order_held_by_our_fault_offers_no_release(seeded: Any):
    """Its cause has to be mended, and its lines were never read."""
    client, token, shown = await operator(seeded, PATH)
    assert f'action="{PATH}/release"' not in shown
    assert f'action="{PATH}/reject"' not in shown
    data = {"csrf_token": token, "note": "why", "confirmed": "yes"}
    assert (await client.post(f"{PATH}/reject", data=data)).status_code == 409
    assert await order_state(seeded) is OrderState.HELD


async def test_held_line_is_accepted_or_rejected(with_held_line: Any):
    """It is accepted once somebody says that it was entered, and rejected with a reason."""
    client, token, shown = await operator(with_held_line, f"/orders/{GOOD}")
    assert f'action="{LINE}/accept"' in shown
    rejected = {"csrf_token": token, "note": REASON}
    for path, data, status in (
        (f"{LINE}/accept", {"csrf_token": token}, 409),
        (f"/orders/{HELD}/lines/L01/reject", rejected, 404),  # a line of another order
    ):
        assert (await client.post(path, data=data)).status_code == status
        assert await line_state(with_held_line) is LineState.HELD
    answer = await client.post(f"{LINE}/accept", data={"csrf_token": token, "confirmed": "yes"})
    assert answer.headers["location"] == f"/orders/{GOOD}?flash=line-accepted"
    assert await line_state(with_held_line) is LineState.ACCEPTED
    await with_held_line.write(hold_line)
    answer = await client.post(f"{LINE}/reject", data=rejected)
    assert answer.headers["location"] == f"/orders/{GOOD}?flash=line-rejected"
    assert await line_state(with_held_line) is LineState.REJECTED
    assert REASON in (await client.get(answer.headers["location"])).text


async def test_ticked_orders_are_retried_on_the_same_list(seeded: Any):
    client, token, shown = await operator(seeded, "/orders?state=handed_over")
    assert 'name="filters" value="state=handed_over"' in shown
    data = {"csrf_token": token, "filters": "state=handed_over&flash=x&test=a%26b", f"order-{GOOD}": "yes"}
    preview = (await client.post("/orders/selected", data=data)).text
    assert 'name="filters" value="state=handed_over&amp;test=a%26b"' in preview
    job = await seeded.get_job(JobKind.DELIVER_REPORT)
    assert await seeded.job_state(job.id) is JobState.DEAD_LETTER, "nothing is done before the form is sent"
    answer = await client.post("/orders/selected/retry", data=data | {"note": "the service works again"})
    assert answer.headers["location"] == "/orders?state=handed_over&test=a%26b&flash=orders-retried&done=1&left=0"
    assert await seeded.job_state(job.id) is JobState.DUE


async def test_way_tells_when_the_order_was_assessed(seeded: Any):
    """An order with nothing to remark has no event of its assessment: the job that fetched it tells when it was."""
    detail = await seeded.context.queries.order(OrderKey(GOOD))
    fetched = replace(detail.jobs[0], kind=JobKind.FETCH_ORDER, state=JobState.DONE, changed_at=detail.order.seen_at)
    track = build_track(replace(detail, events=(), jobs=(fetched,)))
    assert track[1].at == detail.order.seen_at
