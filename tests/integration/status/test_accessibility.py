"""Every page looked at by axe, in both themes and on a phone: no fault that is serious or moderate, and no foreign address."""

from __future__ import annotations

import re
from typing import Any

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser

from lab_agent.catalogue.spreadsheet.csv_files import read_tables
from lab_agent.catalogue.versions import activate, load_active_catalogue
from lab_agent.results.refused_messages import record_refusal
from lab_agent.results.refused_records import RefusedContent
from tests.harness import status_pages
from tests.harness.browser import needs_chromium
from tests.harness.canaries import page_routes
from tests.harness.paths import CATALOGUE
from tests.harness.proof import Figures, in_turn
from tests.integration.status.conftest import PASSWORD, offer_catalogue, served

FILLED = {
    "/orders/{key}": "/orders/R0000000000GOOD",
    "/orders/{key}/judgement": "/orders/R0000000000GOOD/judgement",
    "/orders/{key}/results": "/orders/R0000000000GOOD/results",
    "/orders/{key}/raw": "/orders/R0000000000GOOD/raw",
    "/waiting/members": "/waiting/members?cause=jobs.other",
    "/waiting/all/{action}": "/waiting/all/retry?cause=jobs.other",
    "/failures/members": "/failures/members?cause=jobs.other",
    "/catalogue/tests/{code}": "/catalogue/tests/001.001",
    "/rules/{rule}": "/rules/order.contract",
    "/audit/{number}": "/audit/1",
}
"""Addresses of pages that need a name or a query."""
MORE = ("/?span=7d", "/orders?search=nothing", "/orders?cause=order.contract-known", "/orders/R00000000DOUBT", "/no-such-page")
OF_RESULTS = ("/results/{key}", "/results/{key}/match")
OF_REFUSED = "/refused/{key}"
NO_PAGES = {"/healthz", "/readyz", "/metrics", "/orders.csv", "/audit.csv", "/sign-in/oidc", "/sign-in/oidc/return"}
NO_PAGES |= {"/results/{key}/documents/{number}", "/sign-in", OF_REFUSED, *OF_RESULTS}
"""Routes that give no page, or are looked at by an address of the moment."""
PAGES = (*(FILLED.get(route, route) for route in page_routes() if route not in NO_PAGES), *MORE, "/results?state=delivered")
DESKTOP, PHONE = {"width": 1300, "height": 900}, {"width": 390, "height": 844}
EVERYTHING, OF_COLOURS, OF_ALL_ELSE = "{}", '{runOnly: ["cat.color"]}', "{rules: {'color-contrast': {enabled: false}}}"
"""Options of axe."""
MILD = {"minor"}
pytestmark = needs_chromium


@pytest.fixture
async def furnished(seeded: Any) -> tuple[Any, str, str]:
    """The page with something on each of its lists; the key of a result that waits, and the address of a refused message."""
    await status_pages.add_orders(seeded)
    key = await status_pages.unmatched_result(seeded)
    store, now = seeded.context.store, seeded.clock.now()
    await activate(store, read_tables(CATALOGUE), origin="a.xlsx", by="ana", now=now)
    offer_catalogue(seeded, await load_active_catalogue(store))
    await seeded.context.accounts.set_reveal("admin", may_reveal=True, now=now)
    content = RefusedContent(message_id="a.hl7", raw=b"MSH|no message")
    await seeded.write(lambda uow: record_refusal(uow, "folder", content, "the file is no table", now))
    (message,), _ = await store.transact(lambda uow: uow.refused_messages.list(limit=1))
    return seeded, key, OF_REFUSED.format(key=message.key)


def test_every_page_is_looked_at() -> None:
    """A page with a name in its address is not added without one to look at."""
    assert [path for path in PAGES if "{" in path] == []


@pytest.mark.proof
@pytest.mark.timeout(600)  # some forty pages, looked at three times each
async def test_no_page_has_a_fault(furnished: tuple[Any, str, str], browser: Browser, figures: Figures) -> None:
    pages, key, refused = furnished
    faults: list[str] = []
    async with served(pages) as base:
        context = await browser.new_context()
        tab = await context.new_page()
        tab.on("request", lambda request: None if request.url.startswith((base, "data:")) else faults.append(request.url))
        await tab.goto(f"{base}/sign-in")
        faults += await look_for_faults(tab, "/sign-in")
        await tab.get_by_label("Name").fill("admin")
        await tab.get_by_label("Password").fill(PASSWORD)
        await tab.get_by_role("button", name="Sign in").click()
        await tab.get_by_role("heading", level=1).wait_for()
        paths = in_turn([*PAGES, *(path.format(key=key) for path in OF_RESULTS), refused], 3)
        for path in paths:
            await tab.goto(base + path)
            faults += await look_for_faults(tab, path)
        await context.close()
    assert faults == []
    figures.add(pages=len(paths) + 1, faults_of_accessibility=0)


async def look_for_faults(tab: Any, path: str) -> list[str]:
    """Everything in the light theme, what a theme changes in the dark one, and on a phone what the width changes."""
    await tab.set_viewport_size(DESKTOP)
    await tab.emulate_media(color_scheme="light")
    await tab.evaluate(Axe().axe_script)
    faults = await run_axe(tab, f"{path}, light", EVERYTHING) + await measure_width(tab, path)
    await tab.emulate_media(color_scheme="dark")
    faults += await run_axe(tab, f"{path}, dark", OF_COLOURS)
    await tab.set_viewport_size(PHONE)
    return faults + await run_axe(tab, f"{path}, phone", OF_ALL_ELSE) + await measure_width(tab, f"{path}, phone")


async def measure_width(tab: Any, path: str) -> list[str]:
    width = await tab.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    return [f"{path}: {width} px wider than the window"] if width > 0 else []


async def run_axe(tab: Any, path: str, options: str) -> list[str]:
    found = await tab.evaluate(
        f"axe.run(document, {{resultTypes: ['violations'], ...{options}}}).then(found => found.violations)"
    )
    return [
        f"{path}: {each['id']} ({each['impact']}): {re.sub(r'[ ]+', ' ', each['nodes'][0]['html'])[:160]}"
        for each in found
        if each["impact"] not in MILD
    ]
