"""The match desk: everything that waits, one result whole, the way to its order, and what an operator decides about it."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from datetime import date
from decimal import Decimal
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from lab_agent.lis.lab_messages import (
    Accession,
    AccessionUpdate,
    Document,
    LabRejection,
    NotPerformed,
    ReportedObservation,
    ReportedPatient,
)
from lab_agent.operations.accounts import Role
from lab_agent.orders.patient_data import pack_identity
from lab_agent.queue.job_records import JobKind
from lab_agent.results.hold_reasons import what_to_do
from lab_agent.shared import exact_json
from lab_agent.shared.ids import ReportKey
from lab_agent.shared.state_machines import ReportState
from lab_agent.shared.values import Coding, Quantity, SampledData
from tests.harness import status_pages
from tests.harness.results import haemoglobin
from tests.integration.status.conftest import SECRETS

ESCAPED = "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;"
ORDER = status_pages.SUBMITTED_ORDER


@pytest.fixture
async def pages(pages: Any) -> Any:
    await status_pages.add_orders(pages)
    return pages


async def test_held_reports_listed_oldest_first_with_hints(pages: Any, tmp_path: Any):
    """What waits is listed longest first, with the references it names and a hint; its number is in the header of each page."""
    client = await pages.signed_in_client(Role.OPERATOR)
    assert 'class="count"' not in (await client.get("/results")).text
    status_pages.use_mappings(pages, tmp_path / "mappings")
    keys = [
        await status_pages.unmatched_result(pages),
        await status_pages.late_result(pages),
        await status_pages.unmapped_result(pages, "glu", "GLU9"),
    ]
    text = unescape((await client.get("/results")).text)
    assert re.findall(r'<strong><a href="/results/(\w+)"', text) == keys
    for shown in ("A-9", "4711", "code 'GLU9' is not mapped", "21 min", f'href="/orders/{status_pages.WITHDRAWN_ORDER}"'):
        assert shown in text
    for kept in [await status_pages.get_report(pages, key) for key in keys]:
        assert what_to_do(kept.state, kept.hold_reason) in text
    assert "1.20" not in text
    for path in ("/orders", f"/results/{keys[0]}"):
        count = r'[^>]*>Match desk <span class="count" title="3 waiting, for 3 causes">3<'
        assert re.search(rf'href="/results"{count}', (await client.get(path)).text)
    assert 'href="/waiting/members?cause=results.unmatched"' in (await client.get("/")).text
    assert f'href="/results/{keys[0]}"' in (await client.get("/waiting")).text


async def test_report_is_shown_complete_with_exact_digits(pages: Any):
    """With its other versions, and no name of a file, which may name a patient; a link to elsewhere is none."""
    key = await status_pages.unmatched_result(pages)
    other = await status_pages.unmatched_result(pages, version=2)
    text = await pages.read(f"/results/{key}")
    digits = ("1.20 g/dL", "0.0500 g/dL", "12.0 – 15.50 g/dL")
    words = ("C-reactive protein", "photometry", '<span class="state flag">L</span>', "about 4.2 kB", "too little material")
    for shown in (*digits, *words, "unmatched: accession A-9, barcode 4711: no order here is known by it"):
        assert shown in text
    assert text.count(ESCAPED) == 2
    assert [each for each in ("<script>alert", "lost-1.None.json", 'action="/results') if each in text] == []
    assert other in text.split("Versions of this report")[1]
    origin = Quantity(value=Decimal("0.0"), unit="mV")
    series = SampledData(origin=origin, period=Decimal("2.50"), dimensions=1, data="1.10 U 1.30")
    attached = Document(content=b"%PDF-1.4\n", content_type="application/pdf")
    values = [{"value_sampled_data": series}, {"value_attachment": attached}, {"value_string": "not detected"}]
    observations = [ReportedObservation(code=Coding(code="S"), **value) for value in values]
    fields = {"report_id": "forms", "order": None, "barcode": "1", "documents": (Document(url="https://lab.example/a"),)}
    report = status_pages.report_now(pages, *observations, **fields)
    text = await pages.read(f"/results/{await status_pages.receive_message(pages, 'forms', report)}")
    for shown in ("1.10 U 1.30 (every 2.50 ms, from 0.0 mV)", "a document, application/pdf", "not detected", "document 1"):
        assert shown in text
    assert 'href="https://lab.example' not in text


async def test_rejection_accession_and_unreadable_message_have_pages(pages: Any, seeded: Any):
    rejection = LabRejection(barcode="1", not_performed=(NotPerformed(reason="haemolysed"),), collect_again=True)
    update = AccessionUpdate(barcode="2", accession="26-7", accessions=(Accession(number="26-7-1", barcode="2"),))
    keys = [
        await status_pages.receive_message(seeded, name, content)
        for name, content in (("rejection", rejection), ("accession update", update))
    ]
    client = await seeded.signed_in_client(Role.OPERATOR)
    told = (("rejection", "haemolysed", "collect again"), ("accession update", "26-7-1", "tube 2"))
    for key, words in zip((*keys, "P1"), (*told, ("cannot be read by this version",)), strict=True):
        text = (await client.get(f"/results/{key}")).text
        assert [word for word in words if word not in text] == []
        assert (await client.get(f"/results/{key}/match?order={ORDER}")).status_code == 200


async def test_order_search_by_printed_number_offers_its_lines(pages: Any):
    """An order is found by whatever number is printed on paper, one of several is chosen; odd searches find nothing."""
    key = await status_pages.unmatched_result(pages)
    client = await pages.signed_in_client(Role.OPERATOR)
    for query in (*(f"search={each}" for each in (ORDER, "77-0", "A-0", "9001")), f"order={ORDER}"):
        text = (await client.get(f"/results/{key}/match?{query}")).text
        assert f'name="order" value="{ORDER}"' in text
        assert re.findall(r'name="line-(\w+)"', text) == ["W00", "W01"]
        assert "1.20 g/dL" in text
    odd = ("search=%00", "search=%ff", "order=%00%0a", "order=" + "9" * 5000, "search=%25'--&page=x", "order=RNOBODY")
    for query in odd:
        answer = await client.get(f"/results/{key}/match?{query}")
        assert (query, answer.status_code, 'name="order"' in answer.text) == (query, 200, False)

    def number_alike(uow: Any) -> None:
        for part in (part for order in (ORDER, status_pages.WITHDRAWN_ORDER) for part in uow.orders.work_orders(order)):
            uow.orders.save_work_order(replace(part, accession="SAME"))

    await pages.write(number_alike)
    text = (await client.get(f"/results/{key}/match?search=SAME")).text
    assert ("2 orders found" in text, 'name="order"' in text) == (True, False)
    assert f'href="/results/{key}/match?order={ORDER}"' in text


async def test_settled_report_has_its_order_and_no_search(pages: Any):
    """It is on the list of its state alone."""
    report = status_pages.report_now(pages, haemoglobin("13.20"), report_id="good", order=ORDER, lines=("W00",))
    key = await status_pages.receive_message(pages, "good", report)
    client = await pages.signed_in_client(Role.OPERATOR)
    answer = await client.get(f"/results/{key}/match")
    assert (answer.status_code, answer.headers["location"]) == (303, f"/results/{key}")
    text = (await client.get(answer.headers["location"])).text
    for shown in ("on its way to the service", "Deliver a report", f'href="/orders/{ORDER}"', "W00"):
        assert shown in text
    assert f'<a href="/results/{key}">good</a>' in (await client.get(f"/orders/{ORDER}")).text
    for query, listed in (("", False), ("?state=matched&state=held&state=nonsense", True), ("?state=superseded", False)):
        assert (key in (await client.get(f"/results{query}")).text) is listed, query


async def test_odd_key_or_page_is_no_error(pages: Any):
    client = await pages.signed_in_client(Role.OPERATOR)
    for key in ("PNOBODY", "%00", "P%2F1", "%ff%fe", "%F0%9F%92%89", "a" * 3000, "..%2f..%2fetc", "'; --"):
        for rest in ("", "/match"):
            assert (await client.get(f"/results/{key}{rest}")).status_code == 404, key
    for nonsense in ("0", "-1", "x", "9" * 30, "²"):
        assert (await client.get("/results", params={"page": nonsense})).status_code == 200


async def test_mismatched_patient_named_by_field_alone(pages: Any):
    """The page says what differs and what to confirm; neither side's data is on it."""
    identity = pack_identity(b"[]", exact_json.dumps({"family": "Petrova", "birth_date": "1961-04-12"}))
    await pages.write(lambda uow: uow.vault.save_identity(ORDER, identity, at=pages.clock.now()))
    other = ReportedPatient(birth_date=date(1971, 12, 24))
    report = status_pages.report_now(pages, haemoglobin("13.20"), order=ORDER, patient=other)
    key = await status_pages.receive_message(pages, "other.json", report)
    text = await pages.read(f"/results/{key}", Role.OPERATOR)
    for shown in ("names another patient than the order (birth date)", "it is the same person"):
        assert shown in text
    assert [secret for secret in (*SECRETS, "1971", "24.12") if secret in text] == []


async def form_of(client: Any, path: str, action: str) -> dict[str, str]:
    """The hidden fields of the form with this action."""
    text = (await client.get(path)).text
    (form,) = re.findall(rf'<form[^>]*action="{action}">(.*?)</form>', text, flags=re.DOTALL)
    return dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', form))


async def state_of(pages: Any, *keys: str) -> list[ReportState]:
    return [(await status_pages.get_report(pages, ReportKey(key))).state for key in keys]


async def bare_result(page: Any, **fields: Any) -> ReportKey:
    return await status_pages.unmatched_result(page, documents=(), not_performed=(), **fields)


async def begin(page: Any, key: str, action: str) -> tuple[Any, dict[str, str]]:
    """An operator with the form of an action."""
    client = await page.signed_in_client(Role.OPERATOR)
    path = f"/results/{key}/match?order={ORDER}" if action == "match" else f"/results/{key}"
    return client, await form_of(client, path, f"/results/{key}/{action}")


async def test_unmatched_report_is_matched_to_order_lines(pages: Any):
    """Only once: whoever opened the page before is told."""
    key = await bare_result(pages)
    client, form = await begin(pages, key, "match")
    late = [(action, await begin(pages, key, action)) for action in ("match", "release", "dismiss")]
    answer = await client.post(f"/results/{key}/match", data={**form, "note": "read on the <b>paper</b>", "line-W00": "yes"})
    assert (answer.status_code, answer.headers["location"]) == (303, f"/results/{key}?flash=result-matched")
    report = await status_pages.get_report(pages, key)
    assert (report.state, report.order, report.lines) == (ReportState.MATCHED, ORDER, ("W00",))
    shown = (await client.get(answer.headers["location"])).text
    for told in ("The result is matched", "(read on the &lt;b&gt;paper&lt;/b&gt;)", "by operator"):
        assert told in shown
    assert (await pages.get_job(JobKind.DELIVER_REPORT, ORDER)).target == key
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
    key = await bare_result(pages)
    client, form = await begin(pages, key, "match")
    many = {f"line-L{number:015}": "yes" for number in range(300)}
    for strange in ({"line-W10": "yes"}, {"line-": "yes"}, {"line-\x00": "yes"}, many):
        answer = await client.post(f"/results/{key}/match", data={**form, "note": "n", **strange})
        assert (answer.status_code, "Nothing was done" in answer.text) == (409, True), list(strange)[:1]
    assert "has no line L000000000000000" in answer.text
    answer = await client.post(f"/results/{key}/match", data={**form, "order": "RNOBODY", "note": "n"})
    assert answer.status_code == 404
    assert (await status_pages.get_report(pages, key)).state is ReportState.UNMATCHED
    other = await bare_result(pages, report_id="other")
    withdrawn = await form_of(client, f"/results/{other}/match?order={status_pages.WITHDRAWN_ORDER}", f"/results/{other}/match")
    answer = await client.post(f"/results/{other}/match", data={**withdrawn, "note": "n"})
    assert answer.headers["location"] == f"/results/{other}?flash=result-held-back"
    assert (await client.post(f"/results/{key}/match", data={**form, "note": "n"})).is_redirect
    assert (await status_pages.get_report(pages, key)).lines == ("W00", "W01")


async def test_late_report_is_released_after_confirmation(pages: Any):
    key = await status_pages.late_result(pages)
    client, form = await begin(pages, key, "release")
    assert (await client.post(f"/results/{key}/release", data={**form, "note": "the clinic asked"})).status_code == 409
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


async def test_mapping_release_follows_a_preview(pages: Any, tmp_path: Path):
    """Reports that the current mapping tables complete are released after a preview; of other tables there is another one."""
    tables = status_pages.use_mappings(pages, tmp_path / "mappings") / "codes.csv"
    keys = [await status_pages.unmapped_result(pages, name, f"{name.upper()}9") for name in ("glu", "kal")]
    client = await pages.signed_in_client(Role.OPERATOR)
    usual = tables.read_text() + "GLU9,2345-7,Glucose,\n"
    tables.write_text(usual)
    shown = (await client.get("/results/mended")).text
    assert shown.index("Release 1 result") < shown.index("glu") < shown.index("Would stay") < shown.index("kal")
    form = await form_of(client, "/results/mended", "/results/mended")
    for other in (f"{usual}KAL9,6298-4,Potassium,\n", "nonsense\n"):
        tables.write_text(other)
        assert (await client.post("/results/mended", data=form)).status_code == 409
    assert await state_of(pages, *keys) == [ReportState.UNMAPPED] * 2
    tables.write_text(usual)
    answer = await client.post("/results/mended", data=form)
    assert answer.headers["location"] == "/results?flash=mappings-released"
    assert await state_of(pages, *keys) == [ReportState.MATCHED, ReportState.UNMAPPED]


async def test_malformed_keys_and_fields_never_break_an_action(pages: Any):
    key = await bare_result(pages)
    client, form = await begin(pages, key, "match")
    for unknown in ("PNOBODY", "%00", "%ff%fe", "P%2F1", "a" * 3000):
        for action in ("match", "release", "dismiss"):
            data = {**form, "note": "n", "reviewed": "yes", "order": ORDER, "changed_at": "x"}
            assert (await client.post(f"/results/{unknown}/{action}", data=data)).status_code == 404, (unknown, action)
    for odd in ("", "\x00", "\ud7ff\uffff", "👩‍🔬" * 50, "%s{0}", "-1", "2026-13-45T99:99", "9" * 4000):
        for name in ("changed_at", "order", f"line-{odd}", "note"):
            answer = await client.post(f"/results/{key}/match", data={"note": "n", **form, name: odd})
            assert answer.status_code in {303, 404, 409, 413, 422}, (name, odd)
    kind = {"content-type": "application/x-www-form-urlencoded"}
    assert (await client.post(f"/results/{key}/match", content=b"note=%ff&order=\xff", headers=kind)).status_code == 400
