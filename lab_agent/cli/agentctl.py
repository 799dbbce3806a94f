"""`lab-agentctl`: a `lab-agent` command as its systemd unit runs it: same user, settings, credentials and folders.

It reads them from the unit, with whatever a drop-in changes, and gives them to `systemd-run`. So secrets stay files of root that
systemd alone hands out, and nothing that a command writes belongs to root.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from lab_agent.errors import InputError, LabAgentError

SETTINGS_FOLDER = Path("/etc/lab-agent")
"""The folder of the only site; that of the site `stage` is `/etc/lab-agent-stage`."""
SETTINGS_NAME = "lab-agent.toml"
_PASSED_ON = frozenset({
    "User", "Group", "SupplementaryGroups", "WorkingDirectory", "UMask", "StateDirectory", "StateDirectoryMode", "LoadCredential",
    "LoadCredentialEncrypted", "SetCredential", "SetCredentialEncrypted", "Environment", "EnvironmentFile",
})  # fmt: skip
"""Settings of the unit that the command gets."""
_CONFIG = re.compile(r"--config[ =](\S+)")


def main() -> None:
    """Run the command; the exit code is the command's. Without an argument the help of `lab-agent` is shown."""
    parser = argparse.ArgumentParser(
        prog="lab-agentctl",
        description="Run a lab-agent command as its systemd unit runs it: its user, settings and credentials.",
    )
    parser.add_argument("--site", "-s", help="The site, where there are several: the name after the @ of its units.")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND", help="What to run, as after `lab-agent`.")
    given = parser.parse_args()
    try:
        site = given.site or find_site(SETTINGS_FOLDER)
        unit = unit_name(site)
        settings = parse_unit(read_unit(unit), site or "")
        command = build_command(unit, settings, given.command or ["--help"], os.environ, is_terminal=_is_terminal())
    except LabAgentError as exc:
        print(exc, file=sys.stderr)  # noqa: T201 - a program of its own, before anything else is loaded
        raise SystemExit(1) from exc
    os.execvp(command[0], command)  # noqa: S606 - this process is the command from here on


def unit_name(site: str | None) -> str:
    """The worker's unit."""
    return "lab-agent.service" if site is None else f"lab-agent@{site}.service"


def find_site(folder: Path) -> str | None:
    """The only site that has settings; None for the one without a name. Raises `InputError` where there is none, or a choice."""
    if (folder / SETTINGS_NAME).exists():
        return None
    named = folder.parent.glob(f"{folder.name}-*/{SETTINGS_NAME}")
    sites = sorted(each.parent.name.removeprefix(f"{folder.name}-") for each in named)
    if len(sites) == 1:
        return sites[0]
    if not sites:
        raise InputError(f"There are no settings: neither {folder / SETTINGS_NAME} nor {folder}-<site>/{SETTINGS_NAME}.")
    raise InputError(f"There are several sites: name one with --site ({', '.join(sites)}).")


def read_unit(unit: str) -> str:
    """The text of a unit with its drop-ins. Raises `InputError` where there is none."""
    try:
        asked = ["systemctl", "cat", "--no-pager", unit]
        done = subprocess.run(asked, capture_output=True, text=True, check=True)  # noqa: S603 - the unit's name is one argument
    except FileNotFoundError as exc:
        raise InputError("There is no systemd here; use `lab-agent` itself.") from exc
    except subprocess.CalledProcessError as exc:
        raise InputError(f"systemd knows no unit {unit}: install the units first (docs/install.md).") from exc
    return done.stdout


def parse_unit(text: str, site: str) -> Mapping[str, Sequence[str]]:
    """The values of each setting of `[Service]`, in their order; an empty one takes those before it back."""
    found: dict[str, list[str]] = {}
    section = ""
    for line in text.replace("\\\n", " ").splitlines():
        if line.startswith("["):
            section = line.strip()
        name, equals, value = line.partition("=")
        if section != "[Service]" or not equals or line.startswith(("#", ";")):
            continue
        if value.strip():
            found.setdefault(name.strip(), []).append(value.strip().replace("%i", site))
        else:
            found.pop(name.strip(), None)
    return found


def build_command(
    unit: str, service: Mapping[str, Sequence[str]], words: Sequence[str], environment: Mapping[str, str], *, is_terminal: bool
) -> list[str]:
    """The `systemd-run` that runs `lab-agent WORDS` as the unit. Raises `InputError` for a unit that names no settings."""
    settings = _CONFIG.search(" ".join(service.get("ExecStart", ())))
    if settings is None:
        raise InputError(f"The unit {unit} names no settings: its ExecStart has no --config.")
    person = environment.get("SUDO_USER") or environment.get("LOGNAME") or "root"
    variables = {"LAB_AGENT_CONFIG": settings[1], "LOGNAME": person, "TERM": environment.get("TERM", "dumb")}
    run = ["systemd-run", "--quiet", "--wait", "--collect", "--pty" if is_terminal else "--pipe", "--service-type=exec"]
    run += [f"--property={name}={value}" for name, values in service.items() if name in _PASSED_ON for value in values]
    run += [f"--setenv={name}={value}" for name, value in variables.items()]
    return [*run, "--", str(Path(sys.executable).with_name("lab-agent")), *words]


def _is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()
