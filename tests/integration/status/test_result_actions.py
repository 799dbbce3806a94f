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


async def state_of(pages: Any, *keys: str) -> list[ReportState]:
    return [(await status_pages.get_report(pages, ReportKey(key))).state for key in keys]


async def begin(page: Any, key: str, action: str) -> tuple[Any, dict[str, str]]:
    """An operator with the form of an action."""
    client = await page.signed_in_client(Role.OPERATOR)
    path = f"/results/{key}/match?order={status_pages.SUBMITTED_ORDER}" if action == "match" else f"/results/{key}"
    return client, await form_of(client, path, f"/results/{key}/{action}")


async def test_unmatched_report_is_matched_to_order_lines(pages: Any):
    """Only once: whoever opened the page before is told."""
    key = await status_pages.unmatched_result(pages, documents=(), not_performed=())
    client, form = await begin(pages, key, "match")
    late = [(action, await begin(pages, key, action)) for action in ("match", "release", "dismiss")]
    answer = await client.post(f"/results/{key}/match", data={**form, "note": "read on the <b>paper</b>", "line-W00": "yes"})
    assert (answer.status_code, answer.headers["location"]) == (303, f"/results/{key}?flash=result-matched")
    report = await status_pages.get_report(pages, key)
    assert (report.state, report.order, report.lines) == (ReportState.MATCHED, status_pages.SUBMITTED_ORDER, ("W00",))
    shown = (await client.get(answer.headers["location"])).text
    for told in ("The result is matched", "(read on the &lt;b&gt;paper&lt;/b&gt;)", "by operator"):
        assert told in shown
    assert (await pages.get_job(JobKind.DELIVER_REPORT, status_pages.SUBMITTED_ORDER)).target == key
    pages.clock.advance(seconds=1)
    for action, (second, other) in late:
        seen = {"changed_at": report.changed_at.isoformat()}
        for fields, told in (({}, "has changed since you opened its page"), (seen, "Nothing was done")):
            data = {**other, "note": "mine", "reviewed": "yes", **fields}
            answer = await second.post(f"/results/{key}/{action}", data=data)
            assert (action, answer.status_code, told in answer.text) == (action, 409, True)
    assert await status_pages.get_report(pages, key) == report


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
    assert (answer.status_code, "tick the box" in answer.text) == (409, True)
    assert await state_of(pages, key) == [ReportState.HELD]
    answer = await client.post(f"/results/{key}/release", data={**form, "note": "the clinic asked", "reviewed": "yes"})
    assert answer.headers["location"] == f"/results/{key}?flash=result-matched"
    assert await state_of(pages, key) == [ReportState.MATCHED]
    assert "(the clinic asked)" in await pages.read(f"/orders/{status_pages.WITHDRAWN_ORDER}")


async def test_dismissed_report_shows_operator_and_reason(pages: Any):
    """Each decision needs a note."""
    key = await status_pages.unmatched_result(pages)
    client, form = await begin(pages, key, "dismiss")
    for action in ("match", "release", "dismiss"):
        answer = await client.post(f"/results/{key}/{action}", data={**form, "note": " \n", "reviewed": "yes"})
        assert answer.status_code == 422
    answer = await client.post(f"/results/{key}/dismiss", data={**form, "note": "a test of the interface"})
    assert answer.headers["location"] == f"/results/{key}?flash=result-dismissed"
    shown = (await client.get(answer.headers["location"])).text
    assert ("dismissed by operator: a test of the interface" in shown, "/dismiss" in shown) == (True, False)
    assert await state_of(pages, key) == [ReportState.DISMISSED]


async def test_concurrent_decisions_have_one_winner(pages: Any):
    key = await status_pages.unmatched_result(pages)
    both = [await begin(pages, key, "dismiss") for _ in range(2)]
    sent = [client.post(f"/results/{key}/dismiss", data={**form, "note": "mine"}) for client, form in both]
    assert sorted(answer.status_code for answer in await asyncio.gather(*sent)) == [303, 409]
    assert (await pages.read(f"/results/{key}")).count("it is dismissed now") == 1


async def test_dead_lettered_delivery_is_retried(pages: Any):
    report = status_pages.report_now(pages, haemoglobin("1"), report_id="a", order=status_pages.SUBMITTED_ORDER, lines=("W00",))
    key = await status_pages.receive_message(pages, "a", report)
    now = pages.clock.now()

    def fail(uow: Any) -> None:
        (job,) = uow.jobs.claim({frozenset([JobKind.DELIVER_REPORT]): 9}, owner="w", now=now, lease=timedelta(minutes=1))
        uow.jobs.save(job.dead_letter(now, "rejected (422)"))

    await pages.write(fail)
    client, form = await begin(pages, key, "dismiss")
    shown = (await client.get(f"/results/{key}")).text
    assert [each for each in ("rejected (422)", "not on its way") if each not in shown] == []
    assert [each for each in ("on its way to the service", f'action="/results/{key}/release"') if each in shown] == []
    job = await pages.get_job(JobKind.DELIVER_REPORT)
    answer = await client.post(f"/jobs/{job.id}/retry", data={"csrf_token": form["csrf_token"], "return_to": "result"})
    assert answer.headers["location"] == f"/results/{key}?flash=retried&job={job.id}"
    assert await pages.job_state(job.id) is JobState.DUE


async def test_mapping_release_follows_a_preview(pages: Any, tmp_path: Path):
    """Reports that the current mapping tables complete are released after a preview; of other tables there is another one."""
    folder = status_pages.use_mappings(pages, tmp_path / "mappings")
    keys = [await status_pages.unmapped_result(pages, name, f"{name.upper()}9") for name in ("glu", "kal")]
    client = await pages.signed_in_client(Role.OPERATOR)
    assert "2 unmapped" in (await client.get("/results")).text
    assert 'Would be released <span class="quiet">0<' in (await client.get("/results/mended")).text
    tables = folder / "codes.csv"
    usual = tables.read_text() + "GLU9,2345-7,Glucose,\n"
    tables.write_text(usual)
    form = await form_of(client, "/results/mended", "/results/mended")
    for other in (f"{usual}KAL9,6298-4,Potassium,\n", "nonsense\n"):
        tables.write_text(other)
        assert (await client.post("/results/mended", data=form)).status_code == 409
    assert "cannot be read" in (await client.get("/results/mended")).text
    tables.write_text(usual)
    shown = (await client.get("/results/mended")).text
    assert "Release 1 result" in shown
    assert shown.index("glu") < shown.index("Would stay") < shown.index("kal")
    assert await state_of(pages, *keys) == [ReportState.UNMAPPED] * 2
    form = await form_of(client, "/results/mended", "/results/mended")
    answer = await client.post("/results/mended", data=form)
    assert (answer.status_code, answer.headers["location"]) == (303, "/results?flash=mappings-released")
    assert await state_of(pages, *keys) == [ReportState.MATCHED, ReportState.UNMAPPED]
    assert "by operator" in (await client.get(f"/results/{keys[0]}")).text


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
