"""Which units an installation has, and what is in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab_agent.conditions.ids import ConditionId
from lab_agent.conditions.model import OpenCondition
from lab_agent.conditions.table import CONDITIONS
from lab_agent.notification.text import to_text
from lab_agent.systemd_units import (
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
