"""A separate systemd in namespaces, and a package to install there; `trial_boot.sh` isolates it from this machine."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.harness.paths import ROOT
from tools.version import build_version

SYSTEMD = Path("/lib/systemd/systemd")
NAMESPACES = ("--fork", "--kill-child", "--pid", "--mount", "--mount-proc", "--uts", "--ipc", "--cgroup")
BOOT_SCRIPT = Path(__file__).with_name("trial_boot.sh")
DEADLINE = 60.0
ROOTS_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
DOWNLOADS = "/var/lib/downloads"
"""Where the package lies on the machine."""


def wait_until(condition: Callable[[], bool], description: str, timeout: float = DEADLINE) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout:.0f} s: {description}"
        time.sleep(0.05)


@dataclass
class Machine:
    """A booted machine. `pid` is its first process, in our numbering."""

    folder: Path
    pid: int

    def run(self, *command: str, check: bool = True) -> str:
        """Runs a command on the machine; gives its output."""
        in_namespaces = ["nsenter", "-t", str(self.pid), "-m", "-p", "-u", "-i", "-C", *command]
        done = subprocess.run(in_namespaces, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode and check:
            log = self.run("journalctl", "--no-pager", "--output=short", "--lines=60", check=False)
            raise AssertionError(f"{' '.join(command)}: {done.stdout}{done.stderr}\n{log}")
        return done.stdout.strip()

    def show(self, unit: str, *names: str) -> dict[str, str]:
        lines = self.run("systemctl", "show", unit, *(f"--property={name}" for name in names)).splitlines()
        return dict(line.split("=", 1) for line in lines)

    def log(self, unit: str, *matches: str) -> str:
        """The lines of a unit in the journal, or those whose fields match."""
        return self.run("journalctl", "--no-pager", "--output=cat", f"--unit={unit}", *matches, check=False)

    def shell(self, script: str) -> str:
        """Runs a script as a person would at root's prompt, who keeps new files private."""
        environment = (f"PATH={ROOTS_PATH}", "DEBIAN_FRONTEND=noninteractive")
        return self.run("env", "-i", *environment, "sh", "-euc", f"exec 2>&1; umask 077; cd {DOWNLOADS}; {script}")

    def wait_until(self, condition: Callable[[], bool], description: str) -> None:
        wait_until(condition, description)


@pytest.fixture(scope="session")
def package() -> Path:
    """The package of this checkout; skips where there is no package index."""
    python = f"python3.{sys.version_info.minor}"
    if shutil.which("apt") is None or not Path("/usr/bin", python).exists():
        pytest.skip(f"no apt, or no {python} of the distribution")
    (ROOT / "build").mkdir(exist_ok=True)
    with (ROOT / "build" / ".deb.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several processes of pytest may want it
        if not list(ROOT.glob(f"build/lab-agent_{build_version()}_*.deb")):
            made = subprocess.run(["make", "deb"], cwd=ROOT, capture_output=True, text=True, timeout=900, check=False)
            if "No matching distribution" in made.stderr or "Could not fetch" in made.stderr:
                pytest.skip("no packages can be fetched here")
            assert made.returncode == 0, made.stderr
        (found,) = ROOT.glob("build/lab-agent_*.deb")
        return found


@pytest.fixture
def machine(tmp_path: Path, package: Path) -> Iterator[Machine]:
    """Boots the machine; skips without systemd, without the right to create namespaces, or if systemd runs this machine."""
    if os.geteuid() != 0 or not SYSTEMD.exists() or shutil.which("nsenter") is None:
        pytest.skip("no systemd, or not root")
    if shutil.which("dbus-daemon") is None:
        pytest.skip("no dbus-daemon, which systemd-run needs")
    if Path("/run/systemd/system").is_dir():
        pytest.skip("systemd runs this machine; a second one is not started")
    _prepare_files(tmp_path, package)
    group = _control_group()
    command = f"echo $$ > {group}/cgroup.procs; exec unshare {' '.join(NAMESPACES)} {BOOT_SCRIPT} {tmp_path}"
    with (tmp_path / "boot.log").open("wb") as log:
        boot = subprocess.Popen(["/bin/sh", "-c", command], stdout=log, stderr=subprocess.STDOUT)
    try:
        machine = Machine(tmp_path, _wait_for_boot(boot, tmp_path))
        machine.run("systemctl", "start", "systemd-journald.socket", "systemd-journald", "dbus.socket")
        yield machine
    finally:
        boot.kill()
        boot.wait()
        wait_until(lambda: _remove_group(group), "all processes of the machine have ended")


def _control_group() -> Path:
    """A separate control group, so that systemd leaves none behind among ours."""
    tree = Path("/sys/fs/cgroup/systemd")
    group = (tree if tree.is_dir() else tree.parent) / f"lab-trial-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as exc:
        pytest.skip(f"cannot create a control group: {exc}")
    return group


def _remove_group(group: Path) -> bool:
    """Removes the group and its subgroups; whether that succeeded."""
    try:
        for child in sorted((each for each in group.rglob("*") if each.is_dir()), reverse=True):
            child.rmdir()
        group.rmdir()
    except OSError:
        return False
    return True


def _wait_for_boot(boot: subprocess.Popen[bytes], folder: Path) -> int:
    """The pid of the machine's first process, once its systemd responds."""
    children = Path(f"/proc/{boot.pid}/task/{boot.pid}/children")

    def is_booted() -> bool:
        if boot.poll() is not None:
            pytest.skip(f"systemd does not boot: {(folder / 'boot.log').read_text()[-500:]}")
        first = children.read_text().split()
        return bool(first) and "basic.target" in Machine(folder, int(first[0])).run(
            "systemctl", "list-units", "--state=active", "basic.target", check=False
        )

    wait_until(is_booted, "booted")
    return int(children.read_text().split()[0])


def _prepare_files(folder: Path, package: Path) -> None:
    """Creates `etc`, `opt` and `lib` of the machine: it has the packages of this one, and a folder with ours."""
    shutil.copytree("/etc", folder / "etc", symlinks=True, ignore=shutil.ignore_patterns("system"))
    (folder / "etc" / "systemd" / "system").mkdir(parents=True)
    (folder / "etc" / "machine-id").write_text(f"{secrets.token_hex(16)}\n")
    shutil.copytree("/var/lib/dpkg", folder / "lib" / "dpkg", symlinks=True)
    with (folder / "lib" / "dpkg" / "info" / "base-files.list").open("a") as listed:
        listed.write("/opt\n")  # dpkg would remove the empty folder, which it cannot here
    for name in ("opt", "usr", "work", "lib/apt/lists/partial", "lib/downloads"):
        (folder / name).mkdir(parents=True)
    shutil.copy(package, folder / "lib" / "downloads")
