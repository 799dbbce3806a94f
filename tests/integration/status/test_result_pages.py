"""What the match desk shows: everything that waits, one result whole, and the way to its order."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import date
from decimal import Decimal
from html import unescape
from typing import Any

import pytest

from lab_agent import exact_json
from lab_agent.accounts import Role
from lab_agent.domain.lab_messages import (
    Accession,
    AccessionUpdate,
    Document,
    LabRejection,
    NotPerformed,
    ReportedObservation,
    ReportedPatient,
)
from lab_agent.domain.values import Coding, Quantity, SampledData
from lab_agent.serialization.identity import pack_identity
from lab_agent.workflow.hold_reasons import what_to_do
from lab_agent.workflow.result_inbox import StoreInbox
from tests.harness import status_pages
from tests.harness.results import haemoglobin
from tests.integration.status.conftest import SECRETS

ESCAPED = "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;"


@pytest.fixture
async def pages(pages: Any) -> Any:
    await status_pages.add_orders(pages)
    return pages


async def test_held_reports_listed_oldest_first_with_hints(pages: Any, tmp_path: Any):
    """What waits is listed longest first, with the references it names and a hint; its number is in the header of each page."""
    client = await pages.signed_in_client(Role.OPERATOR)
    assert 'class="count"' not in (await client.get("/")).text
    empty = (await client.get("/results")).text
    assert "No results are waiting." in empty
    assert [each for each in ('id="rejected"', "mended mapping tables") if each in empty] == []
    status_pages.use_mappings(pages, tmp_path / "mappings")
    keys = [
        await status_pages.unmatched_result(pages),
        await status_pages.late_result(pages),
        await status_pages.unmapped_result(pages, "glu", "GLU9"),
    ]
    text = unescape((await client.get("/results")).text)
    assert re.findall(r'<strong><a href="/results/(\w+)"', text) == keys
    for shown in ("A-9", "4711", "no order here is known by it", "the order is withdrawn", "code 'GLU9' is not mapped", "21 min"):
        assert shown in text
    assert "folder, report, version 2, final" in text
    assert f'href="/orders/{status_pages.WITHDRAWN_ORDER}"' in text
    for kept in [await status_pages.get_report(pages, key) for key in keys]:
        assert what_to_do(kept.state, kept.hold_reason) in text
    assert "1.20" not in text
    for path in ("/orders", f"/results/{keys[0]}"):
        count = r'[^>]*>Match desk <span class="count" title="3 waiting, for 3 causes">3<'
        assert re.search(rf'href="/results"{count}', (await client.get(path)).text)
    assert 'href="/waiting/members?cause=results.unmatched"' in (await client.get("/")).text
    assert f'href="/results/{keys[0]}"' in (await client.get("/waiting")).text


async def test_report_is_shown_complete_with_exact_digits(pages: Any):
    """With its other versions, and no name of a file, which may name a patient."""
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


async def test_values_of_every_type_are_formatted(pages: Any):
    origin = Quantity(value=Decimal("0.0"), unit="mV")
    series = SampledData(origin=origin, period=Decimal("2.50"), dimensions=1, data="1.10 U 1.30")
    attached = Document(content=b"%PDF-1.4\n", content_type="application/pdf")
    values = (
        ReportedObservation(code=Coding(code="S"), value_sampled_data=series),
        ReportedObservation(code=Coding(code="F"), value_attachment=attached),
        ReportedObservation(code=Coding(code="T"), value_string="not detected"),
    )
    documents = (Document(url="https://lab.example/a"),)
    content = status_pages.report_now(pages, *values, report_id="forms", order=None, barcode="1", documents=documents)
    text = await pages.read(f"/results/{await status_pages.receive_message(pages, 'forms', content)}")
    for shown in ("1.10 U 1.30 (every 2.50 ms, from 0.0 mV)", "a document, application/pdf", "not detected", "document 1"):
        assert shown in text
    assert 'href="https://lab.example' not in text


async def test_rejection_accession_and_unreadable_message_have_pages(pages: Any, seeded: Any):
    rejection = LabRejection(barcode="1", not_performed=(NotPerformed(reason="haemolysed"),), collect_again=True)
    update = AccessionUpdate(barcode="2", accession="26-7", accessions=(Accession(number="26-7-1", barcode="2"),))
    client = await seeded.signed_in_client(Role.OPERATOR)
    for name, content, words in (
        ("rejection", rejection, ("haemolysed", "collect again")),
        ("accession update", update, ("26-7-1", "tube 2")),
    ):
        key = await status_pages.receive_message(seeded, name, content)
        text = (await client.get(f"/results/{key}")).text
        assert [word for word in (*words, name) if word not in text] == []
        assert (await client.get(f"/results/{key}/match?order={status_pages.SUBMITTED_ORDER}")).status_code == 200
    assert "cannot be read by this version" in (await client.get("/results/P1")).text
    assert (await client.get("/results/P1/match")).status_code == 200


async def test_rejected_messages_are_counted_per_lis(pages: Any):
    for source, count in (("folder", 3), ("hl7", 1)):
        inbox = StoreInbox(pages.context.store, pages.clock, source)
        for number in range(count):
            await inbox.reject(f"f{number}", "observations[0]: has no value")
    text = await pages.read("/results")
    for shown in ("3 messages of folder", "1 message of hl7", "observations[0]: has no value", 'href="/refused?source=folder"'):
        assert shown in text
    assert 'href="/refused"' in await pages.read("/")


async def test_order_search_by_printed_number_offers_its_lines(pages: Any):
    """An order is found by whatever number is printed on paper, and its lines can be ticked; odd searches find nothing."""
    key = await status_pages.unmatched_result(pages)
    client = await pages.signed_in_client(Role.OPERATOR)
    assert "autofocus" in (await client.get(f"/results/{key}/match")).text
    for search in (status_pages.SUBMITTED_ORDER, "77-0", "A-0", "9001"):
        text = (await client.get(f"/results/{key}/match", params={"search": search})).text
        assert f'name="order" value="{status_pages.SUBMITTED_ORDER}"' in text
        assert re.findall(r'name="line-(\w+)"', text) == ["W00", "W01"]
        assert [each for each in ("1.20 g/dL", f'href="/results/{key}/match?search=A-9"') if each not in text] == []
    for query in ("search=%00", "search=%ff", "order=%00%0a", "order=" + "9" * 5000, "search=%25'--&page=x"):
        answer = await client.get(f"/results/{key}/match?{query}")
        assert (query, answer.status_code, 'name="order"' in answer.text) == (query, 200, False)


async def test_one_of_several_orders_is_chosen(pages: Any):
    key = await status_pages.unmatched_result(pages)
    orders = (status_pages.SUBMITTED_ORDER, status_pages.WITHDRAWN_ORDER)

    def number_alike(uow: Any) -> None:
        for part in (part for order in orders for part in uow.orders.work_orders(order)):
            uow.orders.save_work_order(replace(part, accession="SAME"))

    await pages.write(number_alike)
    client = await pages.signed_in_client(Role.OPERATOR)
    text = (await client.get(f"/results/{key}/match?search=SAME")).text
    assert ("2 orders found" in text, 'name="order"' in text) == (True, False)
    chosen = f"/results/{key}/match?order={orders[0]}"
    assert f'href="{chosen}"' in text
    for path, shown in (
        (chosen, f'name="order" value="{orders[0]}"'),
        (f"/results/{key}/match?search=nobody", "No order found."),
        (f"/results/{key}/match?order=RNOBODY", "There is no order with this key."),
    ):
        assert shown in (await client.get(path)).text


async def test_settled_report_has_its_order_and_no_search(pages: Any):
    """It is on the list of its state alone."""
    order = status_pages.SUBMITTED_ORDER
    report = status_pages.report_now(pages, haemoglobin("13.20"), report_id="good", order=order, lines=("W00",))
    key = await status_pages.receive_message(pages, "good", report)
    client = await pages.signed_in_client(Role.OPERATOR)
    answer = await client.get(f"/results/{key}/match")
    assert (answer.status_code, answer.headers["location"]) == (303, f"/results/{key}")
    text = (await client.get(answer.headers["location"])).text
    for shown in ("on its way to the service", "Deliver a report", f'href="/orders/{order}"', "W00"):
        assert shown in text
    assert f'<a href="/results/{key}">good</a>' in (await client.get(f"/orders/{order}")).text
    for query, listed in (("", False), ("?state=matched&state=held&state=nonsense", True), ("?state=superseded", False)):
        assert (key in (await client.get(f"/results{query}")).text) is listed, query
    for nonsense in ("0", "-1", "x", "9" * 30, "²"):
        assert (await client.get("/results", params={"page": nonsense})).status_code == 200


async def test_unknown_report_returns_404(pages: Any):
    client = await pages.signed_in_client(Role.OPERATOR)
    for key in ("PNOBODY", "%00", "P%2F1", "%ff%fe", "%F0%9F%92%89", "a" * 3000, "..%2f..%2fetc", "'; --"):
        for rest in ("", "/match"):
            answer = await client.get(f"/results/{key}{rest}")
            assert (key, answer.status_code, "Traceback" in answer.text) == (key, 404, False)


async def test_mismatched_patient_named_by_field_alone(pages: Any):
    """The page says what differs and what to confirm; neither side's data is on it."""
    order, now = status_pages.SUBMITTED_ORDER, pages.clock.now()
    identity = pack_identity(b"[]", exact_json.dumps({"family": "Petrova", "birth_date": "1961-04-12"}))
    await pages.write(lambda uow: uow.vault.save_identity(order, identity, at=now))
    other = ReportedPatient(birth_date=date(1971, 12, 24))
    report = status_pages.report_now(pages, haemoglobin("13.20"), order=order, patient=other)
    key = await status_pages.receive_message(pages, "other.json", report)
    text = await pages.read(f"/results/{key}", Role.OPERATOR)
    for shown in ("names another patient than the order (birth date)", "it is the same person"):
        assert shown in text
    assert [secret for secret in (*SECRETS, "1971", "24.12") if secret in text] == []
