"""The systemd units are valid and hardened. test_install_docs.py runs them under a systemd."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lab_agent.web_server import MAX_CONNECTIONS
from tests.harness.paths import ROOT
from tools.docs.unit_templates import render_unit_templates

UNITS = ROOT / "systemd"
NAMES = ("lab-agent", "lab-api")
ALL_NAMES = (*NAMES, "lab-agent-backup", "lab-agent@", "lab-api@", "lab-agent-backup@")


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze")
    return subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", ALL_NAMES)
def test_unit_is_valid(name: str, tmp_path: Path):
    """Verified with another program, as ours need not be installed in /opt."""
    text = (UNITS / f"{name}.service").read_text()
    unit = tmp_path / f"{name}.service"
    unit.write_text(re.sub(r"(ExecStart(Pre)?=-?)/opt\S+", rf"\1{sys.executable}", text))
    done = analyze("verify", str(unit))
    warnings = [line for line in done.stderr.splitlines() if name in line]
    assert warnings == []
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ALL_NAMES)
def test_unit_exposure_is_low(name: str):
    done = analyze("security", "--offline=true", "--threshold=11", "--no-pager", str(UNITS / f"{name}.service"))
    assert done.returncode == 0, done.stdout[-400:]
    assert re.search(rf"exposure level for {name}i?.service: (0\.\d|1\.[01]) OK", done.stdout)


@pytest.mark.parametrize("name", NAMES)
def test_unit_stop_timeout_exceeds_shutdown_time(name: str):
    from lab_agent.settings.api import ApiSettings  # noqa: PLC0415
    from lab_agent.settings.groups import WorkerSettings  # noqa: PLC0415

    text = (UNITS / f"{name}.service").read_text()
    stop_timeout = int(re.search(r"^TimeoutStopSec=(\d+)$", text, flags=re.MULTILINE)[1])  # type: ignore[index]
    drain = WorkerSettings().drain_timeout + 10 if name == "lab-agent" else ApiSettings().drain
    assert stop_timeout > drain


@pytest.mark.parametrize("name", NAMES)
def test_unit_file_limit_covers_connection_limits(name: str):
    """A unit allows as many open files as the connection limits assume."""
    text = (UNITS / f"{name}.service").read_text()
    assert int(re.search(r"^LimitNOFILE=(\d+)$", text, flags=re.MULTILINE)[1]) >= 4 * MAX_CONNECTIONS  # type: ignore[index]


@pytest.mark.parametrize("name", ALL_NAMES)
def test_every_unit_gets_all_secrets(name: str) -> None:
    """They read the same settings, which are invalid without the secrets that they ask for."""
    folder = "/etc/lab-agent-%i" if name.endswith("@") else "/etc/lab-agent"
    lines = (UNITS / f"{name}.service").read_text().splitlines()
    assert [line for line in lines if "Credential" in line] == [f"LoadCredential=settings:{folder}/credentials"]


def test_templates_are_current() -> None:
    """To update them: `python -m tools.docs`."""
    written = {each.name: each.read_text() for each in UNITS.iterdir() if each.stem.endswith("@")}
    assert written == dict(render_unit_templates())


def test_template_has_nothing_of_the_only_site() -> None:
    for _, text in render_unit_templates():
        settings = "\n".join(line for line in text.splitlines() if not line.startswith(("#", "ExecStart", "Description")))
        assert not re.search(r"lab-(agent|api)(?![-@]\S*%i|-backup@%i)", settings), text
