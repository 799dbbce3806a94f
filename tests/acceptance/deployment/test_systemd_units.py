"""The units: valid, hardened, and started for real where a systemd can be booted."""

from __future__ import annotations

import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from lab_agent.web_server import MAX_CONNECTIONS
from tests.harness.paths import ROOT

UNITS = ROOT / "systemd"
NAMES = ("lab-agent", "lab-api")
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
"""


def analyze(*words: str) -> subprocess.CompletedProcess[str]:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze here: the units are not checked by it")
    return subprocess.run(["systemd-analyze", *words], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", NAMES)
def test_unit_is_valid(name: str, tmp_path: Path):
    """Verified with an existing program, as this machine need not have ours in /opt."""
    text = (UNITS / f"{name}.service").read_text()
    unit = tmp_path / f"{name}.service"
    unit.write_text(re.sub(r"ExecStart=\S+", f"ExecStart={sys.executable}", text))
    done = analyze("verify", str(unit))
    complaints = [line for line in done.stderr.splitlines() if f"{name}.service" in line]
    assert done.returncode == 0
    assert complaints == []


@pytest.mark.parametrize("name", NAMES)
def test_unit_exposure_is_low(name: str):
    done = analyze("security", "--offline=true", "--threshold=20", "--no-pager", str(UNITS / f"{name}.service"))
    assert done.returncode == 0, done.stdout[-400:]
    assert re.search(rf"exposure level for {name}.service: 1\.\d OK", done.stdout)


@pytest.mark.parametrize("name", NAMES)
def test_unit_stop_timeout_exceeds_shutdown_time(name: str):
    from lab_agent.settings.api import ApiSettings  # noqa: PLC0415
    from lab_agent.settings.groups import WorkerSettings  # noqa: PLC0415

    text = (UNITS / f"{name}.service").read_text()
    waits = int(re.search(r"^TimeoutStopSec=(\d+)$", text, flags=re.MULTILINE)[1])  # type: ignore[index]
    drain = WorkerSettings().drain_timeout + 10 if name == "lab-agent" else ApiSettings().drain
    assert waits > drain


@pytest.mark.parametrize("name", NAMES)
def test_unit_file_limit_covers_connection_limits(name: str):
    """A unit grants the file descriptors that the connection limits assume."""
    text = (UNITS / f"{name}.service").read_text()
    assert int(re.search(r"^LimitNOFILE=(\d+)$", text, flags=re.MULTILINE)[1]) >= 4 * MAX_CONNECTIONS  # type: ignore[index]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


def get(address: str) -> int:
    with urllib.request.urlopen(address, timeout=10) as answer:
        return int(answer.status)


def running(machine: Any, unit: str) -> int:
    """The main process, in the machine's own numbers, of a unit that is up."""
    seen = machine.show(unit, "ActiveState", "SubState", "MainPID")
    assert seen["ActiveState"] == "active"
    assert seen["SubState"] == "running"
    return int(seen["MainPID"])


def until(look: Any, what: str, within: float = 60.0) -> None:
    deadline = time.monotonic() + within
    while not look():
        assert time.monotonic() < deadline, f"not within {within:.0f} s: {what}"
        time.sleep(0.05)


@pytest.mark.proof
def test_units_work_under_real_systemd(machine: Any):
    """Under a real systemd: ready while the service is away, reload, watchdog restart, timely stop, unprivileged."""
    ports = {"lab-agent": free_port(), "lab-api": free_port()}
    settings = machine.folder / "etc" / "lab-agent" / "lab-agent.toml"
    settings.write_text(SETTINGS.format(api=ports["lab-api"], status=ports["lab-agent"]))
    environment = ("CREDENTIALS_DIRECTORY=/etc/lab-agent/credentials", "LD_LIBRARY_PATH=/opt/python/lib")
    as_agent = ("runuser", "-u", "lab-agent", "--", "env", *environment)
    machine.run(*as_agent, "mkdir", "/var/lib/lab-agent/orders", "/var/lib/lab-agent/results")
    machine.run(*as_agent, "/opt/lab-agent/bin/lab-agent", "db", "upgrade", "--config", "/etc/lab-agent/lab-agent.toml")
    up = {"lab-agent": "outage_started", "lab-api": "API listens"}
    for unit, port in ports.items():
        machine.run("systemctl", "start", unit)
        pid = running(machine, unit)
        until(lambda unit=unit: up[unit] in machine.log(unit), f"{up[unit]} in the log of {unit}")
        assert get(f"http://127.0.0.1:{port}/readyz") == 200
        status = machine.run("cat", f"/proc/{pid}/status")
        for line in ("CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2", "Uid:\t61234"):
            assert line in status

        machine.run("systemctl", "reload", unit)
        until(lambda unit=unit: re.search("settings reloaded|catalogue read", machine.log(unit)), "reloaded")
        assert running(machine, unit) == pid

        machine.run("kill", f"-{signal.SIGSTOP.value}", str(pid))
        until(lambda unit=unit: machine.show(unit, "NRestarts")["NRestarts"] == "1", "restarted by the watchdog")
        until(lambda unit=unit: machine.show(unit, "ActiveState")["ActiveState"] == "active", "up again")
        assert running(machine, unit) != pid

        machine.run("systemctl", "stop", unit)
        seen = machine.show(unit, "ActiveState", "Result", "ExecMainStatus")
        assert seen == {"ActiveState": "inactive", "Result": "success", "ExecMainStatus": "0"}
