"""The transports of the demo's LIS: the agent's settings, the simulator's side, and the daily flow."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from lab_agent.bootstrap import build_adapters
from lab_agent.settings.root import load_settings
from lab_sandbox.demo.processes import program_path
from lab_sandbox.demo.workspace import CONNECTION_KINDS, create_workspace
from tests.harness.paths import ROOT
from tests.harness.proof import in_full


@pytest.mark.parametrize("kind", CONNECTION_KINDS)
def test_agent_settings_name_the_laboratory_systems(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    workspace = create_workspace(ROOT / "config", other_ports=True, lis=kind)
    monkeypatch.chdir(workspace.folder)
    settings = load_settings(workspace.agent_settings)
    statuses = build_adapters(settings).statuses
    assert [status.reason for status in statuses] == [None] * len(statuses)
    assert [status.name for status in statuses] == ([kind, "microbiology"] if kind == "hl7v2" else [kind])
    assert settings.lis.default == kind
    assert workspace.orders.is_dir()
    assert workspace.results.is_dir()


@in_full
@pytest.mark.proof
@pytest.mark.parametrize("kind", [kind for kind in CONNECTION_KINDS if kind != "folder"])
def test_daily_flow_passes_by_every_transport(kind: str) -> None:
    command = (program_path("lab-sandbox"), "demo", "--once", "--json", "--other-ports", "--lis", kind)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["ok"], done.stderr[-3000:]
