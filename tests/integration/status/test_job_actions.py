"""What an operator decides: done by the desk, told with the name, and only with a form of this page and this session."""

from __future__ import annotations

from typing import Any

import pytest

from lab_agent.accounts import Role
from lab_agent.domain.job_records import JobKind
from lab_agent.domain.state_machines import JobState

GOOD, HELD, DOUBT = "R0000000000GOOD", "R0000000000HELD", "R00000000DOUBT"


def form_token(html: str) -> str:
    return html.split('name="csrf_token" value="')[1].split('"', maxsplit=1)[0]


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
    answer = await client.post(f"/jobs/{job.id}/retry", data={"csrf_token": token})
    assert answer.status_code == 409
    assert await seeded.job_state(job.id) is JobState.NEEDS_REVIEW
    answer = await client.post(f"/orders/{DOUBT}/retry", data={"csrf_token": token})
    assert answer.status_code == 409
    assert await seeded.job_state(job.id) is JobState.NEEDS_REVIEW
    assert f'action="/orders/{DOUBT}/retry"' not in (await client.get(f"/orders/{DOUBT}")).text
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
    assert answer.status_code == 303
    assert answer.headers["location"].startswith("/waiting?flash=")
    assert await seeded.job_state(job.id) is state
    timeline = (await client.get(f"/orders/{GOOD}")).text
    assert "asked &lt;b&gt;the clinic&lt;/b&gt;" in timeline


async def test_self_verifying_job_cannot_be_marked_done(seeded: Any):
    """A job that can verify its own outcome cannot be marked done by hand."""
    client, token = await operator(seeded)
    job = await seeded.get_job(JobKind.DELIVER_REPORT)
    assert f"/jobs/{job.id}/done" not in (await client.get("/waiting")).text
    answer = await client.post(f"/jobs/{job.id}/done", data={"csrf_token": token, "note": "it is there"})
    assert answer.status_code == 409
    assert "Nothing was done" in answer.text
    assert await seeded.job_state(job.id) is JobState.DEAD_LETTER


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


async def test_action_on_settled_job_says_so(seeded: Any):
    """When somebody else has settled a job meanwhile, the page says so."""
    client, token = await operator(seeded)
    job = await seeded.get_job(JobKind.UPDATE_ORDER_TASK)
    answer = await client.post(f"/jobs/{job.id}/retry", data={"csrf_token": token})
    assert answer.status_code == 409
    assert "Nothing was done" in answer.text


ACTIONS = ("/jobs/{job}/retry", "/jobs/{job}/dismiss", "/jobs/{job}/done", f"/orders/{GOOD}/retry")


@pytest.mark.parametrize("path", [*ACTIONS, "/rules/line.specimen/release"])
async def test_action_needs_login_role_token_and_origin(seeded: Any, path: str):
    job = await seeded.get_job(JobKind.UPDATE_LINE_TASK)
    address = path.format(job=job.id)
    fields = {"note": "because", "confirmed": "yes"}
    before = [await seeded.context.queries.jobs(), (await seeded.context.queries.alerts()).items]

    answer = await seeded.new_client().post(address, data={**fields, "csrf_token": "x"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/sign-in")
    viewer, token = await operator(seeded, Role.VIEWER)
    answer = await viewer.post(address, data={**fields, "csrf_token": token})
    assert answer.status_code == 403
    assert "needs the role operator" in answer.text
    client, token = await operator(seeded)
    _, foreign = await operator(seeded)
    for wrong in ("", "x", foreign, "é"):
        assert (await client.post(address, data={**fields, "csrf_token": wrong})).status_code == 403
    good = {**fields, "csrf_token": token}
    for headers in ({"origin": "http://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"}):
        assert (await client.post(address, data=good, headers=headers)).status_code == 403
    assert (await client.get(address)).status_code == 405

    assert [await seeded.context.queries.jobs(), (await seeded.context.queries.alerts()).items] == before
    answer = await client.post(address, data=good, headers={"origin": "http://127.0.0.1:8481", "sec-fetch-site": "same-origin"})
    assert answer.status_code == 303


@pytest.mark.parametrize("number", ["0", "x", "-1", "9" * 40, str(2**63), "1%2F2", "²"])
async def test_action_on_unknown_job_returns_404(seeded: Any, number: str):
    client, token = await operator(seeded)
    assert (await client.post(f"/jobs/{number}/retry", data={"csrf_token": token})).status_code == 404


async def test_page_echoes_nothing_from_the_url(seeded: Any):
    client = await seeded.signed_in_client(Role.VIEWER)
    for query in ("flash=<b>x</b>", "flash=retried&job=<b>x</b>", "flash=retried&job={0.__class__}"):
        text = (await client.get(f"/waiting?{query}")).text
        assert 'class="done"' not in text
