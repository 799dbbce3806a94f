"""What an operator decides: done by the desk, told with the name, and only with a form of this page and this session."""

from __future__ import annotations

from html import unescape
from typing import Any

import pytest

from lab_agent.accounts import Role
from lab_agent.domain.audit import AuditAction
from lab_agent.domain.failure_causes import FailureCause
from lab_agent.domain.ids import OrderKey
from lab_agent.domain.job_records import JobKind, NewJob
from lab_agent.domain.state_machines import JobState
from tests.integration.status.conftest import GOOD, HELD, NOW, UNCERTAIN, form_token


async def operator(page: Any, role: Role = Role.OPERATOR) -> tuple[Any, str]:
    client = await page.signed_in_client(role)
    return client, form_token((await client.get("/waiting")).text)


async def test_retry_makes_job_due_and_records_operator(seeded: Any):
    client, token = await operator(seeded)
    job = await seeded.get_job(JobKind.DELIVER_REPORT)
    answer = await client.post(f"/jobs/{job.id}/retry", data={"csrf_token": token, "return_to": "order"})
    assert answer.status_code == 303
    assert answer.headers["location"] == f"/orders/{GOOD}?flash=retried&job={job.id}"
    changed = await seeded.context.queries.job(job.id)
    assert (changed.state, changed.attempts) == (JobState.DUE, 0)
    shown = (await client.get(answer.headers["location"])).text
    assert f"Job {job.id} is due now" in shown
    assert f"{job.id}) retried" in shown
    assert "by operator" in shown
    (noted,) = await seeded.records(AuditAction.JOB_RETRIED)
    assert (noted.actor, f'"job":{job.id}' in noted.details) == ("operator", True)


async def test_doubtful_submit_is_repeated_only_with_confirmation(seeded: Any):
    """An order whose handover is in doubt is submitted again only after an operator confirms."""
    client, token = await operator(seeded)
    job = await seeded.get_job(JobKind.SUBMIT_ORDER)
    assert 'name="confirmed"' in (await client.get("/waiting")).text
    for path in (f"/jobs/{job.id}/retry", f"/orders/{UNCERTAIN}/retry"):
        assert (await client.post(path, data={"csrf_token": token})).status_code == 409
        assert await seeded.job_state(job.id) is JobState.NEEDS_REVIEW
    assert f'action="/orders/{UNCERTAIN}/retry"' not in (await client.get(f"/orders/{UNCERTAIN}")).text
    answer = await client.post(f"/jobs/{job.id}/retry", data={"csrf_token": token, "confirmed": "yes"})
    assert answer.status_code == 303
    assert await seeded.job_state(job.id) is JobState.DUE


@pytest.mark.parametrize(("action", "state"), [("dismiss", JobState.DISMISSED), ("done", JobState.DONE)])
async def test_marking_done_needs_a_note(seeded: Any, action: str, state: JobState):
    client, token = await operator(seeded)
    job = await seeded.get_job(JobKind.UPDATE_LINE_TASK)
    for note in ("", "  \n ", "x" * 501):
        answer = await client.post(f"/jobs/{job.id}/{action}", data={"csrf_token": token, "note": note})
        assert answer.status_code == 422
    assert await seeded.job_state(job.id) is JobState.DEAD_LETTER
    answer = await client.post(f"/jobs/{job.id}/{action}", data={"csrf_token": token, "note": "asked <b>the clinic</b>"})
    assert (answer.status_code, answer.headers["location"].startswith("/waiting?flash=")) == (303, True)
    assert await seeded.job_state(job.id) is state
    assert "asked &lt;b&gt;the clinic&lt;/b&gt;" in (await client.get(f"/orders/{GOOD}")).text


async def test_impossible_action_says_so_and_does_nothing(seeded: Any):
    """A job that can verify its own outcome is not done by hand; somebody else may have settled it; there may be none."""
    client, token = await operator(seeded)
    job, settled = await seeded.get_job(JobKind.DELIVER_REPORT), await seeded.get_job(JobKind.UPDATE_ORDER_TASK)
    assert f"/jobs/{job.id}/done" not in (await client.get("/waiting")).text
    for path in (f"/jobs/{job.id}/done", f"/jobs/{settled.id}/retry"):
        answer = await client.post(path, data={"csrf_token": token, "note": "it is there"})
        assert (path, answer.status_code, "Nothing was done" in answer.text) == (path, 409, True)
    assert await seeded.job_state(job.id) is JobState.DEAD_LETTER
    for number in ("0", "x", "-1", "9" * 40, str(2**63), "1%2F2", "²"):
        assert (await client.post(f"/jobs/{number}/retry", data={"csrf_token": token})).status_code == 404, number
    assert (await client.get(f"/jobs/{job.id}/retry")).status_code == 405


async def test_held_order_is_assessed_again_at_once(seeded: Any):
    client, token = await operator(seeded)
    assert f'action="/orders/{HELD}/retry"' in (await client.get("/waiting")).text
    answer = await client.post(f"/orders/{HELD}/retry", data={"csrf_token": token})
    assert answer.headers["location"] == f"/orders/{HELD}?flash=order-retried"
    look = await seeded.get_job(JobKind.FETCH_ORDER)
    assert (look.state, look.due_at) == (JobState.DUE, seeded.clock.now())


async def test_tripped_rule_is_reset_once(seeded: Any):
    client, token = await operator(seeded)
    assert "Release the rule" in (await client.get("/")).text
    answer = await client.post("/rules/line.specimen/release", data={"csrf_token": token})
    assert answer.headers["location"] == "/?flash=rule-released"
    shown = (await client.get("/?flash=rule-released")).text
    assert "The rule can reject orders again" in shown
    assert "Release the rule" not in shown
    assert (await client.post("/rules/line.specimen/release", data={"csrf_token": token})).status_code == 409
    assert (await client.post("/rules/no.such.rule/release", data={"csrf_token": token})).status_code == 409


async def test_page_echoes_nothing_from_the_url(seeded: Any):
    client = await seeded.signed_in_client(Role.VIEWER)
    for query in ("flash=<b>x</b>", "flash=retried&job=<b>x</b>", "flash=retried&job={0.__class__}"):
        text = (await client.get(f"/waiting?{query}")).text
        assert 'class="done"' not in text


CAUSE = "jobs.write_rejected"


async def add_rejected(pages: Any, number: int) -> None:
    """Uploads that the service rejected, all for the same cause."""

    def write(uow: Any) -> None:
        for each in range(number):
            name = f"rejected-{each}"
            uow.jobs.add(
                NewJob(kind=JobKind.UPDATE_LINE_TASK, dedup_key=name, ordering_key=name, target=name, order=None, due_at=NOW)
            )
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
        assert "60 jobs" in text
        assert 'title="60 waiting, for 1 cause">60<' in text
        assert "/waiting/all/" not in (await viewer.get(path)).text
    members = (await client.get(f"/waiting/members?cause={CAUSE}")).text
    assert members.count("the service rejected it (422)") == 50
    assert f'rel="next" href="/waiting/members?cause={CAUSE}&page=2"' in unescape(members)
    preview = (await client.get(f"/waiting/all/retry?cause={CAUSE}")).text
    assert "Retry all: 60 of 60?" in preview
    assert "60 × update_line_task" in preview
    assert await states(pages) == {JobState.DEAD_LETTER}
    answer = await client.post("/waiting/all/retry", data={"csrf_token": form_token(preview), "cause": CAUSE})
    assert (answer.status_code, answer.headers["location"]) == (303, "/waiting?flash=group-retry&done=60&left=0")
    assert "60 are due now" in (await client.get(answer.headers["location"])).text
    assert await states(pages) == {JobState.DUE}


async def test_all_are_dismissed_with_a_note_alone(pages: Any):
    await add_rejected(pages, 3)
    client = await pages.signed_in_client(Role.OPERATOR)
    form = {"csrf_token": form_token((await client.get(f"/waiting/all/dismiss?cause={CAUSE}")).text), "cause": CAUSE}
    for note, status, state in (
        ("", 422, JobState.DEAD_LETTER),
        ("sent by hand", 303, JobState.DISMISSED),
        ("again", 404, JobState.DISMISSED),
    ):
        assert (await client.post("/waiting/all/dismiss", data={**form, "note": note})).status_code == status
        assert await states(pages) == {state}


async def test_held_orders_are_assessed_again_together(seeded: Any):
    client = await seeded.signed_in_client(Role.OPERATOR)
    cause = "orders.held/order.contract-known"
    preview = (await client.get("/waiting/all/retry", params={"cause": cause})).text
    answer = await client.post("/waiting/all/retry", data={"csrf_token": form_token(preview), "cause": cause})
    assert answer.headers["location"] == "/waiting?flash=group-assess&done=1&left=0"
    assert (await seeded.get_job(JobKind.FETCH_ORDER, OrderKey("R0000000000HELD"))).due_at == NOW
    assert (await client.get("/waiting/all/release", params={"cause": cause})).status_code == 409


async def test_unknown_cause_is_not_found(pages: Any):
    client = await pages.signed_in_client(Role.OPERATOR)
    for cause in ("", "nonsense", "jobs.sign_in", "orders.held/<b>", "exchange.unavailable"):
        for path in ("/waiting/members", "/waiting/all/retry", "/waiting/all/explode"):
            answer = await client.get(path, params={"cause": cause})
            assert (cause, answer.status_code, "<b>" in answer.text) == (cause, 404, False)
    for age in ("0", "5", "6", "0009", "-1", "0" * 5000, "²", ""):
        assert (await client.get("/failures/members", params={"cause": CAUSE, "age": age})).status_code == 200, age
