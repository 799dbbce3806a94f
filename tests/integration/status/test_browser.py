"""The page in a real browser: sign in, see an order, press retry, and everything with scripts switched off, too."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from playwright.async_api import Browser, ConsoleMessage, Page, async_playwright

from lab_agent import web_server
from lab_agent.catalogue.spreadsheet.csv_files import read_tables
from lab_agent.catalogue_service.versions import activate
from lab_agent.domain.ids import OrderKey
from lab_agent.domain.job_records import JobKind
from lab_agent.domain.state_machines import JobState, OrderState, ReportState
from lab_agent.status.app import create_app
from tests.harness import status_pages
from tests.harness.clock import wait_until
from tests.harness.paths import CATALOGUE
from tests.integration.status.test_groups import add_rejected
from tests.integration.status.test_groups import states as failed_states

HELD = OrderKey("R0000000000HELD")
CHROMIUM = shutil.which("chromium")
ARGS = ["--no-sandbox", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run"]
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium here: the page is not looked at in a browser")


@asynccontextmanager
async def served(page) -> AsyncIterator[str]:
    sock = web_server.listen("127.0.0.1", 0, settings_group="status")
    app = create_app(page.context)
    task = asyncio.create_task(web_server.serve(app, sock, drain=2, on_stop=app.state.change_feed.close))
    try:
        yield f"http://127.0.0.1:{sock.getsockname()[1]}"
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=ARGS)
        yield browser
        await browser.close()


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])
async def test_operator_logs_in_opens_order_and_retries(seeded, browser, scripts, tmp_path: Path):
    complaints: list[str] = []

    def heard(message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            complaints.append(message.text)

    async with served(seeded) as base:
        context = await browser.new_context(java_script_enabled=scripts, color_scheme="dark")
        tab = await context.new_page()
        tab.on("console", heard)
        tab.on("dialog", lambda dialog: complaints.append(f"dialog: {dialog.message}"))
        await tab.goto(f"{base}/orders")
        await tab.get_by_label("Name").fill("operator")
        await tab.get_by_label("Password").fill("a long password")
        await tab.get_by_role("button", name="Sign in").click()
        await tab.wait_for_url("**/orders")
        await tab.get_by_label("Key, Task id").fill("7000000")
        await tab.get_by_role("button", name="Search").click()
        await tab.get_by_role("link", name="R0000000000GOOD").click()
        upload = tab.get_by_role("listitem").filter(has_text="Deliver a report")
        await upload.get_by_role("button", name="Retry").click()
        await tab.get_by_role("status").filter(has_text="is due now").wait_for()
        assert (await seeded.get_job(JobKind.DELIVER_REPORT)).state is JobState.DUE
        task = tab.get_by_role("listitem").filter(has_text="Update a line's Task")
        await task.get_by_text("Settle by hand").click()
        await task.get_by_label("It was done").fill("seen on the service")
        await task.get_by_role("button", name="Mark as done").click()
        await tab.get_by_role("status").filter(has_text="was marked as done").wait_for()
        assert (await seeded.get_job(JobKind.UPDATE_LINE_TASK)).state is JobState.DONE
        assert "marked done (seen on the service) by operator" in await tab.get_by_role("main").inner_text()
        await tab.get_by_role("button", name="Sign out").click()
        await tab.goto(base)
        assert tab.url.endswith("/sign-in")
        await context.close()
    assert complaints == []


async def test_page_refreshes_except_during_input(seeded, browser):
    """The page refreshes itself, but never while somebody fills in a form."""
    async with served(seeded) as base:
        tab = await browser.new_page()
        await tab.clock.install()
        await tab.goto(f"{base}/waiting")
        await tab.get_by_label("Name").fill("operator")
        await tab.get_by_label("Password").fill("a long password")
        await tab.get_by_role("button", name="Sign in").click()
        held = tab.get_by_text("Order held")
        await held.wait_for()
        review = tab.locator(".members > li").filter(has_text="Submit the order to the laboratory system")
        await review.get_by_text("Settle by hand").click()
        await review.get_by_label("It was done").fill("half a sen")
        await seeded.write(
            lambda uow: uow.orders.save(uow.orders.get_for_update(HELD).transition_to(OrderState.FETCHED, seeded.clock.now()))
        )
        await tab.clock.run_for(30_000)
        assert await held.is_visible()
        assert await review.get_by_label("It was done").input_value() == "half a sen"
        await review.get_by_text("Settle by hand").click()
        await tab.get_by_role("heading", name="Waiting for you").click()
        await tab.clock.run_for(11_000)
        await held.wait_for(state="detached")
        assert await tab.get_by_text("Deliver a report").is_visible()


async def signed_in(tab: Page, base: str, path: str) -> None:
    await tab.goto(f"{base}{path}")
    await tab.get_by_label("Name").fill("operator")
    await tab.get_by_label("Password").fill("a long password")
    await tab.get_by_role("button", name="Sign in").click()
    await tab.wait_for_url(f"**{path}")


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])
async def test_operator_matches_releases_dismisses_and_stops_test(seeded, browser, scripts, tmp_path: Path):
    folder = status_pages.use_mappings(seeded, tmp_path / "mappings")
    await status_pages.add_orders(seeded)
    lost, late = (
        await status_pages.unmatched_result(seeded, documents=(), not_performed=()),
        await status_pages.late_result(seeded),
    )
    mended, useless = (
        await status_pages.unmapped_result(seeded, "glu", "GLU9"),
        await status_pages.unmatched_result(seeded, report_id="useless"),
    )
    with (folder / "codes.csv").open("a") as table:
        table.write("GLU9,2345-7,Glucose,\n")
    with (folder / "units.csv").open("a") as table:
        table.write("g/dL,g/dL\n")
    now = seeded.clock.now()
    await activate(seeded.context.store, read_tables(CATALOGUE), origin="x", by=None, now=now)
    complaints: list[str] = []
    async with served(seeded) as base:
        context = await browser.new_context(java_script_enabled=scripts, viewport={"width": 400, "height": 800})
        tab = await context.new_page()
        tab.on("console", lambda message: complaints.append(message.text) if message.type in {"error", "warning"} else None)
        await signed_in(tab, base, "/results")
        output = tab.get_by_role("status")

        await tab.get_by_role("link", name="lost-1").click()
        await tab.get_by_role("link", name="Find the order").click()
        await tab.get_by_label("Order key, requisition").fill("77-0")
        await tab.get_by_role("button", name="Search").click()
        await tab.get_by_label("W00").check()
        await tab.get_by_label("How do you know?").fill("read on the paper form")
        await tab.get_by_role("button", name="Match to this order").click()
        await output.filter(has_text="The result is matched").wait_for()
        assert "(read on the paper form)" in await tab.get_by_role("main").inner_text()
        assert (await status_pages.get_report(seeded, lost)).lines == ("W00",)

        await tab.goto(f"{base}/results/{late}")
        released = tab.locator("form[action$='/release']")
        await released.get_by_label("I have reviewed").check()
        await released.get_by_label("Why?").fill("the clinic asked")
        await released.get_by_role("button", name="Release").click()
        await output.filter(has_text="The result is matched").wait_for()
        assert (await status_pages.get_report(seeded, late)).state is ReportState.MATCHED

        await tab.goto(f"{base}/results/{useless}")
        dismissed = tab.locator("form[action$='/dismiss']")
        await dismissed.get_by_label("Why?").fill("a test")
        await dismissed.get_by_role("button", name="Dismiss").click()
        await output.filter(has_text="was dismissed").wait_for()

        await tab.goto(f"{base}/results")
        await tab.get_by_role("link", name="Release unmapped results").click()
        await tab.get_by_role("button", name="Release 1 result").click()
        await output.filter(has_text="was released").wait_for()
        assert (await status_pages.get_report(seeded, mended)).state is ReportState.MATCHED

        await tab.goto(f"{base}/turnaround")
        await tab.get_by_label("Test", exact=True).fill("001.001")
        await tab.get_by_label("delayed by").check()
        await tab.get_by_label("Hours of the delay").fill("many")
        await tab.get_by_label("Until").fill("3d")
        await tab.get_by_role("button", name="Announce").click()
        await tab.get_by_text("'many' is not a number").wait_for()
        await tab.get_by_label("Hours of the delay").fill("12")
        await tab.get_by_role("button", name="Announce").click()
        await output.filter(has_text="The test is delayed").wait_for()
        assert "delayed by 12 h" in await tab.get_by_role("main").inner_text()
        await tab.get_by_role("button", name="Lift").click()
        await output.filter(has_text="available as usual").wait_for()
        assert await tab.evaluate("document.documentElement.scrollWidth") <= 400
        await context.close()
    assert [each for each in complaints if "422" not in each] == []


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])
async def test_operator_retries_forty_uploads_of_a_cause(pages, browser, scripts):
    """From the overview, over the page that says what it does."""
    await add_rejected(pages, 40)
    async with served(pages) as base:
        context = await browser.new_context(java_script_enabled=scripts, viewport={"width": 400, "height": 800})
        tab = await context.new_page()
        await signed_in(tab, base, "/")
        await tab.get_by_role("heading", name="Needs you: 1 cause, 40 things wait.").wait_for()
        await tab.get_by_role("link", name="Retry all 40").click()
        await tab.get_by_role("heading", name="Retry all: 40 of 40?").wait_for()
        assert await tab.evaluate("document.documentElement.scrollWidth") <= 400
        assert await failed_states(pages) == {JobState.DEAD_LETTER}, "nothing is done before the form is sent"
        await tab.get_by_role("button", name="Retry all").click()
        await tab.get_by_role("status").filter(has_text="40 are due now").wait_for()
        assert await failed_states(pages) == {JobState.DUE}
        await context.close()


async def test_refresh_keeps_a_half_written_decision(seeded, browser):
    await status_pages.add_orders(seeded)
    key = await status_pages.unmatched_result(seeded)
    async with served(seeded) as base:
        tab = await browser.new_page()
        await tab.clock.install()
        await signed_in(tab, base, f"/results/{key}")
        note = tab.locator("form[action$='/dismiss']").get_by_label("Why?")
        await note.fill("half a sen")
        await tab.get_by_role("heading", name="History").click()
        seeded.clock.advance(minutes=5)
        await tab.clock.run_for(30_000)
        assert await note.input_value() == "half a sen"
        await note.fill("")
        await tab.get_by_role("heading", name="History").click()
        await status_pages.unmatched_result(seeded, report_id="another")
        await tab.clock.run_for(11_000)
        await tab.get_by_text("03:19:00", exact=True).wait_for()


async def test_many_open_tabs_leave_connections_for_another(seeded, browser):
    """A browser has six connections to one server; pages that listen must not take them all."""
    async with served(seeded) as base:
        context = await browser.new_context()
        await signed_in(await context.new_page(), base, "/")
        for _ in range(8):
            tab = await context.new_page()
            await tab.goto(f"{base}/orders")
            await tab.locator("#live.on").wait_for()
        await context.close()


async def test_hidden_tab_listens_no_more_until_shown(seeded, browser):
    async with served(seeded) as base:
        tab = await browser.new_page()
        await signed_in(tab, base, "/waiting")
        await wait_until(lambda: listens(tab), "the page listens")
        await show(tab, hidden=True)
        assert not await listens(tab)
        await show(tab, hidden=False)
        await wait_until(lambda: listens(tab), "the page listens again")


async def listens(tab: Page) -> bool:
    return bool(await tab.evaluate("news !== null && news.readyState === EventSource.OPEN"))


async def show(tab: Page, *, hidden: bool) -> None:
    """Bring the tab to the front, or another one before it."""
    await tab.evaluate(
        "hidden => { Object.defineProperty(document, 'hidden', { value: hidden, configurable: true });"
        " document.dispatchEvent(new Event('visibilitychange')); }",
        hidden,
    )


@pytest.mark.parametrize("path", ["/waiting", "/rules"], ids=["while something is open", "where nothing is read again"])
async def test_page_that_is_not_swapped_tells_death(seeded, browser, path):
    async with served(seeded) as base:
        tab = await browser.new_page()
        await tab.clock.install()
        await signed_in(tab, base, path)
        if path == "/waiting":
            await tab.get_by_text("Settle by hand").first.click()
        await tab.clock.run_for(11_000)
        assert await tab.locator("#agent-gone").is_hidden()
    await tab.clock.run_for(11_000)
    await tab.locator("#agent-gone").wait_for()
    assert "lost" in (await tab.locator("#live").get_attribute("class") or "")


async def test_opened_part_stays_open_when_read_again(seeded, browser):
    async with served(seeded) as base:
        tab = await browser.new_page()
        await tab.clock.install()
        await signed_in(tab, base, "/")
        await tab.get_by_text("Unfinished, by state").click()
        await tab.get_by_role("heading", name="On the way").click()
        held = tab.locator("tbody tr").filter(has_text="held").first
        await held.wait_for()
        await seeded.write(
            lambda uow: uow.orders.save(uow.orders.get_for_update(HELD).transition_to(OrderState.FETCHED, seeded.clock.now()))
        )
        await tab.clock.run_for(11_000)
        await tab.locator("details[data-stays][open] tbody tr").filter(has_text="fetched").first.wait_for()


async def test_russian_pages_fit_on_a_phone(seeded, browser):
    """No page is wider than the screen, and the whole menu of languages and themes is on it."""
    async with served(seeded) as base:
        context = await browser.new_context(viewport={"width": 390, "height": 800}, locale="ru")
        tab = await context.new_page()
        await tab.goto(base)
        await tab.locator("#name").fill("operator")
        await tab.locator("#password").fill("a long password")
        await tab.locator("button.primary").click()
        await tab.locator("h1").wait_for()
        for path in ("/", "/orders", "/failures", "/alerts", "/refused", "/rules", "/rules/line.code", "/turnaround"):
            await tab.goto(f"{base}{path}")
            await tab.locator(".look summary").click()
            assert await tab.evaluate("document.documentElement.scrollWidth") <= 390, path
            menu = await tab.locator(".look form").bounding_box()
            assert menu is not None
            assert 0 <= menu["x"] <= menu["x"] + menu["width"] <= 390, path
        await context.close()
