"""What waits for one cause: one line, one button, and a page that says what the button does before it does it."""

from __future__ import annotations

from html import unescape
from typing import Any

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
