"""The status page in a real browser over real programs: agent, API, exchange service and laboratory system."""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path

import pytest
from playwright.async_api import Browser, Error, Page, async_playwright, expect

from lab_sandbox.demo.lis.transport_files import write_atomically
from lab_sandbox.demo.processes import Program, program_path
from lab_sandbox.demo.runner import build_account
from lab_sandbox.demo.toml_edit import set_values
from lab_sandbox.partner.basket import Basket, choose_item
from lab_sandbox.partner.client import open_partner_client
from lab_sandbox.partner.errors import Json
from lab_sandbox.partner.order_generator import OrderPlan
from lab_sandbox.partner.random_source import seeded_random
from tests.harness import refused
from tests.harness.clock import DEADLINE, wait_until
from tests.harness.installation import ProcessHarness

CHROMIUM = shutil.which("chromium")
ARGS = ["--no-sandbox", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run"]
PASSWORD = "a long password for tests"
WITHOUT_TIMER = "const every = setInterval; window.setInterval = (what, ms) => (ms === 10000 ? 0 : every(what, ms));"
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium here: the page is not looked at in a browser")


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        launched = await playwright.chromium.launch(executable_path=CHROMIUM, args=ARGS)
        yield launched
        await launched.close()


async def add_user(harness: ProcessHarness) -> None:
    """An admin who may reveal patients."""
    settings = str(harness.workspace.agent_settings)
    command = (program_path("lab-agent"), "user", "add", "ana", "--role", "admin", "--config", settings)
    await harness._programs.run_to_end(Program("user add", command), DEADLINE, stdin_text=f"{PASSWORD}\n")
    await harness.run_command("lab-agent", "user", "reveal", "ana", "--on", "--config", settings)


async def sign_in(harness: ProcessHarness, browser: Browser, *, scripts: bool) -> tuple[Page, list[str]]:
    """A signed-in page, and the addresses of other hosts that it asked for."""
    base = harness.workspace.status_url
    context = await browser.new_context(java_script_enabled=scripts, base_url=base)
    tab = await context.new_page()
    foreign: list[str] = []
    tab.on("request", lambda request: None if request.url.startswith((base, "data:")) else foreign.append(request.url))

    async def is_up() -> bool:
        try:
            await tab.goto("/sign-in")
        except Error as exc:
            if "ERR_CONNECTION_REFUSED" not in exc.message:
                raise
            return False
        return True

    await wait_until(is_up, "the status page")
    await tab.get_by_label("Name").fill("ana")
    await tab.get_by_label("Password").fill(PASSWORD)
    await tab.get_by_role("button", name="Sign in").click()
    await tab.get_by_role("heading", level=1).wait_for()
    return tab, foreign


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])
async def test_assistant_finds_an_order_and_stops_a_test(harness: ProcessHarness, browser: Browser, scripts: bool) -> None:
    await add_user(harness)
    await harness.start_agent()
    order = await harness.place_order("status page")
    await harness.wait_until_ended(order)
    tab, foreign = await sign_in(harness, browser, scripts=scripts)

    await tab.goto("/orders")
    await tab.get_by_role("searchbox").fill(order.barcodes[0][2:8])
    await tab.get_by_role("button", name="Search", exact=True).click()
    link = tab.locator("tbody th a").first
    key = await link.inner_text()
    await link.click()
    assert order.requisition in await tab.get_by_role("main").inner_text()
    assert order.barcodes[0] in await tab.locator(".tubes").inner_text()

    patient = await harness.client.read(order.patient)
    name = patient["name"][0]
    await tab.goto("/orders/patient")
    await tab.get_by_label("Name").fill(f"{name['family']} {name['given'][0]}")
    await tab.get_by_label("Birth date").fill(patient["birthDate"])
    await tab.get_by_role("button", name="Search", exact=True).click()
    await expect(tab.locator("tbody th a").first).to_have_text(key)
    assert name["family"] not in tab.url
    assert name["family"] not in await tab.title()

    await tab.goto(f"/orders/{key}")
    await tab.get_by_role("button", name="Show").click()
    assert name["family"] in await tab.get_by_role("main").inner_text()
    await tab.goto(f"/orders/{key}/results")
    assert "1.20 g/L" in await tab.get_by_role("main").inner_text()
    await tab.goto("/audit")
    text = await tab.get_by_role("main").inner_text()
    for said in ("ana", key):
        assert said in text
    assert name["family"] not in text

    await tab.goto("/turnaround?item=001.001")
    await tab.get_by_label("Until").fill("3d")
    await tab.get_by_role("button", name="Announce").click()
    await tab.get_by_role("status").filter(has_text="The test is stopped").wait_for()

    async def is_stopped() -> bool:
        return {each["id"]: each["status"] for each in await harness.client.eta()}["001.001"] != "active"

    await wait_until(is_stopped, "the stopped test in eta")
    assert foreign == []


FORTY = 40
REJECTED_UPLOADS = f"""
[[faults]]
kind = "status"
route = "POST /fhir/DiagnosticReport"
status = 422
count = {FORTY}
"""


@asynccontextmanager
async def trouble_ahead(harness: ProcessHarness) -> AsyncIterator[int]:
    """A service that rejects the first forty reports, and a second laboratory system; the port of its results."""
    plan = harness.workspace.service_settings.with_name("rejections.toml")
    plan.write_text(REJECTED_UPLOADS)
    set_values(harness.workspace.service_settings, "", {"faults": str(plan)})
    await harness.stop_service()
    await harness.start_service()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = int(taken.getsockname()[1])
    settings = harness.workspace.agent_settings
    values = {"adapter": "hl7v2", "folder": str(harness.workspace.folder / "hl7"), "duplicates": "msh10"}
    set_values(settings, "lis.analyser", {**values, "mapping": str(map_file(harness))})
    set_values(settings, "lis.analyser.orders", {"role": "server", "port": 0})
    set_values(settings, "lis.analyser.results", {"role": "server", "port": port})
    map_file(harness).write_text("")
    async with open_partner_client(build_account(harness.workspace)) as client:  # a new service knows no sign-in of the old one
        harness.use_client(client)
        yield port


def map_file(harness: ProcessHarness) -> Path:
    return harness.workspace.folder / "config" / "analyser.toml"


async def place_orders(harness: ProcessHarness, numbers: range) -> None:
    """Orders of one line each."""
    offer = {item["id"]: item for item in await harness.client.nomenclature()}
    blood = choose_item(offer["001.001"], seeded_random("forty"), option=offer["001.001"]["specimen"][0])
    basket = Basket(harness.client.account.contract, (blood,))
    prepared = await harness.clinic.prepare_basket(OrderPlan(seed="forty", basket=basket))
    for number in numbers:
        plan = OrderPlan(seed=f"forty-{number}", basket=basket, patient="reused")
        await harness.clinic.send_bundle(await harness.clinic.build_bundle(plan, prepared))


def report_in_own_words(harness: ProcessHarness, order: Json) -> None:
    """A result with a code that the mapping tables do not have."""
    observation = {"id": "x", "code": {"code": "GLU9"}, "value_quantity": {"value": "5.10", "unit": "g/l"}}
    now = datetime.now().astimezone().isoformat()
    body = {
        "kind": "report",
        "report_id": f"own-{order['key']}",
        "version": 1,
        "status": "final",
        "effective": now,
        "issued": now,
        "order": order["key"],
        "lines": [line["key"] for line in order["lines"]],
        "observations": [observation],
    }
    write_atomically(harness.workspace.results, "own.json", json.dumps(body).encode())


@pytest.mark.timeout(240)
@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])
async def test_operator_mends_what_waits(harness: ProcessHarness, browser: Browser, scripts: bool) -> None:
    """Forty rejected uploads by their cause, a result in the laboratory's own words, a message that nobody could read."""
    async with trouble_ahead(harness) as port:
        await mend_it_all(harness, browser, port, scripts=scripts)


async def mend_it_all(harness: ProcessHarness, browser: Browser, port: int, *, scripts: bool) -> None:
    await add_user(harness)
    agent = await harness.start_agent()
    tab, foreign = await sign_in(harness, browser, scripts=scripts)
    output = tab.get_by_role("status")

    await place_orders(harness, range(FORTY))

    async def all_wait() -> bool:
        await tab.goto("/")
        return f"{FORTY} things wait" in await tab.get_by_role("heading", level=1).inner_text()

    await wait_until(all_wait, "forty rejected uploads")
    assert await harness.search("DiagnosticReport") == []
    await tab.get_by_role("link", name=f"Retry all {FORTY}").click()
    await tab.get_by_role("button", name="Retry all").click()
    await output.filter(has_text=f"{FORTY} are due now").wait_for()

    async def all_arrived() -> bool:
        return len(await harness.search("DiagnosticReport")) == FORTY

    await wait_until(all_arrived, "forty reports at the clinic")

    harness.lis.report = lambda order: report_in_own_words(harness, order)
    await place_orders(harness, range(FORTY, FORTY + 1))

    async def is_unmapped() -> bool:
        await tab.goto("/results")
        return await tab.get_by_role("link", name="Release unmapped results").count() == 1

    await wait_until(is_unmapped, "the unmapped result")
    with (harness.workspace.folder / "config" / "mappings" / "codes.csv").open("a") as codes:
        codes.write("GLU9,2345-7,Glucose,\n")
    await tab.get_by_role("link", name="Release unmapped results").click()
    await tab.get_by_role("button", name="Release 1 result").click()
    await output.filter(has_text="was released").wait_for()

    async def has_arrived() -> bool:
        values = [each.get("valueQuantity", {}) for each in await harness.search("Observation")]
        return "5.10" in {str(value.get("value")) for value in values}

    await wait_until(has_arrived, "the released result at the clinic")

    assert await refused.send(port, refused.oru()) != ["AA"]
    await tab.goto("/refused")
    await tab.locator("tbody th a, .members a").first.click()
    assert refused.NAME not in await tab.get_by_role("main").inner_text()
    map_file(harness).write_text(refused.MENDED_MAP)
    agent.process.send_signal(signal.SIGHUP)

    async def is_readable() -> bool:
        await tab.reload()
        return "would be refused" not in await tab.get_by_role("main").inner_text()

    await wait_until(is_readable, "what the mended map makes of the message")
    await tab.get_by_role("button", name="Replay").click()
    await output.filter(has_text="was taken in").wait_for()
    assert foreign == []


async def test_page_is_live_and_says_when_the_agent_is_gone(harness: ProcessHarness, browser: Browser) -> None:
    """A new order comes to an open page by news alone, without the timer; an agent that was killed leaves no green page."""
    await add_user(harness)
    agent = await harness.start_agent()
    tab, _ = await sign_in(harness, browser, scripts=True)
    await tab.add_init_script(
        "const every = setInterval; window.setInterval = (what, ms) => (ms === 10000 ? 0 : every(what, ms));"
    )
    await tab.goto("/orders")
    await tab.get_by_text("No orders yet.").wait_for()
    order = await harness.place_order("live")
    await expect(tab.get_by_text(order.requisition)).to_be_visible(timeout=DEADLINE * 1000)
    await expect(tab.locator("#live")).to_have_class(re.compile("on"))
    agent.process.kill()
    await expect(tab.locator("#agent-gone")).to_be_visible(timeout=DEADLINE * 1000)
    await expect(tab.locator("#live")).to_have_class(re.compile("lost"))
