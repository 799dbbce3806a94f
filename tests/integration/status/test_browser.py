"""The page in a real browser: how it keeps itself fresh. What people do there: tests/acceptance/test_status_page.py."""

from __future__ import annotations

from collections.abc import Awaitable

import pytest
from playwright.async_api import Browser, Page

from lab_agent.shared.state_machines import OrderState
from tests.harness.browser import needs_chromium
from tests.harness.clock import wait_until
from tests.integration.status.conftest import HELD, StatusPages, served

pytestmark = [needs_chromium, pytest.mark.slow]


async def clocked(browser: Browser, base: str, path: str) -> Page:
    """A tab of an operator whose time is moved by the test."""
    tab = await browser.new_page()
    await tab.clock.install()
    await signed_in(tab, base, path)
    return tab


def end_holding(pages: StatusPages) -> Awaitable[None]:
    """Have the held order fetched."""
    return pages.write(
        lambda uow: uow.orders.save(uow.orders.get_for_update(HELD).transition_to(OrderState.FETCHED, pages.clock.now()))
    )


async def test_page_refreshes_except_during_input(seeded, browser):
    """The page refreshes itself, but never while somebody fills in a form."""
    async with served(seeded) as base:
        tab = await clocked(browser, base, "/waiting")
        held = tab.get_by_text("Order held")
        await held.wait_for()
        review = tab.locator(".members > li").filter(has_text="Submit the order to the laboratory system")
        await review.get_by_text("Settle by hand").click()
        await review.get_by_label("It was done").fill("half a sen")
        await end_holding(seeded)
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
        tab = await clocked(browser, base, path)
        if path == "/waiting":
            await tab.get_by_text("Settle by hand").first.click()
        await tab.clock.run_for(11_000)
        assert await tab.locator("#agent-gone").is_hidden()
    await tab.clock.run_for(11_000)
    await tab.locator("#agent-gone").wait_for()
    assert "lost" in (await tab.locator("#live").get_attribute("class") or "")
