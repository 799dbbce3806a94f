"""The systemd units of this installation: which site it is, what is in its units, how they ended last, what a person types.

Texts say `lab-agent COMMAND`. Where its units are installed, a person types `lab-agentctl COMMAND`, which has their settings and
their secrets.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from itertools import pairwise
from pathlib import Path

from lab_agent.shared.errors import InputError

SETTINGS_FOLDER = Path("/etc/lab-agent")
"""The folder of the only site; that of the site `stage` is `/etc/lab-agent-stage`."""
SETTINGS_NAME = "lab-agent.toml"
WORKER, API, BACKUP = "lab-agent", "lab-api", "lab-agent-backup"
_CONTROL = "lab-agentctl"
_CONFIG_OPTION = re.compile(r"(--config|-c)(=|$)")
_CONFIG = re.compile(r"--config[ =](\S+)")
_QUOTED = re.compile(r"`((?:lab-agent|lab-api|systemctl|journalctl) [^`]*)`")
_STARTED = {f"{WORKER} run": f"systemctl start {WORKER}", f"{API} run": f"systemctl start {API}"}
"""What a person types to run what a unit runs."""
_UNIT = re.compile(rf"\b({BACKUP}|{WORKER}|{API})(?=[ .]|$)")
_PATIENCE = 10.0
"""Seconds within which systemd answers, or nothing is known of its units."""

Service = Mapping[str, Sequence[str]]
"""The settings of a unit's `[Service]`: the values of each, in their order."""


@dataclass(frozen=True, slots=True)
class UnitFailure:
    """How a unit failed, in systemd's words; `since` is None where it does not say."""

    unit: str
    result: str
    since: datetime | None


def site_of(config: Path | None) -> str | None:
    """The site whose units read these settings: empty for the one without a name, None for settings that no unit reads."""
    if config is None or config.name != SETTINGS_NAME:
        return None
    folder, site = config.absolute().parent, config.absolute().parent.name.removeprefix(f"{SETTINGS_FOLDER.name}-")
    if folder == SETTINGS_FOLDER:
        return ""
    return site if folder.parent == SETTINGS_FOLDER.parent and site != folder.name else None


def command_name() -> str:
    """What a person types on this machine for `lab-agent`, as far as this process can know."""
    site = _installed_site()
    if site is None:
        return WORKER
    return f"{_CONTROL} --site {site}" if site else _CONTROL


def _installed_site() -> str | None:
    """The site that this process is of, as `site_of`; None where nobody can type `lab-agentctl`."""
    given = (word.partition("=")[2] or following for word, following in pairwise([*sys.argv, ""]) if _CONFIG_OPTION.match(word))
    return _find_installed_site(next(given, "") or os.environ.get("LAB_AGENT_CONFIG", ""), os.environ.get("PATH", ""))


@cache
def _find_installed_site(config: str, path: str) -> str | None:
    return site_of(Path(config)) if config and shutil.which(_CONTROL, path=path) is not None else None


def typed(command: str) -> str:
    """A command as a person types it on this machine; one of another program stays as it is.

    What a unit runs is started by its unit, and units are those of the site.
    """
    site = _installed_site()
    if site is None:
        return command
    started = _STARTED.get(command, command)
    if started.startswith(("systemctl ", "journalctl ")):
        return _UNIT.sub(rf"\g<0>@{site}", started) if site else started
    return command_name() + command.removeprefix(WORKER) if command.startswith(f"{WORKER} ") else command


def with_typed_commands(text: str) -> str:
    """A text whose commands, which stand in backticks, are as a person types them on this machine."""
    return _QUOTED.sub(lambda found: f"`{typed(found[1])}`", text)


def unit_name(program: str, site: str | None) -> str:
    """The unit of a program of a site."""
    return f"{program}@{site}.service" if site else f"{program}.service"


def read_unit(unit: str) -> str:
    """The text of a unit with its drop-ins. Raises `InputError` where there is none."""
    try:
        return _ask_systemd("cat", "--no-pager", unit)
    except FileNotFoundError as exc:
        raise InputError("There is no systemd here; use `lab-agent` itself.") from exc
    except subprocess.SubprocessError as exc:
        raise InputError(f"systemd knows no unit {unit}: install the units first (docs/install.md).") from exc


def parse_unit(text: str, site: str) -> Service:
    """The settings of `[Service]`; an empty one takes those before it back."""
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


def settings_file(service: Service) -> Path | None:
    """The settings that a unit's program reads."""
    named = _CONFIG.search(" ".join(service.get("ExecStart", ())))
    return Path(named[1]) if named else None


def unit_variables(service: Service) -> Mapping[str, str]:
    """The variables that a unit sets itself."""
    pairs = (pair.partition("=") for line in service.get("Environment", ()) for pair in shlex.split(line))
    return {name: value for name, _, value in pairs}


def credential_names(service: Service) -> tuple[str, ...]:
    """The names of the credentials that a unit loads; of a folder, what its files' names begin with."""
    kinds = ("LoadCredential", "LoadCredentialEncrypted", "SetCredential", "SetCredentialEncrypted")
    return tuple(line.partition(":")[0] for kind in kinds for line in service.get(kind, ()))


def find_failure(unit: str) -> UnitFailure | None:
    """How the unit failed when it ran last; None if it did not, or systemd does not say. Raises `OSError`."""
    asked = ("ActiveState", "Result", "ExecMainStatus", "StateChangeTimestamp")
    try:
        said = _ask_systemd("show", "--timestamp=unix", *(f"--property={name}" for name in asked), unit)
    except subprocess.SubprocessError as exc:
        raise OSError(f"systemd does not say how {unit} is") from exc
    shown = dict(line.split("=", 1) for line in said.splitlines() if "=" in line)
    if shown.get("ActiveState") != "failed":
        return None
    status = shown.get("ExecMainStatus", "0")
    since = None
    with suppress(ValueError):
        since = datetime.fromtimestamp(int(shown.get("StateChangeTimestamp", "").lstrip("@")), UTC)
    return UnitFailure(unit, shown.get("Result", "failed") + ("" if status == "0" else f", status {status}"), since)


def _ask_systemd(*words: str) -> str:
    done = subprocess.run(  # noqa: S603 - each word is one argument
        ["systemctl", *words],  # noqa: S607 - as the PATH of the unit has it
        capture_output=True,
        text=True,
        check=True,
        timeout=_PATIENCE,
    )
    return done.stdout
