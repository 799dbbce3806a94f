"""What an operator decides at the match desk: done once, told with the name, and about the result as it was seen."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from lab_agent.accounts import Role
from lab_agent.domain.ids import ReportKey
from lab_agent.domain.job_records import JobKind
from lab_agent.domain.state_machines import JobState, ReportState
from lab_agent.workflow.result_inbox import StoreInbox
from tests.harness import status_pages
from tests.harness.results import haemoglobin


@pytest.fixture
async def pages(pages: Any) -> Any:
    await status_pages.add_orders(pages)
    return pages


async def form_of(client: Any, path: str, action: str) -> dict[str, str]:
    """The hidden fields of the form with this action."""
    text = (await client.get(path)).text
    (form,) = re.findall(rf'<form[^>]*action="{action}">(.*?)</form>', text, flags=re.DOTALL)
    return dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', form))


async def begin(page: Any, key: str, action: str, query: str = "") -> tuple[Any, dict[str, str]]:
    """An operator with the form of a action."""
    client = await page.signed_in_client(Role.OPERATOR)
    at = f"/results/{key}/match?order={status_pages.SUBMITTED_ORDER}" if action == "match" else f"/results/{key}"
    return client, await form_of(client, at + query, f"/results/{key}/{action}")


async def test_unmatched_report_is_matched_to_order_lines(pages: Any):
    key = await status_pages.unmatched_result(pages, documents=(), not_performed=())
    client, form = await begin(pages, key, "match")
    answer = await client.post(f"/results/{key}/match", data={**form, "note": "read on the <b>paper</b>", "line-W00": "yes"})
    assert (answer.status_code, answer.headers["location"]) == (303, f"/results/{key}?flash=result-matched")
    report = await status_pages.get_report(pages, key)
    assert (report.state, report.order, report.lines) == (ReportState.MATCHED, status_pages.SUBMITTED_ORDER, ("W00",))
    shown = (await client.get(answer.headers["location"])).text
    assert "The result is matched; the worker delivers it within seconds." in shown
    assert "(read on the &lt;b&gt;paper&lt;/b&gt;)" in shown
    assert "by operator" in shown
    assert (await pages.get_job(JobKind.DELIVER_REPORT, status_pages.SUBMITTED_ORDER)).target == key


async def test_match_without_lines_means_whole_order(pages: Any):
    """Without a tick the whole order is meant; a line of another order is rejected."""
    key = await status_pages.unmatched_result(pages, documents=(), not_performed=())
    client, form = await begin(pages, key, "match")
    for strange in ("line-W10", "line-", "line-\x00"):
        answer = await client.post(f"/results/{key}/match", data={**form, "note": "n", strange: "yes"})
        assert answer.status_code == 409
        assert "Nothing was done" in answer.text
    answer = await client.post(f"/results/{key}/match", data={**form, "order": "RNOBODY", "note": "n"})
    assert answer.status_code == 404
    assert (await status_pages.get_report(pages, key)).state is ReportState.UNMATCHED
    assert (await client.post(f"/results/{key}/match", data={**form, "note": "n"})).status_code == 303
    assert (await status_pages.get_report(pages, key)).lines == ("W00", "W01")


async def test_match_that_changes_nothing_says_still_waiting(pages: Any):
    key = await status_pages.unmatched_result(pages, documents=(), not_performed=())
    client, form = await begin(pages, key, "match")
    answer = await client.post(f"/results/{key}/match", data={**form, "order": status_pages.WITHDRAWN_ORDER, "note": "n"})
    assert answer.headers["location"] == f"/results/{key}?flash=result-held-back"
    shown = (await client.get(answer.headers["location"])).text
    assert "The result is still waiting" in shown
    assert "the order is withdrawn" in shown


async def test_late_report_is_released_after_confirmation(pages: Any):
    key = await status_pages.late_result(pages)
    client, form = await begin(pages, key, "release")
    answer = await client.post(f"/results/{key}/release", data={**form, "note": "the clinic asked"})
    assert answer.status_code == 409
    assert "tick the box" in answer.text
    assert (await status_pages.get_report(pages, key)).state is ReportState.HELD
    answer = await client.post(f"/results/{key}/release", data={**form, "note": "the clinic asked", "reviewed": "yes"})
    assert answer.headers["location"] == f"/results/{key}?flash=result-matched"
    assert (await status_pages.get_report(pages, key)).state is ReportState.MATCHED
    timeline = (await client.get(f"/orders/{status_pages.WITHDRAWN_ORDER}")).text
    assert "(the clinic asked)" in timeline


async def test_dismissed_report_shows_operator_and_reason(pages: Any):
    key = await status_pages.unmatched_result(pages)
    client, form = await begin(pages, key, "dismiss")
    answer = await client.post(f"/results/{key}/dismiss", data={**form, "note": "a test of the interface"})
    assert answer.headers["location"] == f"/results/{key}?flash=result-dismissed"
    shown = (await client.get(answer.headers["location"])).text
    assert "dismissed by operator: a test of the interface" in shown
    assert "/dismiss" not in shown
    assert (await status_pages.get_report(pages, key)).state is ReportState.DISMISSED


@pytest.mark.parametrize("action", ["match", "release", "dismiss"])
@pytest.mark.parametrize("note", ["", "  \n ", "x" * 501])
async def test_every_decision_needs_a_note(pages: Any, action: str, note: str):
    key = await status_pages.unmatched_result(pages)
    client, form = await begin(pages, key, action)
    answer = await client.post(f"/results/{key}/{action}", data={**form, "note": note, "reviewed": "yes"})
    assert answer.status_code == 422
    assert (await status_pages.get_report(pages, key)).state is ReportState.UNMATCHED


@pytest.mark.parametrize("action", ["match", "release", "dismiss"])
async def test_second_operator_is_told_of_first_decision(pages: Any, action: str):
    key = await status_pages.unmatched_result(pages, documents=(), not_performed=())
    first, form = await begin(pages, key, "match")
    second, other = await begin(pages, key, action)
    assert (await first.post(f"/results/{key}/match", data={**form, "note": "mine"})).status_code == 303
    pages.clock.advance(seconds=1)
    before = await status_pages.get_report(pages, key)
    answer = await second.post(f"/results/{key}/{action}", data={**other, "note": "mine", "reviewed": "yes"})
    assert answer.status_code == 409
    assert "has changed since you opened its page" in answer.text
    answer = await second.post(
        f"/results/{key}/{action}", data={**other, "changed_at": before.changed_at.isoformat(), "note": "n", "reviewed": "yes"}
    )
    assert answer.status_code == 409
    assert "Nothing was done" in answer.text
    assert await status_pages.get_report(pages, key) == before


async def test_concurrent_decisions_have_one_winner(pages: Any):
    key = await status_pages.unmatched_result(pages)
    first, form = await begin(pages, key, "dismiss")
    second, other = await begin(pages, key, "dismiss")
    answers = await asyncio.gather(
        first.post(f"/results/{key}/dismiss", data={**form, "note": "mine"}),
        second.post(f"/results/{key}/dismiss", data={**other, "note": "mine, too"}),
    )
    assert sorted(answer.status_code for answer in answers) == [303, 409]
    assert (await client_text(first, f"/results/{key}")).count("it is dismissed now") == 1


async def client_text(client: Any, path: str) -> str:
    return str((await client.get(path)).text)


async def test_decision_on_changed_report_asks_again(pages: Any):
    """The report still waits, but for another reason, so the decision was about something else."""
    key = await status_pages.unmatched_result(pages, documents=(), not_performed=())
    client, form = await begin(pages, key, "release")
    pages.clock.advance(minutes=1)
    other, match = await begin(pages, key, "match")
    await other.post(f"/results/{key}/match", data={**match, "order": status_pages.WITHDRAWN_ORDER, "note": "n"})
    answer = await client.post(f"/results/{key}/release", data={**form, "note": "n", "reviewed": "yes"})
    assert answer.status_code == 409
    assert (await status_pages.get_report(pages, key)).state is ReportState.HELD


def dead_letter_deliveries(uow: Any, now: Any) -> None:
    """They share one ordering key: each is dead-lettered before the next can be claimed."""
    while claimed := uow.jobs.claim({frozenset([JobKind.DELIVER_REPORT]): 9}, owner="w", now=now, lease=timedelta(minutes=1)):
        for each in claimed:
            uow.jobs.save(each.dead_letter(now, "rejected (422)"))


async def test_dead_lettered_delivery_is_retried_or_dismissed(pages: Any):
    """A dead-lettered delivery is retried, or dismissed with its report."""
    keys = [
        await status_pages.receive_message(
            pages,
            name,
            status_pages.report_now(pages, haemoglobin("1"), report_id=name, order=status_pages.SUBMITTED_ORDER, lines=("W00",)),
        )
        for name in "ab"
    ]
    await pages.write(lambda uow: dead_letter_deliveries(uow, pages.clock.now()))
    client, form = await begin(pages, keys[0], "dismiss")
    shown = (await client.get(f"/results/{keys[0]}")).text
    assert "rejected (422)" in shown
    assert "not on its way" in shown
    assert "on its way to the service" not in shown
    assert f'action="/results/{keys[0]}/release"' not in shown
    assert (await client.post(f"/results/{keys[0]}/dismiss", data={**form, "note": "wrong"})).status_code == 303
    assert (await status_pages.get_report(pages, keys[0])).state is ReportState.DISMISSED
    (job,) = [each for each in (await pages.context.queries.jobs(kinds=[JobKind.DELIVER_REPORT])).items if each.target == keys[1]]
    answer = await client.post(f"/jobs/{job.id}/retry", data={"csrf_token": form["csrf_token"], "return_to": "result"})
    assert answer.headers["location"] == f"/results/{keys[1]}?flash=retried&job={job.id}"
    assert await pages.job_state(job.id) is JobState.DUE
    assert f"Job {job.id} is due now" in (await client.get(answer.headers["location"])).text


@pytest.fixture
def folder(pages: Any, tmp_path: Path) -> Path:
    """Where the page's own mapping tables lie."""
    return status_pages.use_mappings(pages, tmp_path / "mappings")


@pytest.fixture
async def keys(pages: Any, folder: Path) -> list[ReportKey]:
    """Two results whose codes the tables lack."""
    return [await status_pages.unmapped_result(pages, "glu", "GLU9"), await status_pages.unmapped_result(pages, "kal", "KAL9")]


def correct_mapping(folder: Path, row: str = "GLU9,2345-7,Glucose,\n") -> None:
    with (folder / "codes.csv").open("a") as table:
        table.write(row)


async def test_mapping_release_follows_a_preview(pages: Any, folder: Path, keys: list[ReportKey]):
    """Reports that the current mapping tables complete are released after a preview."""
    client = await pages.signed_in_client(Role.OPERATOR)
    assert "2 unmapped" in (await client.get("/results")).text
    assert 'Would be released <span class="quiet">0<' in (await client.get("/results/mended")).text
    correct_mapping(folder)
    shown = (await client.get("/results/mended")).text
    assert "Release 1 result" in shown
    assert shown.index("glu") < shown.index("Would stay") < shown.index("kal")
    assert [(await status_pages.get_report(pages, key)).state for key in keys] == [ReportState.UNMAPPED] * 2
    form = await form_of(client, "/results/mended", "/results/mended")
    answer = await client.post("/results/mended", data=form)
    assert (answer.status_code, answer.headers["location"]) == (303, "/results?flash=mappings-released")
    assert [(await status_pages.get_report(pages, key)).state for key in keys] == [ReportState.MATCHED, ReportState.UNMAPPED]
    assert "what is still waiting is listed here" in (await client.get(answer.headers["location"])).text
    assert "by operator" in (await client.get(f"/results/{keys[0]}")).text


async def test_mapping_changed_after_preview_previews_again(pages: Any, folder: Path, keys: list[ReportKey]):
    correct_mapping(folder)
    client = await pages.signed_in_client(Role.OPERATOR)
    form = await form_of(client, "/results/mended", "/results/mended")
    correct_mapping(folder, "KAL9,6298-4,Potassium,\n")
    assert (await client.post("/results/mended", data=form)).status_code == 409
    (folder / "codes.csv").write_text("nonsense\n")
    assert (await client.post("/results/mended", data=form)).status_code == 409
    assert [(await status_pages.get_report(pages, key)).state for key in keys] == [ReportState.UNMAPPED] * 2
    assert "cannot be read" in (await client.get("/results/mended")).text


async def test_single_report_is_retried_with_current_mappings(pages: Any, folder: Path, keys: list[ReportKey]):
    correct_mapping(folder)
    client, form = await begin(pages, keys[0], "release")
    data = {**form, "note": "mended", "reviewed": "yes"}
    assert (await client.post(f"/results/{keys[0]}/release", data=data)).headers["location"].endswith("result-matched")


ACTIONS = (
    "/results/{key}/match",
    "/results/{key}/release",
    "/results/{key}/dismiss",
    "/results/mended",
)


@pytest.mark.parametrize("path", ACTIONS)
async def test_action_needs_login_role_token_and_origin(pages: Any, path: str, folder: Path):
    key = await status_pages.unmatched_result(pages, documents=(), not_performed=())
    await status_pages.unmapped_result(pages, "glu", "GLU9")
    correct_mapping(folder)
    await StoreInbox(pages.context.store, pages.clock, "folder").reject("a", "no value")
    client = await pages.signed_in_client(Role.OPERATOR)
    preview = await form_of(client, "/results/mended", "/results/mended")
    seen = (await status_pages.get_report(pages, key)).changed_at.isoformat()
    fields = {
        "note": "n",
        "reviewed": "yes",
        "order": status_pages.SUBMITTED_ORDER,
        "source": "folder",
        "expected_count": "1",
        "changed_at": seen,
    }
    fields["preview_digest"] = preview["preview_digest"]
    address = path.format(key=key)
    before = [(await pages.context.queries.reports()).items, (await pages.context.queries.alerts()).items]

    answer = await pages.new_client().post(address, data={**fields, "csrf_token": "x"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/sign-in")
    viewer = await pages.signed_in_client(Role.VIEWER)
    token = (await form_of(viewer, "/results", "/sign-out"))["csrf_token"]
    answer = await viewer.post(address, data={**fields, "csrf_token": token})
    assert answer.status_code == 403
    assert "needs the role operator" in answer.text
    for wrong in ("", "x", token, "é"):
        assert (await client.post(address, data={**fields, "csrf_token": wrong})).status_code == 403
    good = {**fields, "csrf_token": preview["csrf_token"]}
    for headers in ({"origin": "http://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"}):
        assert (await client.post(address, data=good, headers=headers)).status_code == 403

    assert [(await pages.context.queries.reports()).items, (await pages.context.queries.alerts()).items] == before
    assert (await client.post(address, data=good)).status_code == 303


@pytest.mark.parametrize("key", ["PNOBODY", "%00", "%ff%fe", "P%2F1", "a" * 3000])
@pytest.mark.parametrize("action", ["match", "release", "dismiss"])
async def test_action_on_unknown_report_returns_404(pages: Any, key: str, action: str):
    client = await pages.signed_in_client(Role.OPERATOR)
    token = (await form_of(client, "/results", "/sign-out"))["csrf_token"]
    data = {"csrf_token": token, "note": "n", "reviewed": "yes", "order": status_pages.SUBMITTED_ORDER, "changed_at": "x"}
    assert (await client.post(f"/results/{key}/{action}", data=data)).status_code == 404


ODD = ("", "\x00", "\ud7ff\uffff", "👩‍🔬" * 50, "%s{0}", "-1", "2026-13-45T99:99", "9" * 4000)


@pytest.mark.parametrize("odd", ODD)
async def test_malformed_fields_never_break_an_action(pages: Any, odd: str):
    key = await status_pages.unmatched_result(pages, documents=(), not_performed=())
    client, form = await begin(pages, key, "match")
    for name in ("changed_at", "order", "note", f"line-{odd}"):
        answer = await client.post(f"/results/{key}/match", data={"note": "n", **form, name: odd})
        assert answer.status_code in {303, 404, 409, 413, 422}
    raw = await client.post(
        f"/results/{key}/match", content=b"note=%ff&order=\xff", headers={"content-type": "application/x-www-form-urlencoded"}
    )
    assert raw.status_code == 400


async def test_order_of_many_lines_can_be_selected_whole(pages: Any):
    key = await status_pages.unmatched_result(pages, documents=(), not_performed=())
    client, form = await begin(pages, key, "match")
    ticks = {f"line-L{number:015}": "yes" for number in range(300)}
    answer = await client.post(f"/results/{key}/match", data={**form, "note": "n", **ticks})
    assert answer.status_code == 409
    assert "has no line L000000000000000" in answer.text
