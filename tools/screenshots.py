"""`python -m tools.screenshots`: take the pictures of the documentation from the running demo, with Chromium.

Beside the demo's own flow, orders are sent as a clinic would, results come that fit nothing, and the hours before are filled
with a simulated week, so that lists and charts look as on a working day.
"""

from __future__ import annotations

import asyncio
import math
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from lab_agent.settings.root import load_settings
from lab_agent.store.activity_records import HOUR, HourlyActivity, Measure, hour_of, summarize
from lab_agent.store.opening import open_store
from lab_agent.store.unit_of_work import UnitOfWork

DOCS = Path(__file__).resolve().parent.parent / "docs"
IMAGES = DOCS / "images"
PAGES = {
    "overview": ("/", "The overview"),
    "orders": ("/orders", "The list of orders"),
    "order": ("ORDER", "One order"),
    "order-results": ("ORDER/results", "Its results, as the clinic sees them"),
    "judgement": ("ORDER/judgement", "Why it was judged so"),
    "patient-search": ("/orders/patient", "The search by patient"),
    "waiting": ("/waiting", "What waits for a person, by cause"),
    "failures": ("/failures", "Failures, by cause and age"),
    "match-desk": ("/results", "The match desk"),
    "refused-messages": ("/refused", "Refused messages"),
    "catalogue": ("/catalogue", "The catalogue"),
    "turnaround": ("/turnaround", "Tests that are stopped or delayed"),
    "alerts": ("/alerts", "Alerts"),
    "connection": ("/connection", "The connection to the exchange service"),
    "laboratory-systems": ("/adapters", "Laboratory systems"),
    "rules": ("/rules", "Rules"),
    "audit": ("/audit", "The audit"),
    "users": ("/users", "Users and their sessions"),
    "account": ("/account", "One's own account"),
}
"""By the names of their files: the address (`ORDER` is that of an order), and what is written above the pictures."""
LOOKS: Mapping[str, Mapping[str, object]] = {
    "light": {"color_scheme": "light", "viewport": {"width": 1280, "height": 800}},
    "dark": {"color_scheme": "dark", "viewport": {"width": 1280, "height": 800}},
    "phone": {"color_scheme": "light", "viewport": {"width": 390, "height": 800}},
}
_IN_README = {"status-page.png": "overview", "status-page-order.png": "order", "status-page-failures.png": "failures"}
_WHOLE = frozenset({"overview", "failures"})
"""Pages of which the whole is shown, not the first screen alone."""
_TOLD = {
    "base": re.compile(r"status page +(\S+) +\("),
    "user": re.compile(r"status page +\S+ +\(user ([^,]+),"),
    "password": re.compile(r"status page +\S+ +\(user [^,]+, password ([^)]+)\)"),
    "folder": re.compile(r"results of the LIS +(\S+)"),
    "settings": re.compile(r"settings +(\S+)"),
}
_RESULT = """{"kind": "report", "report_id": "%s", "status": "final", "accession": "%s",
"effective": "2026-03-01T08:00:00+03:00", "issued": "2026-03-01T09:00:00+03:00",
"observations": [{"code": {"system": "http://loinc.org", "code": "718-7"}, "value_quantity": {"value": 134.0, "unit": "g/L"}}]}"""
_WRONG_FILES = {
    "B-1001.json": _RESULT % ("B-1001", "77-0419"),
    "B-1002.json": _RESULT % ("B-1002", "77-0420"),
    "B-1003.json": '{"kind": "report", "report_id": "B-1003", "stat',
}
"""What the laboratory system sends for the pictures: two results of orders that nobody knows, and one file that is cut off."""
_SHOWN = "Results fit no order"
_PATIENCE = 90_000
"""Milliseconds until the page shows that."""
_ORDERS = 12


def main() -> None:
    """Take them all. Raises `RuntimeError` if the demo does not come up, or there is no Chromium."""
    chromium = shutil.which("chromium")
    if chromium is None:
        raise RuntimeError("there is no chromium on the path")
    with _running_demo() as told:
        _prepare(told)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            for look, options in LOOKS.items():
                _take_pictures(browser.new_context(reduced_motion="reduce", **options).new_page(), told, look)  # type: ignore[arg-type]
            browser.close()


def _prepare(told: Mapping[str, str]) -> None:
    """Let there be something to see."""
    settings = Path(told["settings"]) / "sandbox.toml"
    os.chdir(settings.parent.parent)  # as all programs of the demo: paths in its settings begin there
    _run("lab-agent", "user", "reveal", told["user"], "--on", "--config", str(settings))
    service = str(settings.with_name("sandbox-service.toml"))
    _run("lab-sandbox", "order", "--count", str(_ORDERS), "--timeout", "20", "--service", service, may_fail=True)
    asyncio.run(_simulate_week(settings))
    _send_wrong_files(Path(told["folder"]))


def _take_pictures(tab: Page, told: Mapping[str, str], look: str) -> None:
    """Take a picture of each page in one look."""
    _sign_in(tab, told)
    tab.get_by_text(_SHOWN).first.wait_for(timeout=_PATIENCE)
    tab.goto(told["base"] + "/orders")
    order = tab.locator("tbody th a").nth(_ORDERS // 2).get_attribute("href") or ""
    for name, (path, _) in PAGES.items():
        tab.goto(told["base"] + path.replace("ORDER", order))
        whole = name in _WHOLE and look != "phone"
        tab.screenshot(path=IMAGES / "status-page" / f"{name}-{look}.jpg", type="jpeg", quality=80, full_page=whole)
        for file in (file for file, of in _IN_README.items() if of == name and look == "light"):
            tab.screenshot(path=IMAGES / file, full_page=whole)


def _sign_in(tab: Page, told: Mapping[str, str]) -> None:
    tab.goto(told["base"])
    tab.get_by_label("Name").fill(told["user"])
    tab.get_by_label("Password").fill(told["password"])
    tab.get_by_role("button", name="Sign in").click()
    tab.get_by_role("heading", level=1).wait_for()


def _run(program: str, *words: str, may_fail: bool = False) -> None:
    """Run a program of ours; `may_fail` where it does not matter whether it saw the end of what it began."""
    path = Path(sys.executable).parent / program
    subprocess.run([path, *words], check=not may_fail, stdout=subprocess.DEVNULL)  # noqa: S603 - see above


def _send_wrong_files(folder: Path) -> None:
    for name, content in _WRONG_FILES.items():
        written = folder / f".{name}"
        written.write_text(content)
        written.rename(folder / name)


async def _simulate_week(settings: Path) -> None:
    """Write the hours of a week before now, as a laboratory has them that works from seven to seven."""
    store = open_store(load_settings(settings).store)
    now, chance = hour_of(datetime.now(UTC)), random.Random(7)  # noqa: S311 - made-up numbers
    hours = [each for back in range(1, 170) for each in _simulate_hour(now - back * HOUR, chance)]

    def write(uow: UnitOfWork) -> None:
        uow.activity.save(hours)

    await store.transact(write)
    await store.close()


def _simulate_hour(hour: datetime, chance: random.Random) -> Iterator[HourlyActivity]:
    at = hour + timedelta(minutes=30)
    day = max(0.0, math.sin(math.pi * (at.hour + at.minute / 60 - 6) / 14))
    orders, results = round(60 * day * chance.uniform(0.8, 1.2)), round(110 * day * chance.uniform(0.7, 1.2))
    slow = 4.0 if at.hour == 11 else 1.0

    def spread(mean: float, number: int) -> list[float]:
        return [mean * chance.lognormvariate(0, 0.4) for _ in range(number)]

    yield summarize(hour, Measure.ORDERS_SEEN, orders)
    yield summarize(hour, Measure.ORDERS_HANDED_OVER, orders, spread(7.5 * slow, orders))
    yield summarize(hour, Measure.RESULTS_RECEIVED, results)
    yield summarize(hour, Measure.RESULTS_DELIVERED, results, spread(1.4 * slow, results))
    yield summarize(hour, Measure.FAILURES, chance.randrange(12) if slow > 1 else 0)
    yield summarize(hour, Measure.EXCHANGE_CALLS, 240 + 9 * orders, spread(0.12 * slow, 240))


@contextmanager
def _running_demo() -> Iterator[dict[str, str]]:
    """Run the demo until its daily flow is over, and give what it tells (`_TOLD`)."""
    command = [Path(sys.executable).parent / "lab-sandbox", "demo", "--other-ports"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as demo:  # noqa: S603 - our own program
        try:
            yield _read_addresses(demo)
        finally:
            demo.send_signal(signal.SIGINT)


def _read_addresses(demo: subprocess.Popen[str]) -> dict[str, str]:
    told: dict[str, str] = {}
    for line in demo.stdout or ():
        for name, pattern in _TOLD.items():
            found = pattern.search(line)
            if (found and "base" in told) or (found and name in {"base", "user", "password"}):
                told[name] = found[1]
        if told.keys() == _TOLD.keys():
            return told
    raise RuntimeError("the demo ended before it had told its addresses")


if __name__ == "__main__":
    main()
