"""A systemd of its own in namespaces, with this program installed in /opt; see `trial_boot.sh` for what it cannot do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from lab_agent.crypto import new_key
from tests.harness.paths import CATALOGUE, ROOT

SYSTEMD = Path("/lib/systemd/systemd")
NAMESPACES = ("--fork", "--kill-child", "--pid", "--mount", "--mount-proc", "--uts", "--ipc", "--cgroup")
BOOT_SCRIPT = ROOT / "tests" / "deploy" / "trial_boot.sh"
UID = 61234
DEADLINE = 60.0


def wait_until(condition: Callable[[], bool], description: str, timeout: float = DEADLINE) -> None:
    """Look until it is so; fail with `what` at the deadline."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout:.0f} s: {description}"
        time.sleep(0.05)


@dataclass
class Machine:
    """A small machine that has booted."""

    folder: Path
    pid: int

    def run(self, *words: str, check: bool = True) -> str:
        """Run a command on it; gives what it prints."""
        inside = ["nsenter", "-t", str(self.pid), "-m", "-p", "-u", "-i", "-C", *words]
        done = subprocess.run(inside, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0 or not check, f"{' '.join(words)}: {done.stdout}{done.stderr}"
        return done.stdout.strip()

    def show(self, unit: str, *names: str) -> dict[str, str]:
        """Properties of a unit."""
        lines = self.run("systemctl", "show", unit, *(f"--property={name}" for name in names)).splitlines()
        return dict(line.split("=", 1) for line in lines)

    def log(self, unit: str) -> str:
        """What a unit has written to its log."""
        file = self.folder / "lib" / f"{unit}.log"
        return file.read_text() if file.exists() else ""


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """Boot; skipped where there is no systemd, no right to make namespaces, or a systemd that runs this very machine."""
    if os.geteuid() != 0 or not SYSTEMD.exists() or shutil.which("nsenter") is None:
        pytest.skip("no systemd here, or not root: the units are not started for real")
    if Path("/run/systemd/system").is_dir():
        pytest.skip("a systemd runs this machine: no second one is started beside it")
    _prepare_files(tmp_path)
    group = _control_group()
    boots = f"echo $$ > {group}/cgroup.procs; exec unshare {' '.join(NAMESPACES)} {BOOT_SCRIPT} {tmp_path}"
    with (tmp_path / "boot.log").open("wb") as log:
        boot = subprocess.Popen(["/bin/sh", "-c", boots], stdout=log, stderr=subprocess.STDOUT)
    try:
        yield Machine(tmp_path, _wait_for_boot(boot, tmp_path))
    finally:
        boot.kill()
        boot.wait()
        wait_until(lambda: _remove_group(group), "everything of the machine has ended")


def _control_group() -> Path:
    """A control group of its own, so that nothing that the manager makes is left behind among ours."""
    tree = Path("/sys/fs/cgroup/systemd")
    group = (tree if tree.is_dir() else tree.parent) / f"lab-trial-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as exc:
        pytest.skip(f"no control group can be made here: {exc}")
    return group


def _remove_group(group: Path) -> bool:
    """Remove the group with all below it; whether that was possible."""
    try:
        for below in sorted((each for each in group.rglob("*") if each.is_dir()), reverse=True):
            below.rmdir()
        group.rmdir()
    except OSError:
        return False
    return True


def _wait_for_boot(boot: subprocess.Popen[bytes], folder: Path) -> int:
    """The process number, out here, of the first process in there; once its manager answers."""
    children = Path(f"/proc/{boot.pid}/task/{boot.pid}/children")

    def answers() -> bool:
        if boot.poll() is not None:
            pytest.skip(f"systemd cannot be booted here: {(folder / 'boot.log').read_text()[-500:]}")
        first = children.read_text().split()
        return bool(first) and "basic.target" in Machine(folder, int(first[0])).run(
            "systemctl", "list-units", "--state=active", "basic.target", check=False
        )

    wait_until(answers, "booted")
    return int(children.read_text().split()[0])


def _prepare_files(folder: Path) -> None:
    """`etc`, `opt` and `lib` of the machine, and `shown`: what of this one it may see, and where."""
    shutil.copytree("/etc", folder / "etc", symlinks=True, ignore=shutil.ignore_patterns("system"))
    units = folder / "etc" / "systemd" / "system"
    units.mkdir(parents=True)
    for name in ("lab-agent", "lab-api"):
        shutil.copy(ROOT / "systemd" / f"{name}.service", units)
        _drop_in(units / f"{name}.service.d", name)
    with (folder / "etc" / "passwd").open("a") as users, (folder / "etc" / "group").open("a") as groups:
        users.write(f"lab-agent:x:{UID}:{UID}:Lab agent:/var/lib/lab-agent:/usr/sbin/nologin\n")
        groups.write(f"lab-agent:x:{UID}:\n")
    _install(folder)
    _configure(folder / "etc" / "lab-agent")
    (folder / "lib" / "lab-agent").mkdir(parents=True)
    os.chown(folder / "lib" / "lab-agent", UID, UID)


def _drop_in(place: Path, name: str) -> None:
    """The only differences to the units as they are: where the log goes, a watchdog that a test can wait for, and our Python."""
    place.mkdir()
    text = f"""[Service]
WatchdogSec=3
RestartSec=100ms
StandardOutput=null
StandardError=append:/var/lib/{name}.log
Environment=LD_LIBRARY_PATH=/opt/python/lib
"""
    (place / "trial.conf").write_text(text)


def _install(folder: Path) -> None:
    """A virtual environment in /opt/lab-agent that uses the packages of ours, wherever they lie."""
    home = folder / "opt" / "lab-agent"
    packages = home / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    packages.mkdir(parents=True)
    (home / "bin").mkdir()
    (home / "pyvenv.cfg").write_text("home = /opt/python/bin\n")
    python = Path(os.path.realpath(sys.executable)).relative_to(sys.base_prefix)
    (home / "bin" / "python").symlink_to(Path("/opt/python") / python)
    (packages / "shown.pth").write_text('/opt/source\nimport site; site.addsitedir("/opt/site")\n')
    for name, module in (("lab-agent", "lab_agent"), ("lab-api", "lab_api")):
        program = home / "bin" / name
        program.write_text(f"#!/opt/lab-agent/bin/python\nfrom {module}.cli import main\n\nmain()\n")
        program.chmod(0o755)
    shown = {sys.base_prefix: "python", sysconfig.get_path("purelib"): "site", str(ROOT): "source"}
    for name in shown.values():
        (folder / "opt" / name).mkdir()
    (folder / "shown").write_text("".join(f"{path} /opt/{name}\n" for path, name in shown.items()))


def _configure(place: Path) -> None:
    (place / "credentials").mkdir(parents=True)
    for name, value in {"store.encryption_keys": new_key(), "exchange.oauth.client_secret": "a secret"}.items():
        secret = place / "credentials" / name
        secret.write_text(f"{value}\n")
        secret.chmod(0o640)
        os.chown(secret, 0, UID)
    shutil.copytree(CATALOGUE, place / "catalogue")
