"""What an operator decides about jobs, orders and lines: done by the desk, and told with the name."""

from __future__ import annotations

import json
from dataclasses import replace
from html import unescape
from types import SimpleNamespace
from typing import Any

import pytest

from lab_agent.operations.accounts import Role
from lab_agent.queue.failure_causes import FailureCause
from lab_agent.queue.job_records import JobKind, NewJob
from lab_agent.rules.engine import Assessment
from lab_agent.rules.rule import Finding, Severity
from lab_agent.shared.ids import LineKey, OrderKey
from lab_agent.shared.state_machines import JobState, LineState, OrderState
from lab_agent.status.order_page import build_track
from lab_agent.store.audit_records import AuditAction
from tests.integration.status.conftest import GOOD, HELD, NOW, UNCERTAIN, post


@pytest.fixture
async def operator(seeded: Any) -> Any:
    return await seeded.signed_in_client(Role.OPERATOR)


async def test_retry_makes_job_due_and_records_operator(seeded: Any, operator: Any):
    job = await seeded.get_job(JobKind.DELIVER_REPORT)
    answer = await post(operator, f"/jobs/{job.id}/retry", return_to="order")
    assert answer.headers["location"] == f"/orders/{GOOD}?flash=retried&job={job.id}"
    changed = await seeded.context.queries.job(job.id)
    assert (changed.state, changed.attempts) == (JobState.DUE, 0)
    shown = (await operator.get(answer.headers["location"])).text
    assert [each for each in (f"Job {job.id} is due now", f"{job.id}) retried", "by operator") if each not in shown] == []
    (noted,) = await seeded.records(AuditAction.JOB_RETRIED)
    assert (noted.actor, f'"job":{job.id}' in noted.details) == ("operator", True)


async def test_doubtful_submit_is_repeated_only_with_confirmation(seeded: Any, operator: Any):
    """An order whose handover is in doubt is submitted again only after an operator confirms."""
    job = await seeded.get_job(JobKind.SUBMIT_ORDER)
    assert 'name="confirmed"' in (await operator.get("/waiting")).text
    for path in (f"/jobs/{job.id}/retry", f"/orders/{UNCERTAIN}/retry"):
        assert (await post(operator, path)).status_code == 409
        assert await seeded.job_state(job.id) is JobState.NEEDS_REVIEW
    assert f'action="/orders/{UNCERTAIN}/retry"' not in (await operator.get(f"/orders/{UNCERTAIN}")).text
    assert (await post(operator, f"/jobs/{job.id}/retry", confirmed="yes")).status_code == 303
    assert await seeded.job_state(job.id) is JobState.DUE


@pytest.mark.parametrize(("action", "state"), [("dismiss", JobState.DISMISSED), ("done", JobState.DONE)])
async def test_marking_done_needs_a_note(seeded: Any, operator: Any, action: str, state: JobState):
    job = await seeded.get_job(JobKind.UPDATE_LINE_TASK)
    for note in ("", "  \n ", "x" * 501):
        assert (await post(operator, f"/jobs/{job.id}/{action}", note=note)).status_code == 422
    assert await seeded.job_state(job.id) is JobState.DEAD_LETTER
    answer = await post(operator, f"/jobs/{job.id}/{action}", note="asked <b>the clinic</b>")
    assert answer.headers["location"].startswith("/waiting?flash=")
    assert await seeded.job_state(job.id) is state
    assert "asked &lt;b&gt;the clinic&lt;/b&gt;" in (await operator.get(f"/orders/{GOOD}")).text


async def test_impossible_action_says_so_and_does_nothing(seeded: Any, operator: Any):
    """A job that can verify its own outcome is not done by hand; somebody else may have settled it; there may be none."""
    job, settled = await seeded.get_job(JobKind.DELIVER_REPORT), await seeded.get_job(JobKind.UPDATE_ORDER_TASK)
    assert f"/jobs/{job.id}/done" not in (await operator.get("/waiting")).text
    for path in (f"/jobs/{job.id}/done", f"/jobs/{settled.id}/retry"):
        answer = await post(operator, path, note="it is there")
        assert (path, answer.status_code, "Nothing was done" in answer.text) == (path, 409, True)
    assert await seeded.job_state(job.id) is JobState.DEAD_LETTER
    for number in ("0", "x", "-1", "9" * 40, str(2**63), "1%2F2", "²"):
        assert (await post(operator, f"/jobs/{number}/retry")).status_code == 404, number


async def test_held_order_is_assessed_again_at_once(seeded: Any, operator: Any):
    """Alone, and with all that are held for the same cause."""
    cause = "orders.held/order.contract-known"
    for path, fields, location in (
        (f"/orders/{HELD}/retry", {}, f"/orders/{HELD}?flash=order-retried"),
        ("/waiting/all/retry", {"cause": cause}, "/waiting?flash=group-assess&done=1&left=0"),
    ):
        assert (await post(operator, path, **fields)).headers["location"] == location
        look = await seeded.get_job(JobKind.FETCH_ORDER)
        assert (look.state, look.due_at) == (JobState.DUE, seeded.clock.now())
        await seeded.write(lambda uow, look=look: uow.jobs.save(look.reschedule(NOW, NOW.replace(hour=9), "r")))
    assert (await operator.get("/waiting/all/release", params={"cause": cause})).status_code == 409


async def test_tripped_rule_is_reset_once(seeded: Any, operator: Any):
    assert "Release the rule" in (await operator.get("/")).text
    answer = await post(operator, "/rules/line.specimen/release")
    shown = (await operator.get(answer.headers["location"])).text
    assert ("The rule can reject orders again" in shown, "Release the rule" in shown) == (True, False)
    for rule in ("line.specimen", "no.such.rule"):
        assert (await post(operator, f"/rules/{rule}/release")).status_code == 409


async def test_page_echoes_nothing_from_the_url(operator: Any):
    for query in ("flash=<b>x</b>", "flash=retried&job=<b>x</b>", "flash=retried&job={0.__class__}"):
        assert 'class="done"' not in (await operator.get(f"/waiting?{query}")).text


CAUSE = "jobs.write_rejected"


async def add_rejected(pages: Any, number: int) -> None:
    """Uploads that the service rejected, all for the same cause."""

    def write(uow: Any) -> None:
        for name in (f"rejected-{each}" for each in range(number)):
            names = dict.fromkeys(("dedup_key", "ordering_key", "target"), name)
            uow.jobs.add(NewJob(kind=JobKind.UPDATE_LINE_TASK, **names, order=None, due_at=NOW))
        for job in uow.jobs.claim({frozenset(JobKind): 999}, owner="w", now=NOW, lease=NOW - NOW.replace(hour=2)):
            uow.jobs.save(job.dead_letter(NOW, "the service rejected it (422)", FailureCause.WRITE_REJECTED))

    await pages.write(write)


async def states(pages: Any) -> set[JobState]:
    found = await pages.context.queries.jobs(kinds=[JobKind.UPDATE_LINE_TASK], limit=999)
    return {each.state for each in found.items}


async def test_equal_failures_are_one_line_with_one_button(pages: Any):
    """What the button does is said before anything is done."""
    await add_rejected(pages, 60)
    client, viewer = [await pages.signed_in_client(role) for role in (Role.OPERATOR, Role.VIEWER)]
    for path in ("/", "/waiting"):
        text = (await client.get(path)).text
        assert text.count(f'href="/waiting/all/retry?cause={CAUSE}"') == 1
        assert [each for each in ("60 jobs", 'title="60 waiting, for 1 cause">60<') if each not in text] == []
        assert "/waiting/all/" not in (await viewer.get(path)).text
    members = (await client.get(f"/waiting/members?cause={CAUSE}")).text
    assert members.count("the service rejected it (422)") == 50
    assert f'rel="next" href="/waiting/members?cause={CAUSE}&page=2"' in unescape(members)
    preview = (await client.get(f"/waiting/all/retry?cause={CAUSE}")).text
    assert [each for each in ("Retry all: 60 of 60?", "60 × update_line_task") if each not in preview] == []
    assert await states(pages) == {JobState.DEAD_LETTER}
    answer = await post(client, "/waiting/all/retry", cause=CAUSE)
    assert answer.headers["location"] == "/waiting?flash=group-retry&done=60&left=0"
    assert "60 are due now" in (await client.get(answer.headers["location"])).text
    assert await states(pages) == {JobState.DUE}


async def test_all_are_dismissed_with_a_note_alone(pages: Any):
    await add_rejected(pages, 3)
    client = await pages.signed_in_client(Role.OPERATOR)
    for note, status, state in (
        ("", 422, JobState.DEAD_LETTER),
        ("sent by hand", 303, JobState.DISMISSED),
        ("again", 404, JobState.DISMISSED),
    ):
        assert (await post(client, "/waiting/all/dismiss", cause=CAUSE, note=note)).status_code == status
        assert await states(pages) == {state}


async def test_unknown_cause_is_not_found(pages: Any):
    client = await pages.signed_in_client(Role.OPERATOR)
    for cause in ("", "nonsense", "jobs.sign_in", "orders.held/<b>", "exchange.unavailable"):
        for path in ("/waiting/members", "/waiting/all/retry", "/waiting/all/explode"):
            answer = await client.get(path, params={"cause": cause})
            assert (cause, answer.status_code, "<b>" in answer.text) == (cause, 404, False)
    for age in ("0", "5", "6", "0009", "-1", "0" * 5000, "²", ""):
        assert (await client.get("/failures/members", params={"cause": CAUSE, "age": age})).status_code == 200, age


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


async def operator_at(pages: Any, path: str) -> tuple[Any, str]:
    """Somebody who may act, and the page of that order."""
    client = await pages.signed_in_client(Role.OPERATOR)
    return client, (await client.get(path)).text


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


async def test_held_order_is_released_with_reason(holding: Any):
    """And a tick; by nobody who only looks."""
    assert f'action="{PATH}/re' not in await holding.read(PATH)
    client, shown = await operator_at(holding, PATH)
    assert [each for each in ("release", "reject") if f'action="{PATH}/{each}"' not in shown] == []
    for action in ("release", "reject"):
        for note, confirmed, status in (("asked the clinic", "", 409), ("", "yes", 422)):
            answer = await post(client, f"{PATH}/{action}", note=note, confirmed=confirmed)
            assert answer.status_code == status, (action, note)
    assert await order_state(holding) is OrderState.HELD
    answer = await post(client, f"{PATH}/release", note="asked the clinic", confirmed="yes")
    assert answer.headers["location"] == f"{PATH}?flash=order-released"
    assert (await holding.context.queries.order(OrderKey(HELD))).order.released_findings == ("d1",)


async def test_held_order_is_rejected_with_reason(holding: Any):
    client, _ = await operator_at(holding, PATH)
    answer = await post(client, f"{PATH}/reject", note=REASON, confirmed="yes")
    assert answer.headers["location"] == f"{PATH}?flash=order-rejected"
    assert await order_state(holding) is OrderState.REJECTED
    jobs = (await holding.context.queries.jobs(kinds=[JobKind.UPDATE_LINE_TASK])).items
    assert any(each.order == HELD for each in jobs)


async def test_order_held_by_our_fault_offers_no_release(seeded: Any):
    """Its cause has to be mended, and its lines were never read."""
    client, shown = await operator_at(seeded, PATH)
    assert [each for each in ("release", "reject") if f'action="{PATH}/{each}"' in shown] == []
    assert (await post(client, f"{PATH}/reject", note="why", confirmed="yes")).status_code == 409
    assert await order_state(seeded) is OrderState.HELD


async def test_held_line_is_accepted_or_rejected(seeded: Any):
    """It is accepted once somebody says that it was entered, and rejected with a reason."""
    await seeded.write(hold_line)
    client, shown = await operator_at(seeded, f"/orders/{GOOD}")
    assert f'action="{LINE}/accept"' in shown
    for path, note, status in ((f"{LINE}/accept", "", 409), (f"/orders/{HELD}/lines/L01/reject", REASON, 404)):
        assert (await post(client, path, note=note)).status_code == status
        assert await line_state(seeded) is LineState.HELD
    for action, fields, state in (
        ("accept", {"confirmed": "yes"}, LineState.ACCEPTED),
        ("reject", {"note": REASON}, LineState.REJECTED),
    ):
        await seeded.write(hold_line)
        answer = await post(client, f"{LINE}/{action}", **fields)
        assert answer.headers["location"] == f"/orders/{GOOD}?flash=line-{action}ed"
        assert await line_state(seeded) is state
    assert REASON in (await client.get(answer.headers["location"])).text


async def test_ticked_orders_are_retried_on_the_same_list(seeded: Any):
    client, shown = await operator_at(seeded, "/orders?state=handed_over")
    assert 'name="filters" value="state=handed_over"' in shown
    data = {"filters": "state=handed_over&flash=x&test=a%26b", f"order-{GOOD}": "yes"}
    preview = (await post(client, "/orders/selected", **data)).text
    assert 'name="filters" value="state=handed_over&amp;test=a%26b"' in preview
    job = await seeded.get_job(JobKind.DELIVER_REPORT)
    assert await seeded.job_state(job.id) is JobState.DEAD_LETTER, "nothing is done before the form is sent"
    answer = await post(client, "/orders/selected/retry", **data, note="the service works again")
    assert answer.headers["location"] == "/orders?state=handed_over&test=a%26b&flash=orders-retried&done=1&left=0"
    assert await seeded.job_state(job.id) is JobState.DUE


async def test_way_tells_when_the_order_was_assessed(seeded: Any):
    """An order with nothing to remark has no event of its assessment: the job that fetched it tells when it was."""
    detail = await seeded.context.queries.order(OrderKey(GOOD))
    fetched = replace(detail.jobs[0], kind=JobKind.FETCH_ORDER, state=JobState.DONE, changed_at=detail.order.seen_at)
    track = build_track(replace(detail, events=(), jobs=(fetched,)))
    assert track[1].at == detail.order.seen_at
