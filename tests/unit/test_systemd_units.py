"""Which units an installation has, what is in them, and what a command gets of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab_agent.cli.agentctl import build_command, find_site
from lab_agent.operations.notification.text import to_text
from lab_agent.shared.conditions.model import ConditionId, OpenCondition
from lab_agent.shared.conditions.table import CONDITIONS
from lab_agent.shared.errors import InputError
from lab_agent.shared.systemd_units import (
    WORKER,
    credential_names,
    parse_unit,
    settings_file,
    site_of,
    typed,
    unit_name,
    unit_variables,
    with_typed_commands,
)
from tests.harness.notifications import NOW, make_item, make_message
from tests.harness.paths import ROOT


def test_site_is_of_the_settings_folder() -> None:
    for config, site in {
        "/etc/lab-agent/lab-agent.toml": "",
        "/etc/lab-agent-stage/lab-agent.toml": "stage",
        "/etc/lab-agent-/lab-agent.toml": "",
        "/etc/lab-agent/other.toml": None,
        "/etc/lab/lab-agent.toml": None,
        "/srv/lab-agent-stage/lab-agent.toml": None,
        "/srv/lab-agent/lab-agent.toml": None,
    }.items():
        assert site_of(Path(config)) == site, config
    assert site_of(None) is None
    names = [unit_name("lab-api", site) for site in (None, "", "stage")]
    assert names == ["lab-api.service", "lab-api.service", "lab-api@stage.service"]


def test_unit_says_what_its_program_gets() -> None:
    service = parse_unit(
        '[Service]\nExecStart=/x run --config /etc/%i.toml\nEnvironment="A=1 2" B=3\nEnvironment=C=\n'
        "LoadCredential=settings:/etc/folder\nSetCredential=one:text\n",
        "stage",
    )
    assert settings_file(service) == Path("/etc/stage.toml")
    assert unit_variables(service) == {"A": "1 2", "B": "3", "C": ""}
    assert credential_names(service) == ("settings", "one")


INSTALLED, STAGE, CHECKOUT = "/etc/lab-agent/lab-agent.toml", "/etc/lab-agent-stage/lab-agent.toml", "/home/anna/lab-agent.toml"


@pytest.mark.parametrize(
    ("words", "variable", "has_control", "name"),
    [
        (["run", "--config", INSTALLED], "", True, "lab-agentctl"),
        (["check", f"--config={INSTALLED}"], CHECKOUT, True, "lab-agentctl"),
        (["check", "-c", STAGE], "", True, "lab-agentctl --site stage"),
        (["status"], STAGE, True, "lab-agentctl --site stage"),
        (["status"], INSTALLED, False, "lab-agent"),
        (["status"], CHECKOUT, True, "lab-agent"),
        (["check", "--config", CHECKOUT], INSTALLED, True, "lab-agent"),
        (["status", "--config"], INSTALLED, True, "lab-agentctl"),
        (["status"], "", True, "lab-agent"),
    ],
)
def test_command_is_the_one_that_people_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], variable: str, has_control: bool, name: str
) -> None:
    if has_control:
        (tmp_path / "lab-agentctl").touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("LAB_AGENT_CONFIG", variable)
    monkeypatch.setattr("sys.argv", ["lab-agent", *words])
    assert typed("lab-agent check --files") == f"{name} check --files"
    assert typed("") == ""
    assert typed("lab-api hash-password") == "lab-api hash-password"
    assert OpenCondition(condition=CONDITIONS[ConditionId.STORE_OTHER_SCHEMA], since=NOW).command == f"{name} db upgrade"
    assert to_text(make_message(make_item())).endswith(f"{name} status")
    assert with_typed_commands("lab-agent: run `lab-agent db upgrade`, see `lab-agent.toml`") == (
        f"lab-agent: run `{name} db upgrade`, see `lab-agent.toml`"
    )


@pytest.mark.parametrize(
    ("config", "command", "told"),
    [
        (INSTALLED, "systemctl stop lab-agent lab-api", "systemctl stop lab-agent lab-api"),
        (STAGE, "systemctl stop lab-agent lab-api", "systemctl stop lab-agent@stage lab-api@stage"),
        (STAGE, "journalctl -u lab-agent-backup", "journalctl -u lab-agent-backup@stage"),
        (STAGE, "systemctl start lab-agent-backup.timer", "systemctl start lab-agent-backup@stage.timer"),
        (STAGE, "systemctl status lab-agent@stage", "systemctl status lab-agent@stage"),
        (STAGE, "systemctl status lab-agent-backup@stage.service", "systemctl status lab-agent-backup@stage.service"),
        (INSTALLED, "lab-agent run", "systemctl start lab-agent"),
        (STAGE, "lab-api run", "systemctl start lab-api@stage"),
        (CHECKOUT, "lab-agent run", "lab-agent run"),
        (CHECKOUT, "systemctl stop lab-agent lab-api", "systemctl stop lab-agent lab-api"),
    ],
)
def test_command_names_the_units_of_the_site(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: str, command: str, told: str
) -> None:
    (tmp_path / "lab-agentctl").touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("LAB_AGENT_CONFIG", config)
    monkeypatch.setattr("sys.argv", ["lab-agent"])
    assert typed(command) == told
    assert with_typed_commands(f"Here: `{command}`, and `{command}`.") == f"Here: `{told}`, and `{told}`."
    found = OpenCondition(condition=CONDITIONS[ConditionId.STORE_OTHER_SCHEMA], since=NOW, detail=f"run `{command}`")
    assert found.cause.endswith(f": run `{told}`")


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
