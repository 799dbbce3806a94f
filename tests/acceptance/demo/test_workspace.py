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
from lab_sandbox.demo.runner import build_account
from lab_sandbox.demo.toml_edit import set_values
from lab_sandbox.demo.workspace import HOST, Workspace, create_workspace
from lab_sandbox.faults.plan import load_plan
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
    """All files are in the working folders, and each has ports of its own."""
    before = {path: path.read_bytes() for path in CONFIG.rglob("*") if path.is_file()}
    for workspace in [create_workspace(CONFIG, other_ports=True) for _ in range(2)]:
        ports = ports_of(workspace)
        assert_consistent(ports)
        assert not {8480, 8481, 8482} & set(ports.values())
        for path in (workspace.orders, workspace.results, workspace.lis, workspace.logs, workspace.agent_settings):
            assert path.exists()
            assert path.is_relative_to(temp)
        assert (workspace.folder / load_settings(workspace.agent_settings, {}).api.catalogue).is_dir()
    assert {path: path.read_bytes() for path in CONFIG.rglob("*") if path.is_file()} == before


def test_broken_settings_reported(temp: Path):
    folder = temp / "config"
    folder.mkdir()
    for agent, service, said in (
        (None, None, r"sandbox.toml does not exist"),
        ("[api\n", "port = 'x'\n", r"sandbox.toml is not valid TOML"),
        ("", "port = 'x'\n", r"sandbox-service.toml: port"),
        ("", "", r"sandbox.toml: the demo needs \[api\] port"),
    ):
        if agent is not None:
            (folder / "sandbox.toml").write_text(agent)
            (folder / "sandbox-service.toml").write_text(service)
        with pytest.raises(DemoError, match=said):
            create_workspace(folder)
    assert [path.name for path in temp.iterdir()] == ["config"], "no working folder is left"


@pytest.mark.usefixtures("temp")
def test_strict_workspace_spells_types_in_their_case():
    """And the plan of faults reaches the service."""
    faults = CONFIG / "bad-day.toml"
    plain, strict = (create_workspace(CONFIG, other_ports=True, strict=one, faults=faults) for one in (False, True))
    assert plain.service_config.faults == str(faults)
    assert load_plan(faults).faults
    assert (plain.service_config.strict, strict.service_config.strict) == (False, True)
    assert plain.service_config.search_age_seconds == 0
    assert 0 < strict.service_config.search_age_seconds < 60
    assert "paths" not in plain.agent_config["exchange"]
    assert strict.agent_config["exchange"]["paths"]["read"] == "fhir/{Resource}/{id}"
    assert (build_account(plain).spelling, build_account(strict).spelling) == ("lower", "fhir")


def test_toml_values_set_in_place(tmp_path: Path):
    file = tmp_path / "a.toml"
    file.write_text("# top\na = 1\n\n[t]  # not this\n[x]\nb = 2  # two\nbb = 3\n")
    set_values(file, "", {"a": 7, "strict": True})
    set_values(file, "x", {"b": "ü", "c": 1.5})
    set_values(file, "y.z", {"d": "{id}"})
    assert tomllib.loads(file.read_text()) == {
        "a": 7, "strict": True, "t": {}, "x": {"b": "ü", "bb": 3, "c": 1.5}, "y": {"z": {"d": "{id}"}},
    }  # fmt: skip
    assert file.read_text().count("# top") == 1
