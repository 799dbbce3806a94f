"""The page in a real browser: sign in, see an order, press retry, and everything with scripts switched off, too."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from playwright.async_api import Browser, ConsoleMessage, async_playwright

from lab_agent import serving
from lab_agent.domain.ids import OrderKey
from lab_agent.domain.journal import EffectKind
from lab_agent.domain.lifecycle import EffectState, OrderState
from lab_agent.status.app import create_app

HELD = OrderKey("R0000000000HELD")
CHROMIUM = shutil.which("chromium")
ARGS = ["--no-sandbox", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run"]
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium here: the page is not looked at in a browser")


@asynccontextmanager
async def served(page) -> AsyncIterator[str]:
    sock = serving.listen("127.0.0.1", 0, group="status")
    task = asyncio.create_task(serving.serve(create_app(page.house), sock, drain=2))
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
async def test_sign_in_see_an_order_press_retry(seeded, browser, scripts, tmp_path: Path):
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
        upload = tab.get_by_role("listitem").filter(has_text="Upload a report")
        assert "uploads the report" in await upload.inner_text()
        await upload.get_by_role("button", name="Retry").click()
        await tab.get_by_role("status").filter(has_text="is due now").wait_for()
        assert (await seeded.effect(EffectKind.DELIVER)).state is EffectState.DUE
        task = tab.get_by_role("listitem").filter(has_text="Set the status of a line's Task")
        await task.get_by_text("Settle it by hand").click()
        await task.get_by_label("It has happened").fill("seen on the service")
        await task.get_by_role("button", name="Mark as done").click()
        await tab.get_by_role("status").filter(has_text="was marked as done").wait_for()
        assert (await seeded.effect(EffectKind.LINE_TASK)).state is EffectState.DONE
        assert "marked done (seen on the service) by operator" in await tab.get_by_role("main").inner_text()
        await tab.get_by_role("button", name="Sign out").click()
        await tab.goto(base)
        assert tab.url.endswith("/sign-in")
        await context.close()
    assert complaints == []


async def test_the_page_keeps_itself_fresh_but_never_under_somebodys_hands(seeded, browser):
    async with served(seeded) as base:
        tab = await browser.new_page()
        await tab.clock.install()
        await tab.goto(f"{base}/waiting")
        await tab.get_by_label("Name").fill("operator")
        await tab.get_by_label("Password").fill("a long password")
        await tab.get_by_role("button", name="Sign in").click()
        held = tab.get_by_text("Order held")
        await held.wait_for()
        review = tab.get_by_role("listitem").filter(has_text="Hand the order to the laboratory system")
        await review.get_by_text("Settle it by hand").click()
        await review.get_by_label("It has happened").fill("half a sen")
        await seeded.write(lambda uow: uow.orders.save(uow.orders.take(HELD).become(OrderState.FETCHED, seeded.hands.now())))
        await tab.clock.run_for(30_000)
        assert await held.is_visible()
        assert await review.get_by_label("It has happened").input_value() == "half a sen"
        await review.get_by_text("Settle it by hand").click()
        await tab.get_by_role("heading", name="Waiting for you").click()
        await tab.clock.run_for(11_000)
        await held.wait_for(state="detached")
        assert await tab.get_by_text("Upload a report").is_visible()
