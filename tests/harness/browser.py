"""Debian's Chromium, driven by Playwright: the pages of a program that runs, as a person uses them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.harness.clock import DEADLINE
from tests.harness.proof import in_turn

CHROMIUM = shutil.which("chromium")
ARGS = ["--no-sandbox", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run"]
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="there is no chromium here (apt-get install chromium): the page is not looked at in a browser"
)
with_and_without_scripts = pytest.mark.parametrize(
    "scripts", in_turn([True, False], 2), ids=lambda scripts: "with scripts" if scripts else "without scripts"
)


@contextmanager
def running_browser() -> Iterator[Browser]:
    """A headless Chromium. Until it ends, the thread can run no other event loop."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGS)
        try:
            yield browser
        finally:
            browser.close()


@dataclass(frozen=True)
class Visit:
    """Somebody's tab, and what it should not have: requests to other hosts, and errors in the console."""

    tab: Page
    foreign: list[str]
    complaints: list[str]


@contextmanager
def visit(browser: Browser, base: str, **options: Any) -> Iterator[Visit]:
    """A tab of a browser that knows nothing yet; it must end without requests to other hosts and errors in the console."""
    context = browser.new_context(base_url=base, **options)
    try:
        context.set_default_timeout(DEADLINE * 500)
        visited = Visit(context.new_page(), [], [])
        _listen(visited, base)
        yield visited
        assert (visited.foreign, visited.complaints) == ([], [])
    finally:
        context.close()


def sign_in(tab: Page, name: str, password: str, path: str = "/") -> None:
    """Ask for a page, and sign in by the form that comes instead."""
    tab.goto(path)
    tab.get_by_label("Name").fill(name)
    tab.get_by_label("Password").fill(password)
    tab.get_by_role("button", name="Sign in").click()
    tab.wait_for_url(f"**{path}")


def sign_out(tab: Page) -> None:
    tab.get_by_role("button", name="Sign out").click()
    tab.wait_for_url("**/sign-in**")


def _listen(visited: Visit, base: str) -> None:
    def requested(url: str) -> None:
        if not url.startswith((f"{base}/", "data:")):
            visited.foreign.append(url)

    def told(kind: str, text: str) -> None:
        if kind in {"error", "warning"}:
            visited.complaints.append(text)

    visited.tab.on("request", lambda request: requested(request.url))
    visited.tab.on("console", lambda message: told(message.type, message.text))
    visited.tab.on("pageerror", lambda error: visited.complaints.append(str(error)))
