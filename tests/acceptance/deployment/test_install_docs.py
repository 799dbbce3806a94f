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

from tests.harness.clock import DEADLINE
from tests.harness.paths import ROOT
from tests.harness.programs import free_port
from tests.harness.proof import in_full

PAGE = ROOT / "docs" / "install.md"
INIT = " ".join(
    (
        "lab-agent init --systemd {site} --no-ask --base-url http://127.0.0.1:{service}/ --lab-codes-url http://codes.lab.example",
        "--second-labels-system http://codes.lab.example/second --laboratory 0b7e6f0e-5a0d-4c59-9a3e-6f1f7c9f4f10",
        "--grant client_credentials --auth-url http://127.0.0.1:{service} --client-id client --client-secret 'a secret'",
        "--contract C-100 --contract C-200",
    )
)
"""Step 2, by somebody who answers by options."""
CHANGES = """
[status]
port = {status}
[notify.webhook.chat]
template = "json"
"""
"""What a person adds to the settings: ports of its own for each site, and a channel that has its address as a secret."""
SERVICE = "[Service]\nWatchdogSec=3\nRestartSec=100ms\n"
DROP_INS = {
    "lab-agent.service": f"{SERVICE}Environment=LAB_AGENT_WORKER__POLL_INTERVAL=0.5 LAB_AGENT_WORKER__POLL_LONGEST=1\n",
    "lab-api.service": SERVICE,
    "lab-agent-backup.timer": "[Timer]\nOnActiveSec=1s\nRandomizedDelaySec=0\nAccuracySec=1s\n",
}
"""All that is changed of the units: a watchdog, a poll and a timer short enough for a test."""


def read_blocks(kind: str) -> dict[str, list[str]]:
    """The code blocks of a kind (the words after the fence), by the heading that they are under."""
    found: dict[str, list[str]] = {}
    for section in re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        heading, _, text = section.partition("\n")
        found[heading] = re.findall(rf"^```{kind}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    return found


def test_every_command_block_says_who_can_run_it() -> None:
    fences = re.findall(r"^```(.+)$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert set(fences) == {"sh", "sh network", "sh person", "toml"}


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
    """What a person does at step 2: answers, a few more settings, a secret."""
    machine.shell(INIT.format(site="" if site is None else f"--site {site}", service=ports["service"]))
    folder = machine.folder / "etc" / ("lab-agent" if site is None else f"lab-agent-{site}")
    settings = (folder / "lab-agent.toml").read_text()
    assert "a secret" not in settings
    (folder / "lab-agent.toml").write_text(
        settings.replace("[api]\n", f"[api]\nport = {ports['api']}\n") + CHANGES.format(**ports)
    )
    machine.shell(f"echo http://127.0.0.1:9/hook > /etc/{folder.name}/credentials/notify.webhook.chat.url")


def change_units(machine: Any) -> None:
    for unit, drop_in in DROP_INS.items():
        for name in (unit, unit.replace(".", "@.")):
            folder = machine.folder / "etc" / "systemd" / "system" / f"{name}.d"
            folder.mkdir()
            (folder / "trial.conf").write_text(drop_in)
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


@pytest.mark.timeout(1500)
@in_full
@pytest.mark.proof
def test_package_is_installed_watched_upgraded_and_removed(machine: Any) -> None:
    steps = read_blocks("sh")
    with broken_service() as service:
        ports = {"service": service.port, "api": free_port(), "status": free_port()}
        run_blocks(machine, steps["1. Install"])
        write_site(machine, None, **ports)
        change_units(machine)
        shown = run_blocks(machine, steps["3. Check"])
        assert "WRONG" not in shown
        assert "1 key" in shown, "the secrets were handed out"
        run_blocks(machine, steps["4. Start"])
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
        remove(machine, steps["Removing"])


@pytest.mark.timeout(1500)
@in_full
@pytest.mark.proof
def test_two_sites_side_by_side(machine: Any) -> None:
    steps = read_blocks("sh")
    with broken_service() as service:
        run_blocks(machine, steps["1. Install"])
        ports = {site: {"api": free_port(), "status": free_port()} for site in (None, "stage")}
        for site, own in ports.items():
            write_site(machine, site, service=service.port, **own)
        change_units(machine)
        run_blocks(machine, [*steps["3. Check"], *steps["4. Start"], *steps["Several sites"]])
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


def run_blocks(machine: Any, blocks: list[str]) -> str:
    assert blocks
    return "".join(machine.shell(block) for block in blocks)


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
    """To a later package: what ran is stopped, upgraded and started again, and what somebody has changed in /etc stays."""
    machine.shell("systemctl start lab-agent.target")
    machine.shell("echo TSH,3016-3,TSH, >> /etc/lab-agent/mappings/codes.csv")
    machine.shell(
        "dpkg-deb --raw-extract ./lab-agent_*.deb later; sed -i 's/^Version: .*/&.later/' later/DEBIAN/control"
        "; rm ./lab-agent_*.deb; dpkg-deb -Zgzip -z1 --build later lab-agent_later.deb; rm -r later"
    )
    before = {unit: main_pid(machine, unit) for unit in ("lab-agent", "lab-api")}
    shown = run_blocks(machine, blocks)
    assert "waits for that" not in shown
    for unit, pid in before.items():
        machine.wait_until(lambda unit=unit: is_active(machine, unit), f"{unit} is active")
        assert main_pid(machine, unit) != pid
    assert is_active(machine, "lab-agent-backup.timer")
    assert machine.shell("dpkg-query -f '${Version}' -W lab-agent").endswith(".later")
    assert "TSH" in machine.shell("cat /etc/lab-agent/mappings/codes.csv")
    files = machine.shell("ls /var/backups/lab-agent").split()
    newest = max(files)
    machine.shell("systemctl stop lab-agent lab-api")
    assert f"/var/backups/lab-agent/{newest}" in machine.shell(f"lab-agentctl restore --yes /var/backups/lab-agent/{newest}")
    machine.shell("systemctl start lab-agent lab-api")


def remove(machine: Any, blocks: list[str]) -> None:
    """Removing keeps settings and data; purging keeps the backups alone."""
    removing, purging = blocks
    kept = "ls -d /etc/lab-agent/lab-agent.toml /etc/lab-agent/mappings/codes.csv /var/lib/lab-agent/lab-agent.db 2>&1 || true"
    machine.shell(removing)
    assert "No such file" not in machine.shell(kept)
    assert machine.shell("systemctl list-unit-files --no-legend 'lab-*' || systemctl list-units --no-legend 'lab-*'") == ""
    assert machine.shell("ls /usr/bin /usr/sbin | grep lab-agent || true") == ""
    machine.shell(purging)
    assert machine.shell("ls -d /etc/lab-agent /var/lib/lab-agent /opt/lab-agent 2>&1 || true").count("No such file") == 3
    assert machine.shell("ls /var/backups/lab-agent")
