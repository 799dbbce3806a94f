"""The demo itself, as a process with all its programs: its verdict, its end, and nothing left behind however it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from lab_sandbox.partner.login import parse_form
from tests.harness.paths import ROOT

DEMO = (str(Path(sys.executable).with_name("lab-sandbox")), "demo", "--other-ports")
DEADLINE = 90.0


@contextmanager
def performed(*options: str, temp: Path) -> Iterator[subprocess.Popen[str]]:
    """A running demo whose working folder lies in `temp`; it is killed if the test leaves it running."""
    environment = {**os.environ, "TMPDIR": str(temp)}
    with subprocess.Popen(
        (*DEMO, *options), cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def lines_until(process: subprocess.Popen[str], pattern: str) -> list[str]:
    """Reads its output up to the first line that matches."""
    assert process.stdout is not None
    seen: list[str] = []
    for line in process.stdout:
        seen.append(line.rstrip())
        if re.search(pattern, line):
            return seen
    raise AssertionError("\n".join(seen))


def programs_in(temp: Path) -> dict[int, str]:
    """Processes that were started with something in this folder."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if any(str(temp).encode() in word for word in words):
                found[int(entry.name)] = " ".join(word.decode() for word in words)
    return found


def assert_nothing_is_left(temp: Path) -> None:
    deadline = time.monotonic() + 30
    while programs_in(temp) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert programs_in(temp) == {}


def assert_signs_in(address: str, name: str, password: str) -> None:
    """The user that the demo prints gets in, and sees the overview."""
    with httpx.Client(trust_env=False, follow_redirects=True, headers={"Origin": address}) as browser:
        page = browser.get(address)
        form = parse_form(page.text, str(page.url))
        assert form is not None
        inside = browser.post(form.action, data=form.fill(name, password))
    assert inside.status_code == 200
    assert "password" not in inside.text.lower()


@pytest.mark.timeout(300)
def test_once_ends_by_itself_with_passing_checks(tmp_path: Path):
    command = (*DEMO, "--once", "--json")
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=280, check=False)
    verdict = json.loads(ended.stdout.splitlines()[-1])
    assert ended.returncode == 0, ended.stderr
    assert verdict["ok"] is True
    assert [check for check in verdict["checks"] if not check["ok"]] == []
    assert len(verdict["checks"]) > 60
    assert set(verdict["orders"]) >= {"shared", "bad-line", "anonymous", "growing"}
    assert_nothing_is_left(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.proof
@pytest.mark.timeout(300)
def test_demo_stays_up_until_a_process_exits(tmp_path: Path):
    """It stays up with its addresses until a program dies."""
    with performed(temp=tmp_path) as process:
        seen = lines_until(process, r"^  logs ")
        places = dict(
            re.findall(r"^  (\S.*?)  +(\S+)", "\n".join(seen[seen.index("Everything stays up until Ctrl-C") :]), re.MULTILINE)
        )
        assert httpx.get(f"{places['exchange service']}healthz", trust_env=False).status_code == 200
        assert httpx.get(places["laboratory API"], trust_env=False).status_code == 200
        assert Path(places["orders for the LIS"]).is_dir()
        assert_signs_in(*re.findall(r"^  status page +(\S+)  \(name (\S+), password (\S+)\)$", "\n".join(seen), re.MULTILINE)[0])
        (agent,) = [
            pid
            for pid, words in programs_in(tmp_path).items()
            if "lab-agent run" in words and "demo.subprocess_guard" not in words
        ]
        os.kill(agent, signal.SIGKILL)
        seen = lines_until(process, "FAILED")
        assert "agent ended with exit code 137" in seen
        assert any("action=task_set" in line for line in seen), "the end of its log is shown"
        assert process.wait(DEADLINE) == 1
    assert_nothing_is_left(tmp_path)


@pytest.mark.parametrize(
    "sent", [signal.SIGKILL, *(pytest.param(one, marks=pytest.mark.proof) for one in (signal.SIGINT, signal.SIGTERM))]
)
def test_interrupted_demo_leaves_nothing_behind(tmp_path: Path, sent: signal.Signals):
    with performed("--once", temp=tmp_path) as process:
        lines_until(process, "agent is ready")
        assert programs_in(tmp_path)
        process.send_signal(sent)
        assert process.wait(DEADLINE) == (-sent if sent is signal.SIGKILL else 1)
    assert_nothing_is_left(tmp_path)


def test_folder_without_settings_reported(tmp_path: Path):
    ended = subprocess.run(
        (*DEMO, "--once", "--config-dir", "elsewhere"), cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert "elsewhere/sandbox.toml: there is no such file; run the demo in the root of the checkout" in ended.stdout
