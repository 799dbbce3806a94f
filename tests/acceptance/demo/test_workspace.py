"""The working folder: a copy of the settings in which all addresses agree, whatever ports are free."""

from __future__ import annotations

import socket
import tomllib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from lab_agent.settings.root import load_settings
from lab_sandbox.demo.errors import DemoError
from lab_sandbox.demo.workspace import HOST, Workspace, create_workspace
from tests.harness.paths import ROOT

CONFIG = ROOT / "config"


@pytest.fixture
def temp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def ports_of(workspace: Workspace) -> dict[str, int | None]:
    agent = load_settings(workspace.agent_settings, {})
    laboratory = next(one for one in workspace.service_config.counterparties if one.kind == "laboratory")
    return {
        "service": workspace.service_config.port,
        "service in its code systems": urlsplit(workspace.service_config.base_url).port,
        "service as the agent sees it": urlsplit(str(agent.exchange.base_url)).port,
        "api": agent.api.port,
        "api in the counterparty card": urlsplit(str(laboratory.address)).port,
        "status": agent.status.port,
    }


def assert_consistent(ports: dict[str, int | None]) -> None:
    """All addresses of a program agree, and no two have one port."""
    assert ports["service"] == ports["service in its code systems"] == ports["service as the agent sees it"]
    assert ports["api"] == ports["api in the counterparty card"]
    assert len({ports["service"], ports["api"], ports["status"]}) == 3


@pytest.fixture
def occupied() -> Iterator[int]:
    wanted = int(tomllib.loads((CONFIG / "sandbox-service.toml").read_text())["port"])
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, wanted))
        except OSError:
            pass  # another program holds it already
        else:
            listener.listen()
        yield wanted


def test_occupied_port_moves_in_both_settings_files(temp: Path, occupied: int):
    ports = ports_of(create_workspace(CONFIG))
    assert ports["service"] != occupied
    assert_consistent(ports)


def test_workspaces_side_by_side_leave_checkout_unchanged(temp: Path):
    before = {path: path.read_bytes() for path in CONFIG.rglob("*") if path.is_file()}
    for workspace in [create_workspace(CONFIG, other_ports=True) for _ in range(2)]:
        ports = ports_of(workspace)
        assert_consistent(ports)
        assert not {8480, 8481, 8482} & set(ports.values())
        for path in (workspace.orders, workspace.results, workspace.lis, workspace.logs, workspace.agent_settings):
            assert path.exists()
            assert path.is_relative_to(temp)

    assert {path: path.read_bytes() for path in CONFIG.rglob("*") if path.is_file()} == before


def test_broken_settings_leave_no_folder(temp: Path):
    folder = temp / "config"
    folder.mkdir()
    (folder / "sandbox.toml").write_text("")
    (folder / "sandbox-service.toml").write_text("port = 'x'\n")
    with pytest.raises(DemoError, match=r"sandbox-service.toml: port"):
        create_workspace(folder)
    assert [path.name for path in temp.iterdir()] == ["config"]
