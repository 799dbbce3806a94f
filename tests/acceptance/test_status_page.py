"""The status page in a real browser over real programs: agent, API, exchange service and laboratory system."""

from __future__ import annotations

import re
import shutil
from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser, Error, Page, async_playwright, expect

from lab_sandbox.demo.processes import Program, program_path
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
