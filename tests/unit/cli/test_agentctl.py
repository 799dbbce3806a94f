"""`lab-agentctl`: which unit a command runs as, and what it gets of it. A real systemd runs it in the tests of deployment."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab_agent.cli.agentctl import build_command, find_site
from lab_agent.errors import InputError
from lab_agent.systemd_units import WORKER, parse_unit, unit_name
from tests.harness.paths import ROOT

UNITS = ROOT / "systemd"


def settings_of(folder: Path, *sites: str) -> Path:
    for site in sites:
        home = folder / (f"lab-agent-{site}" if site else "lab-agent")
        home.mkdir()
        (home / "lab-agent.toml").touch()
    return folder / "lab-agent"


def test_only_site_is_found_and_several_have_to_be_named(tmp_path: Path) -> None:
    for name, sites, found in (("one", [""], None), ("stage", ["stage"], "stage"), ("both", ["", "stage"], None)):
        (tmp_path / name).mkdir()
        assert find_site(settings_of(tmp_path / name, *sites)) == found
    with pytest.raises(InputError, match=f"neither {tmp_path}/lab-agent/lab-agent.toml"):
        find_site(tmp_path / "lab-agent")
    with pytest.raises(InputError, match=r"--site \(east, west\)"):
        find_site(settings_of(tmp_path, "west", "east"))


@pytest.mark.parametrize("site", [None, "stage"])
def test_command_runs_as_the_unit(tmp_path: Path, site: str | None) -> None:
    text = (UNITS / unit_name(WORKER, site).replace("@stage", "@")).read_text()
    name = "lab-agent" if site is None else "lab-agent-stage"
    config = settings_of(tmp_path, site or "").with_name(name) / "lab-agent.toml"
    service = parse_unit(text.replace("--config /etc/lab-agent", f"--config {tmp_path}/lab-agent"), site or "")
    command = build_command("unit", service, ["orders", "list"], {"SUDO_USER": "anna"}, is_terminal=False)
    assert command[-2:] == ["orders", "list"]
    assert "--pipe" in command
    assert f"--property=User={name}" in command
    assert f"--property=LoadCredential=settings:/etc/{name}/credentials" in command
    assert f"--setenv=LAB_AGENT_CONFIG={config}" in command
    assert "--setenv=SUDO_USER=anna" in command
    assert not any("Exec" in word or "Watchdog" in word for word in command)


def test_drop_in_changes_and_takes_back() -> None:
    unit = "[Service]\nUser=a\nLoadCredential=one:/1\nExecStart=/x --config /c.toml\n"
    drop_in = "# /etc/x.conf\n[Unit]\nUser=not this\n[Service]\nLoadCredential=\nLoadCredential=two:\\\n/2\n#User=b\n"
    service = parse_unit(unit + drop_in, "")
    assert service["LoadCredential"] == ["two: /2"]
    assert service["User"] == ["a"]


@pytest.mark.parametrize(
    ("command", "told"), [("/bin/true", "names no settings"), ("/bin/true --config /no/such.toml", "no settings /no/such.toml")]
)
def test_unit_without_settings_is_refused(command: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        build_command("mine.service", {"ExecStart": [command]}, [], {}, is_terminal=False)
