"""`lab-agent check` on a machine whose units a stand-in for systemd knows: each is tried with what it gets."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness.paths import ROOT
from tests.integration.cli.conftest import KEY, SETTINGS, Cli

SYSTEMCTL = """#!/bin/sh
for unit; do :; done
[ "$1" = cat ] && exec cat "{folder}/$unit"
"""
API, BACKUP = "lab-api.service", "lab-agent-backup.service"
OWN_SECRETS = {"store.encryption_keys": KEY, "exchange.oauth.password": "p"}
KEYS = "LoadCredential=store.encryption_keys:/x"


@pytest.fixture
def installed(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, str]]:
    """Install units that load what is named, and give how `check` found each."""
    home, units, given = tmp_path / "etc" / "lab-agent", tmp_path / "units", tmp_path / "given"
    for folder in (home, units, given, tmp_path / "bin"):
        folder.mkdir(parents=True)
    monkeypatch.setattr("lab_agent.systemd_units.SETTINGS_FOLDER", home)
    (tmp_path / "bin" / "systemctl").write_text(SYSTEMCTL.format(folder=units))
    (tmp_path / "bin" / "systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(given))
    plain = SETTINGS.replace(f'encryption_keys = ["{KEY}"]\n', "").replace('password = "hunter2"\n', "")
    (home / "lab-agent.toml").write_text(plain)
    for name, value in OWN_SECRETS.items():
        (given / name).write_text(value)

    def check(loads: dict[str, str]) -> dict[str, str]:
        for unit, lines in loads.items():
            text = (ROOT / "systemd" / unit).read_text().replace("/etc/lab-agent/", f"{home}/")
            kept = [line for line in text.splitlines() if not line.startswith("LoadCredential")]
            (units / unit).write_text("\n".join([*kept, "[Service]", lines]))
        done = cli("check", "--files", "--json", "--config", str(home / "lab-agent.toml"))
        return {each["name"]: each["status"] for each in json.loads(done.out)["checks"] if each["name"] in {API, BACKUP}}

    return check


def test_unit_is_tried_as_it_runs(installed: Callable[..., dict[str, str]]) -> None:
    """The worker's unit has the key and the password: what is wrong for it, too, ends the check before."""
    assert installed({API: KEYS}) == {API: "ok", BACKUP: "skipped"}, "one is not installed"
    for api, found in (
        (KEYS, "ok"),
        ("LoadCredential=exchange.oauth.password:/x", "WRONG"),
        ("", "WRONG"),
        (f"{KEYS}\nEnvironment=LAB_AGENT_API__PORT=-1", "WRONG"),
        (f"{KEYS}\nEnvironment=LAB_AGENT_NOTIFY__AT_MOST=0", "ok"),
        ("LoadCredential=of.its.own:/x", "skipped"),
    ):
        assert installed({API: api, BACKUP: KEYS}) == {API: found, BACKUP: "ok"}, api


def test_mends_name_the_command_of_the_installation(
    installed: Callable[..., dict[str, str]], cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In errors and in hints."""
    installed({API: KEYS, BACKUP: KEYS})
    (tmp_path / "bin" / "lab-agentctl").touch(0o755)
    monkeypatch.setenv("LAB_AGENT_CONFIG", str(tmp_path / "etc" / "lab-agent" / "lab-agent.toml"))
    hinted = cli("orders", "list")
    assert "`lab-agentctl db upgrade`" in hinted.err
    checked = cli("check", "--offline")
    assert "`lab-agentctl api-token create NAME`" in checked.out
    assert "`lab-agent " not in checked.out + hinted.err
