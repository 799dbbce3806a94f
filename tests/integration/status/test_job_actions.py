"""What an operator decides: done by the desk, told with the name, and only with a form of this page and this session."""

from __future__ import annotations

from typing import Any

import pytest

from lab_agent.accounts import Role
from lab_agent.domain.job_records import JobKind
from lab_agent.domain.state_machines import JobState
from tests.integration.status.conftest import GOOD, HELD, UNCERTAIN, form_token


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
