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
        for name, path in PICTURES.items():
            tab.goto(found["base"] + path)
            tab.screenshot(path=IMAGES / name)
        browser.close()


@contextmanager
def _running_demo() -> Iterator[re.Match[str]]:
    """Run the demo until its daily flow is over, and give its status page: `base`, `user`, `password`."""
    command = [Path(sys.executable).parent / "lab-sandbox", "demo", "--other-ports"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as demo:  # noqa: S603 - our own program
        try:
            yield _find_address(demo)
        finally:
            demo.send_signal(signal.SIGINT)


def _find_address(demo: subprocess.Popen[str]) -> re.Match[str]:
    for line in demo.stdout or ():
        found = _ADDRESS.search(line)
        if found:
            return found
    raise RuntimeError("the demo ended before it had told the address of its status page")


if __name__ == "__main__":
    main()
