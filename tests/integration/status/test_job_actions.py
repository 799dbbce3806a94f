"""What an operator decides: done by the desk, told with the name, and only with a form of this page and this session."""

from __future__ import annotations

from typing import Any

import pytest

from lab_agent.accounts import Role
from lab_agent.domain.records import JobKind
from lab_agent.domain.state_machines import JobState

GOOD, HELD, DOUBT = "R0000000000GOOD", "R0000000000HELD", "R00000000DOUBT"


def form_token(html: str) -> str:
    return html.split('name="token" value="')[1].split('"', maxsplit=1)[0]


async def operator(page: Any, role: Role = Role.OPERATOR) -> tuple[Any, str]:
    client = await page.signed_in_client(role)
    return client, form_token((await client.get("/waiting")).text)


async def test_retry_makes_job_due_and_records_operator(seeded: Any):
    client, token = await operator(seeded)
    job = await seeded.get_job(JobKind.DELIVER_REPORT)
    answer = await client.post(f"/jobs/{job.id}/retry", data={"token": token, "on": "order"})
    assert answer.status_code == 303
    assert answer.headers["location"] == f"/orders/{GOOD}?did=retried&effect={job.id}"
    changed = await seeded.context.views.get_job(job.id)
    assert (changed.job_state, changed.attempts) == (JobState.DUE, 0)
    shown = (await client.get(answer.headers["location"])).text
    assert f"Effect {job.id} is due now" in shown
    assert f"deliver (effect {job.id}) retried" in shown
    assert "by operator" in shown


async def test_doubtful_submit_is_repeated_only_with_confirmation(seeded: Any):
    """An order whose handover is in doubt is submitted again only after an operator confirms."""
    client, token = await operator(seeded)
    job = await seeded.get_job(JobKind.SUBMIT_ORDER)
    assert "AGAIN: only if it is certain" in (await client.get("/waiting")).text
    answer = await client.post(f"/jobs/{job.id}/retry", data={"token": token})
    assert answer.status_code == 409
    assert await seeded.job_state(job.id) is JobState.NEEDS_REVIEW
    answer = await client.post(f"/orders/{DOUBT}/retry", data={"token": token})
    assert answer.status_code == 409
    assert await seeded.job_state(job.id) is JobState.NEEDS_REVIEW
    assert f'action="/orders/{DOUBT}/retry"' not in (await client.get(f"/orders/{DOUBT}")).text
    answer = await client.post(f"/jobs/{job.id}/retry", data={"token": token, "sure": "yes"})
    assert answer.status_code == 303
    assert await seeded.job_state(job.id) is JobState.DUE


@pytest.mark.parametrize(("deed", "state"), [("dismiss", JobState.DISMISSED), ("done", JobState.DONE)])
async def test_marking_done_needs_a_note(seeded: Any, deed: str, state: JobState):
    client, token = await operator(seeded)
    job = await seeded.get_job(JobKind.UPDATE_LINE_TASK)
    for note in ("", "  \n ", "x" * 501):
        answer = await client.post(f"/jobs/{job.id}/{deed}", data={"token": token, "note": note})
        assert answer.status_code == 422
    assert await seeded.job_state(job.id) is JobState.DEAD_LETTER
    answer = await client.post(f"/jobs/{job.id}/{deed}", data={"token": token, "note": "asked <b>the clinic</b>"})
    assert answer.status_code == 303
    assert answer.headers["location"].startswith("/waiting?did=")
    assert await seeded.job_state(job.id) is state
    timeline = (await client.get(f"/orders/{GOOD}")).text
    assert "asked &lt;b&gt;the clinic&lt;/b&gt;" in timeline


async def test_self_verifying_job_cannot_be_marked_done(seeded: Any):
    """A job that can verify its own outcome cannot be marked done by hand."""
    client, token = await operator(seeded)
    job = await seeded.get_job(JobKind.DELIVER_REPORT)
    assert f"/jobs/{job.id}/done" not in (await client.get("/waiting")).text
    answer = await client.post(f"/jobs/{job.id}/done", data={"token": token, "note": "it is there"})
    assert answer.status_code == 409
    assert "deliver cannot be marked done" in answer.text
    assert await seeded.job_state(job.id) is JobState.DEAD_LETTER


async def test_held_order_is_assessed_again_at_once(seeded: Any):
    client, token = await operator(seeded)
    assert "fetches and judges the order now" in (await client.get("/waiting")).text
    answer = await client.post(f"/orders/{HELD}/retry", data={"token": token})
    assert answer.headers["location"] == f"/orders/{HELD}?did=order"
    look = await seeded.get_job(JobKind.FETCH_ORDER)
    assert (look.job_state, look.due_at) == (JobState.DUE, seeded.clock.now())


async def test_tripped_rule_is_reset_once(seeded: Any):
    client, token = await operator(seeded)
    assert "Release the rule" in (await client.get("/")).text
    answer = await client.post("/rules/line.specimen/release", data={"token": token})
    assert answer.headers["location"] == "/?did=released"
    shown = (await client.get("/?did=released")).text
    assert "The rule may refuse again" in shown
    assert "Release the rule" not in shown
    assert (await client.post("/rules/line.specimen/release", data={"token": token})).status_code == 409
    assert (await client.post("/rules/no.such.rule/release", data={"token": token})).status_code == 409


async def test_action_on_settled_job_says_so(seeded: Any):
    """When somebody else has settled a job meanwhile, the page says so."""
    client, token = await operator(seeded)
    job = await seeded.get_job(JobKind.UPDATE_ORDER_TASK)
    answer = await client.post(f"/jobs/{job.id}/retry", data={"token": token})
    assert answer.status_code == 409
    assert f"effect {job.id} is done" in answer.text


DEEDS = ("/jobs/{effect}/retry", "/jobs/{effect}/dismiss", "/jobs/{effect}/done", f"/orders/{GOOD}/retry")


@pytest.mark.parametrize("path", [*DEEDS, "/rules/line.specimen/release"])
async def test_action_needs_login_role_token_and_origin(seeded: Any, path: str):
    job = await seeded.get_job(JobKind.UPDATE_LINE_TASK)
    address = path.format(effect=job.id)
    fields = {"note": "because", "sure": "yes"}
    before = [await seeded.context.views.jobs(), (await seeded.context.views.alerts()).items]

    answer = await seeded.new_client().post(address, data={**fields, "token": "x"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/sign-in")
    viewer, token = await operator(seeded, Role.VIEWER)
    answer = await viewer.post(address, data={**fields, "token": token})
    assert answer.status_code == 403
    assert "this needs operator" in answer.text
    client, token = await operator(seeded)
    _, foreign = await operator(seeded)
    for wrong in ("", "x", foreign, "é"):
        assert (await client.post(address, data={**fields, "token": wrong})).status_code == 403
    good = {**fields, "token": token}
    for headers in ({"origin": "http://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"}):
        assert (await client.post(address, data=good, headers=headers)).status_code == 403
    assert (await client.get(address)).status_code == 405

    assert [await seeded.context.views.jobs(), (await seeded.context.views.alerts()).items] == before
    answer = await client.post(address, data=good, headers={"origin": "http://127.0.0.1:8481", "sec-fetch-site": "same-origin"})
    assert answer.status_code == 303


@pytest.mark.parametrize("number", ["0", "x", "-1", "9" * 40, str(2**63), "1%2F2", "²"])
async def test_action_on_unknown_job_returns_404(seeded: Any, number: str):
    client, token = await operator(seeded)
    assert (await client.post(f"/jobs/{number}/retry", data={"token": token})).status_code == 404


async def test_page_echoes_nothing_from_the_url(seeded: Any):
    client = await seeded.signed_in_client(Role.VIEWER)
    for query in ("did=<b>x</b>", "did=retried&effect=<b>x</b>", "did=retried&effect={0.__class__}"):
        text = (await client.get(f"/waiting?{query}")).text
        assert 'class="done"' not in text
