"""What the agent learns of its other units from a real systemd, out of its own sandbox."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.acceptance.deployment.test_install_docs import write_site
from tests.harness.paths import ROOT
from tests.harness.programs import free_port
from tests.harness.proof import in_full

LOOK = "from lab_agent.shared.systemd_units import find_failure; print('FOUND', find_failure('lab-agent-backup.service'))"


def prepare(machine: Any) -> None:
    """Install the package, with settings, secrets, and a unit that looks out of the agent's sandbox."""
    machine.shell("apt install -y ./lab-agent_*.deb")
    write_site(machine, None, service=9, api=free_port(), status=free_port())
    units = machine.folder / "etc" / "systemd" / "system"
    own = (ROOT / "systemd" / "lab-agent.service").read_text().replace("Type=notify", "Type=oneshot").splitlines()
    dropped = ("ExecStart", "ExecReload", "Restart", "Watchdog", "StartLimit")
    kept = [line for line in own if not line.startswith(dropped)]
    program = f'[Service]\nExecStart=/opt/lab-agent/bin/python -c "{LOOK}"'
    (units / "look.service").write_text("\n".join(kept).replace("[Service]", program))
    machine.run("systemctl", "daemon-reload")


def look(machine: Any) -> str:
    machine.run("systemctl", "start", "look.service")
    return str(machine.log("look").rpartition("FOUND ")[2])


@pytest.mark.timeout(600)
@in_full
@pytest.mark.proof
def test_failed_backup_is_seen_from_the_sandbox(machine: Any) -> None:
    """The backup fails for want of its database, and then succeeds."""
    prepare(machine)
    machine.shell("systemctl start lab-agent-backup || true")
    assert "result='exit-code, status" in look(machine)
    assert "since=datetime" in look(machine)
    machine.shell("SUDO_USER=anna lab-agentctl db upgrade; systemctl start lab-agent-backup")
    assert look(machine).startswith("None")
    machine.shell("yes 'a good password' | SUDO_USER=anna lab-agentctl user add bob")
    recorded = json.loads(machine.shell("lab-agentctl audit list --action user_added --json"))
    assert [(each["actor"], each["origin"].partition("@")[0]) for each in recorded] == [("anna", "anna/lab-agent")]
    checked = machine.shell("lab-agentctl check --files || true")
    assert checked.count("the settings are valid with what the unit gets") == 2
