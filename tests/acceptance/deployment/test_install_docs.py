"""docs/install.md, word for word, on a clean machine with a real systemd: its blocks are what is run here."""

from __future__ import annotations

import re
import signal
import socket
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

import pytest

from lab_agent.crypto import new_key
from tests.harness.clock import DEADLINE
from tests.harness.paths import ROOT
from tests.harness.programs import free_port
from tests.harness.proof import in_full

PAGE = ROOT / "docs" / "install.md"
SETTINGS = """
[exchange]
base_url = "http://127.0.0.1:{service}/"
lab_codes_url = "http://codes.lab.example"
second_labels_system = "http://codes.lab.example/second"
laboratory = "our-guid"
[exchange.oauth]
grant = "client_credentials"
auth_url = "http://127.0.0.1:{service}"
client_id = "client"
[exchange.contracts.C-100]
[exchange.contracts.C-200]
[store]
url = "sqlite:////var/lib/{name}/lab-agent.db"
[worker]
poll_interval = 0.5
poll_longest = 1
[lis.folder]
orders = "/var/lib/{name}/lis/orders"
results = "/var/lib/{name}/lis/results"
[api]
catalogue = "/etc/{name}/catalogue"
port = {api}
[status]
port = {status}
[backup]
folder = "/var/backups/{name}"
"""
DROP_INS = {
    "service": "[Service]\nWatchdogSec=3\nRestartSec=100ms\nEnvironment=LD_LIBRARY_PATH=/opt/python/lib\n",
    "timer": "[Timer]\nOnActiveSec=1s\nRandomizedDelaySec=0\nAccuracySec=1s\n",
}
"""All that is changed of the units: a watchdog and a timer short enough for a test, and where our Python has its library."""


def read_blocks(kind: str) -> dict[str, list[str]]:
    """The code blocks of a kind (the words after the fence), by the heading that they are under."""
    found: dict[str, list[str]] = {}
    for section in re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        heading, _, text = section.partition("\n")
        found[heading] = re.findall(rf"^```{kind}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    return found


def test_every_command_block_says_who_can_run_it() -> None:
    fences = re.findall(r"^```(.+)$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert set(fences) == {"sh", "sh network", "sh person", "ini", "toml"}


class Service:
    """An exchange service out of order: it answers every call with a fault, and `hold` makes calls wait for that."""

    def __init__(self, sock: socket.socket) -> None:
        self.port = int(sock.getsockname()[1])
        self.waiting = threading.Event()
        self._go_on = threading.Event()
        self._go_on.set()
        self._sock = sock
        threading.Thread(target=self._serve, daemon=True).start()

    def hold(self) -> None:
        self.waiting.clear()
        self._go_on.clear()

    def go_on(self) -> None:
        self._go_on.set()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._sock.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with closing(connection), suppress(OSError):
            connection.recv(1 << 16)
            self.waiting.set()
            self._go_on.wait(DEADLINE)
            connection.sendall(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")


@contextmanager
def broken_service() -> Iterator[Service]:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        yield Service(sock)


def write_site(machine: Any, site: str | None, **ports: int) -> None:
    """What a person does at steps 4 and 5: the settings and the secrets."""
    name = "lab-agent" if site is None else f"lab-agent-{site}"
    folder = machine.folder / "etc" / name
    settings = folder / "lab-agent.toml"
    assert "<angle brackets>" in settings.read_text()
    settings.write_text(SETTINGS.format(name=name, **ports))
    for key, value in {"store.encryption_keys": new_key(), "exchange.oauth.client_secret": "a secret"}.items():
        if not (secret := folder / "credentials" / key).exists():
            secret.write_text(f"{value}\n")
            secret.chmod(0o600)


def change_units(machine: Any) -> None:
    for unit in ("lab-agent.service", "lab-api.service", "lab-agent-backup.service", "lab-agent-backup.timer"):
        for name in (unit, unit.replace(".", "@.")):
            folder = machine.folder / "etc" / "systemd" / "system" / f"{name}.d"
            folder.mkdir()
            (folder / "trial.conf").write_text(DROP_INS[unit.rpartition(".")[2]])
    machine.run("systemctl", "daemon-reload")


def ask(port: int) -> int:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=DEADLINE) as response:
        return int(response.status)


def main_pid(machine: Any, unit: str) -> int:
    """The main process of a running unit, in the machine's numbering."""
    state = machine.show(unit, "ActiveState", "SubState", "MainPID")
    assert (state["ActiveState"], state["SubState"]) == ("active", "running")
    return int(state["MainPID"])


def state_of(machine: Any, unit: str) -> str:
    return str(machine.show(unit, "ActiveState")["ActiveState"])


def is_active(machine: Any, unit: str) -> bool:
    return state_of(machine, unit) == "active"


@pytest.mark.timeout(600)
@in_full
@pytest.mark.proof
def test_site_is_installed_watched_and_removed(machine: Any) -> None:
    steps = read_blocks("sh")
    with broken_service() as service:
        ports = {"service": service.port, "api": free_port(), "status": free_port()}
        machine.run("ln", "-s", "/opt/lab-agent/bin/lab-agentctl", "/usr/local/sbin/lab-agentctl")  # the end of step 2
        for step in ("3. User and folders", "4. Settings"):
            for block in steps[step]:
                machine.shell(block)
        write_site(machine, None, **ports)
        install_units, first_commands = steps["5. Units"]
        machine.shell(install_units)
        change_units(machine)
        shown = machine.shell(first_commands)
        assert "WRONG" not in shown
        assert "1 key" in shown, "the secrets were handed out"
        for block in steps["6. Start"]:
            machine.shell(block)
        started = {"lab-agent": "LAB_ACTION=worker_started", "lab-api": "LAB_ACTION=api.started"}
        for unit, action in started.items():
            machine.wait_until(lambda unit=unit: is_active(machine, unit), f"{unit} is active")
            machine.wait_until(lambda unit=unit, action=action: machine.log(unit, action), f"{action} in the journal")
            look_at_process(machine, unit)
            assert ask(ports["status" if unit == "lab-agent" else "api"]) == 200
            reload(machine, unit)
            restart_by_watchdog(machine, unit)
        assert "ok        encryption key" in machine.log("lab-agent"), "ExecStartPre has said what it found"
        machine.wait_until(lambda: machine.shell("ls /var/backups/lab-agent"), "a backup by the timer")
        assert machine.shell("stat -c %U /var/backups/lab-agent/*").split()[0] == "lab-agent"
        stop_in_a_call(machine, service)

        upgrade(machine, steps["Upgrading"])
        for block in steps["Uninstalling"]:
            machine.shell(block)
        assert machine.shell("ls -d /etc/lab-agent /var/lib/lab-agent /opt/lab-agent 2>&1 || true").count("No such file") == 3
        assert "lab-agent" not in machine.shell("cat /etc/passwd; systemctl list-unit-files 'lab-*' || true")


@pytest.mark.timeout(600)
@in_full
@pytest.mark.proof
def test_two_sites_side_by_side(machine: Any) -> None:
    steps = read_blocks("sh")
    with broken_service() as service:
        machine.run("ln", "-s", "/opt/lab-agent/bin/lab-agentctl", "/usr/local/sbin/lab-agentctl")
        for block in (*steps["3. User and folders"], *steps["4. Settings"], *steps["Stage and production side by side"]):
            machine.shell(block)
        machine.shell(steps["5. Units"][0])
        change_units(machine)
        ports = {site: {"api": free_port(), "status": free_port()} for site in (None, "stage")}
        for site, own in ports.items():
            write_site(machine, site, service=service.port, **own)
        machine.shell("lab-agentctl db upgrade; lab-agentctl --site stage db upgrade")
        machine.shell("systemctl start lab-agent.target lab-agent@stage.target")
        units = {None: ("lab-agent", "lab-api"), "stage": ("lab-agent@stage", "lab-api@stage")}
        for site, (agent, api) in units.items():
            for unit in (agent, api):
                machine.wait_until(lambda unit=unit: is_active(machine, unit), f"{unit} is active")
            assert [ask(ports[site][each]) for each in ("status", "api")] == [200, 200]
            user = "lab-agent" if site is None else "lab-agent-stage"
            assert machine.shell(f"stat -c %U /proc/{main_pid(machine, agent)}") == user
        other = "runuser -u lab-agent-stage -- cat /etc/lab-agent/lab-agent.toml /var/lib/lab-agent/lab-agent.db 2>&1 || true"
        assert machine.shell(other).count("Permission denied") == 2
        machine.shell("systemctl stop lab-agent@stage.target")
        machine.wait_until(lambda: not is_active(machine, "lab-api@stage"), "the stage has stopped")
        assert is_active(machine, "lab-agent")


def look_at_process(machine: Any, unit: str) -> None:
    """It has no rights, and cannot read the files of the secrets, only what systemd gave it."""
    pid = main_pid(machine, unit)
    status = machine.run("cat", f"/proc/{pid}/status")
    for line in ("CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"):
        assert line in status
    refused = machine.shell("runuser -u lab-agent -- cat /etc/lab-agent/credentials/store.encryption_keys 2>&1 || true")
    assert "Permission denied" in refused


def reload(machine: Any, unit: str) -> None:
    pid = main_pid(machine, unit)
    machine.run("systemctl", "reload", unit)
    found = "LAB_ACTION=reloaded" if unit == "lab-agent" else "LAB_ACTION=api.reloaded"
    machine.wait_until(lambda: machine.log(unit, found), "reloaded")
    machine.wait_until(lambda: is_active(machine, unit), "active after the reload")  # said before or after that line
    assert main_pid(machine, unit) == pid


def restart_by_watchdog(machine: Any, unit: str) -> None:
    pid = main_pid(machine, unit)
    machine.run("kill", f"-{signal.SIGSTOP.value}", str(pid))
    machine.wait_until(lambda: machine.show(unit, "NRestarts")["NRestarts"] == "1", "restarted by the watchdog")
    machine.wait_until(lambda: is_active(machine, unit), "running again")
    assert main_pid(machine, unit) != pid


def stop_in_a_call(machine: Any, service: Service) -> None:
    """The agent waits for an answer of the service; what runs is finished, and it ends as one that was told to."""
    service.hold()
    assert service.waiting.wait(DEADLINE), "the service is asked again"
    machine.run("systemctl", "stop", "--no-block", "lab-agent")
    machine.wait_until(lambda: state_of(machine, "lab-agent") == "deactivating", "it stops")
    service.go_on()
    machine.wait_until(lambda: state_of(machine, "lab-agent") != "deactivating", "it has stopped")
    state = machine.show("lab-agent", "ActiveState", "Result", "ExecMainStatus")
    assert state == {"ActiveState": "inactive", "Result": "success", "ExecMainStatus": "0"}
    assert machine.log("lab-agent", "LAB_ACTION=worker_stopped")


def upgrade(machine: Any, blocks: list[str]) -> None:
    stop, start = blocks
    machine.shell("systemctl start lab-agent")
    machine.shell(stop)
    assert not is_active(machine, "lab-agent")
    assert not is_active(machine, "lab-api")
    machine.shell(start)
    for unit in ("lab-agent", "lab-api"):
        machine.wait_until(lambda unit=unit: is_active(machine, unit), f"{unit} is active")
    files = machine.shell("ls /var/backups/lab-agent").split()
    newest = max(files)
    machine.shell("systemctl stop lab-agent lab-api")
    assert f"/var/backups/lab-agent/{newest}" in machine.shell(f"lab-agentctl restore --yes /var/backups/lab-agent/{newest}")
    machine.shell("systemctl start lab-agent lab-api")
