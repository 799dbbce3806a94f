"""The systemd units are valid and hardened, and work where a systemd can be booted."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from lab_agent.web_server import MAX_CONNECTIONS
from tests.harness.clock import DEADLINE
from tests.harness.paths import ROOT
from tests.harness.programs import free_port

UNITS = ROOT / "systemd"
NAMES = ("lab-agent", "lab-api")
ALL_NAMES = (*NAMES, "lab-agent-backup")
SETTINGS = """
[exchange]
base_url = "http://127.0.0.1:9/"
lab_codes_url = "http://codes.lab.example"
laboratory = "our-guid"
[exchange.oauth]
grant = "client_credentials"
auth_url = "http://127.0.0.1:9"
client_id = "client"
[exchange.contracts.C-100]
[store]
url = "sqlite:////var/lib/lab-agent/lab-agent.db"
[worker]
poll_interval = 0.5
poll_longest = 1
[lis.folder]
orders = "/var/lib/lab-agent/orders"
results = "/var/lib/lab-agent/results"
[api]
catalogue = "/etc/lab-agent/catalogue"
port = {api}
[status]
port = {status}
[backup]
folder = "/var/lib/lab-agent/backups"
"""


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze")
    return subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", ALL_NAMES)
def test_unit_is_valid(name: str, tmp_path: Path):
    """Verified with another program, as ours need not be installed in /opt."""
    text = (UNITS / f"{name}.service").read_text()
    unit = tmp_path / f"{name}.service"
    unit.write_text(re.sub(r"ExecStart=\S+", f"ExecStart={sys.executable}", text))
    done = analyze("verify", str(unit))
    warnings = [line for line in done.stderr.splitlines() if f"{name}.service" in line]
    assert warnings == []
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ALL_NAMES)
def test_unit_exposure_is_low(name: str):
    done = analyze("security", "--offline=true", "--threshold=20", "--no-pager", str(UNITS / f"{name}.service"))
    assert done.returncode == 0, done.stdout[-400:]
    assert re.search(rf"exposure level for {name}.service: 1\.\d OK", done.stdout)


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


def get_status(address: str) -> int:
    with urllib.request.urlopen(address, timeout=DEADLINE) as response:
        return int(response.status)


def main_pid(machine: Any, unit: str) -> int:
    """The main process of a running unit, in the machine's numbering."""
    state = machine.show(unit, "ActiveState", "SubState", "MainPID")
    assert state["ActiveState"] == "active"
    assert state["SubState"] == "running"
    return int(state["MainPID"])


@pytest.mark.proof
def test_units_work_under_real_systemd(machine: Any):
    """Ready while the service is unavailable, reload, restart by the watchdog, stop in time, unprivileged."""
    ports = {"lab-agent": free_port(), "lab-api": free_port()}
    settings = machine.folder / "etc" / "lab-agent" / "lab-agent.toml"
    settings.write_text(SETTINGS.format(api=ports["lab-api"], status=ports["lab-agent"]))
    environment = ("CREDENTIALS_DIRECTORY=/etc/lab-agent/credentials", "LD_LIBRARY_PATH=/opt/python/lib")
    as_agent = ("runuser", "-u", "lab-agent", "--", "env", *environment)
    machine.run(*as_agent, "mkdir", "/var/lib/lab-agent/orders", "/var/lib/lab-agent/results")
    machine.run(*as_agent, "/opt/lab-agent/bin/lab-agent", "db", "upgrade", "--config", "/etc/lab-agent/lab-agent.toml")
    started = {"lab-agent": "action=outage_started", "lab-api": "action=api.started"}
    for unit, port in ports.items():
        machine.run("systemctl", "start", unit)
        pid = main_pid(machine, unit)
        machine.wait_until(lambda unit=unit: started[unit] in machine.log(unit), f"{started[unit]} in the log of {unit}")
        assert get_status(f"http://127.0.0.1:{port}/readyz") == 200
        status = machine.run("cat", f"/proc/{pid}/status")
        for line in ("CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2", "Uid:\t61234"):
            assert line in status

        machine.run("systemctl", "reload", unit)
        machine.wait_until(lambda unit=unit: re.search("action=(api.)?reloaded", machine.log(unit)), "reloaded")
        # Ready again is said before or after that line.
        machine.wait_until(
            lambda unit=unit: machine.show(unit, "ActiveState")["ActiveState"] == "active", "active after the reload"
        )
        assert main_pid(machine, unit) == pid

        machine.run("kill", f"-{signal.SIGSTOP.value}", str(pid))
        machine.wait_until(lambda unit=unit: machine.show(unit, "NRestarts")["NRestarts"] == "1", "restarted by the watchdog")
        machine.wait_until(lambda unit=unit: machine.show(unit, "ActiveState")["ActiveState"] == "active", "running again")
        assert main_pid(machine, unit) != pid

        machine.run("systemctl", "start", "lab-agent-backup")  # while the other runs
        machine.run("systemctl", "stop", unit)
        state = machine.show(unit, "ActiveState", "Result", "ExecMainStatus")
        assert state == {"ActiveState": "inactive", "Result": "success", "ExecMainStatus": "0"}
    made = list((machine.folder / "lib" / "lab-agent" / "backups").iterdir())
    assert len(made) == len(ports)
    assert {each.stat().st_uid for each in made} == {61234}
