"""`python -m tools.screenshots`: take the pictures of the documentation from the running demo, with Chromium."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import sync_playwright

IMAGES = Path(__file__).parent.parent / "docs" / "images"
PICTURES = {"status-page.png": "/"}
"""The pages of the status page that are shown, by the names of their files."""
_SIZE = {"width": 1280, "height": 800}
_ADDRESS = re.compile(r"status page +(?P<base>\S+) +\(user (?P<user>\S+), password (?P<password>[^)]+)\)")
_RESULTS = re.compile(r"results of the LIS +(?P<folder>\S+)")
_RESULT = """{"kind": "report", "report_id": "%s", "status": "final", "accession": "%s",
"effective": "2026-03-01T08:00:00+03:00", "issued": "2026-03-01T09:00:00+03:00",
"observations": [{"code": {"system": "http://loinc.org", "code": "718-7"}, "value_quantity": {"value": 134.0, "unit": "g/L"}}]}"""
_WRONG_FILES = {
    "B-1001.json": _RESULT % ("B-1001", "77-0419"),
    "B-1002.json": _RESULT % ("B-1002", "77-0420"),
    "B-1003.json": '{"kind": "report", "report_id": "B-1003", "stat',
}
"""What the laboratory system sends for the picture: two results of orders that nobody knows, and one file that is cut off."""
_SHOWN = ("Results fit no order", "were refused")
_OVER = "without a mapping"
_PATIENCE = 90_000
"""Milliseconds until the page shows that, and not what the demo itself was about."""


def main() -> None:
    """Take them all. Raises `RuntimeError` if the demo does not come up, or there is no Chromium."""
    chromium = shutil.which("chromium")
    if chromium is None:
        raise RuntimeError("there is no chromium on the path")
    with _running_demo() as found, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        tab = browser.new_page(viewport=_SIZE, color_scheme="light", reduced_motion="reduce")
        tab.goto(found["base"])
        tab.get_by_label("Name").fill(found["user"])
        tab.get_by_label("Password").fill(found["password"])
        tab.get_by_role("button", name="Sign in").click()
        tab.get_by_role("navigation").wait_for()
        _send_wrong_files(Path(found["folder"]))
        told = tab.get_by_role("listitem").locator("h3")
        for title in _SHOWN:
            told.filter(has_text=title).wait_for(timeout=_PATIENCE)
        told.filter(has_text=_OVER).wait_for(state="detached", timeout=_PATIENCE)
        for name, path in PICTURES.items():
            tab.goto(found["base"] + path)
            tab.screenshot(path=IMAGES / name)
        browser.close()


def _send_wrong_files(folder: Path) -> None:
    for name, content in _WRONG_FILES.items():
        written = folder / f".{name}"
        written.write_text(content)
        written.rename(folder / name)


@contextmanager
def _running_demo() -> Iterator[dict[str, str]]:
    """Run the demo until its daily flow is over, and give what it tells: `base`, `user`, `password`, and the LIS's `folder`."""
    command = [Path(sys.executable).parent / "lab-sandbox", "demo", "--other-ports"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as demo:  # noqa: S603 - our own program
        try:
            yield _read_addresses(demo)
        finally:
            demo.send_signal(signal.SIGINT)


def _read_addresses(demo: subprocess.Popen[str]) -> dict[str, str]:
    told: dict[str, str] = {}
    for line in demo.stdout or ():
        for pattern in (_ADDRESS, _RESULTS):
            found = pattern.search(line)
            told |= found.groupdict() if found else {}
        if {"base", "folder"} <= told.keys():
            return told
    raise RuntimeError("the demo ended before it had told the address of its status page")


if __name__ == "__main__":
    main()
