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
from tests.harness import status_pages
from tests.harness.results import haemoglobin
from tests.integration.status.conftest import form_token


@pytest.fixture
async def pages(pages: Any) -> Any:
    await status_pages.add_orders(pages)
    return pages


async def form_of(client: Any, path: str, action: str) -> dict[str, str]:
    """The hidden fields of the form with this action."""
    text = (await client.get(path)).text
    (form,) = re.findall(rf'<form[^>]*action="{action}">(.*?)</form>', text, flags=re.DOTALL)
    return dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', form))


async def begin(page: Any, key: str, action: str) -> tuple[Any, dict[str, str]]:
    """An operator with the form of an action."""
    client = await page.signed_in_client(Role.OPERATOR)
    path = f"/results/{key}/match?order={status_pages.SUBMITTED_ORDER}" if action == "match" else f"/results/{key}"
    return client, await form_of(client, path, f"/results/{key}/{action}")


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
    """A line of another order is rejected, and any number of ticks is read."""
    key = await status_pages.unmatched_result(pages, documents=(), not_performed=())
    client, form = await begin(pages, key, "match")
    many = {f"line-L{number:015}": "yes" for number in range(300)}
    for strange in ({"line-W10": "yes"}, {"line-": "yes"}, {"line-\x00": "yes"}, many):
        answer = await client.post(f"/results/{key}/match", data={**form, "note": "n", **strange})
        assert (answer.status_code, "Nothing was done" in answer.text) == (409, True), list(strange)[:1]
    assert "has no line L000000000000000" in answer.text
    answer = await client.post(f"/results/{key}/match", data={**form, "order": "RNOBODY", "note": "n"})
    assert answer.status_code == 404
    assert (await status_pages.get_report(pages, key)).state is ReportState.UNMATCHED
    other = await status_pages.unmatched_result(pages, report_id="other", documents=(), not_performed=())
    form = await form_of(client, f"/results/{other}/match?order={status_pages.WITHDRAWN_ORDER}", f"/results/{other}/match")
    answer = await client.post(f"/results/{other}/match", data={**form, "note": "n"})
    assert answer.headers["location"] == f"/results/{other}?flash=result-held-back"
    shown = (await client.get(answer.headers["location"])).text
    assert [each for each in ("The result is still waiting", "the order is withdrawn") if each not in shown] == []
    _, form = await begin(pages, key, "match")
    assert (await client.post(f"/results/{key}/match", data={**form, "note": "n", "csrf_token": form_token(shown)})).is_redirect
    assert (await status_pages.get_report(pages, key)).lines == ("W00", "W01")


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
    for action in ("match", "release", "dismiss"):
        answer = await client.post(f"/results/{key}/{action}", data={**form, "note": " \n", "reviewed": "yes"})
        assert answer.status_code == 422, "each decision needs a note"
    answer = await client.post(f"/results/{key}/dismiss", data={**form, "note": "a test of the interface"})
    assert answer.headers["location"] == f"/results/{key}?flash=result-dismissed"
    shown = (await client.get(answer.headers["location"])).text
    assert "dismissed by operator: a test of the interface" in shown
    assert "/dismiss" not in shown
    assert (await status_pages.get_report(pages, key)).state is ReportState.DISMISSED


async def test_second_operator_is_told_of_first_decision(pages: Any):
    key = await status_pages.unmatched_result(pages, documents=(), not_performed=())
    first, form = await begin(pages, key, "match")
    late = [(action, await begin(pages, key, action)) for action in ("match", "release", "dismiss")]
    assert (await first.post(f"/results/{key}/match", data={**form, "note": "mine"})).status_code == 303
    pages.clock.advance(seconds=1)
    before = await status_pages.get_report(pages, key)
    for action, (second, other) in late:
        seen = {"changed_at": before.changed_at.isoformat()}
        for fields, told in (({}, "has changed since you opened its page"), (seen, "Nothing was done")):
            data = {**other, "note": "mine", "reviewed": "yes", **fields}
            answer = await second.post(f"/results/{key}/{action}", data=data)
            assert (action, answer.status_code, told in answer.text) == (action, 409, True)
    assert await status_pages.get_report(pages, key) == before


async def test_concurrent_decisions_have_one_winner(pages: Any):
    key = await status_pages.unmatched_result(pages)
    both = [await begin(pages, key, "dismiss") for _ in range(2)]
    notes = ("mine", "mine, too")
    sent = (c.post(f"/results/{key}/dismiss", data={**form, "note": n}) for (c, form), n in zip(both, notes, strict=True))
    assert sorted(answer.status_code for answer in await asyncio.gather(*sent)) == [303, 409]
    assert (await pages.read(f"/results/{key}")).count("it is dismissed now") == 1


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


async def test_malformed_keys_and_fields_never_break_an_action(pages: Any):
    key = await status_pages.unmatched_result(pages, documents=(), not_performed=())
    client, form = await begin(pages, key, "match")
    for unknown in ("PNOBODY", "%00", "%ff%fe", "P%2F1", "a" * 3000):
        for action in ("match", "release", "dismiss"):
            data = {**form, "note": "n", "reviewed": "yes", "order": status_pages.SUBMITTED_ORDER, "changed_at": "x"}
            assert (await client.post(f"/results/{unknown}/{action}", data=data)).status_code == 404, (unknown, action)
    for odd in ("", "\x00", "\ud7ff\uffff", "👩‍🔬" * 50, "%s{0}", "-1", "2026-13-45T99:99", "9" * 4000):
        for name in ("changed_at", "order", f"line-{odd}", "note"):
            answer = await client.post(f"/results/{key}/match", data={"note": "n", **form, name: odd})
            assert answer.status_code in {303, 404, 409, 413, 422}, (name, odd)
    kind = {"content-type": "application/x-www-form-urlencoded"}
    assert (await client.post(f"/results/{key}/match", content=b"note=%ff&order=\xff", headers=kind)).status_code == 400
