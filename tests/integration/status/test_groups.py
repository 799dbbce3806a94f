"""What waits for one cause: one line, one button, and a page that says what the button does before it does it."""

from __future__ import annotations

from html import unescape
from typing import Any

import pytest

from lab_agent.accounts import Role
from lab_agent.domain.failure_causes import FailureCause
from lab_agent.domain.ids import OrderKey
from lab_agent.domain.job_records import JobKind, NewJob
from lab_agent.domain.state_machines import JobState
from tests.integration.status.conftest import NOW, form_token

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
    await add_rejected(pages, 120)
    client, viewer = [await pages.signed_in_client(role) for role in (Role.OPERATOR, Role.VIEWER)]
    for path in ("/", "/waiting"):
        text = (await client.get(path)).text
        assert text.count(f'href="/waiting/all/retry?cause={CAUSE}"') == 1
        assert "120 jobs" in text
        assert 'title="120 waiting, for 1 cause">120<' in text
        assert "/waiting/all/" not in (await viewer.get(path)).text
    members = (await client.get(f"/waiting/members?cause={CAUSE}")).text
    assert members.count("the service rejected it (422)") == 50
    assert f'rel="next" href="/waiting/members?cause={CAUSE}&page=2"' in unescape(members)


async def test_all_are_retried_after_saying_what_that_does(pages: Any):
    await add_rejected(pages, 8)
    client = await pages.signed_in_client(Role.OPERATOR)
    preview = (await client.get(f"/waiting/all/retry?cause={CAUSE}")).text
    assert "Retry all: 8 of 8?" in preview
    assert "8 × update_line_task" in preview
    assert await states(pages) == {JobState.DEAD_LETTER}, "nothing is done before the form is sent"
    answer = await client.post("/waiting/all/retry", data={"csrf_token": form_token(preview), "cause": CAUSE})
    assert (answer.status_code, answer.headers["location"]) == (303, "/waiting?flash=group-retry&done=8&left=0")
    assert "8 are due now" in (await client.get(answer.headers["location"])).text
    assert await states(pages) == {JobState.DUE}


async def test_all_are_dismissed_with_a_note_alone(pages: Any):
    await add_rejected(pages, 3)
    client = await pages.signed_in_client(Role.OPERATOR)
    form = {"csrf_token": form_token((await client.get(f"/waiting/all/dismiss?cause={CAUSE}")).text), "cause": CAUSE}
    assert (await client.post("/waiting/all/dismiss", data=form)).status_code == 422
    assert await states(pages) == {JobState.DEAD_LETTER}
    assert (await client.post("/waiting/all/dismiss", data={**form, "note": "sent by hand"})).status_code == 303
    assert await states(pages) == {JobState.DISMISSED}
    assert (await client.post("/waiting/all/dismiss", data={**form, "note": "again"})).status_code == 404


async def test_held_orders_are_assessed_again_together(seeded: Any):
    client = await seeded.signed_in_client(Role.OPERATOR)
    cause = "orders.held/order.contract-known"
    preview = (await client.get("/waiting/all/retry", params={"cause": cause})).text
    answer = await client.post("/waiting/all/retry", data={"csrf_token": form_token(preview), "cause": cause})
    assert answer.headers["location"] == "/waiting?flash=group-assess&done=1&left=0"
    assert (await seeded.get_job(JobKind.FETCH_ORDER, OrderKey("R0000000000HELD"))).due_at == NOW
    assert (await client.get("/waiting/all/release", params={"cause": cause})).status_code == 409


@pytest.mark.parametrize("cause", ["", "nonsense", "jobs.sign_in", "orders.held/<b>", "exchange.unavailable"])
async def test_unknown_cause_is_not_found(pages: Any, cause: str):
    client = await pages.signed_in_client(Role.OPERATOR)
    for path in ("/waiting/members", "/waiting/all/retry", "/waiting/all/explode"):
        answer = await client.get(path, params={"cause": cause})
        assert answer.status_code == 404
        assert "<b>" not in answer.text


async def test_group_action_needs_role_and_token(pages: Any):
    await add_rejected(pages, 2)
    viewer, client = [await pages.signed_in_client(role) for role in (Role.VIEWER, Role.OPERATOR)]
    token = form_token((await viewer.get("/")).text)
    assert (await viewer.get(f"/waiting/all/retry?cause={CAUSE}")).status_code == 403
    assert (await viewer.post("/waiting/all/retry", data={"csrf_token": token, "cause": CAUSE})).status_code == 403
    assert (await client.post("/waiting/all/retry", data={"csrf_token": token, "cause": CAUSE})).status_code == 403
    assert await states(pages) == {JobState.DEAD_LETTER}


@pytest.mark.parametrize("age", ["0", "5", "6", "0009", "-1", "0" * 5000, "²", ""])
async def test_any_age_in_the_address_is_answered(pages: Any, age: str):
    client = await pages.signed_in_client(Role.VIEWER)
    assert (await client.get("/failures/members", params={"cause": CAUSE, "age": age})).status_code == 200
