"""The demo as a process with all its programs: its result, its exit, and nothing left behind however it ends."""

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
from typer.testing import CliRunner

from lab_sandbox.cli import app
from tests.harness.paths import ROOT
from tests.harness.proof import in_full

DEMO = (str(Path(sys.executable).with_name("lab-sandbox")), "demo", "--other-ports")
DEADLINE = 90.0


@contextmanager
def running_demo(*options: str, temp: Path) -> Iterator[subprocess.Popen[str]]:
    """A running demo whose working folder is in `temp`; it is killed if the test leaves it running."""
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
    read: list[str] = []
    for line in process.stdout:
        read.append(line.rstrip())
        if re.search(pattern, line):
            return read
    raise AssertionError("\n".join(read))


def programs_in(temp: Path) -> dict[int, str]:
    """Processes with an argument in this folder."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                arguments = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if any(str(temp).encode() in one for one in arguments):
                found[int(entry.name)] = " ".join(one.decode() for one in arguments)
    return found


def assert_nothing_left(temp: Path) -> None:
    deadline = time.monotonic() + DEADLINE
    while programs_in(temp) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert programs_in(temp) == {}


def assert_demo_passes(temp: Path, *options: str) -> None:
    environment = {**os.environ, "TMPDIR": str(temp)}
    command = (*DEMO, "--once", "--json", *options)
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=580, check=False)
    result = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("status page: http://127.0.0.1:") == 2, "at the beginning, and at the end"
    assert result["ok"] is True
    assert [check for check in result["checks"] if not check["ok"]] == []
    assert len(result["checks"]) > 60
    assert set(result["orders"]) >= {"shared-tubes", "unknown-code", "anonymous", "culture"}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_once_ends_by_itself_with_passing_checks(tmp_path: Path):
    """By default with a strict service, as `make demo` runs it."""
    assert_demo_passes(tmp_path)
    assert_nothing_left(tmp_path)
    assert list(tmp_path.iterdir()) == []


LOST_REPLIES = """
[[faults]]
kind = "canonical_references"
route = "*/fhir/*"

[[faults]]
kind = "lost_reply"
route = "POST /fhir/Observation"
count = 5
"""
"""A service that spells references its own way, so that a value that is read back never looks like the one sent."""


@in_full
@pytest.mark.proof
@pytest.mark.timeout(600)
def test_plain_service_with_own_spelling_and_lost_replies(tmp_path: Path):
    plan = tmp_path / "lost-replies.toml"
    plan.write_text(LOST_REPLIES)
    assert_demo_passes(tmp_path, "--plain", "--faults", str(plan))


@in_full
@pytest.mark.proof
@pytest.mark.timeout(600)
def test_strict_service_on_a_bad_day(tmp_path: Path):
    assert_demo_passes(tmp_path, "--faults", "config/bad-day.toml", "--patience", "180")


@in_full
@pytest.mark.proof
@pytest.mark.timeout(300)
def test_demo_stays_up_until_a_process_exits(tmp_path: Path):
    with running_demo(temp=tmp_path) as process:
        lines = lines_until(process, r"^  logs ")
        addresses = dict(
            re.findall(
                r"^  (\S.*?)  +(\S+)", "\n".join(lines[lines.index("All programs keep running until Ctrl-C") :]), re.MULTILINE
            )
        )
        assert httpx.get(f"{addresses['exchange service']}healthz", trust_env=False, timeout=DEADLINE).status_code == 200
        assert httpx.get(addresses["laboratory API"], trust_env=False, timeout=DEADLINE).status_code == 200
        assert Path(addresses["orders for the LIS"]).is_dir()
        (agent,) = [
            pid
            for pid, command in programs_in(tmp_path).items()
            if "lab-agent run" in command and "demo.subprocess_guard" not in command
        ]
        os.kill(agent, signal.SIGKILL)
        lines = lines_until(process, "FAILED")
        assert "The agent exited with code 137." in lines
        assert any("action=task_set" in line for line in lines), "the end of its log is printed"
        assert process.wait(DEADLINE) == 1
    assert_nothing_left(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "sent", [signal.SIGKILL, *(pytest.param(one, marks=[pytest.mark.proof, in_full]) for one in (signal.SIGINT, signal.SIGTERM))]
)
def test_interrupted_demo_leaves_nothing_behind(tmp_path: Path, sent: signal.Signals):
    with running_demo("--once", temp=tmp_path) as process:
        lines_until(process, "agent is ready")
        assert programs_in(tmp_path)
        process.send_signal(sent)
        assert process.wait(DEADLINE) == (-sent if sent is signal.SIGKILL else 1)
    assert_nothing_left(tmp_path)


def test_folder_without_settings_reported():
    done = CliRunner().invoke(app, ["demo", "--once", "--config-dir", "elsewhere"])
    assert done.exit_code == 1
    assert "elsewhere/sandbox.toml does not exist. Run the demo in the root of the checkout" in done.output
