"""The systemd units are valid and hardened. test_install_docs.py runs them under a systemd."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lab_agent.settings.api import ApiSettings
from lab_agent.settings.groups import WorkerSettings
from lab_agent.shared.web_server import MAX_CONNECTIONS
from tests.harness.paths import ROOT
from tools.docs.unit_templates import render_unit_templates

UNITS = ROOT / "systemd"
NAMES = ("lab-agent", "lab-api")
ALL_NAMES = (*NAMES, "lab-agent-backup", "lab-agent@", "lab-api@", "lab-agent-backup@")


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze")
    return subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True, check=False)


def read(name: str) -> str:
    return (UNITS / f"{name}.service").read_text()


def number(name: str, setting: str) -> int:
    found = re.search(rf"^{setting}=(\d+)$", read(name), flags=re.MULTILINE)
    assert found is not None
    return int(found[1])


@pytest.mark.parametrize("name", ALL_NAMES)
def test_unit_is_valid_and_its_exposure_low(name: str, tmp_path: Path):
    """Verified with another program, as ours need not be installed in /opt."""
    unit = tmp_path / f"{name}.service"
    unit.write_text(re.sub(r"(ExecStart(Pre)?=-?)/opt\S+", rf"\1{sys.executable}", read(name)))
    done = analyze("verify", str(unit))
    assert [line for line in done.stderr.splitlines() if name in line] == []
    assert done.returncode == 0, done.stderr
    done = analyze("security", "--offline=true", "--threshold=11", "--no-pager", str(UNITS / f"{name}.service"))
    assert done.returncode == 0, done.stdout[-400:]
    assert re.search(rf"exposure level for {name}i?.service: (0\.\d|1\.[01]) OK", done.stdout)


@pytest.mark.parametrize("name", NAMES)
def test_unit_gives_time_to_stop_and_files_for_connections(name: str):
    """More seconds than a shutdown takes, and as many open files as the connection limits assume."""
    drain = WorkerSettings().drain_timeout + 10 if name == "lab-agent" else ApiSettings().drain
    assert number(name, "TimeoutStopSec") > drain
    assert number(name, "LimitNOFILE") >= 4 * MAX_CONNECTIONS


@pytest.mark.parametrize("name", ALL_NAMES)
def test_every_unit_gets_all_secrets(name: str) -> None:
    """They read the same settings, which are invalid without the secrets that they ask for."""
    folder = "/etc/lab-agent-%i" if name.endswith("@") else "/etc/lab-agent"
    credentials = [line for line in read(name).splitlines() if "Credential" in line]
    assert credentials == [f"LoadCredential=settings:{folder}/credentials"]


def test_templates_are_current_and_of_no_single_site() -> None:
    """To update them: `python -m tools.docs`."""
    rendered = dict(render_unit_templates())
    assert {each.name: each.read_text() for each in UNITS.iterdir() if each.stem.endswith("@")} == rendered
    for text in rendered.values():
        settings = "\n".join(line for line in text.splitlines() if not line.startswith(("#", "ExecStart", "Description")))
        assert not re.search(r"lab-(agent|api)(?![-@]\S*%i|-backup@%i)", settings), text
